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

use crate::run::{Got, PATIENCE, ReceivedMessages, Run, config};

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
    assert_eq!(run.monitor.alert_totals().lost, 0, "{}", run.heard.all());
}

#[test]
fn what_a_webhook_does_not_take_is_counted_and_said_once() {
    let (url, bodies) = server(&[400]);
    let mut run = Run::new(&format!(r#"{{"webhook": {{"url": "{url}"}}}}"#));
    spike(&mut run);
    run.calm(15);
    assert!(bodies.recv_timeout(PATIENCE).is_ok() && bodies.recv_timeout(PATIENCE).is_ok(), "beginning and end");
    run.finish();
    assert_eq!(run.monitor.alert_totals().lost, 2);
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
    assert_eq!(run.monitor.alert_totals().lost, 1, "{}", run.heard.all());
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
    assert_eq!(run.monitor.alert_totals().lost, 0, "{}", run.heard.all());
}

#[test]
fn a_command_that_fails_or_hangs_is_ended_and_counted() {
    for (program, timeout_ms, words) in
        [("exit 3", 60_000, "exit status: 3"), ("exec sleep 600", 300, "killed after its time limit")]
    {
        let command = serde_json::json!({"run": ["sh", "-c", program], "timeout_ms": timeout_ms});
        let mut run = Run::new(&format!(r#"{{"command": {command}}}"#));
        spike(&mut run);
        run.finish();
        assert_eq!(run.monitor.alert_totals().lost, 1, "{}", run.heard.all());
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

#[test]
fn a_finding_beyond_the_most_that_are_said_still_asks_the_training_to_end() {
    let rules = r#"{"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 0.5}},
        {"rule_name": "AnomalyNan", "args": {"threshold": 100}, "actions": ["stop"]}]}"#;
    let mut run = Run::new(rules);
    run.step(|tensor, kind| if tensor == 5 && kind == Kind::ParamUpdated { 1e3 } else { 1.0 });
    run.monitor.alert_state();
    assert!(run.monitor.stop_requested(), "{}", run.heard.all());
    // The 33rd and later of one rule ask as well.
    let mut same = Run::new(r#"{"rules": [{"rule_name": "AnomalyNan", "actions": ["stop"]}]}"#);
    same.step(|_, _| f64::NAN);
    same.monitor.alert_state();
    assert!(same.monitor.stop_requested());
}

fn read_anomalies(base: &Path) -> serde_json::Map<String, Value> {
    let text = std::fs::read_to_string(base.join("a-run/anomaly_detected/rank0/anomaly.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_finding_is_in_the_json_file_with_a_key_of_its_own() {
    let base = tempfile::tempdir().unwrap();
    let config = config(
        r#"{"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 100}}, {"rule_name": "AnomalyTurbulence"},
                      {"rule_name": "Spike"}], "dump": true}"#,
    );
    let heard = ReceivedMessages::default();
    let options = Options {
        ranks: Some(Ranks::SINGLE),
        run: Some("a-run".to_owned()),
        output_dir: Some(base.path().to_path_buf()),
        notices: heard.notices(),
        ..Options::default()
    };
    let monitor = Monitor::start(Config { csv: None, ..config }, options).unwrap();
    let tensor = monitor.register("h.0.w", 0);
    for step in 0..70 {
        let value = if step == 69 { 1e6 } else { 1.0 };
        let reading = Some(trainmon_agent::core::TensorStats::of_value(value).into());
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

/// An exporter whose shutdown takes until it is let go.
struct Stuck(Receiver<()>);

impl trainmon_agent::exporters::Exporter for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn export(
        &mut self,
        _names: &[trainmon_agent::core::TensorInfo],
        _batch: &trainmon_agent::core::StepBatch,
    ) -> Result<(), trainmon_agent::exporters::ExportFailure> {
        Ok(())
    }

    fn shutdown(&mut self, _deadline: Instant) -> Result<(), trainmon_agent::exporters::ExportError> {
        self.0.recv().unwrap_or_default();
        Ok(())
    }

    fn locations(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A run that may take so long to shut down.
fn run_with_deadline(alert: &str, shutdown_timeout_ms: u64, own: Option<Stuck>, base: Option<&Path>) -> Run {
    let config = config(alert);
    let pipeline = trainmon_agent::core::config::Pipeline { shutdown_timeout_ms, ..config.pipeline };
    Run::with_exporters(Config { pipeline, ..config }, 0, own.map(|own| Box::new(own) as _), base)
}

#[test]
fn a_stuck_exporter_takes_no_time_from_the_alerts_and_none_is_said_to_be_lost() {
    let (let_go, stuck) = channel();
    let (url, bodies) = server(&[200]);
    let mut run = run_with_deadline(&format!(r#"{{"webhook": {{"url": "{url}"}}}}"#), 1_500, Some(Stuck(stuck)), None);
    spike(&mut run);
    bodies.recv_timeout(PATIENCE).unwrap();
    run.keeper.wait_for_alert(|alert| alert.rule == AlertRule::Spike);
    run.monitor.shutdown();
    drop(let_go);
    assert_eq!(run.heard.containing("alert webhook"), 0, "{}", run.heard.all());
    assert_eq!(run.monitor.alert_totals().lost, 0);
}

/// Whether a process is there and no mere entry in the table.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_command_that_runs_on_is_killed_with_what_it_started_when_the_monitor_gives_up() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("pids");
    let script = format!("sleep 600 & echo $$ $! > {0}.part; mv {0}.part {0}; wait; echo", place.display());
    let command = serde_json::json!({"run": ["sh", "-c", script], "timeout_ms": 600_000});
    let alert =
        format!(r#"{{"rules": [{{"rule_name": "AnomalyNan", "args": {{"threshold": 5}}}}], "command": {command}}}"#);
    let mut run = run_with_deadline(&alert, 500, None, None);
    // Norm and mean are one incident: its end waits for its beginning.
    run.step(|tensor, kind| if tensor == 0 && kind == Kind::Update { 9.0 } else { 1.0 });
    run.calm(12);
    wait_until("the command starts", || place.exists() && run.keeper.alerts().len() == 4);
    run.monitor.shutdown();
    let pids = std::fs::read_to_string(&place).unwrap();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 2);
    wait_until("the command and what it started are gone", || !pids.iter().any(|pid| is_alive(pid)));
    assert_eq!(run.monitor.alert_totals().lost, 2, "{}", run.heard.all());
    std::fs::remove_file(&place).unwrap();
    assert_eq!(run.heard.containing("0 alerts"), 0, "{}", run.heard.all());
}

#[test]
fn a_disk_that_hangs_under_the_json_file_holds_up_neither_steps_nor_state_nor_shutdown() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("a-run/anomaly_detected/rank0/anomaly.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    // The directory is this process's: another's would be left alone.
    let job = format!("{} {}", std::env::var("HOSTNAME").unwrap_or_default(), std::process::id());
    let run = serde_json::json!({"run": "a-run", "world_size": 1, "job": job, "started": "2026-11-23T04:38:12Z"});
    std::fs::write(base.path().join("a-run/run.json"), run.to_string()).unwrap();
    // Reading a pipe nobody writes to does not return.
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    let alert = r#"{"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 0.5}}], "dump": true}"#;
    let mut run = run_with_deadline(alert, 1_000, None, Some(base.path()));
    run.calm(3);
    assert_eq!(run.monitor.alert_state()["step"], 2);
    let steps = || run.keeper.got().iter().filter(|got| matches!(got, Got::Step(_))).count();
    wait_until("the exporter has every step and alert", || steps() == 3 && run.keeper.alerts().len() == 32);
    let report = run.monitor.shutdown();
    assert!(report.balances(), "{report}");
    // Three steps of 60 findings; of the 60 alerts of the first 28 are not said.
    assert_eq!(run.monitor.alert_totals().lost, 3 * 60 + 28, "{}", run.heard.all());
    let said = "anomaly.json: 180 findings were not delivered before the shutdown deadline";
    assert_eq!(run.heard.containing(said), 1, "{}", run.heard.all());
}
