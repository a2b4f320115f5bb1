//! A receiver that goes away and comes back: everything within reach arrives, in order, once.

use crate::receiver::{Door, Log, PATIENT, PROTOCOLS, Receiver, UNHURRIED, is_provisioned, wait_for};
use crate::run::{Run, counts};

fn otlp(protocol: &str, port: u16) -> String {
    format!(r#""endpoint": "http://127.0.0.1:{port}", "protocol": "{protocol}", {PATIENT}"#)
}

/// How often a request is tried in vain in the long case: the waits grow, the first ones are quick.
const MANY_ATTEMPTS: usize = 4;

/// Runs through an outage of at least so many attempts, with so many steps before, in and after it.
fn run_through_outage(protocol: &str, attempts: usize, members: &str, more: &str, steps: [u64; 3]) {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let receiver = Receiver::start(protocol, &log, &[]);
    let door = Door::to(&receiver);
    let mut run = Run::start(&format!("{}{members}", otlp(protocol, door.port)), &format!("{more}{UNHURRIED}"));
    run.steps(steps[0]);
    door.shut();
    receiver.stop();
    run.steps(steps[1]);
    run.wait_for_notice("data waits in the backlog");
    let waiting = counts(&run.report(), "otlp");
    assert!(waiting.accepted > waiting.exported && waiting.lost() == 0, "{waiting:?}");
    door.wait_for_vain_attempts(attempts);
    let receiver = Receiver::start(protocol, &log, &[]);
    door.open(&receiver);
    run.steps(steps[2]);
    run.wait_for_notice("available again");
    let ended = run.end();
    receiver.stop();
    ended.assert_arrived_exactly_once(&Log::read(&log));
}

#[test]
fn many_attempts_without_a_receiver_cost_nothing_over_grpc() {
    if is_provisioned("many_attempts_without_a_receiver_cost_nothing_over_grpc") {
        run_through_outage("grpc", MANY_ATTEMPTS, "", "", [20, 40, 20]);
    }
}

#[test]
fn many_attempts_without_a_receiver_cost_nothing_over_http() {
    if is_provisioned("many_attempts_without_a_receiver_cost_nothing_over_http") {
        run_through_outage("http/protobuf", MANY_ATTEMPTS, "", "", [20, 40, 20]);
    }
}

#[test]
fn what_memory_has_no_room_for_is_read_from_the_journal() {
    if is_provisioned("what_memory_has_no_room_for_is_read_from_the_journal") {
        let members = r#", "backlog_mb": 1, "per_parameter": true"#;
        // A step is some 20 kB: a MiB holds fewer than a hundred.
        run_through_outage("http/protobuf", 1, members, r#", "journal": {"size_mb": 64}"#, [8, 240, 40]);
    }
}

#[test]
fn a_run_that_is_ended_and_goes_on_sends_every_step_once() {
    if !is_provisioned("a_run_that_is_ended_and_goes_on_sends_every_step_once") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let receiver = Receiver::start("grpc", &log, &[]);
    let mut run = Run::start(&otlp("grpc", receiver.port), UNHURRIED);
    run.steps(20);
    let first = run.end();
    let mut run = Run::start_in(first.directory, &otlp("grpc", receiver.port), UNHURRIED, first.steps);
    run.steps(20);
    let ended = run.end();
    receiver.stop();
    ended.assert_arrived_exactly_once(&Log::read(&log));
}

/// SIGKILL may hit the receiver between writing a request down and answering it: that request comes twice, with equal
/// points. Nothing is lost, and nothing differs.
#[test]
fn a_killed_receiver_loses_nothing_and_what_comes_twice_is_the_same() {
    if !is_provisioned("a_killed_receiver_loses_nothing_and_what_comes_twice_is_the_same") {
        return;
    }
    for protocol in PROTOCOLS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let receiver = Receiver::start(protocol, &path, &[]);
        let door = Door::to(&receiver);
        let mut run = Run::start(&otlp(protocol, door.port), UNHURRIED);
        run.steps(40);
        door.shut();
        receiver.kill();
        run.steps(40);
        let receiver = Receiver::start(protocol, &path, &[]);
        door.open(&receiver);
        run.steps(40);
        let ended = run.end();
        receiver.stop();
        let mut log = Log::read(&path);
        let mut first = std::collections::HashMap::new();
        log.points.retain(|point| {
            // NaN is equal to itself here: bits are compared.
            let bits = point.value.to_bits();
            let before = first.insert(point.identity(), bits);
            assert!(before.is_none_or(|before| before == bits), "{point:?}");
            before.is_none()
        });
        ended.assert_arrived_exactly_once(&log);
    }
}

#[test]
fn a_receiver_that_asks_for_patience_gets_it() {
    if !is_provisioned("a_receiver_that_asks_for_patience_gets_it") {
        return;
    }
    for protocol in PROTOCOLS {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let receiver = Receiver::start(protocol, &log, &["--mode", "later:2"]);
        let mut run = Run::start(&otlp(protocol, receiver.port), UNHURRIED);
        run.steps(20);
        wait_for("the first points", || (!Log::read(&log).points.is_empty()).then_some(()));
        let ended = run.end();
        receiver.stop();
        ended.assert_arrived_exactly_once(&Log::read(&log));
        assert!(ended.notices.contains("available again"), "{}", ended.notices);
    }
}
