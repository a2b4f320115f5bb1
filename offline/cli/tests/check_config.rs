//! The whole output of `trainmon`, as a person and as a program see it.

mod support;

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use support::{ProgramOutput, program, trainmon};

/// A directory with one config file in it.
struct Workspace {
    dir: TempDir,
}

impl Workspace {
    fn with(config: &str) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        fs::write(dir.path().join("train.json"), config).expect("writable");
        Self { dir }
    }

    fn program(&self, arguments: &[&str]) -> Command {
        program(self.dir.path(), arguments)
    }

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        trainmon(self.dir.path(), arguments)
    }
}

#[test]
fn a_good_config_is_shown_whole_on_request() {
    let workspace = Workspace::with("{\n  // norms only\n  \"wg_distribution\": true,\n}\n");
    let said = workspace.run(&["check-config", "train.json", "--full"]);
    assert_eq!(said.err, "");
    insta::assert_snapshot!(said.out);
    assert_eq!(said.code, Some(0));
}

#[test]
fn what_differs_from_the_defaults_is_shown() {
    let v1 = r#"{"wg_distribution": true, "step_interval": 5, "start_step": 0, "ndigits": 6, "overhead_budget": 1}"#;
    let v2 = r#"{"monitors": {"param": {"enabled": true, "ops": ["max"]}}, "stop_step": 9}"#;
    for (config, expected) in [
        (
            v1,
            json!({
                "window": {"step_interval": 5},
                "weight_grad": {"ops": ["norm"], "eps": 1e-8, "every_micro_batch": false, "micro_batches": null},
                "csv": {"ndigits": 6},
                "overhead_budget": 0.01,
            }),
        ),
        (v2, json!({"window": {"stop_step": 9}, "param": {"ops": ["max"], "eps": 1e-8}})),
        ("{}", json!({})),
    ] {
        let said = Workspace::with(config).run(&["check-config", "train.json"]);
        let shown: Value = serde_json::from_str(&said.out).expect("JSON");
        assert_eq!(shown, expected, "{config}");
        assert_eq!(said.code, Some(0), "{config}");
    }
}

#[test]
fn a_config_of_a_capture_is_known_by_its_task_and_judged_wholly() {
    let workspace = Workspace::with(
        r#"{"task": "statistics", "dump_path": "d", "level": "mix", "statistics": {"summary_mode": "md5"}}"#,
    );
    let said = workspace.run(&["check-config", "train.json"]);
    assert_eq!((said.err.as_str(), said.code), ("", Some(0)));
    let shown: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(shown, json!({"dump_path": "d", "level": "mix", "summary": "md5"}));
    let workspace =
        Workspace::with(r#"{"task": "tensor", "dump_path": "d", "levl": "L1", "step": ["3-1"], "run_ut": {}}"#);
    let said = workspace.run(&["check-config", "train.json"]);
    assert_eq!(said.code, Some(2));
    for part in [
        "error: train.json:1:38: key `levl`: unknown key; did you mean `level`?",
        "key `step[0]`: expected numbers from 0 to 1000000, and ranges like \"3-5\"",
        "warning: train.json:1:69: key `run_ut`: has no effect: see `acc_check`",
    ] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
}

#[test]
fn every_fault_of_a_bad_config_is_shown_at_once_in_the_order_of_the_file() {
    let workspace = Workspace::with(include_str!("data/bad_config.json"));
    let said = workspace.run(&["check-config", "train.json"]);
    assert_eq!(said.out, "");
    insta::assert_snapshot!(said.err);
    assert_eq!(said.code, Some(2));
}

#[test]
fn the_json_form_has_the_same_shape_for_good_bad_and_missing_files() {
    for (config, file, is_ok, kinds) in [
        ("{\"wg_distribution\": true, \"seed\": 1}", "train.json", true, vec![]),
        ("{\"wg_distribution\": 1, \"format\": [\"api\"]}", "train.json", false, vec!["wrong_type", "not_implemented"]),
        ("{\"a\":", "train.json", false, vec!["syntax"]),
        ("{}", "missing.json", false, vec!["unreadable"]),
    ] {
        let said = Workspace::with(config).run(&["check-config", "--json", file]);
        let report: Value = serde_json::from_str(&said.out).expect("JSON");
        assert_eq!(said.err, "", "{config}");
        assert_eq!(said.code, Some(if is_ok { 0 } else { 2 }), "{config}");
        assert_eq!(report["file"], file);
        assert_eq!(report["ok"], is_ok, "{config}");
        assert_eq!(report["config"].is_object(), is_ok, "{config}");
        let keys: Vec<&String> = report.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["file", "ok", "errors", "warnings", "config"]);
        let found: Vec<&str> =
            report["errors"].as_array().expect("a list").iter().filter_map(|e| e["kind"].as_str()).collect();
        assert_eq!(found, kinds, "{config}");
        for error in report["errors"].as_array().expect("a list") {
            let keys: Vec<&String> = error.as_object().expect("an object").keys().collect();
            let expected =
                ["message", "file", "line", "column", "key", "kind", "expected", "found", "suggestion", "hint"];
            assert_eq!(keys, expected);
        }
    }
}

