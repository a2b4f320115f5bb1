//! A receiver that is absent, silent, or refuses: the steps go on, and every loss is counted.

use std::net::{Ipv4Addr, TcpListener};

use crate::receiver::{Log, PROTOCOLS, Receiver, UNHURRIED, is_provisioned};
use crate::run::{Ended, Run, counts};

/// The end of a run must not wait long for what cannot be sent.
const SHORT: &str = r#", "shutdown_timeout_ms": 300"#;

/// Below those the system hands out, and of a service nobody runs: a connection is refused, whatever else runs here.
const NOBODYS_PORT: u16 = 1;

fn otlp(protocol: &str, port: u16, timeout_ms: u64) -> String {
    format!(r#""endpoint": "http://127.0.0.1:{port}", "protocol": "{protocol}", "timeout_ms": {timeout_ms}"#)
}

fn assert_abandoned(ended: &Ended) {
    let otlp = counts(&ended.report, "otlp");
    assert_eq!((otlp.exported, otlp.abandoned), (0, otlp.accepted), "{}", ended.report);
    assert!(ended.notices.contains("data waits in the backlog"), "{}", ended.notices);
    assert!(ended.notices.contains("still queued when the shutdown deadline passed"), "{}", ended.notices);
}

#[test]
fn an_absent_receiver_costs_the_records_it_never_got_and_nothing_else() {
    for protocol in PROTOCOLS {
        let mut run = Run::start(&otlp(protocol, NOBODYS_PORT, 300), SHORT);
        run.steps(60);
        run.wait_for_notice("data waits in the backlog");
        assert_abandoned(&run.end());
    }
}

#[test]
fn a_receiver_that_never_answers_costs_the_records_it_never_took_and_nothing_else() {
    // It takes connections and says nothing: the kernel alone answers.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for protocol in PROTOCOLS {
        let mut run = Run::start(&otlp(protocol, silent.local_addr().unwrap().port(), 300), SHORT);
        run.steps(60);
        run.wait_for_notice("no answer within");
        assert_abandoned(&run.end());
    }
}

#[test]
fn without_a_journal_the_oldest_steps_make_room_and_are_counted() {
    let members = format!(r#"{}, "backlog_mb": 1, "per_parameter": true"#, otlp("http/protobuf", NOBODYS_PORT, 300));
    let mut run = Run::start(&members, SHORT);
    run.steps(240);
    run.wait_for_notice("the oldest steps are dropped and counted");
    let ended = run.end();
    let otlp = counts(&ended.report, "otlp");
    assert!(otlp.failed > 0 && otlp.abandoned > 0 && otlp.exported == 0, "{}", ended.report);
}

#[test]
fn what_is_refused_is_lost_counted_and_said_once() {
    if !is_provisioned("what_is_refused_is_lost_counted_and_said_once") {
        return;
    }
    for (protocol, options, words) in [
        ("grpc", ["--mode", "refuse"], "InvalidArgument: these points are no good"),
        ("http/protobuf", ["--mode", "refuse"], "400 Bad Request"),
        ("grpc", ["--require-header", "x-key=s3cret"], "Unauthenticated: no such key"),
        ("http/protobuf", ["--require-header", "x-key=s3cret"], "401 Unauthorized"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let receiver = Receiver::start(protocol, &log, &options);
        let mut run = Run::start(
            &format!(r#"{}, "headers": {{"x-key": "wr0ng"}}"#, otlp(protocol, receiver.port, 600_000)),
            UNHURRIED,
        );
        run.steps(40);
        let ended = run.end();
        receiver.stop();
        let otlp = counts(&ended.report, "otlp");
        assert_eq!((otlp.exported, otlp.failed), (0, otlp.accepted), "{}", ended.report);
        assert_eq!(ended.notices.matches("refused").count(), 1, "{}", ended.notices);
        assert!(ended.notices.contains(words) && !ended.notices.contains("wr0ng"), "{}", ended.notices);
        assert!(Log::read(&log).points.is_empty());
    }
}

#[test]
fn points_rejected_one_by_one_are_counted_and_said_once() {
    if !is_provisioned("points_rejected_one_by_one_are_counted_and_said_once") {
        return;
    }
    for protocol in PROTOCOLS {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let receiver = Receiver::start(protocol, &log, &["--mode", "partial"]);
        let mut run = Run::start(&otlp(protocol, receiver.port, 600_000), UNHURRIED);
        run.steps(40);
        let ended = run.end();
        receiver.stop();
        let log = Log::read(&log);
        let otlp = counts(&ended.report, "otlp");
        // One point of each request is a record's worth, rounded up.
        assert_eq!(otlp.failed, log.requests.len() as u64, "{}", ended.report);
        assert_eq!(otlp.exported + otlp.failed, otlp.accepted, "{}", ended.report);
        assert_eq!(ended.notices.matches("points: one is too old").count(), 1, "{}", ended.notices);
    }
}
