//! A fused projection and its parts in captures of level mix: with tensors, with checksums.

use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::tempdir;
use trainmon_core::{Dtype, Shape};
use trainmon_tensor_files::{FileBytes, StoredTensor, write::write_npy};

use crate::small::{answer, listed, put, trainmon};

type Matrix = Vec<Vec<f32>>;

fn matrix(rows: usize, columns: usize, seed: usize) -> Matrix {
    let value = |at: usize| ((at * 7919 + seed * 104_729) % 1009) as f32 / 97.0 - 5.2;
    (0..rows).map(|row| (0..columns).map(|column| value(row * columns + column)).collect()).collect()
}

fn transposed(matrix: &[Vec<f32>]) -> Matrix {
    (0..matrix[0].len()).map(|column| matrix.iter().map(|row| row[column]).collect()).collect()
}

/// Rows of all parts, group after group.
fn by_groups(parts: &[Matrix], groups: usize) -> Matrix {
    let share = |group: usize, part: &Matrix| {
        let share = part.len() / groups;
        part[group * share..(group + 1) * share].to_vec()
    };
    (0..groups).flat_map(|group| parts.iter().flat_map(move |part| share(group, part))).collect()
}

fn sum(parts: &[Matrix]) -> Matrix {
    let at = |row: usize, column: usize| parts.iter().map(|part| f64::from(part[row][column])).sum::<f64>() as f32;
    (0..parts[0].len()).map(|row| (0..parts[0][0].len()).map(|column| at(row, column)).collect()).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Task {
    Tensor,
    Checksums,
}

/// What one run does.
#[derive(Clone, Copy)]
struct Run {
    task: Task,
    /// Into how many groups the fused weight has its parts sorted; `None` for a run that is not fused.
    groups: Option<usize>,
    /// Turns the order of the fused rows around.
    is_reversed: bool,
    /// Two rows of what the key projection gives out change places: no statistic shows it.
    is_swapped: bool,
    /// Added to one element of the gradient of the fused input, or of the first part's.
    gradient: f32,
    /// Added to what the layer behind is given.
    behind: f32,
    /// Added to what the projections are given.
    before: f32,
}

const SPLIT: Run = Run {
    task: Task::Tensor,
    groups: None,
    is_reversed: false,
    is_swapped: false,
    gradient: 0.0,
    behind: 0.0,
    before: 0.0,
};
const FUSED: Run = Run { groups: Some(1), ..SPLIT };

struct Writer<'d> {
    directory: &'d Path,
    task: Task,
    data: Map<String, Value>,
    construct: Map<String, Value>,
    calls: usize,
}

