//! A model with fused projections against the same with its parts apart.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::tempdir;

use crate::small::{answer, document, listed, put, trainmon};

/// What a capture says of a matrix: in float32, as the real ones.
fn facts(rows: &[Vec<f32>]) -> Value {
    let all: Vec<f64> = rows.iter().flatten().map(|&value| f64::from(value)).collect();
    let single = |value: f64| f64::from(value as f32);
    json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [rows.len(), rows[0].len()],
        "Max": all.iter().copied().fold(f64::MIN, f64::max), "Min": all.iter().copied().fold(f64::MAX, f64::min),
        "Mean": single(all.iter().sum::<f64>() / all.len() as f64),
        "Norm": single(all.iter().map(|value| value * value).sum::<f64>().sqrt()), "requires_grad": true})
}

fn matrix(rows: usize, columns: usize, seed: usize) -> Vec<Vec<f32>> {
    let value = |row: usize, column: usize| ((row * 31 + column * 17 + seed * 101) % 97) as f32 / 7.0 - 6.1;
    (0..rows).map(|row| (0..columns).map(|column| value(row, column)).collect()).collect()
}

fn transposed(matrix: &[Vec<f32>]) -> Vec<Vec<f32>> {
    (0..matrix[0].len()).map(|column| matrix.iter().map(|row| row[column]).collect()).collect()
}

/// A module's forward, gradients and backward; its weight has a row per output.
fn module(data: &mut Map<String, Value>, name: &str, weight: &[Vec<f32>], output: &[Vec<f32>]) {
    let (input, gradient) = (facts(&matrix(5, 4, 9)), facts(&matrix(5, 4, weight.len())));
    data.insert(
        format!("Module.layer.{name}.Linear.forward.0"),
        json!({"input_args": [input], "parameters": {"weight": facts(weight)}, "output": [facts(output)]}),
    );
    data.insert(format!("Module.layer.{name}.Linear.parameters_grad.0"), json!({"weight": [facts(weight)]}));
    data.insert(
        format!("Module.layer.{name}.Linear.backward.0"),
        json!({"input": [facts(output)], "output": [gradient]}),
    );
}

/// `changed` names a part whose weight is another.
fn write(path: &Path, is_fused: bool, changed: Option<&str>) {
    let mut data = Map::new();
    for (whole, parts) in
        [("qkv_proj", vec!["q_proj", "k_proj", "v_proj"]), ("gate_up_proj", vec!["gate_proj", "up_proj"])]
    {
        let (mut weights, mut outputs) = (Vec::new(), Vec::new());
        for (seed, part) in parts.iter().enumerate() {
            let rows = if *part == "q_proj" { 8 } else { 2 };
            let mut weight = matrix(rows, 4, seed);
            if changed == Some(part) {
                weight[0][0] += 40.0;
            }
            let output = matrix(5, rows, seed + 3);
            if is_fused {
                weights.extend(weight);
                outputs.extend(transposed(&output));
            } else {
                module(&mut data, part, &weight, &output);
            }
        }
        if is_fused {
            module(&mut data, whole, &weights, &transposed(&outputs));
        }
    }
    put(path, document(&Value::Object(data)).to_string());
}

#[test]
fn parts_agree_with_the_fused_module_both_ways_and_a_changed_part_is_found() {
    let workspace = tempdir().unwrap();
    write(&workspace.path().join("fused/dump.json"), true, None);
    write(&workspace.path().join("split/dump.json"), false, None);
    write(&workspace.path().join("changed/dump.json"), false, Some("k_proj"));
    for (target, golden) in [("fused", "split"), ("split", "fused")] {
        let (code, found) = answer(workspace.path(), target, golden);
        assert_eq!((code, &found["verdict"]), (Some(0), &json!("same")), "{found:#}");
        trainmon(workspace.path(), &["compare", target, golden, "-o", "out", "--format", "csv"]);
        let table = workspace.path().join("out").join(&listed(&workspace.path().join("out"))[0]);
        let mut reader = csv::Reader::from_path(table).unwrap();
        let headers = reader.headers().unwrap().clone();
        let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 12, "two modules of six values");
        for row in &rows {
            assert_eq!(&row[column("Match")], "fused", "{row:?}");
            // The sum of the parts' gradients cannot be told from their statistics, and that is said.
            let is_sum = row[0].ends_with("backward.0.output.0");
            assert_eq!(&row[column("Result")], if is_sum { "warning" } else { "pass" }, "{row:?}");
            assert_eq!(&row[column("Difference")], if is_sum { "unseen" } else { "nothing" }, "{row:?}");
        }
        fs::remove_dir_all(workspace.path().join("out")).unwrap();
        // msprobe does not see it.
        let said = trainmon(workspace.path(), &["compare", target, golden, "--compat", "-o", "out", "--format", "csv"]);
        let table = workspace.path().join("out").join(&listed(&workspace.path().join("out"))[0]);
        assert!(fs::read_to_string(table).unwrap().lines().skip(1).all(|line| line.contains(",N/A,")), "{}", said.err);
        fs::remove_dir_all(workspace.path().join("out")).unwrap();
    }
    for (target, golden) in [("fused", "changed"), ("changed", "fused")] {
        let (code, found) = answer(workspace.path(), target, golden);
        assert_eq!((code, &found["kind"]), (Some(1), &json!("parameter")), "{found:#}");
        assert_eq!(found["operator"], "Module.layer.qkv_proj.Linear.forward.0");
    }
}
