//! `trainmon compare` as a person and as a script see it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::small::trainmon;
use crate::transcript::Transcript;

/// A capture of one rank: `linear` (its weight, its output) and `relu`.
fn dump(weight: f64, eps: f64, output: f64) -> Value {
    let tensor = |norm: f64| {
        json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 2], "Max": norm / 2.0, "Min": -norm / 2.0,
               "Mean": 0.0, "Norm": norm, "requires_grad": true})
    };
    json!({"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": {
        "Functional.linear.0.forward": {
            "input_args": [tensor(1.0), tensor(weight)], "input_kwargs": {}, "output": [tensor(2.0 * weight)]},
        "Functional.layer_norm.0.forward": {
            "input_args": [tensor(2.0 * weight), {"type": "float", "value": eps}], "input_kwargs": {}, "output": [tensor(output)]},
    }})
}

fn write(directory: &Path, step: u64, rank: u64, dump: &Value) {
    let directory = directory.join(format!("step{step}/rank{rank}"));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("dump.json"), dump.to_string()).unwrap();
}

fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(directory).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_answer_is_a_sentence_and_an_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("same"), 0, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("weight"), 0, 0, &dump(1.1, 1e-5, 3.3));
    write(&directory.path().join("eps"), 0, 0, &dump(1.0, 1e-2, 2.9));
    let compare = |target: &str| trainmon(directory.path(), &["compare", target, "golden"]);
    let mut transcript = Transcript::default();
    for (target, code) in [("same", 0), ("weight", 1), ("eps", 1)] {
        let said = compare(target);
        assert_eq!(said.code, Some(code), "{target}");
        transcript.add(target, &said);
    }
    insta::assert_snapshot!(transcript);
}

#[test]
fn what_one_side_lacks_is_said_to_be_absent_there() {
    let directory = tempfile::tempdir().unwrap();
    let whole = dump(1.0, 1e-5, 3.0);
    let call = "Functional.layer_norm.0.forward";
    let (mut lean, mut none) = (whole.clone(), whole.clone());
    lean["data"][call]["input_args"].as_array_mut().unwrap().pop();
    none["data"][call]["input_args"][1] = Value::Null;
    for (name, dump) in [("whole", &whole), ("lean", &lean), ("none", &none)] {
        write(&directory.path().join(name), 0, 0, dump);
    }
    let compare = |target: &str, golden: &str| trainmon(directory.path(), &["compare", target, golden]).out;
    for (target, golden, words) in [
        ("lean", "whole", "absent (baseline: 1e-05)"),
        ("whole", "lean", "1e-05 (baseline: absent)"),
        ("none", "whole", "None (baseline: 1e-05)"),
        ("whole", "none", "1e-05 (baseline: None)"),
    ] {
        let said = compare(target, golden);
        assert!(said.contains(&format!("`normalized_shape` is {words}")), "{said}");
    }
}

#[test]
fn fail_on_says_when_a_script_stops() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("golden"), 1, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("one_step"), 0, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("eps"), 0, 0, &dump(1.0, 1e-2, 2.9));
    let code =
        |target: &str, level: &str| trainmon(directory.path(), &["compare", target, "golden", "--fail-on", level]).code;
    assert_eq!((code("eps", "error"), code("eps", "never")), (Some(1), Some(0)));
    assert_eq!((code("one_step", "error"), code("one_step", "warning")), (Some(0), Some(1)));
    let said = trainmon(directory.path(), &["compare", "one_step", "golden"]).out;
    assert!(said.contains("only in the baseline: step 1"), "{said}");
}