impl Writer<'_> {
    fn tensor(&self, name: &str, rows: &Matrix) -> Value {
        let all: Vec<f64> = rows.iter().flatten().map(|&value| f64::from(value)).collect();
        let bytes: Vec<u8> = rows.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
        let shape = [rows.len(), rows[0].len()];
        if self.task == Task::Checksums {
            return json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape, "requires_grad": true,
                "md5": format!("{:08x}", crc32fast::hash(&bytes))});
        }
        let tensor =
            StoredTensor::new(Dtype::F32, Shape::new(&shape.map(|size| size as i64)).unwrap(), FileBytes::from(bytes));
        let mut file = Vec::new();
        write_npy(&tensor.unwrap(), &mut file).unwrap();
        put(&self.directory.join("dump_tensor_data").join(format!("{name}.npy")), file);
        let single = |value: f64| f64::from(value as f32);
        json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape, "requires_grad": true,
            "Max": all.iter().copied().fold(f64::MIN, f64::max), "Min": all.iter().copied().fold(f64::MAX, f64::min),
            "Mean": single(all.iter().sum::<f64>() / all.len() as f64),
            "Norm": single(all.iter().map(|value| value * value).sum::<f64>().sqrt()), "data_name": format!("{name}.npy")})
    }

    /// A module that gives `output`, and the call in it; the number of that call.
    fn forward(&mut self, name: &str, input: &Matrix, weight: &Matrix, output: &Matrix) -> usize {
        let call = self.calls;
        self.calls += 1;
        let module = format!("Module.layer.{name}.Linear.forward.0");
        let of = |part: &str, rows: &Matrix| self.tensor(&format!("{module}.{part}"), rows);
        let entry = json!({"input_args": [of("input.0", input)], "parameters": {"weight": of("parameters.weight", weight)},
            "output": [of("output.0", output)]});
        self.data.insert(module.clone(), entry);
        let operator = format!("Functional.linear.{call}.forward");
        let of = |part: &str, rows: &Matrix| self.tensor(&format!("{operator}.{part}"), rows);
        let entry =
            json!({"input_args": [of("input.0", input), of("input.1", weight)], "output": [of("output.0", output)]});
        self.data.insert(operator.clone(), entry);
        self.construct.insert(operator, json!(module));
        self.construct.insert(module, Value::Null);
        call
    }

    fn backward(&mut self, (name, call): (&str, usize), gradient: &Matrix, weight: &Matrix, of_input: &Matrix) {
        let operator = format!("Functional.linear.{call}.backward");
        let of = |part: &str, rows: &Matrix| self.tensor(&format!("{operator}.{part}"), rows);
        let outputs = [of("output.0", of_input), of("output.1", weight)];
        let entry = json!({"input": [of("input.0", gradient)], "output": outputs});
        self.data.insert(operator, entry);
        let module = format!("Module.layer.{name}.Linear.backward.0");
        let of = |part: &str, rows: &Matrix| self.tensor(&format!("{module}.{part}"), rows);
        let entry = json!({"input": [of("input.0", gradient)], "output": [of("output.0", of_input)]});
        self.data.insert(module, entry);
        let gradients = format!("Module.layer.{name}.Linear.parameters_grad.0");
        let entry = json!({"weight": [self.tensor(&format!("{gradients}.weight"), weight)]});
        self.data.insert(gradients, entry);
    }

    fn finish(self) {
        let task = if self.task == Task::Tensor { "tensor" } else { "statistics" };
        let document =
            json!({"task": task, "level": "mix", "framework": "pytorch", "dump_data_dir": null, "data": self.data});
        put(&self.directory.join("dump.json"), document.to_string());
        put(&self.directory.join("construct.json"), Value::Object(self.construct).to_string());
    }
}

fn write(directory: &Path, run: Run) {
    let (data, construct) = (Map::new(), Map::new());
    let mut writer = Writer { directory, task: run.task, data, construct, calls: 0 };
    let names = ["q_proj", "k_proj", "v_proj"];
    let sizes = [8, 4, 4];
    let of_parts = |seed: usize, columns: usize| -> Vec<Matrix> {
        (0..3).map(|part| matrix(sizes[part], columns, seed + part)).collect()
    };
    let (weights, mut outputs) = (of_parts(10, 6), of_parts(20, 5));
    let (gradients, weight_gradients) = (of_parts(30, 5), of_parts(40, 6));
    let mut of_inputs: Vec<Matrix> = (0..3).map(|part| matrix(5, 6, 50 + part)).collect();
    let mut input = matrix(5, 6, 1);
    input[0][0] += run.before;
    if run.is_swapped {
        outputs[1].swap(0, 3);
    }
    of_inputs[0][2][3] += run.gradient;
    let whole = |parts: &[Matrix]| {
        let mut rows = by_groups(parts, run.groups.unwrap_or(1));
        if run.is_reversed {
            rows.reverse();
        }
        rows
    };
    let calls: Vec<usize> = if run.groups.is_some() {
        vec![writer.forward("qkv_proj", &input, &whole(&weights), &transposed(&whole(&outputs)))]
    } else {
        let each = |part: usize| writer.forward(names[part], &input, &weights[part], &transposed(&outputs[part]));
        (0..3).map(each).collect()
    };
    let (mut attended, o_weight) = (matrix(5, 8, 60), matrix(6, 8, 61));
    attended[0][0] += run.behind;
    let o_call = writer.forward("o_proj", &attended, &o_weight, &matrix(5, 6, 62));
    writer.backward(("o_proj", o_call), &matrix(5, 6, 63), &matrix(6, 8, 64), &matrix(5, 8, 65));
    if run.groups.is_some() {
        let gradient = transposed(&whole(&gradients));
        writer.backward(("qkv_proj", calls[0]), &gradient, &whole(&weight_gradients), &sum(&of_inputs));
    } else {
        for part in 0..3 {
            let gradient = transposed(&gradients[part]);
            writer.backward((names[part], calls[part]), &gradient, &weight_gradients[part], &of_inputs[part]);
        }
    }
    writer.finish();
}

