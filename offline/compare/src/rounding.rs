//! The effect of rounding on results.

use std::collections::HashMap;

use trainmon_capture_files::{Document, Operator, Section, TensorFacts, Value};
use trainmon_core::Dtype;
use trainmon_noise::of_sum;

use super::name::{Direction, OperatorName};

/// [`Dtype::unit_roundoff`] by the dtype's name in torch's or `MindSpore`'s captures; `None` also for an unknown name.
pub(crate) fn unit_roundoff(dtype: &str) -> Option<f64> {
    let name = dtype.strip_prefix("torch.").unwrap_or(dtype).to_ascii_lowercase();
    let name = match name.as_str() {
        "double" => "float64",
        "float" => "float32",
        "half" => "float16",
        name => name,
    };
    Dtype::from_torch_name(name)?.unit_roundoff()
}

/// The possible difference of an operator's results with equal inputs: the order of a sum is free. `positions` belong to the
/// operator's capture.
pub(crate) fn rounding(operator: &Operator, positions: &Positions<'_>) -> f64 {
    of_sum(coarsest(operator), terms(operator, positions) as f64)
}

/// The terms of a parameter gradient of unknown length: a batch of moderate size.
const UNKNOWN_POSITIONS: u64 = 1024;

/// The result shapes of each module's calls in a capture: a parameter gradient is a sum over all their positions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Positions<'c> {
    /// By callee: the shapes of each call's results, and of the returned gradients.
    of: HashMap<&'c str, [Vec<Vec<u64>>; 2]>,
}

impl<'c> Positions<'c> {
    /// Collects them in one pass over a capture's operators.
    pub(crate) fn of(document: &'c Document) -> Self {
        let mut positions = Self::default();
        for operator in &document.operators {
            let Some(name) = OperatorName::parse(&operator.name).filter(|name| !name.is_operator) else { continue };
            let (section, side) = match name.direction {
                Direction::Forward => (Section::Output, 0),
                Direction::Backward => (Section::Input, 1),
                Direction::ParameterGradient => continue,
            };
            let sizes = operator.tensors(section).next().and_then(TensorFacts::sizes);
            positions.of.entry(name.callee).or_default()[side].extend(sizes);
        }
        positions
    }

    /// The largest number of terms in the gradient of a parameter of this shape.
    fn terms(&self, callee: &str, parameter: &[u64]) -> u64 {
        let calls = self.of.get(callee).and_then(|sides| sides.iter().find(|calls| !calls.is_empty()));
        let positions = |sizes: &Vec<u64>| sizes.iter().product::<u64>() / channels(sizes, parameter);
        calls.map_or(UNKNOWN_POSITIONS, |calls| calls.iter().map(positions).sum())
    }
}

/// The number of a result's elements that stay separate in the parameter gradient: its features or channels.
fn channels(sizes: &[u64], parameter: &[u64]) -> u64 {
    let known = |size: Option<&u64>| size.copied().filter(|size| parameter.contains(size));
    let (last, second) = (known(sizes.last()), known(sizes.get(1)));
    // A convolution has its channels second, all else last.
    let found = if parameter.len() > 2 { second.or(last) } else { last.or(second) };
    found.unwrap_or(1).max(1)
}

/// The coarsest unit round-off among an operator's tensors.
pub(crate) fn coarsest(operator: &Operator) -> f64 {
    let dtypes =
        operator.values.iter().filter_map(Value::tensor).filter_map(|tensor| unit_roundoff(tensor.dtype.text()?));
    let coarsest = dtypes.fold(0.0, f64::max);
    if coarsest == 0.0 { unit_roundoff("float32").unwrap_or(0.0) } else { coarsest }
}

