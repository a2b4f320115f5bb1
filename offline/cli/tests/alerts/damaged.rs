//! What is torn, damaged, empty or no log at all.

use std::fs;

use super::{Workspace, begun, data, loss, pairs, table};
use crate::transcript::Transcript;

#[test]
fn what_is_no_log_is_an_error_that_says_what_it_is() {
    let workspace = Workspace::new();
    let mut transcript = Transcript::default();
    for (name, content) in [
        ("empty.csv", &b""[..]),
        ("blank.jsonl", b" \n\n"),
        ("notes.txt", b"Dear diary, today it diverged, again.\n"),
        ("loss.csv.gz", &[0x1f, 0x8b, 8, 0, 0]),
        ("mlflow.db", b"SQLite format 3\0 and more"),
        ("model.bin", &[7, 0, 0, 0, 1, 2]),
        ("words.csv", b"step,loss\none,two\nthree,four\n"),
        ("config.json", b"{\"model\": \"llama\", \"layers\": [\"a\", \"b\"]}"),
        ("broken.json", b"{\"loss\": 1.0,, }"),
    ] {
        workspace.write(name, content);
        let said = workspace.alerts(&[name]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{name}: {}", said.err);
        transcript.add(name, &said);
        let (report, code) = workspace.json(&[name]);
        assert_eq!((code, &report["ok"]), (Some(2), &false.into()), "{name}");
        assert!(report["error"]["message"].as_str().is_some_and(|message| message.contains(name)), "{report}");
    }
    transcript.add("nothing", &workspace.alerts(&["nothing"]));
    workspace.write("empty/readme.md", "nothing");
    let said = workspace.alerts(&["empty"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    transcript.add("empty", &said);
    insta::assert_snapshot!(transcript);
}

#[test]
fn several_tables_of_a_directory_are_an_error_and_one_is_read() {
    let workspace = Workspace::with("logs/a.csv", table("step,loss,grad_norm", ","));
    assert_eq!(workspace.alerts(&["logs"]).code, Some(1));
    workspace.write("logs/b.csv", "step,loss\n1,2\n");
    let said = workspace.alerts(&["logs"]);
    assert!(said.err.contains("it holds 2 tables, `a.csv` among them\nhint: pass one of these files"), "{}", said.err);
}

#[test]
fn of_a_torn_log_what_is_whole_is_read_and_the_rest_is_said() {
    let workspace = Workspace::new();
    let whole = table("step,loss,grad_norm", ",");
    workspace.write("a.csv", &whole[..whole.len() - 20]);
    let lines: Vec<String> = (1..=200).map(|step| format!("{{\"step\": {step}, \"loss\": {}}}", loss(step))).collect();
    let lines = lines.join("\n");
    workspace.write("a.jsonl", &lines[..lines.len() - 5]);
    let state = fs::read(data("trainer_state.json")).expect("data");
    workspace.write("trainer_state.json", &state[..state.len() * 9 / 10]);
    let wandb = fs::read(data("tiny.wandb")).expect("data");
    workspace.write("a.wandb", &wandb[..wandb.len() - 3000]);
    let directory = data("tensorboard");
    let events = fs::read_dir(directory).expect("data").next().expect("a file").expect("data").path();
    let events = fs::read(events).expect("data");
    workspace.write("events.out.tfevents.1.host", &events[..events.len() - 700]);
    let megatron = fs::read(data("megatron.log")).expect("data");
    workspace.write("a.log", &megatron[..megatron.len() - 340]);
    for (name, warning, alert) in [
        ("a.csv", "ignored the last row, which is truncated", ("Spike", 150)),
        ("a.jsonl", "ignored the last line, which is truncated", ("Spike", 150)),
        ("trainer_state.json", "the file is truncated, read the complete entries: EOF while parsing", ("Spike", 152)),
        ("a.wandb", "the file is truncated within the record at byte", ("NonFinite", 700)),
        ("events.out.tfevents.1.host", "is incomplete: ignored the rest of the file", ("Spike", 152)),
        ("a.log", "1 truncated line: ignored the last number", ("Spike", 900)),
    ] {
        let (report, code) = workspace.json(&[name]);
        assert_eq!(code, Some(1), "{name}: {report}");
        assert_eq!(begun(&report)[..1], pairs(&[alert]), "{name}");
        assert!(report["warnings"].to_string().contains(warning), "{name}: {}", report["warnings"]);
    }
    let (torn, _) = workspace.json(&["a.csv"]);
    assert_eq!(torn["log"]["steps"], 199, "half a number is none");
}

#[test]
fn a_damaged_record_is_left_out_and_counted() {
    let workspace = Workspace::new();
    let directory = data("tensorboard");
    let events = fs::read_dir(directory).expect("data").next().expect("a file").expect("data").path();
    let mut bytes = fs::read(events).expect("data");
    let (at, whole) = (bytes.len() / 2, workspace_steps(&workspace, "whole", &bytes));
    // Within the text of a tag: neither a length nor a checksum.
    let place = bytes[at..].windows(10).position(|text| text == b"train/loss").expect("a tag") + at;
    bytes[place] ^= 0x20;
    let damaged = workspace_steps(&workspace, "damaged", &bytes);
    assert_eq!((whole.0, damaged.0), (90, 89));
    assert!(damaged.1.contains("ignored 1 damaged record"), "{}", damaged.1);
    let mut wandb = fs::read(data("tiny.wandb")).expect("data");
    let last = wandb.len() - 100;
    wandb[last] ^= 1;
    workspace.write("b.wandb", &wandb);
    let (report, _) = workspace.json(&["b.wandb"]);
    assert!(report["warnings"].to_string().contains("ignored 1 damaged record"), "{}", report["warnings"]);
}

/// How many losses an event file of these bytes has, and what is said of it.
fn workspace_steps(workspace: &Workspace, name: &str, bytes: &[u8]) -> (u64, String) {
    let name = format!("{name}/events.out.tfevents.1.host");
    workspace.write(&name, bytes);
    let (report, _) = workspace.json(&[&name]);
    (report["log"]["columns"]["loss"]["values"].as_u64().expect("a number"), report["warnings"].to_string())
}
