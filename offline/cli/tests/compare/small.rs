//! Small captures of any form, and the program over them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::tempdir;
use trainmon_core::{Dtype, Shape};
use trainmon_tensor_files::{FileBytes, StoredTensor};

use crate::support::program;
pub(crate) use crate::support::{ProgramOutput, trainmon};

/// Behind a line of shell that sets limits.
pub(crate) fn trainmon_limited(directory: &Path, limits: &str, arguments: &[&str]) -> ProgramOutput {
    let line = format!("{limits} && exec \"$@\"");
    let program = program(directory, arguments);
    let mut command = Command::new("sh");
    command.args(["-c", &line, "sh"]).arg(program.get_program()).args(program.get_args()).current_dir(directory);
    ProgramOutput::by(&mut command)
}

/// The answer as JSON.
pub(crate) fn answer(directory: &Path, target: &str, golden: &str) -> (Option<i32>, Value) {
    let said = trainmon(directory, &["compare", target, golden, "--json"]);
    let answer = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {} {}", said.out, said.err));
    (said.code, answer)
}

pub(crate) fn tensor(value: f64) -> Value {
    json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 2], "Max": value, "Min": value, "Mean": value,
        "Norm": value * 2.0, "requires_grad": false})
}

/// A chain of two operators; `value` is what the second gives out.
pub(crate) fn operators(value: f64) -> Value {
    json!({
        "Functional.relu.0.forward": {"input_args": [tensor(1.0)], "input_kwargs": {}, "output": [tensor(1.5)]},
        "Functional.gelu.0.forward": {"input_args": [tensor(1.5)], "input_kwargs": {}, "output": [tensor(value)]},
    })
}

pub(crate) fn document(data: &Value) -> Value {
    json!({"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": data})
}

pub(crate) fn put(path: &Path, content: impl AsRef<[u8]>) -> PathBuf {
    fs::create_dir_all(path.parent().expect("a parent")).unwrap();
    fs::write(path, content).unwrap();
    path.to_path_buf()
}

/// A `dump.json` of the two operators at `path`.
pub(crate) fn dump(path: &Path, value: f64) -> PathBuf {
    put(path, document(&operators(value)).to_string())
}

/// Names of what a directory holds, hidden files too.
pub(crate) fn listed(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A tensor of these statistics and shape.
pub(crate) fn numbers(shape: &[u64], dtype: &str, [max, min, mean, norm]: [f64; 4]) -> Value {
    json!({"type": "torch.Tensor", "dtype": dtype, "shape": shape, "Max": max, "Min": min, "Mean": mean, "Norm": norm,
        "requires_grad": false})
}

/// The answer about captures of these operators.
pub(crate) fn answer_of(target: &Value, golden: &Value) -> (Option<i32>, Value) {
    let workspace = tempdir().unwrap();
    put(&workspace.path().join("b/dump.json"), document(target).to_string());
    put(&workspace.path().join("a/dump.json"), document(golden).to_string());
    answer(workspace.path(), "b", "a")
}

/// A tensor of one dimension.
pub(crate) fn floats(values: &[f32]) -> StoredTensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = Shape::new(&[values.len() as i64]).unwrap();
    StoredTensor::new(Dtype::F32, shape, FileBytes::from(bytes)).unwrap()
}
