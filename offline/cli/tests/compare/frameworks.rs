//! Captures of two frameworks through the program: what pairs, and what the search for the first divergence sees of it.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::small::{put, trainmon};

fn value(is_mindspore: bool, number: f64) -> Value {
    let (kind, dtype) = if is_mindspore { ("mindspore.Tensor", "Float32") } else { ("torch.Tensor", "torch.float32") };
    json!({"type": kind, "dtype": dtype, "shape": [2], "Max": number, "Min": number, "Mean": number, "Norm": number})
}

/// A norm whose scale is `scale`, then a difference that torch takes the other way round, of `subtrahend`.
fn write(path: &Path, is_mindspore: bool, scale: f64, subtrahend: f64) {
    let value = |number| value(is_mindspore, number);
    let (first, second) = (value(2.0), value(subtrahend));
    let difference = value(2.0 - subtrahend);
    let data = if is_mindspore {
        json!({
            "Cell.norm.LayerNorm.forward.0": {"input_args": [value(1.0)], "parameters": {"gamma": value(scale)},
                "output": [value(2.0)]},
            "Mint.sub.0.forward": {"input_args": [first, second], "output": [difference]},
        })
    } else {
        json!({
            "Module.norm.FusedLayerNorm.forward.0": {"input_args": [value(1.0)], "parameters": {"weight": value(scale)},
                "output": [value(2.0)]},
            "Torch.rsub.0.forward": {"input_args": [second, first], "output": [difference]},
        })
    };
    let framework = if is_mindspore { "mindspore" } else { "pytorch" };
    let document =
        json!({"task": "statistics", "level": "mix", "framework": framework, "dump_data_dir": null, "data": data});
    put(path, document.to_string());
}

fn answer(workspace: &Path, target: &str, golden: &str) -> Value {
    let said = trainmon(workspace, &["compare", target, golden, "--json", "-am", "am.yaml"]);
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {} {}", said.out, said.err))
}

#[test]
fn the_search_follows_lists_of_arguments_and_other_names_of_parameters() {
    let workspace = tempdir().unwrap();
    put(
        &workspace.path().join("am.yaml"),
        "- {ms_api: Mint.sub, pt_api: Torch.rsub, ms_args: [0, 1], pt_args: [1, 0]}\n",
    );
    write(&workspace.path().join("mindspore/dump.json"), true, 3.0, 0.5);
    write(&workspace.path().join("torch/dump.json"), false, 3.0, 0.5);
    write(&workspace.path().join("scaled/dump.json"), false, 3.5, 0.5);
    write(&workspace.path().join("moved/dump.json"), false, 3.0, 0.75);
    for turn in [|target, golden| [target, golden], |target, golden| [golden, target]] {
        let [target, golden] = turn("mindspore", "torch");
        let found = answer(workspace.path(), target, golden);
        assert_eq!((&found["verdict"], &found["operators_compared"]), (&json!("same"), &json!(2)), "{found:#}");
        let [target, golden] = turn("mindspore", "scaled");
        let found = answer(workspace.path(), target, golden);
        let name = found["suspects"][0]["name"].as_str().unwrap_or_default().to_owned();
        assert_eq!(found["kind"], "parameter", "{found:#}");
        assert!(name.ends_with(".parameters.gamma") || name.ends_with(".parameters.weight"), "{found:#}");
        let [target, golden] = turn("mindspore", "moved");
        let found = answer(workspace.path(), target, golden);
        let (name, operator) = (&found["suspects"][0]["name"], found["operator"].as_str().unwrap_or_default());
        let subtrahend = if operator.starts_with("Mint") { ".input.1" } else { ".input.0" };
        assert_eq!(*name, format!("{operator}{subtrahend}"), "{found:#}");
        assert!(operator.contains("sub"), "{found:#}");
    }
}
