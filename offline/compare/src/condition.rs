//! By how much functions make a relative error larger, at the numbers that went into them and came out: their condition.
//!
//! Errors are measured against the largest element (`deviation`). So where a small element decides, as in a reciprocal, or where results are
//! small beside what they are made of, as in a difference, an error that is tiny beside the inputs is a large one beside the result.

use trainmon_capture_files::{Operator, Section, TensorFacts};

use super::name::{Direction, OperatorName};

/// Functions that can make an error larger, without the underscores of their names.
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

/// More is no bound any more.
const MOST: f64 = 1e5;

/// The smallest, the largest and the largest absolute element.
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

    /// The largest by the smallest, where all have one sign.
    fn spread(self) -> Option<f64> {
        let (one, other) = (self.least.abs(), self.most.abs());
        (self.least * self.most > 0.0).then(|| one.max(other) / one.min(other))
    }
}

/// How many times its inputs' error an operator's result may be apart, and how many times a unit of round-off; 1 where its function is
/// not known to make errors larger.
///
/// Of a sum or difference both are the sizes of the terms by that of the result. Of `f` with one argument it is `|x f'(x)|` at the element
/// where that is largest, times the largest element by that one, by the size of the result: for `exp` the largest `|x|`, for `1/x`
/// the largest element by the smallest, for its root half of that. Of a loss of differences it is the size of what they are made of by
/// that of the loss, of the differences themselves where those are squared.
///
/// Cost: a look at the name, for most functions no more; else at the operator's statistics.
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
        // Losses that are small beside the numbers whose differences they are made of.
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
