//! Every database of the real msprobe in `$TRAINMON_GOLDEN/05_graph`, table by table and row by row.
//!
//! `TRAINMON_GOLDEN` names the data (default: `shared/golden` beside the checkout). `docs/proof/graph-msprobe.md` lists the
//! deviations, with the names that this file uses.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use trainmon_compare::matching::LayerMapping;
use trainmon_graph::{GraphError, GraphRequest, NodeMatching, WrittenGraph, write};

#[path = "../../cli/tests/support/golden.rs"]
mod recorded;

/// The deviation `texts`: `tb_config` has its own explanations.
const OWN_TEXTS: [&str; 2] = ["tool_tip", "node_colors"];
/// The deviation `no modules`: msprobe stops with an error and writes nothing.
const FAILED: [&str; 1] = ["build_L1"];

/// The case whose dumps were recorded again after its database, with a longer script: the line of the script in every stack moved.
const RECORDED_AGAIN: (&str, [&str; 2]) = ("compare_eps_tensor", ["run_dump.py, line 72,", "run_dump.py, line 68,"]);

struct Case {
    name: String,
    directory: PathBuf,
    request: GraphRequest,
}

fn cases(root: &Path, output: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(root.join("05_graph")).unwrap() {
        let directory = entry.unwrap().path();
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        let Ok(readme) = std::fs::read_to_string(directory.join("README.md")) else { continue };
        let line = |start: &str| readme.lines().find_map(|line| line.strip_prefix(start));
        let paths: Vec<&str> = line("- target = ").unwrap().split('`').collect();
        let command = line("- Command: ").unwrap();
        let matching = if command.contains(" -lm ") {
            NodeMatching::Layer(LayerMapping::read(&directory.join("layer_mapping.yaml")).unwrap())
        } else {
            NodeMatching::Name
        };
        let request = GraphRequest {
            target: root.join(paths[1]),
            golden: paths.get(3).map(|path| root.join(path)),
            output: output.join(&name),
            matching,
            is_overflow_checked: command.contains(" -oc"),
        };
        cases.push(Case { name, directory, request });
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

/// The rows of a table by their identifier, cells by column; paths are relative to the recorded dumps.
fn rows(database: &Connection, table: &str) -> BTreeMap<String, BTreeMap<String, Cell>> {
    let mut statement = database.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let read = statement.query_map([], |row| {
        let cells: BTreeMap<String, Cell> =
            columns.iter().enumerate().map(|(at, column)| (column.clone(), row.get(at).unwrap())).collect();
        Ok((row.get::<_, String>("id")?, cells))
    });
    let mut rows: BTreeMap<String, BTreeMap<String, Cell>> = read.unwrap().map(Result::unwrap).collect();
    for cells in rows.values_mut() {
        if let Some(Cell::Text(path)) = cells.get_mut("dump_data_dir") {
            let at = path.find("/03_dump/").unwrap();
            path.replace_range(..at, "");
        }
    }
    rows
}

/// Columns with their types, and indexes with their columns.
fn schema(database: &Connection) -> Vec<String> {
    let read = |query: &str| -> Vec<String> {
        let mut statement = database.prepare(query).unwrap();
        let found = statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
        found.collect()
    };
    let mut lines = read(
        "SELECT t.name || '.' || c.cid || ' ' || c.name || ' ' || c.type || ' ' || c.\"notnull\" || ' ' || c.pk
         FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY 1",
    );
    lines.extend(read(
        "SELECT i.name || ' ' || i.tbl_name || ' ' || c.seqno || ' ' || c.name
         FROM sqlite_master i, pragma_index_info(i.name) c WHERE i.type = 'index' ORDER BY 1",
    ));
    lines
}

fn open(path: &Path) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

/// The recorded databases are in WAL mode, so a copy is read.
fn recorded_database(case: &Case, room: &Path) -> Connection {
    let found = ["build.vis.db", "compare.vis.db"].map(|name| case.directory.join(name));
    let copy = room.join(format!("{}.db", case.name));
    std::fs::copy(found.iter().find(|path| path.exists()).unwrap(), &copy).unwrap();
    Connection::open(copy).unwrap()
}

/// Every difference of two databases, but for the listed deviations.
fn differences(ours: &Connection, theirs: &Connection, is_moved: bool) -> Vec<String> {
    let mut found = Vec::new();
    if schema(ours) != schema(theirs) {
        found.push(format!("schema: {:#?} instead of {:#?}", schema(ours), schema(theirs)));
    }
    for table in ["tb_nodes", "tb_config", "tb_stack"] {
        let (mut ours, theirs) = (rows(ours, table), rows(theirs, table));
        for cell in ours.values_mut().filter_map(|cells| cells.get_mut("stack_info")).filter(|_| is_moved) {
            if let Cell::Text(text) = cell {
                *text = text.replace(RECORDED_AGAIN.1[0], RECORDED_AGAIN.1[1]);
            }
        }
        let names = |rows: &BTreeMap<String, BTreeMap<String, Cell>>| rows.keys().cloned().collect::<Vec<String>>();
        if names(&ours) != names(&theirs) {
            found.push(format!("{table}: {:?} instead of {:?}", names(&ours), names(&theirs)));
        }
        for (id, theirs) in &theirs {
            let Some(ours) = ours.get(id) else { continue };
            for (column, cell) in theirs {
                let is_equal = if OWN_TEXTS.contains(&&**column) {
                    without_own_texts(&ours[column]) == without_own_texts(cell)
                } else {
                    ours[column] == *cell
                };
                if !is_equal {
                    found.push(format!("{table} {id} {column}: {}", difference(&ours[column], cell)));
                }
            }
        }
    }
    found
}

/// Both cells from the first difference on.
fn difference(ours: &Cell, theirs: &Cell) -> String {
    let [ours, theirs] = [ours, theirs].map(|cell| format!("{cell:?}").chars().collect::<Vec<char>>());
    let same = ours.iter().zip(&theirs).take_while(|(one, other)| one == other).count();
    let rest = |text: &[char]| text[same.saturating_sub(60)..].iter().take(160).collect::<String>();
    format!("{}\n    instead of {}", rest(&ours), rest(&theirs))
}

/// The deviation `texts`: keys, ranges and levels are compared, explanations only for being there.
fn without_own_texts(cell: &Cell) -> Option<Value> {
    let Cell::Text(text) = cell else { return None };
    let mut json: Value = serde_json::from_str(text).unwrap();
    for entry in json.as_object_mut().into_iter().flat_map(|object| object.values_mut()) {
        let description = if entry.is_string() { entry } else { &mut entry["description"] };
        *description = Value::Bool(description.as_str().is_some_and(|text| !text.is_empty()));
    }
    Some(json)
}

fn written(case: &Case) -> WrittenGraph {
    let written = write(&case.request, &mut |_| ()).unwrap();
    let files = std::fs::read_dir(&case.request.output).unwrap();
    let files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, std::slice::from_ref(&written.file), "{}: nothing else is left in the directory", case.name);
    written
}

#[test]
fn every_database_of_msprobe_is_written_row_by_row() {
    if recorded::golden("05_graph", "every_database_of_msprobe_is_written_row_by_row").is_none() {
        return;
    }
    let room = tempfile::tempdir().unwrap();
    let mut compared = Vec::new();
    let mut failures = Vec::new();
    for case in cases(&recorded::root(), room.path()) {
        if FAILED.contains(&&*case.name) {
            continue;
        }
        let ours = written(&case);
        assert!(ours.warnings.is_empty(), "{}: {:?}", case.name, ours.warnings);
        let is_moved = case.name == RECORDED_AGAIN.0;
        let found = differences(&open(&ours.file), &recorded_database(&case, room.path()), is_moved);
        if !found.is_empty() {
            let shown: Vec<&String> = found.iter().take(6).collect();
            failures.push(format!("{}: {} differences: {shown:#?}", case.name, found.len()));
        }
        compared.push(case.name);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(compared.len(), 11, "{compared:?}");
}

#[test]
fn operators_without_modules_are_collected_below_the_root() {
    if recorded::golden("05_graph", "operators_without_modules_are_collected_below_the_root").is_none() {
        return;
    }
    let room = tempfile::tempdir().unwrap();
    let case = cases(&recorded::root(), room.path()).into_iter().find(|case| case.name == "build_L1").unwrap();
    let ours = open(&written(&case).file);
    let nodes = rows(&ours, "tb_nodes");
    let cell = |name: &str, column: &str| match &nodes[&format!("NPU_0_0_{name}")][column] {
        Cell::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(cell("DefaultModel", "sub_nodes"), "[\"Apis_Between_Modules.0\"]");
    assert_eq!(cell("Apis_Between_Modules.0", "node_type"), "9");
    assert_eq!(cell("Functional.conv1d.0.forward", "up_node"), "Apis_Between_Modules.0");
    assert!(cell("Functional.conv1d.0.forward", "input_data").contains("\"torch.float32\""));
}

#[test]
fn every_recorded_dump_has_a_graph_also_compared_with_itself() {
    let test = "every_recorded_dump_has_a_graph_also_compared_with_itself";
    let Some(dumps) = recorded::golden("03_dump", test) else { return };
    let room = tempfile::tempdir().unwrap();
    let mut written_dumps = 0;
    for entry in std::fs::read_dir(dumps).unwrap() {
        let target = entry.unwrap().path().join("msprobe_out");
        if !target.is_dir() {
            continue;
        }
        for golden in [None, Some(target.clone())] {
            let is_compared = golden.is_some();
            let output = room.path().join("out");
            let matching = NodeMatching::Fuzzy;
            let request = GraphRequest { target: target.clone(), golden, output, matching, is_overflow_checked: true };
            match write(&request, &mut |_| ()) {
                Ok(written) => {
                    written_dumps += 1;
                    if is_compared {
                        let database = open(&written.file);
                        let bad = "SELECT count(*) FROM tb_nodes WHERE precision_index > 0 OR matched_node_link = '[]'";
                        let bad: i64 = database.query_row(bad, [], |row| row.get(0)).unwrap();
                        assert_eq!(bad, 0, "{}", target.display());
                    }
                }
                Err(GraphError::SavedValues { path }) => assert!(path.display().to_string().contains("debug_save")),
                Err(error) => panic!("{}: {error}", target.display()),
            }
        }
    }
    assert!(written_dumps > 80, "{written_dumps}");
}
