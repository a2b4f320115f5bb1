//! Every form of input: what pairs, and what has no counterpart.

use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::tempdir;
use trainmon_capture_files::{Leaf, find};
use trainmon_compare::matching::Matching;
use trainmon_compare::{
    Capture, CaptureVerdict, CompareError, Format, Meter, Options, Request, Tables, Thresholds, compare_matched,
};
use trainmon_report::Progress;
use trainmon_tensor_files::write::write_npy;

use crate::small::{answer, document, dump, floats, operators, put, tensor, trainmon};

/// The second operator parts on rank `rank` of step `step`.
fn assert_parts(answer: &Value, step: u64, rank: u64) {
    assert_eq!(answer["verdict"], "parts", "{answer:#}");
    assert_eq!(answer["operator"], "Functional.gelu.0.forward", "{answer:#}");
    assert_eq!((&answer["step"], &answer["ranks"]), (&json!(step), &json!([rank])), "{answer:#}");
}

#[test]
fn a_file_a_rank_and_a_step_pair_whatever_their_numbers() {
    let workspace = tempdir().unwrap();
    dump(&workspace.path().join("b/step3/rank0/dump.json"), 2.0);
    dump(&workspace.path().join("a/step5/rank0/dump.json"), 1.0);
    for (target, golden) in [
        ("b/step3/rank0/dump.json", "a/step5/rank0/dump.json"),
        ("b/step3/rank0", "a/step5/rank0"),
        ("b/step3", "a/step5"),
        ("b/step3/rank0/dump.json", "a/step5/rank0"),
    ] {
        let (code, answer) = answer(workspace.path(), target, golden);
        assert_eq!((code, &answer["verdict"]), (Some(1), &json!("parts")), "{target} {golden}: {answer:#}");
        assert_eq!(answer["operator"], "Functional.gelu.0.forward");
        let said = trainmon(workspace.path(), &["compare", target, target]);
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
}

#[test]
fn a_root_is_compared_in_all_its_steps_and_ranks_and_names_the_unpaired() {
    let workspace = tempdir().unwrap();
    for (side, steps) in [("b", [0, 1, 10]), ("a", [0, 1, 2])] {
        for step in steps {
            for rank in 0..2 {
                let value = if (side, step, rank) == ("b", 1, 1) { 2.0 } else { 1.0 };
                dump(&workspace.path().join(format!("{side}/step{step}/rank{rank}/dump.json")), value);
            }
        }
    }
    dump(&workspace.path().join("a/step1/rank2/dump.json"), 1.0);
    let (code, found) = answer(workspace.path(), "b", "a");
    assert_eq!(code, Some(1));
    assert_parts(&found, 1, 1);
    assert_eq!(found["target_only"], json!(["step 10"]));
    assert_eq!(found["golden_only"], json!(["step 1 rank 2", "step 2"]));
    let said = trainmon(workspace.path(), &["compare", "b", "a", "-o", "out", "--format", "csv"]);
    assert!(said.out.contains("step 10"), "{}", said.out);
    for table in ["step0", "step1"] {
        assert_eq!(fs::read_dir(workspace.path().join("out").join(table)).unwrap().count(), 2);
    }
}

#[test]
fn a_comparison_says_how_far_it_is_step_by_step() {
    let workspace = tempdir().unwrap();
    for side in ["b", "a"] {
        for step in 0..3 {
            dump(&workspace.path().join(format!("{side}/step{step}/rank0/dump.json")), 1.0);
        }
    }
    let (target, goldens) = (workspace.path().join("b"), [workspace.path().join("a")]);
    let (meter, mut seen) = (Arc::<Meter>::default(), Vec::new());
    let way = Options { matching: &Matching::Name, is_compat: false, is_for_tables: false };
    compare_matched((&target, &goldens), &Thresholds::default(), way, &meter, |_| {
        seen.push(meter.progress().done);
        Ok::<_, CompareError>(())
    })
    .unwrap();
    // Files count when they are read and again when they have been compared; all are of one size here.
    let Progress { done, total } = meter.progress();
    assert!(done == total && total > 0, "{done} of {total}");
    assert_eq!(seen, [total / 6, total / 2, total / 6 * 5]);
}

#[test]
fn rank_without_a_number_and_directories_of_processes_pair() {
    let workspace = tempdir().unwrap();
    for (target, golden) in [("rank", "rank0"), ("proc4711", "proc99"), ("proc4711", "rank0"), ("rank", "proc1")] {
        let case = workspace.path().join(format!("{target}-{golden}"));
        dump(&case.join("b/step0").join(target).join("dump.json"), 2.0);
        dump(&case.join("a/step0").join(golden).join("dump.json"), 1.0);
        let (_, found) = answer(&case, "b/step0", "a/step0");
        assert_parts(&found, 0, 0);
    }
    // Several processes are ranks by the order of their numbers, not of their names.
    for (side, processes) in [("b", [98, 100]), ("a", [7, 11])] {
        for (rank, process) in processes.into_iter().enumerate() {
            let value = if side == "b" && rank == 1 { 2.0 } else { 1.0 };
            dump(&workspace.path().join(format!("{side}/step0/proc{process}/dump.json")), value);
        }
    }
    assert_parts(&answer(workspace.path(), "b", "a").1, 0, 1);
}

#[test]
fn roots_of_graph_and_pynative_pair_part_by_part() {
    let workspace = tempdir().unwrap();
    for side in ["b", "a"] {
        dump(&workspace.path().join(side).join("graph/step0/rank0/dump.json"), 1.0);
        let value = if side == "b" { 2.0 } else { 1.0 };
        dump(&workspace.path().join(side).join("pynative/step0/rank0/dump.json"), value);
    }
    dump(&workspace.path().join("b/graph/step1/rank0/dump.json"), 1.0);
    let (_, found) = answer(workspace.path(), "b", "a");
    assert_parts(&found, 0, 0);
    assert_eq!(found["target_only"], json!(["graph step 1"]));
    trainmon(workspace.path(), &["compare", "b", "a", "-o", "out", "--format", "csv"]);
    assert_eq!(fs::read_dir(workspace.path().join("out/pynative/step0")).unwrap().count(), 1);
}

#[test]
fn values_a_script_saved_by_name_pair() {
    let workspace = tempdir().unwrap();
    for (side, value) in [("b", 2.0), ("a", 1.0)] {
        let data = json!({"x.0.debug": tensor(1.0), "loss.0.debug": {"total": [tensor(value)]}});
        put(&workspace.path().join(side).join("step0/rank0/debug.json"), document(&data).to_string());
    }
    let (code, found) = answer(workspace.path(), "b", "a");
    assert_eq!((code, &found["operator"]), (Some(1), &json!("loss.0.debug")), "{found:#}");
    trainmon(workspace.path(), &["compare", "b/step0", "a/step0", "-o", "out", "--format", "csv"]);
    let table = fs::read_dir(workspace.path().join("out")).unwrap().next().unwrap().unwrap();
    assert!(table.file_name().to_string_lossy().starts_with("debug_compare_result_rank0_"));
    assert!(fs::read_to_string(table.path()).unwrap().contains("\nloss.0.debug.total.0,loss.0.debug.total.0,"));
}

/// What a compiled graph writes: no number where there is NaN, no `requires_grad`, and arguments by their index as keys.
#[test]
fn dumps_of_acl_graphs_are_read() {
    let workspace = tempdir().unwrap();
    let file = |value: Value| {
        let tensor = |max: Value| {
            json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": max,
            "Min": 0.5, "Mean": null, "Norm": 1.0})
        };
        let data = json!({"Functional.gelu.0.forward":
            {"input_args": {"x": tensor(json!(1.0)), "1": tensor(Value::Null)}, "output": [tensor(value)]}});
        serde_json::to_string_pretty(&document(&data)).unwrap()
    };
    put(&workspace.path().join("b/step0/pid31/dump.json"), file(json!(2.0)));
    put(&workspace.path().join("a/step0/pid77/dump.json"), file(json!(1.0)));
    let (_, found) = answer(workspace.path(), "b", "a");
    assert_parts(&found, 0, 0);
    let capture = Capture::read(&find(&workspace.path().join("b")).unwrap().steps[0].ranks[0]).unwrap();
    let names: Vec<String> = capture.addresses().map(|address| capture.at(address).name()).collect();
    let name = |place: &str| format!("Functional.gelu.0.forward.{place}");
    assert_eq!(names, [name("input.x"), name("input.1"), name("output.0")]);
}

