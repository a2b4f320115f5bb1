//! What is compared with what: captures, monitored runs, checkpoints; and what nobody can tell.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::small::{answer, answer_of, document, dump, listed, numbers, operators, put, tensor, trainmon};

/// A checkpoint of one tensor.
fn checkpoint(path: &Path, value: f32) {
    let header = r#"{"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&value.to_le_bytes());
    put(path, bytes);
}

/// A monitor's output of one rank.
fn monitored(directory: &Path, value: f64) {
    let rows = format!("vpp_stage,name,step,norm,max\n0,fc.weight,0,{value},{value}\n0,fc.weight,1,{value},{value}\n");
    put(&directory.join("Jan01_00-00-00-rank0-00000000/grad_reduced_0-1.csv"), rows);
}

/// The chain of two operators, its tensors changed.
fn changed(change: impl Fn(&mut Value)) -> String {
    let mut data = operators(2.0);
    for operator in data.as_object_mut().unwrap().values_mut() {
        for list in ["input_args", "output"] {
            operator[list].as_array_mut().unwrap().iter_mut().for_each(&change);
        }
    }
    document(&data).to_string()
}

fn digests(digest: &str) -> String {
    changed(|tensor| {
        *tensor = json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 2], "requires_grad": false,
            "md5": digest});
    })
}

