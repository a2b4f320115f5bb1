//! What is done with an alert: webhook, command, stop, the JSON file.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use trainmon_agent::core::config::Config;
use trainmon_agent::core::{AlertRule, Kind};
use trainmon_agent::{Monitor, Options, Ranks, StepFacts};

use crate::run::{Heard, PATIENCE, Run, config};

/// Answers each POST with the next status (the last one for ever) and passes the bodies on.
fn server(statuses: &'static [u16]) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let (give, bodies) = channel();
    let serve = move || {
        for (place, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let status = statuses.get(place).or(statuses.last()).unwrap();
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            if give.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("webhook-server".to_owned()).spawn(serve).unwrap();
    (address, bodies)
}

fn spike(run: &mut Run) {
    run.calm(70);
    run.step(|_, kind| if kind == Kind::GradReduced { 9.0 } else { 1.0 });
}

#[test]
fn a_webhook_gets_the_alert_as_json_and_again_after_a_failure() {
    let (url, bodies) = server(&[503, 200]);
    let mut run = Run::new(&format!(r#"{{"webhook": {{"url": "{url}"}}}}"#));
    spike(&mut run);
    let (refused, taken) = (bodies.recv_timeout(PATIENCE).unwrap(), bodies.recv_timeout(PATIENCE).unwrap());
    assert_eq!(refused, taken);
    assert_eq!((&taken["run"], &taken["rule"], &taken["phase"]), (&"a-run".into(), &"Spike".into(), &"begins".into()));
    assert_eq!((&taken["step"], &taken["series"]["signal"]), (&70.into(), &"grad".into()));
    assert_eq!(taken["text"], taken["message"]);
    assert_eq!(taken["moved_first"]["signal"], "grad");
    run.finish();
    assert_eq!(run.monitor.alert_book().lost, 0, "{}", run.heard.all());
}

#[test]
fn what_a_webhook_does_not_take_is_counted_and_said_once() {
    let (url, bodies) = server(&[400]);
    let mut run = Run::new(&format!(r#"{{"webhook": {{"url": "{url}"}}}}"#));
    spike(&mut run);
    run.calm(15);
    assert!(bodies.recv_timeout(PATIENCE).is_ok() && bodies.recv_timeout(PATIENCE).is_ok(), "beginning and end");
    run.finish();
    assert_eq!(run.monitor.alert_book().lost, 2);
    assert_eq!(run.heard.containing("alert webhook: "), 1, "{}", run.heard.all());
    assert_eq!(run.heard.containing("400"), 1, "{}", run.heard.all());
}

#[test]
fn a_webhook_nobody_listens_at_holds_neither_the_steps_nor_the_shutdown_up() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut run = Run::new(&format!(r#"{{"webhook": {{"url": "http://{free}/", "retries": 100}}}}"#));
    spike(&mut run);
    run.finish();
    assert_eq!(run.keeper.begun(AlertRule::Spike).len(), 1);
    assert_eq!(run.monitor.alert_book().lost, 1, "{}", run.heard.all());
}

#[test]
fn a_command_gets_the_alert_on_its_input_and_in_its_environment() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("alert");
    let script = format!(
        "cat > {0}.json; echo $TRAINMON_ALERT_RULE $TRAINMON_ALERT_STEP $TRAINMON_ALERT_RUN > {0}.env",
        place.display()
    );
    let command = serde_json::json!({"run": ["sh", "-c", script]});
    let mut run = Run::new(&format!(r#"{{"command": {command}}}"#));
    spike(&mut run);
    run.finish();
    let alert: Value = serde_json::from_str(&std::fs::read_to_string(place.with_extension("json")).unwrap()).unwrap();
    assert_eq!((&alert["rule"], &alert["step"]), (&"Spike".into(), &70.into()));
    assert_eq!(std::fs::read_to_string(place.with_extension("env")).unwrap(), "Spike 70 a-run\n");
    assert_eq!(run.monitor.alert_book().lost, 0, "{}", run.heard.all());
}

#[test]
fn a_command_that_fails_or_hangs_is_ended_and_counted() {
    for (program, timeout_ms, words) in
        [("exit 3", 60_000, "exit status: 3"), ("exec sleep 600", 300, "killed at its deadline")]
    {
        let command = serde_json::json!({"run": ["sh", "-c", program], "timeout_ms": timeout_ms});
        let mut run = Run::new(&format!(r#"{{"command": {command}}}"#));
        spike(&mut run);
        run.finish();
        assert_eq!(run.monitor.alert_book().lost, 1, "{}", run.heard.all());
        assert_eq!(run.heard.containing(words), 1, "{}", run.heard.all());
    }
    let mut run = Run::new(r#"{"command": {"run": ["/no/such/program"]}}"#);
    spike(&mut run);
    run.finish();
    assert_eq!(run.heard.containing("alert command: `/no/such/program`: "), 1, "{}", run.heard.all());
}

#[test]
fn an_alert_may_ask_the_training_to_end() {
    let alert = r#"{"rules": [{"rule_name": "Spike"}, {"rule_name": "NonFinite", "actions": ["log", "stop"]}]}"#;
    let mut run = Run::new(alert);
    spike(&mut run);
    run.monitor.alert_state();
    assert!(!run.monitor.stop_requested(), "a spike does not stop this run");
    run.step(|_, kind| if kind == Kind::Update { f64::NAN } else { 1.0 });
    let deadline = Instant::now() + PATIENCE;
    while !run.monitor.stop_requested() {
        assert!(Instant::now() < deadline, "{}", run.heard.all());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read_anomalies(base: &Path) -> serde_json::Map<String, Value> {
    let text = std::fs::read_to_string(base.join("anomaly_detected/rank0/anomaly.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_finding_is_in_the_json_file_with_a_key_of_its_own() {
    let base = tempfile::tempdir().unwrap();
    let config = config(
        r#"{"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 100}}, {"rule_name": "AnomalyTurbulence"},
                      {"rule_name": "Spike"}], "dump": true}"#,
    );
    let heard = Heard::default();
    let options = Options {
        ranks: Some(Ranks::SINGLE),
        output_dir: Some(base.path().to_path_buf()),
        voice: heard.voice(),
        ..Options::default()
    };
    let monitor = Monitor::start(Config { csv: None, ..config }, options).unwrap();
    let tensor = monitor.register("h.0.w", 0);
    for step in 0..70 {
        let value = if step == 69 { 1e6 } else { 1.0 };
        let reading = Some(trainmon_agent::core::Reading::of_value(value));
        let micro_step = trainmon_agent::core::MicroStep(0);
        let record = trainmon_agent::core::Record { tensor, kind: Kind::GradReduced, micro_step, reading };
        monitor.record(record, Duration::ZERO, 0);
        monitor.end_step(StepFacts::default());
    }
    monitor.shutdown();
    let found = read_anomalies(base.path());
    let keys: Vec<&str> = found.keys().map(String::as_str).collect();
    let tag = "0:h.0.w/rank0/post_grad_step_69_call_0";
    let expected = [
        format!("{tag}_norm_AnomalyNan"),
        format!("{tag}_mean_AnomalyNan"),
        format!("{tag}_norm_AnomalyTurbulence"),
        format!("{tag}_mean_AnomalyTurbulence"),
        "0:global/rank0/grad_step_69_call_-1_norm_Spike".to_owned(),
    ];
    assert_eq!(keys, expected, "{}", heard.all());
    assert_eq!(
        found[&expected[0]]["message"],
        "Rule AnomalyNan reports anomaly signal in ('0:h.0.w/rank0/post_grad', 'norm') at step 69, current value \
         1000000.0, history mean 1.0."
    );
}