/// The number of terms of an operator's longest sum, as far as its shapes show.
fn terms(operator: &Operator, positions: &Positions<'_>) -> u64 {
    let largest = |section: Section| operator.tensors(section).filter_map(TensorFacts::elements).max();
    let (input, output) = (largest(Section::Input).unwrap_or(1), largest(Section::Output).unwrap_or(1).max(1));
    let Some(name) = OperatorName::parse(&operator.name) else { return input.max(1) };
    let last = operator.tensors(Section::Input).next();
    let last = last.and_then(TensorFacts::sizes).and_then(|sizes| sizes.last().copied()).unwrap_or(1);
    match (name.direction, name.function()) {
        (Direction::ParameterGradient, _) => {
            let gradients = operator.values.iter().filter_map(Value::tensor).filter_map(TensorFacts::sizes);
            gradients.map(|sizes| positions.terms(name.callee, &sizes)).max().unwrap_or(UNKNOWN_POSITIONS)
        }
        // A backward call sums over what the forward call broadcast: at most over everything.
        (Direction::Backward, _) => input.max(output),
        (
            _,
            "linear" | "matmul" | "bmm" | "mm" | "addmm" | "baddbmm" | "softmax" | "log_softmax" | "layer_norm"
            | "rms_norm",
        ) => last,
        // A module contains several operators.
        _ if name.family() == "Module" => input.max(output),
        _ => input.max(input / output),
    }
    .max(1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value as Json, json};
    use trainmon_capture_files::parse_document;

    use super::*;

    fn tensor(shape: &[u64]) -> Json {
        json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape, "Max": 1.0, "Min": 0.0, "Mean": 0.5,
            "Norm": 1.0, "requires_grad": false})
    }

    /// The terms of the first gradient of parameters in a capture of these operators.
    fn terms_of(operators: &Json) -> u64 {
        let document = json!({"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": null,
            "data": operators});
        let document = parse_document(&serde_json::to_vec(&document).unwrap(), Path::new("dump.json")).unwrap();
        let mut operators = document.operators.iter();
        let gradient = operators.find(|operator| operator.name.contains(".parameters_grad.")).unwrap();
        terms(gradient, &Positions::of(&document))
    }

    fn forward(shape: &[u64]) -> Json {
        json!({"input_args": [], "input_kwargs": {}, "output": [tensor(shape)]})
    }

    #[test]
    fn a_parameters_gradient_sums_over_all_positions_of_every_call() {
        let twice = terms_of(&json!({
            "Module.norm.LayerNorm.forward.0": forward(&[4, 9, 16]),
            "Module.norm.LayerNorm.forward.1": forward(&[2, 9, 16]),
            "Module.other.LayerNorm.forward.0": forward(&[400, 9, 16]),
            "Module.norm.LayerNorm.parameters_grad.0": {"weight": [tensor(&[16])], "bias": [tensor(&[16])]},
        }));
        assert_eq!(twice, 4 * 9 + 2 * 9);
        let convolution = terms_of(&json!({
            "Module.stem.Conv2d.forward.0": forward(&[4, 8, 5, 3]),
            "Module.stem.Conv2d.parameters_grad.0": {"weight": [tensor(&[8, 2, 3, 3])]},
        }));
        assert_eq!(convolution, 4 * 5 * 3);
        let embedding = terms_of(&json!({
            "Module.words.Embedding.forward.0": forward(&[4, 9, 16]),
            "Module.words.Embedding.parameters_grad.0": {"weight": [tensor(&[1000, 16])]},
        }));
        assert_eq!(embedding, 4 * 9);
    }

    #[test]
    fn without_the_forward_the_incoming_gradient_tells_and_without_both_nothing() {
        let gradient = json!({"bias": [tensor(&[16])]});
        let backward = json!({"input": [tensor(&[4, 9, 16])], "output": [null]});
        let backward_only =
            json!({"Module.fc.Linear.backward.0": backward, "Module.fc.Linear.parameters_grad.0": gradient});
        assert_eq!(terms_of(&backward_only), 4 * 9);
        assert_eq!(terms_of(&json!({"Module.fc.Linear.parameters_grad.0": gradient})), UNKNOWN_POSITIONS);
    }
}
