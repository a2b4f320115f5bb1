//! Requests that are refused, and floods that change nothing.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::client::{Answer, read_answer, request};
use crate::training::{Training, wait_until};

const CONFIG: &str = r#"{"wg_distribution": true, "control": {"port": 0}, "queue_steps": 4096}"#;

/// A refusal says why and what to do.
fn assert_refused(answer: &Answer, code: u16, why: &str) {
    assert_eq!(answer.code, code, "{}", answer.body);
    let error = answer.body["error"].as_str().unwrap();
    assert!(error.contains(why), "{error}");
    assert!(!answer.body["hint"].as_str().unwrap().is_empty());
}

#[test]
fn without_the_token_nothing_is_told_and_nothing_changes() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&addresses.token_file), mode(&addresses.socket)), (0o600, 0o600));
    let (host, token) = (addresses.host(), addresses.token());
    let almost = format!("{}{}", &token[..63], if token.ends_with('0') { '1' } else { '0' });
    let wrong = ["Authorization: Bearer ".to_owned(), format!("Authorization: Bearer {almost}"), format!("X: {token}")];
    for header in wrong.iter().map(String::as_str).chain(["Authorization: Basic Zm9vOmJhcg=="]) {
        for (method, path) in [("GET", "/status"), ("POST", "/pause"), ("POST", "/set"), ("GET", "/nothing")] {
            let answer = addresses.over_http(&request(method, path, &[&host, header], ""));
            assert_refused(&answer, 401, "the token is missing or wrong");
            assert_eq!(answer.body.as_object().unwrap().len(), 2, "nothing else is told");
        }
    }
    let in_the_query = format!("/status?token={token}");
    assert_refused(
        &addresses.over_http(&request("GET", &in_the_query, &[&host], "")),
        401,
        "the token is missing or wrong",
    );
    training.steps(2);
    assert!(training.monitor.collecting());
    assert_eq!(addresses.get("/status").body["changes"].as_array().unwrap().len(), 0);
    training.finish();
}

#[test]
fn a_page_that_points_its_name_here_is_refused_even_with_the_token() {
    let base = tempfile::tempdir().unwrap();
    let training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    for host in ["Host: evil.example", "Host: evil.example:80", "Host: 127.0.0.1:1", "X: y"] {
        let answer = addresses.over_http(&request("GET", "/status", &[host, &addresses.bearer()], ""));
        assert_refused(&answer, 421, "another host");
    }
    let localhost = format!("Host: localhost:{}", addresses.address.unwrap().port());
    assert_eq!(addresses.over_http(&request("GET", "/status", &[&localhost, &addresses.bearer()], "")).code, 200);
    training.finish();
}

#[test]
fn no_path_leads_anywhere_but_to_the_five_orders() {
    let base = tempfile::tempdir().unwrap();
    let training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    std::fs::write(base.path().join("secret"), "secret").unwrap();
    for path in [
        "/../../../../etc/passwd",
        "/status/../../secret",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/control.token",
        "/status/",
        "/STATUS",
        "/set%00",
        "/",
    ] {
        assert_refused(&addresses.over_socket(&request("GET", path, &["Host: x"], "")), 404, "no such path");
        let answer = addresses.over_http(&request("POST", path, &[&addresses.host(), &addresses.bearer()], "{}"));
        assert_refused(&answer, 404, "no such path");
    }
    assert_refused(&addresses.get("/pause"), 405, "method");
    assert_refused(&addresses.post("/status", ""), 405, "method");
    training.finish();
}

