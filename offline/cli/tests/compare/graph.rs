//! `trainmon graph` as a person runs it.

use serde_json::Value;

use crate::small::{dump, listed, put, trainmon};

/// A capture of two operators with their call tree.
fn capture(directory: &std::path::Path, value: f64) {
    dump(&directory.join("dump.json"), value);
    put(&directory.join("stack.json"), "{}");
    put(
        &directory.join("construct.json"),
        r#"{"Functional.relu.0.forward": "Module.net.Net.forward.0", "Module.net.Net.forward.0": null,
            "Functional.gelu.0.forward": "Module.net.Net.forward.0"}"#,
    );
}

#[test]
fn the_file_is_written_once_and_named() {
    let workspace = tempfile::tempdir().unwrap();
    for step in ["b/step0", "b/step1", "a/step0"] {
        capture(&workspace.path().join(step).join("rank0"), 2.0);
    }
    let said = trainmon(workspace.path(), &["graph", "b", "a", "-o", "out"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), "warning: step 1 exists only in the target\n"));
    let written = listed(&workspace.path().join("out"));
    assert!(matches!(&written[..], [one] if one.starts_with("compare_2") && one.ends_with(".vis.db")), "{written:?}");
    assert_eq!(said.out, format!("out/{}: 8 nodes of 1 step and 1 rank\n", written[0]));
}

#[test]
fn msprobes_spelling_is_taken_and_the_answer_is_json_on_request() {
    let workspace = tempfile::tempdir().unwrap();
    capture(&workspace.path().join("b/step0/rank0"), 2.0);
    capture(&workspace.path().join("a/step0/rank0"), 3.0);
    let arguments =
        ["graph_visualize", "-tp", "b", "-gp", "a", "--output_path", "out", "-oc", "-lm", "-tensor_log", "--json"];
    let said = trainmon(workspace.path(), &arguments);
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &answer["ok"], &answer["kind"]), (Some(0), &true.into(), &"compare".into()), "{said:?}");
    assert_eq!(answer["nodes"], 8);
}

#[test]
fn a_damaged_capture_is_named_and_leaves_no_directory() {
    let workspace = tempfile::tempdir().unwrap();
    capture(&workspace.path().join("b"), 2.0);
    put(&workspace.path().join("b/construct.json"), r#"{"a": "b", "b": "a"}"#);
    let said = trainmon(workspace.path(), &["graph", "b", "-o", "out"]);
    assert_eq!(said.code, Some(2));
    assert_eq!(
        said.err,
        "error: `b/construct.json`: expected a tree, but `b` is among its own parents\n\
         hint: capture again: the `construct.json` is damaged\n"
    );
    assert!(listed(&workspace.path().join("out")).is_empty() && !workspace.path().join("out").exists());
}