#[test]
fn json_has_the_same_answer() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("eps"), 0, 0, &dump(1.0, 1e-2, 2.9));
    let said = trainmon(directory.path(), &["compare", "eps", "golden", "--json"]);
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    let expected =
        json!({"verdict": "parts", "kind": "argument", "operator": "Functional.layer_norm.0.forward", "step": 0});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&answer[key], value, "{key}");
    }
    assert_eq!(answer["suspects"][0]["target"], "0.01");
    let failed = trainmon(directory.path(), &["compare", "nowhere", "golden", "--json"]);
    let answer: Value = serde_json::from_str(&failed.out).unwrap();
    assert_eq!((failed.code, &answer["verdict"]), (Some(2), &json!("failed")));
}

#[test]
fn msprobes_spelling_writes_msprobes_files() {
    let directory = tempfile::tempdir().unwrap();
    for (name, eps) in [("golden", 1e-5), ("eps", 1e-2)] {
        for rank in 0..2 {
            write(&directory.path().join(name), 0, rank, &dump(1.0, eps, 3.0));
        }
    }
    let arguments = ["compare", "-tp", "eps/step0", "-gp", "golden/step0", "-o", "out", "--compat"];
    let said = trainmon(directory.path(), &arguments);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let names: Vec<String> = files(&directory.path().join("out"));
    let stems: Vec<&str> = names.iter().filter_map(|name| name.rsplit_once('_')).map(|(stem, _)| stem).collect();
    assert_eq!(stems, ["compare_result_rank0", "compare_result_rank1"]);
    let table = std::fs::read_to_string(directory.path().join("out").join(&names[0])).unwrap();
    assert!(table.lines().next().unwrap().ends_with("Requires_grad Consistent,Result,Err_message"), "{table}");
    assert!(table.contains("The scalar parameters of NPU and Bench are inconsistent."), "{table}");
}

#[test]
fn every_step_and_rank_has_its_table_and_a_failure_leaves_none() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["golden", "target"] {
        for (step, rank) in [(0, 0), (0, 1), (3, 0), (3, 1)] {
            write(&directory.path().join(name), step, rank, &dump(1.0, 1e-5, 3.0));
        }
    }
    let compare = |out: &str| {
        trainmon(directory.path(), &["compare", "target", "golden", "-o", out, "--format", "csv,json,md,xlsx"])
    };
    let said = compare("report");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(files(&directory.path().join("report")).len(), 2 * 2 * 4);
    // The last file breaks off: nothing of the others may stay.
    let broken = directory.path().join("target/step3/rank1/dump.json");
    let text = std::fs::read_to_string(&broken).unwrap();
    std::fs::write(&broken, &text[..text.len() / 2]).unwrap();
    let said = compare("broken");
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("target/step3/rank1/dump.json`, line 1, column"), "{}", said.err);
    assert!(said.err.contains("hint: capture again: the process was probably killed"), "{}", said.err);
    assert!(!directory.path().join("broken").exists(), "nothing is left, not even the directory");
}

#[test]
fn thresholds_are_a_file_and_its_mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("off"), 0, 0, &dump(1.0, 1e-5, 3.003));
    let compare = |text: &str| {
        std::fs::write(directory.path().join("own.toml"), text).unwrap();
        trainmon(directory.path(), &["compare", "off", "golden", "--thresholds", "own.toml"])
    };
    assert_eq!(compare("").code, Some(1));
    assert_eq!(compare("[operators]\n\"Functional.layer_norm\" = 0.01\n").code, Some(0));
    let misspelt = compare("grwth = 3\n");
    assert_eq!(misspelt.code, Some(2));
    assert!(misspelt.err.contains("grwth") && misspelt.err.contains("line 1"), "{}", misspelt.err);
    let negative = compare("growth = -1.0\n");
    assert!(negative.err.contains("`growth`: expected a number of at least 1, found -1"), "{}", negative.err);
}

#[test]
fn the_sample_thresholds_are_the_defaults() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/compare.toml");
    let thresholds = trainmon_compare::Thresholds::read(&sample).unwrap();
    assert_eq!(thresholds, trainmon_compare::Thresholds::default());
}

