//! Orders that are obeyed: set, pause, resume, flush, status.

use serde_json::Value;
use trainmon_agent::core::Kind;

use crate::client::{ControlAddresses, request};
use crate::training::{Training, rows, steps_of, wait_for_change};

const CONFIG: &str =
    r#"{"wg_distribution": true, "ops": ["norm", "min"], "control": {"port": 0}, "queue_steps": 4096}"#;

/// Sends an order and waits until its step is fixed.
fn order(addresses: &ControlAddresses, path: &str, body: &str) -> u64 {
    let answer = addresses.post(path, body);
    assert_eq!(answer.code, 202, "{}", answer.body);
    let id = answer.body["id"].as_u64().unwrap();
    let change = wait_for_change(addresses, id, |change| change["step"].is_u64());
    change["step"].as_u64().unwrap()
}

#[test]
fn pause_and_resume_take_effect_when_a_step_begins() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    training.steps(3);
    assert_eq!(order(&addresses, "/pause", ""), 4);
    training.steps(4);
    assert_eq!(order(&addresses, "/resume", ""), 8);
    training.steps(3);
    let directory = training.directory();
    let report = training.finish();
    assert_eq!(steps_of(&directory, Kind::GradReduced), [0, 1, 2, 3, 8, 9]);
    // What is shown in a pause is counted, not forgotten.
    assert_eq!((report.counts.observed, report.counts.not_sampled), (10 * 4, 4 * 4));
}

#[test]
fn targets_interval_statistics_and_kinds_change_at_one_step() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    training.steps(2);
    let body = r#"{"targets": ["h.1", "head"], "step_interval": 3, "ops": ["max", "mean"],
                   "kinds": {"moments": true, "weight_grad": true, "param": false}}"#;
    assert_eq!(order(&addresses, "/set", body), 3);
    training.steps(8);
    assert_eq!(order(&addresses, "/set", r#"{"targets": [], "kinds": {"weight_grad": false}}"#), 11);
    training.steps(5);
    let directory = training.directory();
    training.finish();
    let named = |steps: &[u64], names: &[&str]| -> Vec<(u64, String)> {
        steps.iter().flat_map(|&step| names.iter().map(move |name| (step, (*name).to_owned()))).collect()
    };
    let some = ["h.1.fc.weight", "head.weight"];
    let mut gradients = named(&[0, 1, 2], &crate::training::NAMES);
    gradients.extend(named(&[3, 6, 9], &some));
    assert_eq!(rows(&directory, Kind::GradReduced), gradients);
    let mut moments = named(&[3, 6, 9], &some);
    moments.extend(named(&[12], &crate::training::NAMES));
    assert_eq!(rows(&directory, Kind::ExpAvg), moments);
    assert_eq!(rows(&directory, Kind::ParamOrigin), []);
    let header = std::fs::read_to_string(directory.join("exp_avg_3-3.csv")).unwrap();
    assert!(header.starts_with("vpp_stage,name,step,max,mean,shape,dtype\n"), "{header}");
}

#[test]
fn a_window_that_is_set_counts_from_the_switch() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), &CONFIG.replacen('{', r#"{"collect_times": 2, "#, 1));
    let addresses = training.addresses();
    training.steps(5);
    assert_eq!(order(&addresses, "/set", r#"{"collect_times": 3, "step_interval": 2, "stop_step": 9}"#), 6);
    training.steps(6);
    assert_eq!(order(&addresses, "/set", r#"{"stop_step": null, "start_step": 13}"#), 12);
    training.steps(5);
    let directory = training.directory();
    training.finish();
    assert_eq!(steps_of(&directory, Kind::GradReduced), [0, 1, 6, 8, 13, 15]);
}

#[test]
fn orders_given_in_a_row_are_obeyed_in_that_order() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    let ids: Vec<u64> = ["/pause", "/resume", "/pause", "/resume", "/pause"]
        .iter()
        .map(|path| addresses.post(path, "").body["id"].as_u64().unwrap())
        .collect();
    let mut last = 0;
    for &id in &ids {
        let change = wait_for_change(&addresses, id, |change| change["step"].is_u64());
        let step = change["step"].as_u64().unwrap();
        assert!(step > last, "{step} after {last}");
        last = step;
        while training.monitor.step().0 <= step {
            training.step();
        }
    }
    assert!(!training.monitor.collecting(), "the last order stands");
    assert!(training.monitor.plan().paused);
    training.finish();
}

#[test]
fn flush_answers_when_everything_is_on_disk() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    training.steps(20);
    let answer = addresses.post("/flush", "");
    assert_eq!((answer.code, answer.body["records"].as_u64()), (200, Some(80)));
    assert_eq!(steps_of(&training.directory(), Kind::GradReduced), (0..20).collect::<Vec<u64>>());
    training.finish();
}

#[test]
fn status_says_what_is_measured_and_what_became_of_it() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    training.steps(5);
    addresses.post("/flush", "");
    let status = addresses.get("/status").body;
    for (pointer, expected) in [
        ("/step", Value::from(5)),
        ("/rank", Value::from(0)),
        ("/world_size", Value::from(1)),
        ("/pid", Value::from(std::process::id())),
        ("/collecting", Value::from(true)),
        ("/plan/paused", Value::from(false)),
        ("/plan/weight_grad/ops/1", Value::from("min")),
        ("/plan/window/step_interval", Value::from(1)),
        ("/tensors", Value::from(4)),
        ("/ledger/observed", Value::from(20)),
        ("/ledger/dropped/queue_full", Value::from(0)),
        ("/sinks/csv/exported", Value::from(20)),
        ("/queues/csv/waiting", Value::from(0)),
        ("/queues/worker/capacity", Value::from(4096)),
        ("/cost/sampling_ratio", Value::from(1.0)),
        ("/locations/csv/0", Value::from(training.directory().display().to_string())),
    ] {
        assert_eq!(status.pointer(pointer), Some(&expected), "{pointer} in {status:#}");
    }
    let over_http = addresses.over_http(&request("GET", "/status", &[&addresses.host(), &addresses.bearer()], ""));
    assert_eq!((over_http.code, &over_http.body["step"]), (200, &status["step"]));
    training.finish();
}

#[test]
fn everything_is_gone_after_the_end_but_the_measurements() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    training.step();
    training.finish();
    assert!(!addresses.socket.exists());
    assert!(std::net::TcpStream::connect(addresses.address.unwrap()).is_err());
}
