//! `trainmon merge-ranks` on runs of many ranks, and what it says of rows that have no place in a merged run.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{ProgramOutput, trainmon};
use tempfile::TempDir;

/// Tables per rank, beside `steps.csv`.
const KINDS: [&str; 6] = ["grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated", "update"];
const STEPS: u64 = 3;
const HEADER: &str = "vpp_stage,name,step,min,max,mean,norm,std,zeros,shape,dtype\n";

/// The elements of `layers.0.weight` that a rank has, and `layers.0.bias`, which is the same on all.
fn shard(rank: u32) -> [f64; 2] {
    [f64::from(rank), f64::from(rank) + 0.5]
}
const BIAS: [f64; 4] = [1.0, 0.0, -2.0, 4.0];

fn row(text: &mut String, name: &str, step: u64, values: &[f64], shape: &str) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let fold = |start: f64, of: fn(f64, f64) -> f64| values.iter().copied().fold(start, of);
    let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let std = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
    let zeros = values.iter().filter(|value| **value == 0.0).count() as f64 / count;
    let (min, max) = (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max));
    writeln!(text, "0,{name},{step},{min:?},{max:?},{mean:?},{norm:?},{std:?},{zeros:?},\"{shape}\",torch.float32")
        .expect("text");
}

/// Writes a rank that has two elements of the weight. `more`: rows of `grad_reduced` that are none of these, without `\n`.
fn write_rank(run: &Path, rank: u32, ranks: u32, more: &[&str]) {
    let directory = run.join(format!("rank_{rank}"));
    fs::create_dir_all(&directory).expect("room");
    let all = format!("[[0, {ranks}, 1]]");
    let entry = |name: &str, shape: &str, part: &str| {
        format!(r#"{{"name": "{name}", "shape": {shape}, "values": {part}, "gradient": {part}, "moments": {part}}}"#)
    };
    let parameters = [
        entry("layers.0.weight", &format!("[{ranks}, 2]"), "[0, 2]"),
        entry("layers.0.bias", "[4]", "[1, 4]"),
        entry("unknown", "[2]", "null"),
    ];
    let groups = format!("[[{rank}, 1, 1]], {all}");
    let layout = format!(
        r#"{{"format": 1, "framework": "fsdp2", "rank": {rank}, "world_size": {ranks}, "groups": [{groups}],
            "parameters": [{}]}}"#,
        parameters.join(", ")
    );
    fs::write(directory.join("layout.json"), layout).expect("room");
    for kind in KINDS {
        let mut text = HEADER.to_owned();
        for step in 0..STEPS {
            row(&mut text, "layers.0.weight", step, &shard(rank), "[1, 2]");
            row(&mut text, "layers.0.bias", step, &BIAS, "[4]");
            for name in more.iter().filter(|_| kind == KINDS[0]) {
                row(&mut text, name, step, &[1.0, 2.0], "[2]");
            }
        }
        fs::write(directory.join(format!("{kind}_0-9999.csv")), text).expect("room");
    }
    let mut steps = "step,unix_seconds,step_seconds,loss,learning_rate,grad_norm\n".to_owned();
    for step in 0..STEPS {
        writeln!(steps, "{step},{}.5,1.0,{rank}.5,0.001,2.0", 1_795_190_400 + step).expect("text");
    }
    fs::write(directory.join("steps.csv"), steps).expect("room");
}

