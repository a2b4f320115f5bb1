//! Graphs of small captures: structure, pairs, inputs and errors.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use trainmon_graph::{GraphError, GraphRequest, NodeMatching, WrittenGraph, write};
use trainmon_report::Advise;

fn tensor(norm: f64) -> Value {
    json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": norm, "Min": 0.0, "Mean": 0.5, "Norm": norm,
        "requires_grad": false})
}

fn call(norm: f64) -> Value {
    json!({"input_args": [tensor(1.0)], "input_kwargs": {}, "output": [tensor(norm)]})
}

/// Calls with a norm each, and the parents of nodes.
fn capture(directory: &Path, calls: &[(&str, f64)], parents: &[(&str, Option<&str>)]) {
    let data: serde_json::Map<String, Value> =
        calls.iter().map(|(name, norm)| ((*name).to_owned(), call(*norm))).collect();
    let construct: serde_json::Map<String, Value> =
        parents.iter().map(|(child, parent)| ((*child).to_owned(), json!(parent))).collect();
    fs::create_dir_all(directory).unwrap();
    let document =
        json!({"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": null, "data": data});
    fs::write(directory.join("dump.json"), document.to_string()).unwrap();
    fs::write(directory.join("construct.json"), Value::Object(construct).to_string()).unwrap();
    fs::write(directory.join("stack.json"), "{}").unwrap();
}

struct Room {
    directory: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, target: &str, golden: Option<&str>, matching: NodeMatching) -> Result<WrittenGraph, GraphError> {
        let request = GraphRequest {
            target: self.path(target),
            golden: golden.map(|name| self.path(name)),
            output: self.path("out"),
            matching,
            is_overflow_checked: false,
        };
        write(&request, &mut |_| ())
    }

    fn failed(&self, target: &str, golden: Option<&str>) -> GraphError {
        let error = self.write(target, golden, NodeMatching::Name).unwrap_err();
        assert!(!self.path("out").exists(), "a failed run leaves no file: {error}");
        assert!(!error.hint().is_empty());
        error
    }
}

fn texts(written: &WrittenGraph, query: &str) -> Vec<String> {
    let database = Connection::open_with_flags(&written.file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut statement = database.prepare(query).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
    rows.map(|row| row.unwrap().unwrap_or_else(|| "NULL".to_owned())).collect()
}

#[test]
fn a_forward_call_after_a_backward_call_begins_a_micro_batch() {
    let room = Room::new();
    let top: [(&str, Option<&str>); 8] = [
        "Module.a.A.forward.0",
        "Module.a.A.backward.0",
        "Torch.add.0.forward",
        "Module.a.A.forward.1",
        "Module.b.B.forward.0",
        "Module.b.B.backward.0",
        "Module.a.A.backward.1",
        "Torch.add.1.forward",
    ]
    .map(|name| (name, None));
    capture(&room.path("a"), &[], &top);
    let written = room.write("a", None, NodeMatching::Name).unwrap();
    let steps = "SELECT CAST(micro_step_id AS TEXT) FROM tb_nodes ORDER BY node_order";
    assert_eq!(texts(&written, steps).concat(), "000111110");
    assert_eq!(texts(&written, "SELECT CAST(micro_steps AS TEXT) FROM tb_config"), ["2"]);
}

#[test]
fn megatrons_own_numbers_of_micro_batches_are_used() {
    let room = Room::new();
    capture(&room.path("a"), &[], &[]);
    let construct = r#"{"Torch.add.0.forward": ["Module.a.A.forward.0", 1], "Module.a.A.forward.0": [null, 1],
        "megatron_micro_step_number": 2}"#;
    fs::write(room.path("a/construct.json"), construct).unwrap();
    let written = room.write("a", None, NodeMatching::Name).unwrap();
    let steps = "SELECT node_name || ' ' || micro_step_id FROM tb_nodes ORDER BY node_order";
    assert_eq!(texts(&written, steps), ["Torch.add.0.forward 1", "Module.a.A.forward.0 1", "DefaultModel 0"]);
}

