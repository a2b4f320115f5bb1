//! Patterns of the first difference: causes that are recognizable in the values.

use trainmon_capture_files::{Operator, Plain, Section, TensorFacts};

use super::finding::{Finding, Kind};
use super::memory::numbers;
use crate::deviation::What;
use crate::evaluation::Sides;
use crate::item::Item;
use crate::name::{Direction, OperatorName};
use crate::text::factor;

/// The largest difference between ratios that count as one factor.
const SAME_FACTOR: f64 = 1e-4;
/// Losses whose second argument contains labels.
const LOSSES: [&str; 7] = [
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "mse_loss",
    "l1_loss",
    "kl_div",
];

/// The pattern of a finding; `None` if it is ambiguous.
pub(super) fn looks_like(sides: Sides<'_>, finding: &Finding) -> Option<String> {
    let suspect = finding.suspects.first()?;
    let of_target = call_of(&sides.target.document.operators, &suspect.name)?;
    let (operator, golden) = match (finding.target, finding.golden) {
        (Some(one), Some(other)) => {
            (sides.target.document.operators.get(one as usize)?, sides.golden.document.operators.get(other as usize)?)
        }
        // The effect of a one-sided call shows where another call uses it.
        _ => (of_target, sides.golden.document.operators.iter().find(|other| other.name == of_target.name)?),
    };
    let place = suspect.name.strip_prefix(&*operator.name)?;
    let name = OperatorName::parse(&operator.name)?;
    let value = operator.values.iter().find(|value| &*value.place == place)?;
    let twin = golden.values.iter().find(|value| &*value.place == place)?;
    let tensors = (Item { operator, value }.tensor()?, Item { operator: golden, value: twin }.tensor()?);
    let is_loss = LOSSES.contains(&name.function()) && name.direction == Direction::Forward;
    if is_loss && finding.kind == Kind::Operator && finding.has_no_digests && suspect.section == Section::Output {
        return Some(
            "predictions and labels agree in their statistics, but the loss differs: the rows of one are in another order (a permuted \
             batch, shifted labels)"
                .to_owned(),
        );
    }
    if suspect.section == Section::Input && is_mask(tensors.0, place) {
        return Some("the masks differ".to_owned());
    }
    let is_second = place == ".input.1" || place == ".input.target";
    if suspect.section == Section::Input && is_second && is_loss {
        return Some("the labels differ: a shift, another mask or rows in another order".to_owned());
    }
    (suspect.deviation.what == What::Numbers).then(|| of_numbers(tensors, finding)).flatten()
}

/// The call that a value belongs to.
fn call_of<'o>(operators: &'o [Operator], value: &str) -> Option<&'o Operator> {
    operators.iter().find(|operator| value.strip_prefix(&*operator.name).is_some_and(|place| place.starts_with('.')))
}

/// A bool input with neither a mean nor a checksum on both sides: another mask would not show.
pub(super) fn untold_mask(sides: Sides<'_>, finding: &Finding) -> Option<String> {
    let operator = sides.target.document.operators.get(finding.target? as usize)?;
    let inputs = operator.values.iter().filter(|value| value.section == Section::Input);
    let mut tensors = inputs.map(|value| Item { operator, value });
    let is_untold = |item: &Item<'_>| {
        item.tensor().is_some_and(|tensor| {
            let is_bool = matches!(&*tensor.dtype, Plain::Text(dtype) if dtype.ends_with("bool"));
            is_bool && tensor.statistics[2].number().is_none() && tensor.digest.is_none() && tensor.data_name.is_none()
        })
    };
    (finding.kind == Kind::Operator).then(|| tensors.find(is_untold)).flatten().map(|item| item.name())
}

fn of_numbers((one, other): (&TensorFacts, &TensorFacts), finding: &Finding) -> Option<String> {
    let (a, b) = (numbers(one)?, numbers(other)?);
    if finding.parameter.is_some() && finding.kind != Kind::Operator && (a[3] == 0.0) != (b[3] == 0.0) {
        let (zero, full) = if a[3] == 0.0 { ("target", "baseline") } else { ("baseline", "target") };
        return Some(format!(
            "all zeros in the {zero}, but not in the {full}: an optimizer state that was not loaded or has just begun"
        ));
    }
    let ratios = a.iter().zip(&b).filter(|(a, b)| **a != 0.0 && **b != 0.0).map(|(a, b)| a / b);
    let ratios: Vec<f64> = ratios.collect();
    let first = ratios.first().copied()?;
    let is_one = ratios.len() >= 3 && ratios.iter().all(|ratio| (ratio / first - 1.0).abs() < SAME_FACTOR);
    let inverse = 1.0 / first;
    let is_whole = |ratio: f64| ratio >= 2.0 && (ratio.round() / ratio - 1.0).abs() < SAME_FACTOR / 100.0;
    // Two numbers always have a common factor.
    let is_telling = one.elements().is_some_and(|count| count > 1) || is_whole(first) || is_whole(inverse);
    (is_one && (first - 1.0).abs() > SAME_FACTOR && is_telling).then(|| {
        let times = if first.abs() < 1.0 && (inverse.round() / inverse - 1.0).abs() < SAME_FACTOR {
            format!("1/{} of", inverse.round())
        } else {
            format!("{} times", factor(first))
        };
        format!("{times} the baseline throughout; look for a scale")
    })
}

/// Whether a tensor is a mask: of bools, of minus infinity and zero, or by its name.
fn is_mask(tensor: &TensorFacts, place: &str) -> bool {
    let is_bool = matches!(&*tensor.dtype, Plain::Text(dtype) if dtype.ends_with("bool"));
    let [max, min] = [0, 1].map(|at: usize| tensor.statistics[at].number());
    let is_additive = max == Some(0.0) && min.is_some_and(|min| min <= -1e4);
    is_bool || is_additive || place.contains("mask")
}