/// The table's rows, as what stands in these columns.
fn rows<const N: usize>(workspace: &Path, target: &str, golden: &str, columns: [&str; N]) -> Vec<[String; N]> {
    let out = format!("out_{target}_{golden}");
    trainmon(workspace, &["compare", target, golden, "-o", &out, "--format", "csv", "--fail-on", "never"]);
    let table = workspace.join(&out).join(&listed(&workspace.join(&out))[0]);
    let mut reader = csv::Reader::from_path(table).unwrap();
    let headers = reader.headers().unwrap().clone();
    let columns = columns.map(|name| headers.iter().position(|header| header == name).unwrap());
    reader.records().map(|record| record.unwrap()).map(|record| columns.map(|at| record[at].to_owned())).collect()
}

#[test]
fn tensors_of_parts_are_the_fused_ones_in_every_element_with_the_calls_inside() {
    for (groups, word) in [(1, "fused"), (2, "fused, in groups"), (4, "fused, in groups")] {
        let workspace = tempdir().unwrap();
        write(&workspace.path().join("fused"), Run { groups: Some(groups), ..FUSED });
        write(&workspace.path().join("split"), SPLIT);
        for (target, golden) in [("fused", "split"), ("split", "fused")] {
            let (code, found) = answer(workspace.path(), target, golden);
            assert_eq!((code, &found["verdict"]), (Some(0), &json!("same")), "{found:#}");
            assert_eq!(
                found["operators_compared"], 10,
                "two modules, two calls in them, forward and backward, gradients"
            );
            let columns = ["NPU Name", "Bench Name", "Match", "Result", "Difference", "Relative L2"];
            let rows = rows(workspace.path(), target, golden, columns);
            assert_eq!(rows.len(), 24);
            for [name, other, matched, result, difference, relative] in rows {
                let is_behind = name.contains("o_proj") || [&name, &other].iter().any(|name| name.contains("linear.3"));
                let expected = match is_behind {
                    false => word,
                    // The call behind three that became one has another number.
                    true if name.contains("linear") => "renumbered",
                    true => "name",
                };
                let found = [&*matched, &*result, &*difference, &*relative];
                assert_eq!(found, [expected, "pass", "nothing", "0"], "{name} {other}");
            }
        }
    }
}

#[test]
fn what_no_statistic_shows_is_found_inside_a_fused_tensor() {
    for groups in [1, 2] {
        let workspace = tempdir().unwrap();
        write(&workspace.path().join("fused"), Run { groups: Some(groups), ..FUSED });
        write(&workspace.path().join("swapped"), Run { is_swapped: true, ..SPLIT });
        for (target, golden) in [("fused", "swapped"), ("swapped", "fused")] {
            let (code, found) = answer(workspace.path(), target, golden);
            assert_eq!((code, &found["kind"]), (Some(1), &json!("operator")), "{found:#}");
            assert_eq!(found["operator"], "Module.layer.qkv_proj.Linear.forward.0");
            assert_eq!(found["suspects"][0]["name"], "Module.layer.qkv_proj.Linear.forward.0.output.0");
        }
    }
}

#[test]
fn gradients_of_the_shared_input_are_summed() {
    let workspace = tempdir().unwrap();
    write(&workspace.path().join("fused"), FUSED);
    write(&workspace.path().join("changed"), Run { gradient: 0.5, ..SPLIT });
    for (target, golden) in [("fused", "changed"), ("changed", "fused")] {
        let (code, found) = answer(workspace.path(), target, golden);
        assert_eq!((code, &found["kind"]), (Some(1), &json!("operator")), "{found:#}");
        assert!(found["suspects"][0]["name"].as_str().unwrap().ends_with(".backward.output.0"), "{found:#}");
    }
}

