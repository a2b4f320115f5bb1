//! Captures of a chain of operators with real elements behind their statistics, and changes to them.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use trainmon_core::{Dtype, Shape};
use trainmon_tensor_files::{FileBytes, StoredTensor, write::write_npy};

/// A call: its function, what goes in besides the last call's result, and what comes out.
#[derive(Clone, Debug)]
struct Call {
    function: &'static str,
    argument: Option<f64>,
    input: Vec<f32>,
    output: Vec<f32>,
    dtype: &'static str,
}

/// A capture of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    calls: Vec<Call>,
    has_tensors: bool,
}

/// What one side does otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// Half precision with the same elements.
    Dtype,
    /// All elements of a result, by so much of their size; what follows is made of it.
    Scale(f64),
    /// One element of a result, by so much of its size.
    Element(f64),
    /// An element of a result is NaN.
    Nan,
    /// The elements of a result in another order.
    Order,
    /// Another number is handed in.
    Argument(f64),
    /// A call more, of which nothing comes.
    Call,
}

const FUNCTIONS: [&str; 4] = ["Functional.relu", "Torch.mul", "Tensor.add", "Functional.gelu"];

impl Made {
    /// A golden run.
    pub(crate) fn chain(length: usize, has_tensors: bool) -> Self {
        let mut given: Vec<f32> = (0..24).map(|at| (at as f32 * 0.37).sin() + 0.125).collect();
        let mut calls = Vec::new();
        for at in 0..length {
            let argument = at.is_multiple_of(2).then_some(1.5);
            let call = Call {
                function: FUNCTIONS[at % 4],
                argument,
                input: given.clone(),
                output: Vec::new(),
                dtype: "float32",
            };
            calls.push(call.with_result());
            given.clone_from(&calls[at].output);
        }
        Self { calls, has_tensors }
    }

    /// The same with a change at a call and all that follows of it.
    pub(crate) fn changed(&self, at: usize, change: Change) -> Self {
        let mut made = self.clone();
        let call = &mut made.calls[at];
        match change {
            Change::None => return made,
            Change::Dtype => call.dtype = "float16",
            Change::Scale(by) => call.output.iter_mut().for_each(|value| *value *= (1.0 + by) as f32),
            Change::Element(by) => call.output[3] *= (1.0 + by) as f32,
            Change::Nan => call.output[2] = f32::NAN,
            Change::Order => call.output.reverse(),
            Change::Argument(by) => {
                call.argument = Some(call.argument.unwrap_or(1.0) + by);
                *call = call.clone().with_result();
            }
            Change::Call => {
                let call = call.clone();
                made.calls.insert(at, call);
                return made;
            }
        }
        for next in at + 1..made.calls.len() {
            let call = Call { input: made.calls[next - 1].output.clone(), ..made.calls[next].clone() };
            made.calls[next] = call.with_result();
        }
        made
    }
}

impl Call {
    fn with_result(mut self) -> Self {
        let factor = self.argument.unwrap_or(0.75) as f32;
        self.output = self.input.iter().map(|value| value * factor + 0.01).collect();
        self
    }
}

/// How to make a pair of captures.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    length: usize,
    has_tensors: bool,
    /// What is changed, and where in the chain.
    changes: Vec<(Change, f64)>,
    /// Whether it is the golden that is changed.
    is_other_way: bool,
}

impl Plan {
    /// Target and golden.
    pub(crate) fn made(&self) -> (Made, Made) {
        let golden = Made::chain(self.length, self.has_tensors);
        let target = self
            .changes
            .iter()
            .fold(golden.clone(), |made, (change, at)| made.changed((at * self.length as f64) as usize, *change));
        if self.is_other_way { (golden, target) } else { (target, golden) }
    }
}

/// Pairs of captures.
pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let size = prop_oneof![Just(1e-8), Just(3e-7), Just(5e-6), Just(1e-4), Just(2e-3), Just(0.5)];
    let change = prop_oneof![
        1 => Just(Change::None),
        2 => Just(Change::Dtype),
        3 => size.clone().prop_map(Change::Scale),
        3 => size.clone().prop_map(Change::Element),
        1 => Just(Change::Nan),
        1 => Just(Change::Order),
        2 => size.prop_map(Change::Argument),
        2 => Just(Change::Call),
    ];
    let changes = proptest::collection::vec((change, 0.0..1.0_f64), 1..3);
    (2_usize..9, any::<bool>(), changes, any::<bool>()).prop_map(|(length, has_tensors, changes, is_other_way)| Plan {
        length,
        has_tensors,
        changes,
        is_other_way,
    })
}

/// Writes a capture.
pub(crate) fn write(path: &Path, made: &Made) {
    let files = path.join("dump_tensor_data");
    fs::create_dir_all(&files).unwrap();
    let mut data = Map::new();
    let mut counts: Map<String, Value> = Map::new();
    for call in &made.calls {
        let count = counts.entry(call.function).or_insert(json!(0));
        let name = format!("{}.{count}.forward", call.function);
        *count = json!(count.as_u64().unwrap() + 1);
        let tensor = |values: &[f32], dtype: &str, place: &str| {
            let file = format!("{name}.{place}.npy");
            if made.has_tensors {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let shape = Shape::new(&[values.len() as i64]).unwrap();
                let stored = StoredTensor::new(Dtype::F32, shape, FileBytes::from(bytes)).unwrap();
                let mut bytes = Vec::new();
                write_npy(&stored, &mut bytes).unwrap();
                fs::write(files.join(&file), bytes).unwrap();
            }
            facts(values, dtype, made.has_tensors.then_some(file))
        };
        let mut inputs = vec![tensor(&call.input, "float32", "input.0")];
        inputs.extend(call.argument.map(|value| json!({"type": "float", "value": value})));
        let output = tensor(&call.output, call.dtype, "output.0");
        data.insert(name.clone(), json!({"input_args": inputs, "input_kwargs": {}, "output": [output]}));
    }
    let task = if made.has_tensors { "tensor" } else { "statistics" };
    let document = json!({"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": data});
    fs::write(path.join("dump.json"), document.to_string().replace("\"NaN\"", "NaN")).unwrap();
}

fn facts(values: &[f32], dtype: &str, file: Option<String>) -> Value {
    let number = |value: f64| if value.is_nan() { json!("NaN") } else { json!(value) };
    let wide = || values.iter().map(|value| f64::from(*value));
    let has_nan = values.iter().any(|value| value.is_nan());
    let of = |value: f64| if has_nan { f64::NAN } else { value };
    let mut facts = json!({
        "type": "torch.Tensor", "dtype": format!("torch.{dtype}"), "shape": [values.len()],
        "Max": number(of(wide().fold(f64::NEG_INFINITY, f64::max))),
        "Min": number(of(wide().fold(f64::INFINITY, f64::min))),
        "Mean": number(of(wide().sum::<f64>() / values.len() as f64)),
        "Norm": number(of(wide().map(|value| value * value).sum::<f64>().sqrt())),
        "requires_grad": false,
    });
    if let Some(file) = file {
        facts["data_name"] = json!(file);
    }
    facts
}