#[test]
fn a_backward_call_without_a_parent_runs_in_the_module_of_its_forward_call() {
    let room = Room::new();
    let parents = [
        ("Torch.add.0.forward", Some("Module.a.A.forward.0")),
        ("Module.a.A.forward.0", None),
        ("Module.a.A.backward.0", None),
        ("Torch.add.0.backward", None),
    ];
    capture(&room.path("a"), &[("Module.a.A.parameters_grad.0", 1.0)], &parents);
    let written = room.write("a", None, NodeMatching::Name).unwrap();
    let children = "SELECT sub_nodes FROM tb_nodes WHERE node_name = 'Module.a.A.backward.0'";
    assert_eq!(texts(&written, children), [r#"["Torch.add.0.backward", "Module.a.A.parameters_grad.0"]"#]);
}

const MODULE: [(&str, Option<&str>); 2] =
    [("Torch.add.1.forward", Some("Module.a.A.forward.0")), ("Module.a.A.forward.0", None)];
const EARLIER: [(&str, Option<&str>); 2] =
    [("Torch.add.0.forward", Some("Module.a.A.forward.0")), ("Module.a.A.forward.0", None)];

#[test]
fn fuzzy_matching_ignores_the_number_of_a_call() {
    let room = Room::new();
    capture(&room.path("b"), &[("Torch.add.1.forward", 9.0), ("Module.a.A.forward.0", 1.0)], &MODULE);
    capture(&room.path("a"), &[("Torch.add.0.forward", 1.0), ("Module.a.A.forward.0", 1.0)], &EARLIER);
    let link = "SELECT matched_node_link FROM tb_nodes WHERE node_name LIKE 'Torch%' ORDER BY data_source DESC";
    let by_name = room.write("b", Some("a"), NodeMatching::Name).unwrap();
    assert_eq!(texts(&by_name, link), ["[]", "[]"]);
    let fuzzy = room.write("b", Some("a"), NodeMatching::Fuzzy).unwrap();
    let path = |name: &str| format!(r#"["DefaultModel", "Module.a.A.forward.0", "{name}"]"#);
    assert_eq!(texts(&fuzzy, link), [path("Torch.add.0.forward"), path("Torch.add.1.forward")]);
    let precision = "SELECT CAST(precision_index AS TEXT) FROM tb_nodes WHERE data_source = 'NPU' ORDER BY node_order";
    assert_eq!(texts(&fuzzy, precision), ["1", "0", "NULL"]);
    assert_ne!(by_name.file, fuzzy.file, "a second file of the same second has another name");
}

#[test]
fn steps_and_ranks_pair_by_number_and_the_rest_is_named() {
    let room = Room::new();
    let one = [("Torch.add.0.forward", 1.0)];
    for place in ["b/step0/rank0", "b/step0/rank1", "b/step2/rank0", "a/step0/rank1", "a/step1/rank0"] {
        capture(&room.path(place), &one, &[]);
    }
    let written = room.write("b", Some("a"), NodeMatching::Name).unwrap();
    assert_eq!((&written.steps[..], &written.ranks[..], written.nodes), (&[0][..], &[1][..], 4));
    assert_eq!(
        written.warnings,
        [
            "step 0, rank 0 exists only in the target",
            "step 2 exists only in the target",
            "step 1 exists only in the baseline"
        ]
    );
}

#[test]
fn damaged_and_empty_captures_are_named_and_leave_no_file() {
    let room = Room::new();
    capture(
        &room.path("cycle"),
        &[],
        &[
            ("Module.a.A.forward.0", Some("Module.b.B.forward.0")),
            ("Module.b.B.forward.0", Some("Module.a.A.forward.0")),
        ],
    );
    let error = room.failed("cycle", None);
    assert!(error.to_string().contains("construct.json`: expected a tree, but `Module.b.B.forward.0`"), "{error}");
    capture(&room.path("empty"), &[], &[]);
    assert!(matches!(room.failed("empty", None), GraphError::Empty { .. }));
    capture(&room.path("cut"), &[("Torch.add.0.forward", 1.0)], &[]);
    fs::write(room.path("cut/construct.json"), "{\"Torch.add").unwrap();
    assert!(room.failed("cut", None).to_string().contains("construct.json"));
    fs::create_dir_all(room.path("saved")).unwrap();
    fs::write(room.path("saved/debug.json"), "{}").unwrap();
    assert!(matches!(room.failed("saved", None), GraphError::SavedValues { .. }));
    assert!(matches!(room.failed("missing", None), GraphError::Capture(_)));
    capture(&room.path("run/step0/rank0"), &[("Torch.add.0.forward", 1.0)], &[]);
    assert!(matches!(room.failed("run", Some("empty")), GraphError::AnotherKind { .. }));
    capture(&room.path("other/step1/rank0"), &[("Torch.add.0.forward", 1.0)], &[]);
    assert!(matches!(room.failed("run", Some("other")), GraphError::NothingPairs { .. }));
}