#[test]
fn a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() {
    let base = tempfile::tempdir().unwrap();
    let training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    let large = format!(r#"{{"targets": ["{}"]}}"#, "x".repeat(65 << 10));
    assert_refused(&addresses.post("/set", &large), 413, "65536 bytes");
    // It only says so; the server does not wait for what was announced.
    let announced = "POST /set HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n{";
    assert_refused(&addresses.over_socket(announced), 413, "65536 bytes");
    let mut stream = addresses.connect();
    let (host, bearer) = (addresses.host(), addresses.bearer());
    let head = format!("POST /set HTTP/1.1\r\n{host}\r\n{bearer}\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("1000\r\n{}\r\n", "y".repeat(0x1000));
    for _ in 0..17 {
        // The server may have answered and closed before the last of them.
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    assert_refused(&read_answer(&mut stream), 413, "65536 bytes");
    training.finish();
}

#[test]
fn a_change_that_makes_no_sense_is_refused_whole_with_every_fault() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    for (body, faults) in [
        ("", &["empty"][..]),
        ("{", &["never closed"]),
        ("[1]", &["expected an object"]),
        (r#"{"step_intervall": 2}"#, &["step_intervall", "step_interval"]),
        (r#"{"anything": 2}"#, &["anything", "unknown key"]),
        (r#"{"step_interval": 0, "ops": ["nrm"]}"#, &["step_interval", "at least 1", "nrm", "norm"]),
        (r#"{"kinds": {"moment": true}}"#, &["kinds.moment", "moments"]),
        (r#"{"stop_step": 0}"#, &["stop_step"]),
        (r#"{"start_step": 20, "stop_step": 10}"#, &["no step would be measured"]),
        (r#"{"collect_times": 0}"#, &["no step would be measured"]),
        (r#"{"output_dir": "/tmp"}"#, &["output_dir"]),
    ] {
        let answer = addresses.post("/set", body);
        assert_refused(&answer, 422, "");
        for fault in faults {
            assert!(answer.body["error"].as_str().unwrap().contains(fault), "{body}: {}", answer.body);
        }
    }
    training.steps(3);
    assert_eq!(training.monitor.plan_version(), 0);
    training.finish();
}

#[test]
fn a_window_that_ends_before_it_begins_is_refused_whichever_end_was_set_before() {
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), &CONFIG.replacen('{', r#"{"stop_step": 10, "#, 1));
    let addresses = training.addresses();
    training.steps(3);
    assert_refused(&addresses.post("/set", r#"{"start_step": 10}"#), 422, "`stop_step` 10 is not after");
    assert_refused(&addresses.post("/set", r#"{"start_step": 4, "stop_step": 4}"#), 422, "`stop_step` 4 is not after");
    training.steps(8);
    // Over already: nothing of it is left to be measured at other intervals, but other statistics may come and go.
    assert_refused(&addresses.post("/set", r#"{"step_interval": 2}"#), 422, "first possible step, 12");
    assert_eq!(addresses.post("/set", r#"{"ops": ["max"]}"#).code, 202);
    training.finish();
}

#[test]
fn a_front_that_keeps_its_targets_says_so() {
    let base = tempfile::tempdir().unwrap();
    let config = trainmon_agent::core::config::Config::parse(CONFIG, "test.json", &|_| None).unwrap().config;
    let options = trainmon_agent::Options {
        ranks: Some(trainmon_agent::Ranks::SINGLE),
        notices: trainmon_agent::Notices::new(|_| {}),
        ..crate::training::options(base.path())
    };
    let monitor = trainmon_agent::Monitor::start(config, options).unwrap();
    let directory = monitor.locations().iter().find(|(name, _)| *name == "csv").unwrap().1[0].clone();
    let addresses = crate::client::ControlAddresses::of(directory.as_ref());
    assert_refused(&addresses.post("/set", r#"{"targets": ["a"]}"#), 409, "targets");
    assert_eq!(addresses.post("/set", r#"{"step_interval": 2}"#).code, 202);
    monitor.shutdown();
}

#[test]
fn clients_that_send_nothing_do_not_keep_others_out() {
    let base = tempfile::tempdir().unwrap();
    let training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    // More than there are places; each sends a piece of a request and then no more.
    let mut slow: Vec<_> = (0..24).map(|_| addresses.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /status HT").unwrap();
    }
    assert_eq!(addresses.get("/status").code, 200, "answered once the first of them were cut off");
    let mut rest = Vec::new();
    // Cut off: the end of the stream, or a reset.
    drop(slow[0].read_to_end(&mut rest));
    training.finish();
}

#[test]
fn a_crowd_at_one_door_leaves_the_other_one_free() {
    let base = tempfile::tempdir().unwrap();
    let training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    let is_let_in = |stream: &std::net::TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let waits = stream.peek(&mut [0]);
        waits.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    // More requests at the one than there are places, while none of those at the other is cut off for its slowness. A
    // machine too slow for that tries again.
    wait_until("answers at the socket with the port crowded", || {
        let mut slow: Vec<_> = (0..24).map(|_| addresses.connect()).collect();
        for stream in &mut slow {
            stream.write_all(b"GET /status HT").unwrap();
        }
        for _ in 0..40 {
            assert_eq!(addresses.get("/status").code, 200);
        }
        slow.iter().all(is_let_in)
    });
    training.finish();
}

#[test]
#[expect(unsafe_code, reason = "the test forks for real")]
fn a_forked_child_that_ends_leaves_the_doors_of_its_parent_open() {
    /// While steps go on some of these fork while a thread of the monitor's holds the lock of a queue.
    const CHILDREN: usize = 100;
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = training.addresses();
    for _ in 0..CHILDREN {
        training.step();
        // SAFETY: the child drops what it has of the monitor, then leaves without running the test harness's exit code.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that hangs: the signal's default kills it.
            unsafe { libc::alarm(20) };
            drop(training);
            // SAFETY: leaves the child at once.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    assert!(addresses.socket.exists() && addresses.token_file.exists());
    assert_eq!(addresses.get("/status").code, 200);
    let over_http = addresses.over_http(&request("GET", "/status", &[&addresses.host(), &addresses.bearer()], ""));
    assert_eq!(over_http.code, 200);
    training.finish();
    assert!(!addresses.socket.exists());
}

#[test]
fn a_flood_of_requests_costs_no_step_and_no_record() {
    const REQUESTS: u64 = 3_000;
    let base = tempfile::tempdir().unwrap();
    let mut training = Training::start(base.path(), CONFIG);
    let addresses = Arc::new(training.addresses());
    let (answered, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let clients: Vec<std::thread::JoinHandle<Vec<u16>>> = (0..6)
        .map(|client: u64| {
            let (addresses, answered, over) = (Arc::clone(&addresses), Arc::clone(&answered), Arc::clone(&over));
            std::thread::Builder::new().name(format!("client-{client}")).spawn(move || {
                let right = request("GET", "/status", &[&addresses.host(), &addresses.bearer()], "");
                let wrong = request("POST", "/pause", &[&addresses.host(), "Authorization: Bearer no"], "");
                let mut codes = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let answer = match client % 3 {
                        0 => addresses.over_http(&right),
                        1 => addresses.over_http(&wrong),
                        _ => addresses.post("/set", "{nonsense"),
                    };
                    codes.push(answer.code);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                codes
            })
        })
        .collect::<Result<_, _>>()
        .unwrap();
    let mut steps = 0;
    while answered.load(Ordering::Relaxed) < REQUESTS {
        training.step();
        steps += 1;
        if steps % 64 == 0 {
            // The exporter writes files: the training must not be faster than any disk.
            let mark = training.monitor.report().counts.accepted;
            wait_until("the files", || training.monitor.report().sinks.iter().all(|sink| sink.counts.exported >= mark));
        }
    }
    over.store(true, Ordering::Relaxed);
    let mut codes: Vec<u16> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes, [200, 401, 422]);
    assert_eq!(training.monitor.plan_version(), 0);
    let report = training.finish();
    assert_eq!(report.counts.observed, 4 * steps);
    assert_eq!((report.counts.accepted, report.lost()), (4 * steps, 0));
    println!("{REQUESTS} requests over {steps} steps");
}