/// One large product rounds otherwise than three small ones: behind them a difference of that size is none.
#[test]
fn behind_what_was_put_together_rounding_is_expected() {
    let workspace = tempdir().unwrap();
    write(&workspace.path().join("fused"), FUSED);
    write(&workspace.path().join("rounded"), Run { behind: 1e-6, ..SPLIT });
    write(&workspace.path().join("other"), Run { behind: 1e-2, ..SPLIT });
    for (target, golden) in [("fused", "rounded"), ("rounded", "fused")] {
        let (code, found) = answer(workspace.path(), target, golden);
        assert_eq!((code, &found["verdict"]), (Some(0), &json!("rounding")), "{found:#}");
    }
    let (code, found) = answer(workspace.path(), "fused", "other");
    assert_eq!((code, &found["operator"]), (Some(1), &json!("Module.layer.o_proj.Linear.forward.0")), "{found:#}");
}

#[test]
fn an_order_nobody_knows_leaves_statistics_and_says_so() {
    let workspace = tempdir().unwrap();
    write(&workspace.path().join("fused"), Run { is_reversed: true, ..FUSED });
    write(&workspace.path().join("split"), SPLIT);
    let (code, found) = answer(workspace.path(), "fused", "split");
    assert_eq!((code, &found["verdict"]), (Some(0), &json!("same")), "{found:#}");
    for [name, result, message] in rows(workspace.path(), "fused", "split", ["NPU Name", "Result", "Err_message"]) {
        let of_whole = name.contains("qkv_proj") || name.contains("linear.0");
        let is_joined = of_whole && !name.ends_with("forward.input.0") && !name.ends_with("forward.0.input.0");
        let is_sum = name.ends_with("backward.output.0") || name.ends_with("backward.0.output.0");
        assert_eq!(result, if is_joined && !is_sum { "warning" } else { "pass" }, "{name} {message}");
        assert_eq!(
            message.contains("neither one after another nor by groups"),
            result == "warning",
            "{name} {message}"
        );
    }
}

#[test]
fn checksums_of_parts_say_nothing_of_the_whole() {
    let workspace = tempdir().unwrap();
    let split = Run { task: Task::Checksums, ..SPLIT };
    write(&workspace.path().join("fused"), Run { task: Task::Checksums, ..FUSED });
    write(&workspace.path().join("split"), split);
    write(&workspace.path().join("behind"), Run { behind: 1.0, ..split });
    write(&workspace.path().join("before"), Run { before: 1.0, ..split });
    for [name, matched, result, message] in
        rows(workspace.path(), "fused", "split", ["NPU Name", "Match", "Result", "Err_message"])
    {
        let is_input = name.ends_with("forward.input.0") || name.ends_with("forward.0.input.0");
        let is_told = matched != "fused" || is_input;
        assert_eq!(result, if is_told { "pass" } else { "warning" }, "{name} {message}");
        assert_eq!(message.contains("joined from parts"), !is_told, "{name} {message}");
    }
    let (code, found) = answer(workspace.path(), "fused", "split");
    assert_eq!(
        (code, &found["verdict"], &found["operators_unseen"]),
        (Some(0), &json!("same"), &json!(5)),
        "{found:#}"
    );
    // Behind the projections checksums differ: by rounding, for all that is known.
    let (code, found) = answer(workspace.path(), "fused", "behind");
    assert_eq!((code, &found["verdict"]), (Some(1), &json!("cannot_tell")), "{found:#}");
    assert!(found["sentence"].as_str().unwrap().contains("fused module"), "{found:#}");
    // Before them a difference is one.
    let (code, found) = answer(workspace.path(), "fused", "before");
    assert_eq!((code, &found["verdict"], &found["kind"]), (Some(1), &json!("parts"), &json!("data")), "{found:#}");
}