#[test]
fn golden_runs_bound_a_value_by_their_own_spread() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("again"), 0, 0, &dump(1.0, 1e-5, 3.01));
    write(&directory.path().join("target"), 0, 0, &dump(1.0, 1e-5, 3.015));
    assert_eq!(trainmon(directory.path(), &["compare", "target", "golden"]).code, Some(1));
    assert_eq!(trainmon(directory.path(), &["compare", "target", "golden", "again"]).code, Some(0));
}

#[test]
fn structures_are_compared_by_calls_and_modules() {
    let directory = tempfile::tempdir().unwrap();
    let capture = |name: &str, construct: Value| {
        let place = directory.path().join(name);
        std::fs::create_dir_all(&place).unwrap();
        let dump =
            json!({"task": "structure", "level": "mix", "framework": "pytorch", "dump_data_dir": null, "data": {}});
        std::fs::write(place.join("dump.json"), dump.to_string()).unwrap();
        std::fs::write(place.join("construct.json"), construct.to_string()).unwrap();
    };
    let module = "Module.a.Linear.forward.0";
    capture("golden", json!({"Functional.linear.0.forward": module, module: null, "Torch.relu.0.forward": null}));
    capture("same", json!({"Functional.linear.0.forward": module, module: null, "Torch.relu.0.forward": null}));
    capture("less", json!({"Functional.linear.0.forward": module, module: null}));
    capture("moved", json!({"Functional.linear.0.forward": null, module: null, "Torch.relu.0.forward": null}));
    let compare = |target: &str| {
        let said = trainmon(directory.path(), &["compare", target, "golden", "-o", "out", "--fail-on", "warning"]);
        (said.code, said.out.lines().next().unwrap().to_owned())
    };
    assert_eq!(compare("same"), (Some(0), "No divergence: 3 operators agree in every captured value".to_owned()));
    let less = "No divergence, but the calls differ: only the baseline has `Torch.relu.0.forward` (step 0, rank 0)";
    assert_eq!(compare("less"), (Some(1), less.to_owned()));
    let moved = "First divergence: step 0, rank 0, `Functional.linear.0.forward`: argument `parent` is None (baseline: \
                 Module.a.Linear.forward.0)";
    assert_eq!(compare("moved"), (Some(1), moved.to_owned()));
}

#[test]
fn a_value_of_the_golden_alone_has_every_column_also_where_one_side_kept_no_stacks() {
    for side in ["target", "golden"] {
        let directory = tempfile::tempdir().unwrap();
        let mut target = dump(1.0, 1e-5, 3.0);
        target["data"].as_object_mut().unwrap().remove("Functional.layer_norm.0.forward");
        write(&directory.path().join("target"), 0, 0, &target);
        write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
        let stacks = json!({"0": [["Functional.linear.0.forward"], ["File model.py, line 7"]]});
        std::fs::write(directory.path().join(side).join("step0/rank0/stack.json"), stacks.to_string()).unwrap();
        let (target, golden) = ("target/step0/rank0/dump.json", "golden/step0/rank0/dump.json");
        let said = trainmon(
            directory.path(),
            &["compare", target, golden, "-o", "out", "--format", "csv", "--fail-on", "never"],
        );
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        let tables = files(&directory.path().join("out"));
        let mut table = csv::Reader::from_path(directory.path().join("out").join(&tables[0])).unwrap();
        let has_stacks = table.headers().unwrap().iter().any(|header| header == "NPU_Stack_Info");
        assert_eq!(has_stacks, side == "target");
        assert_eq!(table.records().map(Result::unwrap).count(), 6, "rows of equal length");
    }
}

#[test]
fn the_first_error_of_the_table_is_where_the_answer_says_that_they_part() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("weight"), 0, 0, &dump(1.1, 1e-5, 3.3));
    let said = trainmon(directory.path(), &["compare", "weight", "golden", "-o", "out", "--format", "csv"]);
    assert!(said.out.contains("The parameter differs"), "{}{}", said.out, said.err);
    let tables = files(&directory.path().join("out"));
    let mut table = csv::Reader::from_path(directory.path().join("out").join(&tables[0])).unwrap();
    let headers = table.headers().unwrap().clone();
    let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
    let records: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    let first = records.iter().find(|record| &record[column("Result")] == "error").unwrap();
    assert_eq!(&first[column("NPU Name")], "Functional.linear.0.forward.input.1");
    assert!(first[column("Err_message")].contains("first divergence"), "{first:?}");
}

