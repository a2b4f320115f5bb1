//! Calls of one function that are not the same call: another number with another tensor, or complex numbers on one side.

use trainmon_capture_files::{Leaf, Operator, Plain, Section, TensorFacts};

/// The relative difference of norms from which on tensors count as different.
const OTHER: f64 = 0.25;

/// Whether two calls of one function only share its name and their shapes: one uses complex numbers, or both a number argument
/// and the first tensor differ. In rewritten code, each is a call of its own.
pub(super) fn are_unlike(one: &Operator, other: &Operator) -> bool {
    let Some((tensor, twin)) = one.tensors(Section::Input).next().zip(other.tensors(Section::Input).next()) else {
        return false;
    };
    is_complex(tensor) != is_complex(twin) || (is_other(tensor, twin) && is_given_another_number(one, other))
}

fn is_complex(tensor: &TensorFacts) -> bool {
    matches!(&*tensor.dtype, Plain::Text(dtype) if dtype.contains("complex"))
}

/// Whether two norms differ clearly; unknown ones do not.
fn is_other(one: &TensorFacts, other: &TensorFacts) -> bool {
    let norm = |tensor: &TensorFacts| tensor.statistics[3].number().filter(|norm| norm.is_finite());
    norm(one).zip(norm(other)).is_some_and(|(a, b)| (a - b).abs() > OTHER * a.abs().max(b.abs()))
}

fn is_given_another_number(one: &Operator, other: &Operator) -> bool {
    let numbers = one.values.iter().filter(|value| value.section.is_input());
    let mut numbers = numbers.filter_map(|value| Some((&value.place, number(&value.leaf)?)));
    numbers.any(|(place, number_of_one)| {
        let twin = other.values.iter().find(|value| value.place == *place && value.section.is_input());
        twin.and_then(|twin| number(&twin.leaf)).is_some_and(|twin| twin != number_of_one)
    })
}

fn number(leaf: &Leaf) -> Option<f64> {
    if let Leaf::Plain { value, .. } = leaf { value.number() } else { None }
}
