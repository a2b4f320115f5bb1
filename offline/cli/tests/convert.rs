//! `trainmon convert` as a person and as a program see it. What is in the event files, TensorBoard's own reader says in
//! `agent/python/tests/integrations/test_tensorboard.py`.

mod support;
#[path = "support/transcript.rs"]
mod transcript;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use support::{ProgramOutput, trainmon};
use transcript::Transcript;

const HEADER: &str = "vpp_stage,name,step,norm,shape,dtype\n";
const STEPS: &str = "step,unix_seconds,step_seconds,loss\n0,1700000000.5,nan,2.5\n1,1700000001.5,1.0,2.25\n";

/// A directory to work in.
struct Workspace {
    dir: TempDir,
}

impl Workspace {
    fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary directory") }
    }

    /// A run of one rank: gradients of two steps, and what is known of the run.
    fn with_run(name: &str) -> Self {
        let workspace = Self::new();
        workspace
            .write(&format!("{name}/grad_reduced_0-0.csv"), &format!("{HEADER}0,fc1.weight,0,1.5,[2],torch.float32\n"));
        workspace
            .write(&format!("{name}/grad_reduced_1-1.csv"), &format!("{HEADER}0,fc1.weight,1,nan,[2],torch.float32\n"));
        workspace.write(&format!("{name}/steps.csv"), STEPS);
        workspace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn convert(&self, arguments: &[&str]) -> ProgramOutput {
        self.trainmon(&[&["convert", "--to", "tensorboard"], arguments].concat())
    }

    fn trainmon(&self, arguments: &[&str]) -> ProgramOutput {
        trainmon(self.dir.path(), arguments)
    }

    /// The whole of stderr of a conversion that must fail and leave nothing.
    fn fails(&self, arguments: &[&str]) -> String {
        let before = self.everything();
        let said = self.convert(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
        assert_eq!(self.everything(), before, "nothing is left behind");
        said.err
    }

    /// Every file and directory below.
    fn everything(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(self.dir.path(), &mut found);
        found.sort();
        found
    }
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            collect(&path, found);
        }
        found.push(path);
    }
}

const RUN: &str = "Nov20_16-05-09-rank3-1f0a9c42";

#[test]
fn a_run_is_converted_and_told_in_three_lines() {
    let workspace = Workspace::with_run(RUN);
    let said = workspace.convert(&[RUN]);
    assert_eq!(said.err, "");
    let out = format!("{RUN}/tensorboard");
    assert_eq!(
        said.out,
        format!("{out}/rank3: steps 0 to 1, 5 values, 3 tags, 1 kinds\nnext: tensorboard --logdir {out}\n")
    );
    assert_eq!(said.code, Some(0));
    for run in ["", "grad_reduced"] {
        let files: Vec<_> = fs::read_dir(workspace.path(&out).join("rank3").join(run)).expect("there").collect();
        let is_event = |path: PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("tfevents"));
        assert!(files.into_iter().any(|file| is_event(file.expect("readable").path())), "{run:?}");
    }
}

