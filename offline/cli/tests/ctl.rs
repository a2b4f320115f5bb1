//! `trainmon ctl` against a run that answers as told. The real server is met in the end-to-end tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use support::trainmon;

/// A socket that gives these answers, one per connection, and what was asked.
struct Run {
    directory: tempfile::TempDir,
    thread: JoinHandle<Vec<String>>,
}

impl Run {
    fn answering(answers: Vec<(u16, Value)>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let description = json!({"socket": socket, "url": null, "token_file": "/nowhere"});
        std::fs::write(directory.path().join("control.json"), description.to_string()).unwrap();
        let serve = move || answers.into_iter().map(|answer| serve_one(&listener, answer)).collect();
        let thread = std::thread::Builder::new().name("run".to_owned()).spawn(serve).unwrap();
        Self { directory, thread }
    }

    /// Runs the command in the run's directory. Standard output and error, exit code, and what the run was asked.
    fn ctl(self, arguments: &[&str]) -> (String, String, Option<i32>, Vec<String>) {
        let (out, err, code) = ctl(self.directory.path(), arguments);
        (out, err, code, self.thread.join().unwrap())
    }
}

/// Reads a request, answers it, and gives `METHOD PATH BODY`.
fn serve_one(listener: &UnixListener, (code, body): (u16, Value)) -> String {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let length = head.iter().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
    let mut asked = vec![0; length];
    reader.read_exact(&mut asked).unwrap();
    let body = body.to_string();
    write!(reader.get_mut(), "HTTP/1.1 {code} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let what = head[0].strip_suffix(" HTTP/1.1").unwrap();
    format!("{what} {}", String::from_utf8(asked).unwrap()).trim_end().to_owned()
}

fn ctl(directory: &Path, arguments: &[&str]) -> (String, String, Option<i32>) {
    let said = trainmon(directory, &[&["ctl"], arguments].concat());
    (said.out, said.err, said.code)
}

fn change(stage: &str, late: &Value) -> Value {
    json!({"changes": [{
        "id": 7, "what": "set {}", "stage": stage, "step": 120, "waiting_for": [], "late": late, "why": "no answer",
    }]})
}

#[test]
fn a_change_is_ordered_and_its_step_told_as_soon_as_it_is_known() {
    let accepted = (202, json!({"id": 7}));
    let run = Run::answering(vec![accepted, (200, change("asking", &json!([]))), (200, change("agreed", &json!([])))]);
    let (out, err, code, asked) = run.ctl(&[
        "set",
        "--every",
        "10",
        "--from",
        "100",
        "--until",
        "900",
        "--collect",
        "5",
        "--ops",
        "norm,max",
        "--target",
        "a",
        "--target",
        "b",
        "--on",
        "moments,param",
        "--off",
        "activations",
    ]);
    assert_eq!((out.as_str(), err.as_str(), code), ("7: set {}: agreed, effective from step 120\n", "", Some(0)));
    let body: Value = serde_json::from_str(asked[0].strip_prefix("POST /set ").unwrap()).unwrap();
    assert_eq!(
        body,
        json!({
            "targets": ["a", "b"], "step_interval": 10, "start_step": 100, "stop_step": 900, "collect_times": 5,
            "ops": ["norm", "max"], "kinds": {"moments": true, "param": true, "activations": false},
        })
    );
    assert_eq!(asked[1..], ["GET /status", "GET /status"]);
}

#[test]
fn waiting_for_the_switch_tells_ranks_that_were_late_with_exit_code_one() {
    let late = json!([{"rank": 3, "step": 131}]);
    let answers = vec![(202, json!({"id": 7})), (200, change("agreed", &json!([]))), (200, change("switched", &late))];
    let (out, _, code, asked) = Run::answering(answers).ctl(&["pause", "--wait"]);
    assert_eq!((out.as_str(), code), ("7: set {}: in effect since step 120; rank 3 only at step 131\n", Some(1)));
    assert_eq!(asked[0], "POST /pause");
}

fn captured(stage: &str, failed: &Value) -> Value {
    json!({
        "world_size": 2,
        "changes": [{
            "id": 7, "what": "dump 2 steps", "stage": "switched", "step": 120, "waiting_for": [], "late": [], "why": null,
        }],
        "captures": [{
            "id": 7, "what": "2 steps, mix, statistics, asked for by trainmon ctl", "first": 120, "steps": 2, "stage": stage,
            "bytes": 3 << 20, "places": ["/runs/a/captures/step120/rank0"], "why": null,
            "ranks_done": if failed == &json!([]) { json!([1]) } else { json!([]) }, "ranks_failed": failed,
        }],
    })
}

#[test]
fn a_capture_is_ordered_and_told_when_its_step_is_known() {
    let answers =
        vec![(202, json!({"id": 7})), (200, change("asking", &json!([]))), (200, change("agreed", &json!([])))];
    let (out, err, code, asked) = Run::answering(answers).ctl(&[
        "dump",
        "--steps",
        "2",
        "--at",
        "120",
        "--level",
        "L1",
        "--task",
        "tensor",
        "--scope",
        "a.0.forward",
        "b.0.forward",
        "--list",
        "x",
        "--list",
        "y",
        "--summary-mode",
        "md5",
    ]);
    assert_eq!((out.as_str(), err.as_str(), code), ("7: set {}: agreed, effective from step 120\n", "", Some(0)));
    let body: Value = serde_json::from_str(asked[0].strip_prefix("POST /dump ").unwrap()).unwrap();
    assert_eq!(
        body,
        json!({
            "steps": 2, "at": 120, "level": "L1", "task": "tensor", "scope": ["a.0.forward", "b.0.forward"],
            "list": ["x", "y"], "summary_mode": "md5",
        })
    );
}

#[test]
fn waiting_for_a_capture_tells_where_its_files_are_and_which_rank_has_none() {
    let order = |last| vec![(202, json!({"id": 7})), (200, captured("running", &json!([]))), (200, last)];
    let run = Run::answering(order(captured("done", &json!([]))));
    let (out, _, code, asked) = run.ctl(&["dump", "--wait"]);
    assert_eq!(
        (out.as_str(), code),
        (
            "7: 2 steps, mix, statistics, asked for by trainmon ctl: done, 3.0 MiB: /runs/a/captures/step120/rank0; \
             done on rank 1\n",
            Some(0)
        )
    );
    assert_eq!(asked[0], "POST /dump {}");
    let run = Run::answering(order(captured("done", &json!([1]))));
    let (out, _, code, _) = run.ctl(&["dump", "--wait"]);
    assert!(code == Some(1) && out.ends_with("; incomplete on rank 1\n"), "{out}");
}

#[test]
fn what_is_refused_or_withdrawn_is_an_error_with_a_hint() {
    let refusal = json!({"error": "key `ops[0]`: unknown", "hint": "look it up"});
    let (out, err, code, asked) = Run::answering(vec![(422, refusal)]).ctl(&["set", "--json-change", "{\"ops\": [1]}"]);
    assert_eq!((out.as_str(), code), ("", Some(2)));
    assert_eq!(err, "error: the run rejected the request: key `ops[0]`: unknown\nhint: look it up\n");
    assert_eq!(asked, ["POST /set {\"ops\": [1]}"]);
    let answers = vec![(202, json!({"id": 7})), (200, change("withdrawn", &json!([])))];
    let (_, err, code, _) = Run::answering(answers).ctl(&["resume"]);
    assert_eq!(
        (err.as_str(), code),
        (
            "error: the change was withdrawn without effect: no answer\nhint: fix the cause, then request the change again\n",
            Some(2)
        )
    );
}

#[test]
fn flush_and_all_targets_are_sent_as_they_are() {
    let (out, _, code, asked) = Run::answering(vec![(200, json!({"records": 80}))]).ctl(&[".", "flush"]);
    assert_eq!((out.as_str(), code, asked[0].as_str()), ("80 records delivered\n", Some(0), "POST /flush"));
    let answers = vec![(202, json!({"id": 7})), (200, change("agreed", &json!([])))];
    let (_, _, _, asked) = Run::answering(answers).ctl(&["set", "--all-targets"]);
    assert_eq!(asked[0], "POST /set {\"targets\":[]}");
}

#[test]
fn a_status_is_told_in_words_and_as_json() {
    let signal = json!({"ops": ["norm", "min"], "eps": 1e-8});
    let status = json!({
        "version": "0.1.0", "pid": 4711, "run": "demo", "rank": 0, "world_size": 2, "uptime_seconds": 725.0,
        "step": 1234, "seconds_per_step": 0.4126, "collecting": true, "tensors": 4,
        "plan": {
            "paused": false, "window": {"start_step": 5, "stop_step": 9000, "step_interval": 10, "collect_times": 1},
            "ranks": [], "targets": ["h.1", "head"], "weight_grad": signal, "moments": null, "param": signal,
            "activations": null, "mg_direction": null, "update": null,
        },
        "hang": "Stall: no step for 61 s: all_reduce 4211 of group dp: entered by rank 0, not by rank 1",
        "collectives": {
            "open": 1,
            "in_progress": [{
                "op": "all_reduce", "process_group": "dp", "ranks": [0, 1], "group_size": 2, "sequence": 4211,
                "bytes": 26_214_400, "caller": "train.py[88]", "seconds": 61.04,
            }],
            "stragglers": [
                {"process_group": "dp", "rank": 1, "lag_seconds": 0.0503, "median_seconds": 0.06, "step": 1232},
            ],
        },
        "changes": [
            {"id": 1, "what": "pause", "stage": "asking", "step": null, "waiting_for": [1], "late": [], "why": null},
        ],
        "cost": {"share_of_step": 0.0031, "budget": 0.01, "sampling_ratio": 0.25, "bytes_read": 2_097_152},
        "ledger": {"observed": 20, "not_sampled": 4, "offered": 16, "accepted": 16, "dropped": {"queue_full": 0}},
        "queues": {"csv": {"waiting": 1, "capacity": 16}, "worker": {"waiting": 0, "capacity": 16}},
        "sinks": {"csv": {"accepted": 16, "exported": 12, "failed": 0, "abandoned": 0, "dropped": 0}},
        "locations": {"csv": ["/runs/a"]},
    });
    let (out, _, code, _) = Run::answering(vec![(200, status.clone())]).ctl(&["status"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        out,
        "run demo: rank 0 of 2, pid 4711, trainmon 0.1.0, watched for 12 min\n\
         step 1234: measured; 0.413 s per step\n\
         hangs: Stall: no step for 61 s: all_reduce 4211 of group dp: entered by rank 0, not by rank 1\n\
         in progress: all_reduce 4211 of group dp (2 ranks), 25.0 MiB, called at train.py[88], for 61.0 s\n\
         slowest in group dp: rank 1; the other ranks waited 50.3 ms per step for it, up to step 1232\n\
         plan: weight_grad [norm min], param [norm min]; one step in 10 from 5 to 9000; of h.1, head\n\
         cost: 0.31 % of the step (budget 1 %: one layer in 4 is measured per step), 2.0 MiB read\n\
         records: 20 observed, 4 not sampled, 16 measured, 0 dropped\n  \
           csv          12 of 16 delivered, 0 failed, 0 dropped; 1 of 16 steps queued; /runs/a\n\
         change 1: pause: proposed, no response yet from rank 1\n"
    );
    let (out, _, _, _) = Run::answering(vec![(200, status.clone())]).ctl(&["status", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), status);
}

#[test]
fn nobody_there_is_an_error_that_says_where_it_was_looked_for() {
    let empty = tempfile::tempdir().unwrap();
    let (_, err, code) = ctl(empty.path(), &["status"]);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("error: no `control.json` in `monitor_output`"), "{err}");
    let (_, err, code) = ctl(empty.path(), &["--socket", "nowhere.sock", "status"]);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("error: no response from `nowhere.sock`\nCaused by: "), "{err}");
    assert!(err.ends_with("hint: check that the training is still running, on this machine\n"), "{err}");
}

#[test]
fn arguments_that_make_no_sense_are_refused_by_the_command_line() {
    let empty = tempfile::tempdir().unwrap();
    for wrong in [
        &["set"][..],
        &["--url", "http://127.0.0.1:1", "status"],
        &["--socket", "a", "--url", "b", "--token-file", "c", "status"],
        &["set", "--target", "a", "--all-targets"],
        &["restart"],
    ] {
        let (_, err, code) = ctl(empty.path(), wrong);
        assert_eq!(code, Some(2), "{wrong:?}: {err}");
    }
    let (out, _, code) = ctl(empty.path(), &["--help"]);
    assert!(code == Some(0) && out.contains("trainmon ctl run set --every 10 --ops norm,max"), "{out}");
}