#[test]
fn headers_for_a_receiver_are_shown_neither_in_a_good_config_nor_below_a_fault() {
    let members = |protocol: &str| {
        format!(
            "{{\"wg_distribution\": true, \"otlp\": {{\"protocol\": {protocol}, \"headers\": {{\"key\": \"s3cret\"}}}}}}"
        )
    };
    for (protocol, code) in [("\"grpc\"", 0), ("\"carrier pigeon\"", 2)] {
        for arguments in [&["check-config", "train.json"][..], &["check-config", "train.json", "--json"]] {
            let said = Workspace::with(&members(protocol)).run(arguments);
            assert!(!said.out.contains("s3cret") && !said.err.contains("s3cret"), "{said:?}");
            assert_eq!(said.code, Some(code), "{said:?}");
        }
    }
}

#[test]
fn a_missing_file_is_an_error_with_its_cause_and_a_hint() {
    let said = Workspace::with("{}").run(&["check-config", "missing.json"]);
    assert_eq!(said.out, "");
    assert_eq!(
        said.err,
        "error: cannot read `missing.json`\n\
         Caused by: No such file or directory (os error 2)\n\
         hint: check the path; it is relative to the current directory\n"
    );
    assert_eq!(said.code, Some(2));
}

#[test]
fn a_file_that_is_not_text_is_an_error() {
    let workspace = Workspace::with("");
    fs::write(workspace.dir.path().join("train.json"), [0x80, 0xff]).expect("writable");
    let said = workspace.run(&["check-config", "train.json"]);
    assert_eq!(
        said.err,
        "error: cannot read `train.json`\n\
         Caused by: stream did not contain valid UTF-8\n\
         hint: save the config file as UTF-8 text\n"
    );
    assert_eq!(said.code, Some(2));
}

#[test]
fn a_golden_run_that_is_not_there_is_a_warning_that_names_it() {
    let rules = json!([{"rule_name": "Baseline", "golden": ["nowhere", "train.json"]}]);
    let config = json!({"wg_distribution": true, "alert": {"rules": rules}});
    let workspace = Workspace::with(&config.to_string());
    let said = workspace.run(&["check-config", "train.json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let expected = "warning: train.json: key `alert.rules[0].golden`: `nowhere` does not exist: `Baseline` would have no baseline\n\
        hint: check the path; it is relative to the current directory\n";
    assert!(said.err.starts_with(expected), "{}", said.err);
    assert!(
        said.err.contains("`train.json` is not a monitored run: it is a file, but not a journal (`.tmj`)"),
        "{}",
        said.err
    );
}

#[test]
fn a_usage_error_exits_with_two_and_names_what_was_meant() {
    let workspace = Workspace::with("{}");
    let wrong = workspace.run(&["check-confg"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(2), ""));
    assert!(wrong.err.starts_with("error: unrecognized subcommand 'check-confg'"), "{}", wrong.err);
    assert!(wrong.err.contains("'check-config'"), "{}", wrong.err);
}

#[test]
fn the_schema_verb_prints_the_committed_schema() {
    let said = Workspace::with("{}").run(&["config-schema"]);
    assert_eq!(said.out, include_str!("../../../configs/trainmon.schema.json"));
    assert_eq!(said.code, Some(0));
}

#[test]
fn every_shell_gets_a_completion_script_that_knows_the_verbs() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = Workspace::with("{}").run(&["completions", shell]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{shell}");
        assert!(said.out.contains("check-config"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let workspace = Workspace::with("{}");
    let mut child =
        workspace.program(&["config-schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    // The reading end is closed before or while the schema, more than a pipe holds or not, is written.
    drop(child.stdout.take());
    let said = ProgramOutput::from(child.wait_with_output().expect("ends"));
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    let full = fs::File::create("/dev/full").expect("a device that is always full");
    let said = ProgramOutput::by(Workspace::with("{}").program(&["config-schema"]).stdout(full));
    assert_eq!(said.err, "error: cannot write the output\nCaused by: No space left on device (os error 28)\n");
    assert_eq!(said.code, Some(2));
}

#[test]
fn colours_are_for_terminals_only_and_can_be_forced() {
    let workspace = Workspace::with("{\"ops\": 1}");
    assert!(!workspace.run(&["check-config", "train.json"]).err.contains('\u{1b}'));
    let mut command = workspace.program(&["check-config", "train.json"]);
    let forced = ProgramOutput::by(command.env("CLICOLOR_FORCE", "1"));
    assert!(forced.err.starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m "), "{:?}", forced.err);
    let quiet = ProgramOutput::by(command.env("NO_COLOR", "1"));
    assert!(!quiet.err.contains('\u{1b}'), "{:?}", quiet.err);
}