fn write_run(run: &Path, ranks: u32, more: &[&str]) {
    for rank in 0..ranks {
        write_rank(run, rank, ranks, more);
    }
    let told = format!(r#"{{"run": "job", "world_size": {ranks}, "job": "", "started": "2026-11-20T00:00:00Z"}}"#);
    fs::write(run.join("run.json"), told).expect("room");
}

/// As a user whose processes may hold so many files open.
fn with_files(most: u32, directory: &Path, arguments: &str) -> ProgramOutput {
    let program = env!("CARGO_BIN_EXE_trainmon");
    let line = format!("ulimit -n {most} && exec '{program}' {arguments}");
    ProgramOutput::by(Command::new("sh").args(["-c", &line]).current_dir(directory))
}

/// The rows of the merged tables of a kind.
fn lines(run: &Path, kind: &str) -> Vec<String> {
    let entries = fs::read_dir(run.join("rank_0")).expect("it was written");
    let is_meant = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.rsplit_once('_').is_some_and(|(prefix, _)| prefix == kind)
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).filter(is_meant).collect();
    paths.sort();
    let texts = paths.iter().map(|path| fs::read_to_string(path).expect("readable"));
    texts.flat_map(|text| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The name and the numbers of a line.
fn cells(line: &str) -> (&str, Vec<f64>) {
    let numbers = line.split(',').skip(3).take(6).map(|cell| cell.parse().expect("a number")).collect();
    (line.split(',').nth(1).expect("a name"), numbers)
}

#[test]
fn three_hundred_ranks_are_merged_and_compared_by_a_process_that_may_open_64_files() {
    const RANKS: u32 = 300;
    let folder = TempDir::new().expect("a temporary directory");
    write_run(&folder.path().join("sharded"), RANKS, &[]);
    let said = with_files(64, folder.path(), "merge-ranks sharded -o whole");
    assert_eq!(said.code, Some(0), "{said:?}");
    let whole: Vec<f64> = (0..RANKS).flat_map(shard).collect();
    let mut text = String::new();
    row(&mut text, "layers.0.weight", 0, &whole, "");
    row(&mut text, "layers.0.bias", 0, &BIAS, "");
    let expected: BTreeMap<&str, Vec<f64>> = text.lines().map(cells).collect();
    let files = fs::read_dir(folder.path().join("whole/rank_0")).expect("it was written").count();
    assert_eq!(files, KINDS.len() + 1, "a table for each kind, not one for each step");
    for kind in KINDS {
        let found = lines(&folder.path().join("whole"), kind);
        assert_eq!(found.len() as u64, 2 * STEPS, "{kind}");
        for (name, numbers) in found.iter().map(|line| cells(line)) {
            for (one, other) in numbers.iter().zip(&expected[name]) {
                assert!((one - other).abs() <= 1e-12 * other.abs().max(1.0), "{kind} of {name}: {numbers:?}");
            }
        }
    }
    let steps = fs::read_to_string(folder.path().join("whole/rank_0/steps.csv")).expect("it was written");
    let losses: Vec<&str> = steps.lines().skip(1).filter_map(|line| line.split(',').nth(3)).collect();
    assert_eq!(losses, ["150.0"; STEPS as usize], "the mean of all ranks: {steps}");
    // The same training on one rank.
    fs::rename(folder.path().join("whole"), folder.path().join("single")).expect("the same disk");
    let said = with_files(64, folder.path(), "compare sharded single --json");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("300 ranks"), "{said:?}");
}

#[test]
fn rows_that_are_lost_are_told_and_decide_the_exit_code() {
    for (more, lost) in [
        (&["unknown"][..], "6 rows of grad_reduced not written: of a part that `layout.json` does not list"),
        (&["layers.1.weight"], "6 rows of grad_reduced not written: of a parameter that `layout.json` does not list"),
    ] {
        let folder = TempDir::new().expect("a temporary directory");
        write_run(&folder.path().join("run"), 2, more);
        let said = trainmon(folder.path(), &["merge-ranks", "run", "-o", "whole"]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains(lost), "{said:?}");
        let said = trainmon(folder.path(), &["merge-ranks", "run", "-o", "told", "--json"]);
        assert!(said.out.contains(r#""ok": false"#) && said.out.contains(r#""is_loss": true"#), "{said:?}");
        write_run(&folder.path().join("other"), 1, &[]);
        let said = trainmon(folder.path(), &["compare", "run", "other"]);
        assert!(said.out.contains(lost) || said.err.contains(lost), "{said:?}");
    }
}

/// Copies that a layout takes for parts, or parameters of several stages under one name.
#[test]
fn more_elements_than_a_parameter_has_are_an_error_of_their_own() {
    let folder = TempDir::new().expect("a temporary directory");
    write_run(&folder.path().join("run"), 2, &[]);
    for rank in 0..2 {
        let path = folder.path().join(format!("run/rank_{rank}/layout.json"));
        let text = fs::read_to_string(&path).expect("it was written").replace("[1, 4]", "[0, 4]");
        fs::write(path, text).expect("room");
    }
    let said = trainmon(folder.path(), &["merge-ranks", "run", "-o", "whole"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("3 rows of exp_avg not written: its parts have more elements than"), "{said:?}");
    assert!(said.err.contains("of `layers.0.bias`: 8 elements, it has 4"), "{said:?}");
    assert!(!said.err.contains("8 of 4"), "{said:?}");
    let written = lines(&folder.path().join("whole"), "exp_avg");
    assert!(written.iter().all(|line| line.starts_with("0,layers.0.weight")), "{written:?}");
}

#[test]
fn what_differs_between_all_ranks_together_is_of_no_single_rank() {
    let folder = TempDir::new().expect("a temporary directory");
    write_run(&folder.path().join("run"), 2, &[]);
    let said = trainmon(folder.path(), &["merge-ranks", "run", "-o", "single"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let path = folder.path().join("run/rank_1/param_origin_0-9999.csv");
    let mut text = HEADER.to_owned();
    for step in 0..STEPS {
        row(&mut text, "layers.0.weight", step, &[1.0, 9.5], "[1, 2]");
        row(&mut text, "layers.0.bias", step, &BIAS, "[4]");
    }
    fs::write(path, text).expect("room");
    let said = trainmon(folder.path(), &["compare", "run", "single"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("param_origin of `layers.0.weight`: "), "{said:?}");
    assert!(!said.out.contains("rank 0"), "{said:?}");
    let said = trainmon(folder.path(), &["compare", "run", "single", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert!(found["first"]["rank"].is_null() && found["ranks"][0]["rank"].is_null(), "{found}");
    assert_eq!(found["first"]["name"], "layers.0.weight");
}

#[test]
fn rows_that_are_each_ranks_own_are_no_loss() {
    let folder = TempDir::new().expect("a temporary directory");
    write_run(&folder.path().join("run"), 2, &[]);
    for rank in 0..2 {
        let mut text = HEADER.to_owned();
        row(&mut text, "layers.0.weight", 0, &shard(rank), "[1, 2]");
        fs::write(folder.path().join(format!("run/rank_{rank}/grad_unreduced_0-9999.csv")), text).expect("room");
    }
    let said = trainmon(folder.path(), &["merge-ranks", "run", "-o", "whole"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("omitted: 2 rows of grad_unreduced, of each rank's own data"), "{said:?}");
}

/// Numbers for a whole parameter: those of copies are written as they are, those of parts are not to be had.
#[test]
fn state_of_another_shape_than_the_parameters_is_kept_of_copies_and_left_out_of_parts() {
    let folder = TempDir::new().expect("a temporary directory");
    write_run(&folder.path().join("run"), 2, &[]);
    for rank in 0..2 {
        let line = |name: &str| format!("0,{name}.mu_product,1,0.5,0.5,0.5,0.5,nan,0.0,[],torch.float32\n");
        let text = format!("{HEADER}{}{}", line("layers.0.weight"), line("layers.0.bias"));
        fs::write(folder.path().join(format!("run/rank_{rank}/optimizer_state_0-9999.csv")), text).expect("room");
    }
    let said = trainmon(folder.path(), &["merge-ranks", "run", "-o", "whole"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("omitted: 1 row of optimizer_state, not computable from parts"), "{said:?}");
    let found = lines(&folder.path().join("whole"), "optimizer_state");
    assert_eq!(found, ["0,layers.0.bias.mu_product,1,0.5,0.5,0.5,0.5,nan,0.0,[],torch.float32"]);
}

#[test]
fn of_a_run_of_one_rank_there_is_nothing_to_merge() {
    let directory = TempDir::new().expect("a temporary directory");
    let run = directory.path().join("run");
    write_rank(&run, 0, 1, &[]);
    fs::remove_file(run.join("rank_0/layout.json")).expect("it is there");
    let said = trainmon(directory.path(), &["merge-ranks", "run", "-o", "merged"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.starts_with("error: `run/rank_0` is the only rank and has no `layout.json`: "), "{}", said.err);
}
