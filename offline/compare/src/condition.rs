//! The condition of functions: by how much they amplify a relative error, at their actual inputs and results.
//!
//! Errors are relative to the largest element (`deviation`). If a small element decides, as in a reciprocal, or the result is
//! small beside its inputs, as in a difference, a tiny error of the inputs is a large error of the result.

use trainmon_capture_files::{Operator, Section, TensorFacts};

use super::name::{Direction, OperatorName};

/// Functions that can amplify an error, without the underscores of their names.
const KNOWN: [&str; 25] = [
    "add",
    "sub",
    "radd",
    "rsub",
    "iadd",
    "isub",
    "subtract",
    "lerp",
    "exp",
    "expm1",
    "exp2",
    "reciprocal",
    "rtruediv",
    "rsqrt",
    "div",
    "truediv",
    "itruediv",
    "divide",
    "log",
    "log2",
    "log10",
    "cross_entropy",
    "kl_div",
    "l1_loss",
    "mse_loss",
];

/// The largest useful condition; beyond it, there is no tolerance.
const MOST: f64 = 1e5;

/// The smallest, the largest and the largest absolute element of a tensor.
#[derive(Clone, Copy)]
struct Range {
    least: f64,
    most: f64,
    size: f64,
}

impl Range {
    fn of(tensor: &TensorFacts) -> Option<Self> {
        let [most, least] = [0, 1].map(|at: usize| tensor.statistics[at].number().filter(|number| number.is_finite()));
        let (most, least) = (most?, least?);
        Some(Self { least, most, size: most.abs().max(least.abs()) })
    }

    /// The largest element divided by the smallest, if all have the same sign.
    fn spread(self) -> Option<f64> {
        let (one, other) = (self.least.abs(), self.most.abs());
        (self.least * self.most > 0.0).then(|| one.max(other) / one.min(other))
    }
}

/// Returns the factors by which an operator may amplify the error of its inputs and the unit round-off; 1 if its function is
/// not known to amplify errors.
///
/// For a sum or difference, both are the size of the terms divided by that of the result. For a function `f` of one argument,
/// it is the largest `|x f'(x)|`, times the largest element divided by that one, divided by the size of the result. For `exp`
/// it is the largest `|x|`, for `1/x` the largest element divided by the smallest, for its root half of that. For a loss of
/// differences, it is the size of the terms divided by the loss, or the size of the differences if they are squared.
///
/// Cost: a look at the name for most functions, otherwise at the statistics.
pub(crate) fn condition(operator: &Operator, name: Option<OperatorName<'_>>) -> f64 {
    let function = name.filter(|name| name.direction == Direction::Forward).map_or("", |name| name.operation());
    let function = function.trim_end_matches('_').trim_start_matches('_');
    if !KNOWN.contains(&function) {
        return 1.0;
    }
    let ranges = |section: Section| operator.tensors(section).filter_map(Range::of);
    let given: Vec<Range> = ranges(Section::Input).collect();
    let (Some(&first), Some(given_out)) = (given.first(), ranges(Section::Output).next()) else { return 1.0 };
    let result = given_out.size;
    let found = match function {
        "add" | "sub" | "radd" | "rsub" | "iadd" | "isub" | "subtract" | "lerp" => {
            let terms: f64 = given.iter().map(|range| range.size).sum();
            if result > 0.0 { terms / result } else { MOST }
        }
        "exp" | "expm1" | "exp2" => first.size,
        "reciprocal" | "rtruediv" => first.spread().unwrap_or(1.0),
        "rsqrt" => 0.5 * first.spread().unwrap_or(1.0),
        "div" | "truediv" | "itruediv" | "divide" => given.get(1).and_then(|other| other.spread()).unwrap_or(1.0),
        // Losses that are small beside the numbers that they subtract.
        "cross_entropy" | "kl_div" | "l1_loss" if result > 0.0 => first.size / result,
        "mse_loss" if result > 0.0 => 2.0 * first.size / result.sqrt(),
        "log" | "log2" | "log10" if result > 0.0 => first.spread().unwrap_or(1.0) / result,
        _ => 1.0,
    };
    if found.is_finite() { found.clamp(1.0, MOST) } else { MOST }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value as Json, json};
    use trainmon_capture_files::parse_document;

    use super::*;

    fn of(name: &str, inputs: &[[f64; 2]], output: [f64; 2]) -> f64 {
        let tensor = |[least, most]: [f64; 2]| -> Json {
            json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8], "Max": most, "Min": least, "Mean": 0.5, "Norm": 1.0,
                "requires_grad": false})
        };
        let inputs: Vec<Json> = inputs.iter().map(|range| tensor(*range)).collect();
        let data = json!({name: {"input_args": inputs, "input_kwargs": {}, "output": [tensor(output)]}});
        let document =
            json!({"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": null, "data": data});
        let document = parse_document(&serde_json::to_vec(&document).unwrap(), Path::new("dump.json")).unwrap();
        condition(&document.operators[0], OperatorName::parse(name))
    }

    #[test]
    fn differences_and_small_elements_make_errors_larger() {
        assert_eq!(of("Tensor.__sub__.0.forward", &[[0.9, 1.1], [0.9, 1.1]], [0.0, 0.0011]).round(), 2000.0);
        assert_eq!(of("Torch.rsqrt.0.forward", &[[1e-4, 1.0]], [1.0, 100.0]).round(), 5000.0);
        assert_eq!(of("Tensor.reciprocal_.0.forward", &[[0.01, 1.0]], [1.0, 100.0]).round(), 100.0);
        assert_eq!(of("Tensor.exp.0.forward", &[[-20.0, 3.0]], [0.0, 20.1]), 20.0);
        assert_eq!(of("Tensor.div.0.forward", &[[0.5, 1.0], [0.1, 1.0]], [0.5, 10.0]).round(), 10.0);
        assert_eq!(of("Functional.linear.0.forward", &[[-1.0, 1.0]], [-0.001, 0.001]), 1.0, "nothing is said of it");
        assert_eq!(of("Tensor.__add__.0.forward", &[[1.0, 2.0], [1.0, 2.0]], [2.0, 4.0]), 1.0, "nothing cancels");
    }
}