#[test]
fn ranks_have_directories_of_their_own_and_runs_of_one_rank_their_names() {
    let workspace = Workspace::new();
    let other = "Nov20_16-05-10-rank3-00000000";
    for name in [RUN, other, "Nov20_16-05-09-rank10-00000001", "rank_2"] {
        workspace.write(&format!("out/{name}/exp_avg_1-1.csv"), &format!("{HEADER}0,a,1,1.0,[2],torch.float32\n"));
    }
    workspace.write("out/notes/exp_avg_1-1.csv", "not of a rank");
    let said = workspace.convert(&["out", "-o", "events/new", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let outs: Vec<&str> =
        report["runs"].as_array().expect("a list").iter().filter_map(|run| run["out"].as_str()).collect();
    let expected = ["rank2", RUN, other, "rank10"].map(|name| format!("events/new/{name}"));
    assert_eq!(outs, expected);
    assert_eq!(report["runs"][0]["steps"], serde_json::json!([1, 1]));
    assert!(expected.iter().all(|out| workspace.path(out).join("exp_avg").is_dir()));
    assert_eq!(said.code, Some(0));
}

#[test]
fn of_several_runs_the_newest_is_converted_and_that_is_said() {
    let workspace = Workspace::new();
    for (run, started) in [("train", 10), ("train-2", 11)] {
        for rank in 0..2 {
            let rows = format!("{HEADER}0,a,1,1.0,[2],torch.float32\n");
            workspace.write(&format!("out/{run}/rank_{rank}/exp_avg_0-9999.csv"), &rows);
        }
        let facts = format!(r#"{{"run": "train", "world_size": 2, "started": "2026-11-23T04:38:{started}Z"}}"#);
        workspace.write(&format!("out/{run}/run.json"), &facts);
    }
    let said = workspace.convert(&["out", "-o", "events"]);
    assert_eq!(said.err, "`out` contains 2 runs; converting the newest, train-2\n");
    assert!(workspace.path("events/rank1/exp_avg").is_dir());
    let said = workspace.convert(&["out", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(found["newest"], serde_json::json!({"directory": "out", "runs": 2, "taken": "out/train-2"}));
    assert_eq!(found["out"], "out/train-2/tensorboard");
    let said = workspace.convert(&["out/train"]);
    assert_eq!((said.err.as_str(), said.code), ("", Some(0)));
}

#[test]
fn a_torn_last_line_and_strange_files_are_warnings() {
    let workspace = Workspace::with_run(RUN);
    workspace
        .write(&format!("{RUN}/exp_avg_1-1.csv"), &format!("{HEADER}0,a,1,1.0,[2],torch.float32\n0,b,1,2.0,[2],tor"));
    workspace.write(&format!("{RUN}/exp_avg_sq_1-1.csv"), "vpp_sta");
    workspace.write(&format!("{RUN}/mine.csv"), "a,b\n");
    workspace.write(&format!("{RUN}/stack_info.csv"), "module_name,stack_info\n");
    let said = workspace.convert(&[RUN]);
    assert_eq!(
        said.err,
        format!(
            "warning: skipped `{RUN}/mine.csv`: not a table of a monitor\n\
             warning: `{RUN}/exp_avg_1-1.csv` line 3: ignored the truncated last line\n\
             warning: ignored `{RUN}/exp_avg_sq_1-1.csv`, which has no header\n"
        )
    );
    assert!(said.out.contains("6 values, 4 tags, 2 kinds"), "{}", said.out);
    assert_eq!(said.code, Some(0));
}

#[test]
fn rows_set_aside_in_mid_run_come_before_those_that_took_their_place() {
    let workspace = Workspace::new();
    let file = format!("{RUN}/exp_avg_0-9.csv");
    workspace.write(&format!("{file}.old"), &format!("{HEADER}0,a,1,1.0,[2],torch.float32\n"));
    workspace.write(&format!("{file}.old.2"), &format!("{HEADER}0,a,2,1.0,[2],torch.float32\n"));
    workspace.write(&file, "vpp_stage,name,step,max,shape,dtype\n0,a,3,1.0,[2],torch.float32\n");
    let said = workspace.convert(&[RUN]);
    assert!(said.out.contains("steps 1 to 3, 3 values, 2 tags"), "{}{}", said.out, said.err);
}

#[test]
fn a_step_that_comes_again_is_read_once_and_that_is_said() {
    let workspace = Workspace::new();
    let row = |(step, norm): (u64, f64)| format!("0,fc1.weight,{step},{norm},[2],torch.float32\n");
    let rows: String = [(0, 1.5), (1, 1.25), (0, 9.0), (1, 9.0), (2, 9.0)].into_iter().map(row).collect();
    workspace.write(&format!("{RUN}/grad_reduced_0-9.csv"), &format!("{HEADER}{rows}"));
    let again = "0,1700000008.5,,9.0\n1,1700000009.5,1.0,9.0\n2,1700000010.5,1.0,9.0\n";
    workspace.write(&format!("{RUN}/steps.csv"), &format!("{STEPS}{again}"));
    let said = workspace.convert(&[RUN]);
    let came =
        |file: &str| format!("warning: `{RUN}/{file}`: steps 0 to 1 occur again: reading the first occurrence\n");
    assert_eq!(said.err, [came("steps.csv"), came("grad_reduced_0-9.csv")].concat());
    assert!(said.out.contains("steps 0 to 2, 8 values"), "{}", said.out);
}

#[test]
fn rows_of_msprobes_collectives_are_left_out_with_one_warning_per_table() {
    let workspace = Workspace::with_run(RUN);
    let row = "all_reduce,0,w,0,1.0,2.0,3.0\n";
    workspace.write(&format!("{RUN}/other_0-0.csv"), &format!("vpp_stage,name,step,sign\n0,w,0,0.5\n{row}{row}"));
    let said = workspace.convert(&[RUN]);
    let what = "ignored rows of collectives, which msprobe writes with other columns";
    assert_eq!(said.err, format!("warning: `{RUN}/other_0-0.csv`: {what}\n"));
    assert!(said.out.contains("2 kinds"), "{}", said.out);
}

#[test]
fn what_is_no_run_is_refused() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("empty")).expect("writable");
    workspace.write("other/notes.txt", "x");
    let hint = "hint: pass a run's directory, that of one rank (rank_0, Nov20_16-05-09-rank0-1f0a9c42), or the one that \
                holds all runs\n";
    assert_eq!(
        workspace.fails(&["empty"]),
        format!("error: `empty` is not a run directory: the directory is empty\n{hint}")
    );
    assert_eq!(
        workspace.fails(&["other"]),
        format!(
            "error: `other` is not a run directory: neither the directory nor a rank's directory in it has CSV files of a \
             monitor\n{hint}"
        )
    );
    assert_eq!(
        workspace.fails(&["missing"]),
        "error: cannot read directory `missing`\nCaused by: No such file or directory (os error 2)\n\
         hint: check the path; it is relative to the current directory\n"
    );
    let file = workspace.fails(&["other/notes.txt"]);
    assert!(file.contains("cannot read directory `other/notes.txt`") && file.contains("Not a directory"), "{file}");
}

#[test]
fn an_existing_output_is_refused_and_an_empty_directory_is_taken() {
    let workspace = Workspace::with_run(RUN);
    workspace.write("events/mine", "x");
    assert_eq!(
        workspace.fails(&[RUN, "-o", "events"]),
        "error: `events` already exists\nhint: pass another directory with `--output`, or remove this one\n"
    );
    fs::remove_file(workspace.path("events/mine")).expect("removable");
    assert_eq!(workspace.convert(&[RUN, "-o", "events"]).code, Some(0));
}

#[test]
fn damage_is_named_with_file_line_and_column() {
    let good = "0,a,5,1.0,[2],torch.float32\n";
    let mut transcript = Transcript::default();
    for (case, text) in [
        ("no number", format!("{HEADER}{good}0,b,5,1.O,[2],torch.float32\n")),
        ("no step", format!("{HEADER}0,b,five,1.0,[2],torch.float32\n")),
        ("cells too few", format!("{HEADER}{good}0,b,5\n{good}")),
        ("empty number", format!("{HEADER}{good}0,b,5,,[2],torch.float32\n")),
        ("no column of steps", "vpp_stage,name,norm,shape,dtype\n0,a,1.0,[2],torch.float32\n".to_owned()),
        ("no column of scopes", "vpp_stage,step,module_name,norm\n-1,0,a,1.0\n".to_owned()),
    ] {
        let workspace = Workspace::with_run(RUN);
        workspace.write(&format!("{RUN}/exp_avg_5-5.csv"), &text);
        let said = workspace.convert(&[RUN]);
        assert_eq!(said.code, Some(2), "{case}");
        transcript.add(case, &said);
    }
    let workspace = Workspace::with_run(RUN);
    fs::write(workspace.path(&format!("{RUN}/exp_avg_5-5.csv")), [HEADER.as_bytes(), b"0,\xff,5,1.0,[2],x\n"].concat())
        .expect("writable");
    transcript.add("no text", &workspace.convert(&[RUN]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn the_json_form_has_the_same_shape_for_success_and_failure() {
    let workspace = Workspace::with_run(RUN);
    for (arguments, is_ok) in [([RUN, "--json"], true), (["missing", "--json"], false)] {
        let said = workspace.convert(&arguments);
        let report: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
        let keys: Vec<&String> = report.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["ok", "out", "newest", "runs", "warnings", "error"]);
        assert_eq!((report["ok"].as_bool(), report["error"].is_null()), (Some(is_ok), is_ok));
        assert_eq!((said.code, said.err.as_str()), (Some(if is_ok { 0 } else { 2 }), ""));
    }
}

#[test]
fn the_format_is_asked_for() {
    let workspace = Workspace::new();
    for arguments in [&["convert", RUN][..], &["convert", "--to", "parquet", RUN]] {
        let said = workspace.trainmon(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
        assert!(said.err.contains("--to"), "{}", said.err);
    }
}

#[test]
fn what_a_script_told_by_name_goes_beside_the_runs_own_numbers() {
    let workspace = Workspace::with_run(RUN);
    workspace.write(&format!("{RUN}/scalar_0-0.csv"), "vpp_stage,name,step,value\n0,val/accuracy,0,0.5\n");
    let said = workspace.convert(&[RUN]);
    assert_eq!((said.err.as_str(), said.code), ("", Some(0)));
    assert!(said.out.contains("steps 0 to 1, 6 values, 4 tags, 1 kinds"), "{}", said.out);
    let out = workspace.path(&format!("{RUN}/tensorboard/rank3"));
    assert!(!out.join("scalar").exists());
    let holds = |path: PathBuf| fs::read(path).is_ok_and(|bytes| bytes.windows(12).any(|part| part == b"val/accuracy"));
    let mut files = fs::read_dir(out).expect("there").map(|file| file.expect("readable").path());
    assert!(files.any(holds));
}