#[test]
fn older_files_are_read_stacks_by_name_and_marks_of_recomputation() {
    let workspace = tempdir().unwrap();
    let mut data = operators(1.0);
    for (_, operator) in data.as_object_mut().unwrap() {
        operator["is_recompute"] = json!(false);
    }
    let path = put(&workspace.path().join("b/step0/rank0/dump.json"), document(&data).to_string());
    let frames = json!(["File train.py, line 3, in step, \n y = gelu(x)"]);
    put(&path.with_file_name("stack.json"), json!({"Functional.gelu.0.forward": frames}).to_string());
    dump(&workspace.path().join("a/step0/rank0/dump.json"), 1.0);
    let (code, found) = answer(workspace.path(), "b", "a");
    assert_eq!((code, &found["verdict"]), (Some(0), &json!("same")), "{found:#}");
    let capture = Capture::read(&find(&workspace.path().join("b")).unwrap().steps[0].ranks[0]).unwrap();
    assert_eq!(capture.stacks.of("Functional.gelu.0.forward").map(<[_]>::len), Some(1));
    assert_eq!(capture.stacks.of("Functional.relu.0.forward"), None);
}

/// They are no JSON, and every dump of a training that went wrong has them.
#[test]
fn bare_nan_and_infinities_are_numbers() {
    let workspace = tempdir().unwrap();
    let text = document(&operators(12345.0)).to_string();
    for (side, max) in [("b", "NaN"), ("same", "NaN"), ("a", "1.0"), ("up", "Infinity"), ("down", "-Infinity")] {
        let text = text.replace("\"Max\":12345.0", &format!("\"Max\":{max}"));
        put(&workspace.path().join(side).join("dump.json"), text);
    }
    assert_eq!(answer(workspace.path(), "b", "same").1["verdict"], "same");
    for (target, golden) in [("b", "a"), ("up", "a"), ("up", "down")] {
        let (_, found) = answer(workspace.path(), target, golden);
        assert_parts(&found, 0, 0);
        assert_eq!(found["suspects"][0]["differs_in"], "NaN or infinity");
    }
}