#[test]
fn msprobes_long_options_and_equal_signs_are_understood() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
    write(&directory.path().join("target"), 0, 0, &dump(1.1, 1e-5, 3.3));
    let long: &[&str] = &[
        "--target_path",
        "target/step0",
        "--golden_path=golden/step0",
        "--output_path",
        "long",
        "--fuzzy_match",
        "--diff_analyze",
        "--cell_mapping",
        "--is_print_compare_log",
        "--mode",
        "auto",
    ];
    let short: &[&str] = &["-tp=target/step0", "-gp=golden/step0", "-o=short", "-m", "auto"];
    // Of `--diff_analyze` there is the rank's JSON beside its table; msprobe's rules find nothing in it.
    for (arguments, output, count) in [(long, "long", 2), (short, "short", 1)] {
        let said = trainmon(directory.path(), &[&["compare"], arguments].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(files(&directory.path().join(output)).len(), count, "{said:?}");
    }
    let said = trainmon(directory.path(), &["compare", "-tp", "target", "-gp", "golden", "-m", "torchair"]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

#[test]
fn a_mapping_that_is_not_there_is_not_told_how_to_be_written() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
    std::fs::write(directory.path().join("broken.yaml"), "- 3\n").unwrap();
    let said = |path: &str| trainmon(directory.path(), &["compare", "golden", "golden", "-lm", path]).err;
    assert!(said("absent.yaml").ends_with("hint: check the path; it is relative to the current directory\n"));
    assert!(said("broken.yaml").ends_with("hint: docs/compare-matching.md has an example of each kind of mapping\n"));
}

#[test]
fn a_mapping_that_pairs_nothing_is_noted() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("golden"), 0, 0, &dump(1.0, 1e-5, 3.0));
    let value = "Functional.linear.0.forward.input.0";
    std::fs::write(directory.path().join("used.yaml"), format!("{value}: {value}\n")).unwrap();
    std::fs::write(directory.path().join("unused.yaml"), "Functional.lniear.0.forward.input.0: a\n").unwrap();
    let said = |path: &str| trainmon(directory.path(), &["compare", "golden", "golden", "-dm", path]).err;
    assert_eq!(said("used.yaml"), "");
    assert_eq!(
        said("unused.yaml"),
        "note: `unused.yaml` matches no names: check that its names are those of the target\n"
    );
}

#[test]
fn first_differences_are_written_of_every_step() {
    let directory = tempfile::tempdir().unwrap();
    for (name, output) in [("golden", 3.0), ("target", 9.0)] {
        for step in 0..2 {
            write(&directory.path().join(name), step, 0, &dump(1.0, 1e-5, output));
        }
    }
    for (more, tables) in [(&["--compat"][..], 0), (&[], 1)] {
        let out = format!("out{tables}");
        let arguments = [&["compare", "-tp", "target", "-gp", "golden", "-da", "-o", &out], more].concat();
        assert_eq!(trainmon(directory.path(), &arguments).code, Some(0));
        let found = files(&directory.path().join(out));
        for step in ["step0", "step1"] {
            let count = |stem: &str, ending: &str| {
                let is_meant = |name: &&String| name.starts_with(&format!("{step}/{stem}")) && name.ends_with(ending);
                found.iter().filter(is_meant).count()
            };
            let counts =
                [count("diff_analyze_", "json"), count("compare_result_rank0_", "json"), count("compare_", "csv")];
            assert_eq!(counts, [1, 1, tables], "{found:?}");
        }
    }
}