#[test]
fn checkpoints_and_monitored_runs_are_known_by_what_they_are_in_both_spellings() {
    let workspace = tempdir().unwrap();
    checkpoint(&workspace.path().join("a.safetensors"), 1.0);
    checkpoint(&workspace.path().join("b.safetensors"), 2.0);
    monitored(&workspace.path().join("run_a"), 1.0);
    monitored(&workspace.path().join("run_b"), 2.0);
    let code = |arguments: &[&str]| trainmon(workspace.path(), arguments).code;
    assert_eq!(code(&["compare", "a.safetensors", "a.safetensors"]), Some(0));
    let said =
        trainmon(workspace.path(), &["compare", "b.safetensors", "a.safetensors", "-o", "out/checkpoints", "--xlsx"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("1 in both: 0 identical, 0 within rounding, 1 different"), "{said:?}");
    assert_eq!(said.err, "note: --xlsx has no effect for checkpoints\n");
    assert_eq!(listed(&workspace.path().join("out/checkpoints")), ["compare.csv", "compare.html", "compare.json"]);
    let [target, golden] = ["run_b", "run_a"];
    assert_eq!(code(&["compare", target, golden]), Some(1));
    let said = trainmon(workspace.path(), &["compare", "-tp", target, "-gp", golden, "-o", "out/runs"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(listed(&workspace.path().join("out/runs")), ["compare.csv", "compare.html", "compare.json"]);
}

#[test]
fn the_json_of_every_comparison_begins_with_its_version_and_ends_with_the_files_and_the_error() {
    let workspace = tempdir().unwrap();
    checkpoint(&workspace.path().join("b.safetensors"), 2.0);
    checkpoint(&workspace.path().join("a.safetensors"), 1.0);
    for (name, value) in [("b", 2.0), ("a", 1.0)] {
        monitored(&workspace.path().join(format!("run_{name}")), value);
        dump(&workspace.path().join(format!("capture_{name}/step0/rank0/dump.json")), value);
    }
    let envelope = |arguments: &[&str]| {
        let said = trainmon(workspace.path(), &[arguments, &["--json"]].concat());
        let json: Value = serde_json::from_str(&said.out).unwrap();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys[..2], ["version", "compared"], "{json:#}");
        assert_eq!(keys[keys.len() - 2..], ["files", "error"], "{json:#}");
        assert_eq!(json["version"], 1);
        (
            json["compared"].as_str().unwrap().to_owned(),
            json["files"].as_array().unwrap().len(),
            json["error"].is_null(),
        )
    };
    for (command, [target, golden], compared, files) in [
        ("compare", ["capture_b", "capture_a"], "captures", 2),
        ("compare", ["run_b", "run_a"], "runs", 3),
        ("compare-runs", ["run_b", "run_a"], "runs", 3),
        ("compare", ["b.safetensors", "a.safetensors"], "checkpoints", 3),
        ("compare-checkpoint", ["b.safetensors", "a.safetensors"], "checkpoints", 3),
    ] {
        assert_eq!(envelope(&[command, target, golden]), (compared.to_owned(), 0, true));
        let output = format!("out/{command}_{compared}");
        assert_eq!(envelope(&[command, target, golden, "-o", &output]), (compared.to_owned(), files, true));
        let of_nothing = if command == "compare" { "captures" } else { compared };
        assert_eq!(envelope(&[command, "nowhere", golden]), (of_nothing.to_owned(), 0, false));
    }
}

#[test]
fn what_is_of_two_kinds_is_named() {
    let workspace = tempdir().unwrap();
    dump(&workspace.path().join("capture/step0/rank0/dump.json"), 2.0);
    monitored(&workspace.path().join("run"), 1.0);
    let said = trainmon(workspace.path(), &["compare", "capture", "run", "-o", "out"]);
    assert_eq!(said.code, Some(2));
    assert_eq!(
        said.err,
        "error: `run` is a monitor's output, the other path is not\nhint: pass two captures, two monitored runs or two checkpoints\n"
    );
    // The directory was made for the tables, of which there are none.
    assert!(!workspace.path().join("out").exists());
}

#[test]
fn the_level_on_which_nothing_pairs_is_named() {
    let workspace = tempdir().unwrap();
    dump(&workspace.path().join("rank1/step0/rank1/dump.json"), 2.0);
    dump(&workspace.path().join("rank0/step0/rank0/dump.json"), 2.0);
    dump(&workspace.path().join("graph/graph/step0/rank0/dump.json"), 2.0);
    let said = |target: &str| trainmon(workspace.path(), &["compare", target, "rank0"]).err;
    let said = [said("rank1"), said("graph")];
    assert!(
        said[0].starts_with(
            "error: no step or rank in common: `rank1` has ranks 1 in step 0, `rank0` has ranks 0 in step 0\n"
        ),
        "{said:?}"
    );
    assert!(
        said[1].starts_with("error: no step or rank in common: `graph` has steps graph 0, `rank0` has steps 0\n"),
        "{said:?}"
    );
}

#[test]
fn captures_without_anything_in_common_do_not_agree() {
    let workspace = tempdir().unwrap();
    put(&workspace.path().join("empty.json"), document(&json!({})).to_string());
    let other =
        json!({"Torch.tanh.0.forward": {"input_args": [tensor(1.0)], "input_kwargs": {}, "output": [tensor(1.0)]}});
    put(&workspace.path().join("other.json"), document(&other).to_string());
    dump(&workspace.path().join("golden.json"), 2.0);
    for target in ["empty.json", "other.json"] {
        let (code, found) = answer(workspace.path(), target, "golden.json");
        assert_eq!((code, &found["verdict"]), (Some(1), &json!("cannot_tell")), "{found:#}");
        assert!(found["sentence"].as_str().unwrap().contains("has a counterpart in the other"), "{found:#}");
    }
}

#[test]
fn checksums_of_two_kinds_say_nothing_of_each_other() {
    let workspace = tempdir().unwrap();
    put(&workspace.path().join("crc.json"), digests("37bf296c"));
    put(&workspace.path().join("other_crc.json"), digests("37bf296d"));
    put(&workspace.path().join("xor.json"), digests("0x017c45157daa1aeb"));
    let verdict = |target: &str| answer(workspace.path(), target, "crc.json").1["verdict"].clone();
    assert_eq!(
        ["crc.json", "other_crc.json", "xor.json"].map(verdict),
        ["same", "parts", "cannot_tell"].map(Value::from)
    );
}

#[test]
fn checksums_beside_statistics_are_no_error_for_being_asked_for_tables() {
    let workspace = tempdir().unwrap();
    put(&workspace.path().join("crc.json"), digests("37bf296c"));
    dump(&workspace.path().join("statistics.json"), 2.0);
    let compare =
        |more: &[&str]| trainmon(workspace.path(), &[&["compare", "crc.json", "statistics.json"], more].concat());
    for said in [compare(&[]), compare(&["-o", "out"])] {
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.out.starts_with("Cannot tell: "), "{said:?}");
    }
    assert_eq!(compare(&["-o", "compat", "--compat"]).code, Some(2));
}

#[test]
fn a_capture_of_structure_is_held_against_the_structure_of_another() {
    let workspace = tempdir().unwrap();
    let tree = json!({"Functional.relu.0.forward": "Module.act.ReLU.forward.0", "Module.act.ReLU.forward.0": null,
        "Functional.gelu.0.forward": null});
    let mut other = tree.clone();
    other["Functional.gelu.0.forward"] = json!("Module.act.ReLU.forward.0");
    let structure = json!({"task": "structure", "level": "mix", "framework": "pytorch", "data": {}}).to_string();
    for (name, tree) in [("structure", &tree), ("moved", &other), ("golden", &tree)] {
        let path = workspace.path().join(name).join("dump.json");
        if name == "golden" {
            dump(&path, 2.0)
        } else {
            put(&path, &structure)
        };
        put(&path.with_file_name("construct.json"), tree.to_string());
    }
    let (code, found) = answer(workspace.path(), "structure", "golden");
    assert_eq!((code, &found["verdict"]), (Some(1), &json!("cannot_tell")), "{found:#}");
    let (_, found) = answer(workspace.path(), "moved", "golden");
    assert_eq!([&found["verdict"], &found["operator"]], ["parts", "Functional.gelu.0.forward"], "{found:#}");
}

#[test]
fn an_argument_that_one_side_leaves_out_is_another_call() {
    let workspace = tempdir().unwrap();
    let mut data = operators(2.0);
    put(&workspace.path().join("golden.json"), document(&data).to_string());
    for operator in ["Functional.relu.0.forward", "Functional.gelu.0.forward"] {
        let left_out = data.clone();
        data[operator]["input_kwargs"] = json!({"reduction": {"type": "str", "value": "sum"}});
        put(&workspace.path().join("target.json"), document(&data).to_string());
        let (_, found) = answer(workspace.path(), "target.json", "golden.json");
        assert_eq!([&found["operator"], &found["kind"]], [operator, "argument"], "{found:#}");
        data = left_out;
    }
}

#[test]
fn tensors_that_cannot_be_read_are_counted_in_the_answer() {
    let workspace = tempdir().unwrap();
    let with_files = changed(|tensor| tensor["data_name"] = json!("absent.pt")).replace("\"statistics\"", "\"tensor\"");
    for side in ["target", "golden"] {
        put(&workspace.path().join(side).join("dump.json"), &with_files);
    }
    let (code, found) = answer(workspace.path(), "target", "golden");
    assert_eq!((code, &found["verdict"], &found["values_unread"]), (Some(0), &json!("same"), &json!(4)), "{found:#}");
    let said = trainmon(workspace.path(), &["compare", "target", "golden", "--fail-on", "warning"]);
    assert_eq!(said.code, Some(1));
    assert!(said.out.contains("\n  4 tensors cannot be read: only the statistics"), "{said:?}");
}

#[test]
fn of_a_saved_value_nothing_is_said_of_what_goes_into_it() {
    let workspace = tempdir().unwrap();
    for (side, value) in [("target", 2.0), ("golden", 1.0)] {
        put(
            &workspace.path().join(side).join("debug.json"),
            document(&json!({"loss.0.debug": tensor(value)})).to_string(),
        );
    }
    let (_, found) = answer(workspace.path(), "target", "golden");
    assert!(found["details"][0].as_str().unwrap().starts_with("It is the first saved value that differs"), "{found:#}");
}

fn plain(kind: &str, value: &Value) -> Value {
    json!({"type": kind, "value": value})
}

/// A linear in bfloat16 that rounds by a little, and a call with an argument behind it.
fn rounded_then_called(by: f64, argument: &Value) -> Value {
    let of = |max: f64| numbers(&[64, 64], "torch.bfloat16", [max, -1.0, 0.01, 20.0]);
    json!({
        "Functional.linear.0.forward": {"input_args": [of(1.0)], "input_kwargs": {}, "output": [of(1.0 + by)]},
        "Functional.pad.0.forward": {"input_args": [of(1.0 + by), argument], "input_kwargs": {}, "output": [of(1.0 + by)]},
    })
}

#[test]
fn an_argument_is_another_however_much_the_values_round() {
    for (kind, golden, target) in [
        ("int", json!(4096), json!(4095)),
        ("int", json!(-4096), json!(-4095)),
        ("float", json!(0.125), json!(0.124)),
        ("float", json!(0.999), json!(0.9985)),
        ("float", json!(0.124_034_734_589_208_54), json!(0.124_434_734_589_208_54)),
    ] {
        let side = |by, value| rounded_then_called(by, &plain(kind, value));
        let (code, answer) = answer_of(&side(0.004, &target), &side(0.0, &golden));
        assert_eq!((code, &answer["kind"]), (Some(1), &json!("argument")), "{answer}");
        assert_eq!(answer["operator"], "Functional.pad.0.forward");
        let (code, answer) = answer_of(&side(0.004, &golden), &side(0.0, &golden));
        assert_eq!((code, &answer["verdict"]), (Some(0), &json!("rounding")), "{answer}");
    }
}

#[test]
fn micro_batches_in_another_order_are_told_as_that() {
    let batches = [[1.0, -1.0, 0.1, 8.0], [2.0, -2.0, 0.2, 9.0], [3.0, -3.0, 0.3, 7.0]];
    let run = |order: [usize; 3]| {
        let calls = order.iter().enumerate().map(|(call, &batch)| {
            let input = numbers(&[8, 8], "torch.float32", batches[batch]);
            let output = numbers(&[8, 8], "torch.float32", batches[batch].map(|number| number * 2.0));
            (
                format!("Functional.gelu.{call}.forward"),
                json!({"input_args": [input], "input_kwargs": {}, "output": [output]}),
            )
        });
        Value::Object(calls.collect())
    };
    let (code, answer) = answer_of(&run([2, 1, 0]), &run([0, 1, 2]));
    assert_eq!((code, &answer["kind"]), (Some(1), &json!("data")), "{answer}");
    let details = answer["details"].to_string();
    assert!(details.contains("the target's data at `Functional.gelu.2.forward`, and vice versa"), "{details}");
    assert!(details.contains("Checksums (`summary_mode: md5`) would show it"), "{details}");
}

#[test]
fn a_loss_is_no_sum_that_cancels() {
    let run = |loss: f64| {
        let logits = numbers(&[4096, 32000], "torch.float32", [10.0, -10.0, 0.0, 20000.0]);
        let loss = numbers(&[], "torch.float32", [loss; 4]);
        json!({"Module.loss.CrossEntropyLoss.forward.0": {"input_args": [logits], "input_kwargs": {}, "output": [loss]}})
    };
    let (code, answer) = answer_of(&run(11.0), &run(10.0));
    assert_eq!((code, &answer["verdict"]), (Some(1), &json!("parts")), "{answer}");
}

/// A gradient of the same elements in another shape, and who is given it.
fn reshaped_backward(shape: &[u64], factor: f64) -> Value {
    let of = |shape: &[u64], factor: f64| {
        numbers(shape, "torch.float32", [0.5, -0.5, 0.01, 3.0].map(|number| number * factor))
    };
    let incoming = numbers(&[6, 8], "torch.float32", [1.0, -1.0, 0.1, 6.0]);
    json!({
        "Functional.mix.0.backward": {"input": [incoming], "output": [of(shape, factor)]},
        "Functional.gelu.0.backward": {"input": [of(&[6, 8], factor)], "output": [of(&[6, 8], 2.0 * factor)]},
    })
}

#[test]
fn a_gradient_in_another_shape_must_have_the_numbers_of_its_counterpart() {
    let golden = reshaped_backward(&[6, 8], 1.0);
    let (code, answer) = answer_of(&reshaped_backward(&[8, 6], 1.0), &golden);
    assert_eq!(code, Some(0), "{answer}");
    let (code, answer) = answer_of(&reshaped_backward(&[8, 6], 0.5), &golden);
    assert_eq!((code, &answer["verdict"]), (Some(1), &json!("parts")), "{answer}");
}

#[test]
fn runs_that_differ_in_what_is_left_of_a_sum_are_not_told_to_be_the_same() {
    let run = |left: f64| {
        let gradient = numbers(&[1024, 64], "torch.float32", [1.0, -1.0, 0.0, 90.0]);
        let sum = numbers(&[64], "torch.float32", [left, -left, 0.0, 4.0 * left]);
        json!({"Functional.linear.0.backward": {"input": [gradient], "output": [sum]}})
    };
    let (code, answer) = answer_of(&run(3e-7), &run(1e-7));
    assert_eq!((code, &answer["verdict"]), (Some(0), &json!("rounding")), "{answer}");
    assert!(answer["sentence"].as_str().unwrap().contains("only sums that cancel differ"), "{answer}");
}
