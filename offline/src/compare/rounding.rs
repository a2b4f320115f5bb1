//! How far rounding alone can take a result.

use trainmon_core::Dtype;
use trainmon_dump::capture::{Leaf, Operator, Section, TensorFacts, Value};

use super::name::{Direction, OperatorName};

/// [`Dtype::unit_roundoff`] of a dtype as captures name it, torch's or `MindSpore`'s; `None` also for a name nobody knows.
pub fn unit_roundoff(dtype: &str) -> Option<f64> {
    let name = dtype.strip_prefix("torch.").unwrap_or(dtype).to_ascii_lowercase();
    let name = match name.as_str() {
        "double" => "float64",
        "float" => "float32",
        "half" => "float16",
        name => name,
    };
    Dtype::from_torch_name(name)?.unit_roundoff()
}

/// What an operator's results may differ by although its inputs are the same: the order of a sum is free.
///
/// A sum of n rounded terms in another order is off by about √n units of round-off (Higham, Accuracy and Stability of Numerical
/// Algorithms, §2.8: the probabilistic bound; the sure one is n).
pub fn rounding(operator: &Operator) -> f64 {
    coarsest(operator) * (terms(operator) as f64).sqrt()
}

/// The unit round-off of the coarsest dtype among an operator's tensors.
pub(crate) fn coarsest(operator: &Operator) -> f64 {
    let dtypes = operator.values.iter().filter_map(tensor).filter_map(|tensor| unit_roundoff(tensor.dtype.text()?));
    let coarsest = dtypes.fold(0.0, f64::max);
    if coarsest == 0.0 { unit_roundoff("float32").unwrap_or(0.0) } else { coarsest }
}

fn tensor(value: &Value) -> Option<&TensorFacts> {
    if let Leaf::Tensor(tensor) = &value.leaf { Some(tensor) } else { None }
}

/// How many terms the longest sum in an operator has, as far as its shapes tell.
fn terms(operator: &Operator) -> u64 {
    let largest = |section: Section| {
        let of = operator.values.iter().filter(|value| value.section == section).filter_map(tensor);
        of.filter_map(TensorFacts::elements).max()
    };
    let (input, output) = (largest(Section::Input).unwrap_or(1), largest(Section::Output).unwrap_or(1).max(1));
    let Some(name) = OperatorName::parse(&operator.name) else { return input.max(1) };
    let last = operator.values.iter().filter(|value| value.section == Section::Input).find_map(tensor);
    let last = last.and_then(TensorFacts::sizes).and_then(|sizes| sizes.last().copied()).unwrap_or(1);
    match (name.direction, name.function()) {
        // A backward sums over what the forward broadcast: at most over everything.
        (Direction::Backward | Direction::ParameterGradient, _) => input.max(output),
        (
            _,
            "linear" | "matmul" | "bmm" | "mm" | "addmm" | "baddbmm" | "softmax" | "log_softmax" | "layer_norm"
            | "rms_norm",
        ) => last,
        // A module is several operators.
        _ if name.family() == "Module" => input.max(output),
        _ => input.max(input / output),
    }
    .max(1)
}