#[test]
fn tensors_of_mindspore_are_read_from_npy_files() {
    let workspace = tempdir().unwrap();
    for (side, last) in [("b", 4.5_f32), ("a", 4.0)] {
        let mut facts = tensor(1.0);
        facts["type"] = json!("mindspore.Tensor");
        facts["dtype"] = json!("Float32");
        facts["data_name"] = json!("Mint.add.0.forward.output.0.npy");
        let mut text = document(&json!({"Mint.add.0.forward": {"input_args": [], "output": [facts]}}));
        (text["task"], text["framework"]) = (json!("tensor"), json!("mindspore"));
        let path = put(&workspace.path().join(side).join("step0/rank0/dump.json"), text.to_string());
        let mut file = Vec::new();
        write_npy(&floats(&[1.0, 2.0, 3.0, last]), &mut file).unwrap();
        put(&path.with_file_name("dump_tensor_data").join("Mint.add.0.forward.output.0.npy"), file);
    }
    let said = trainmon(workspace.path(), &["compare", "b/step0", "a/step0", "-o", "out", "--format", "csv"]);
    assert_eq!(said.code, Some(1), "the statistics agree, the elements do not: {}{}", said.out, said.err);
    let table = fs::read_dir(workspace.path().join("out")).unwrap().next().unwrap().unwrap().path();
    let mut reader = csv::Reader::from_path(table).unwrap();
    let column = reader.headers().unwrap().iter().position(|name| name == "MaxAbsErr").unwrap();
    let row = reader.records().next().unwrap().unwrap();
    assert_eq!(&row[column], "0.5", "{row:?}");
    let capture = Capture::read(&find(&workspace.path().join("b")).unwrap().steps[0].ranks[0]).unwrap();
    assert!(matches!(capture.document.operators[0].values[0].leaf, Leaf::Tensor(_)));
}

#[test]
fn every_file_of_a_tensor_is_read_once_by_search_table_and_page_together() {
    let workspace = tempdir().unwrap();
    let value = |name: &str, numbers: &[f32], side: &str| {
        let file = format!("{name}.npy");
        let mut bytes = Vec::new();
        write_npy(&floats(numbers), &mut bytes).unwrap();
        put(&workspace.path().join(side).join("step0/rank0/dump_tensor_data").join(&file), bytes);
        let mut facts = tensor(1.0);
        (facts["shape"], facts["data_name"]) = (json!([numbers.len()]), json!(file));
        facts
    };
    // The statistics agree throughout; the elements differ in the last bit before the runs part, then by much, then follow.
    let ends = [("b", [1.000_000_1, 2.0, 9.0, 9.5]), ("a", [1.0, 2.0, 3.0, 4.0])];
    for (side, ends) in ends {
        let mut data = serde_json::Map::new();
        for (call, end) in ends.into_iter().enumerate() {
            let input = value(&format!("Functional.relu.{call}.forward.input.0"), &[1.0, 2.0, 3.0], side);
            let output = value(&format!("Functional.relu.{call}.forward.output.0"), &[1.0, 2.0, end], side);
            data.insert(
                format!("Functional.relu.{call}.forward"),
                json!({"input_args": [input], "input_kwargs": {}, "output": [output]}),
            );
        }
        let mut text = document(&Value::Object(data));
        text["task"] = json!("tensor");
        put(&workspace.path().join(side).join("step0/rank0/dump.json"), text.to_string());
    }
    let request = |tables: Option<Tables>, is_compat: bool| {
        let (target, goldens) = (workspace.path().join("b/step0"), vec![workspace.path().join("a/step0")]);
        let (thresholds, matching) = (Thresholds::default(), Matching::Name);
        let request = Request { target, goldens, thresholds, matching, tables, is_compat, is_diff_analyze: false };
        let meter = Arc::<Meter>::default();
        let compared = request.run(&meter, &mut |_| ()).unwrap();
        assert!(matches!(compared.answer.verdict, CaptureVerdict::Parts { .. }), "{:?}", compared.answer.verdict);
        meter.tensors_read()
    };
    let tables = |name: &str| {
        let formats = vec![Format::Csv, Format::Html];
        Some(Tables { directory: workspace.path().join(name), formats })
    };
    assert_eq!(request(tables("out"), false), 16, "two sides, four calls, two values");
    assert_eq!(request(tables("compat"), true), 16);
    // The answer alone needs no tensor behind the place where they part, the third call.
    assert_eq!(request(None, false), 12);
}
