//! The page over real HTTP: routes, clients that misbehave, ports, shutdown, the target file.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{
    PATIENCE, config, connect, gradient, names, request, run, scrape, sources, start, step, value, wait_for,
};
use trainmon_core::config::Prometheus;
use trainmon_core::{DropReason, Rank, StepBatch};
use trainmon_exporters::{ExportError, Exporter, PrometheusExporter, RunInfo};

#[test]
fn a_step_is_served_with_the_formats_content_type() {
    let mut exporter = start(&config());
    exporter.export(&names(&["a.weight"]), &StepBatch { loss: Some(2.5), ..step(7, vec![gradient(0, 0.5)]) }).unwrap();
    let answer = request(exporter.address(), "GET", "/metrics");
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", answer.head);
    assert_eq!(value(&answer.body, "trainmon_step"), Some(7.0));
    assert_eq!(value(&answer.body, "trainmon_loss"), Some(2.5));
    assert_eq!(value(&answer.body, "trainmon_grad_norm"), Some(0.5));
    let address = exporter.address();
    assert_eq!(exporter.locations(), [format!("http://{address}/"), format!("http://{address}/metrics")]);
}

#[test]
fn other_routes_and_methods_are_told_apart() {
    let exporter = start(&config());
    let address = exporter.address();
    let head = request(address, "HEAD", "/metrics");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(head.head.contains("content-length: ") && !head.head.contains("content-length: 0\r\n"), "{}", head.head);
    assert_eq!(request(address, "GET", "/nothing").status, 404);
    assert_eq!(request(address, "GET", "/metrics?x=1").status, 200);
    let refused = request(address, "DELETE", "/metrics");
    assert_eq!(refused.status, 405);
    assert!(refused.head.contains("allow: get, head"), "{}", refused.head);
}

#[test]
fn without_the_page_there_is_a_list_of_what_else_there_is() {
    assert!(start(&config()).takes_alerts());
    let exporter = start(&Prometheus { page: false, ..config() });
    assert!(!exporter.takes_alerts(), "no place for alerts");
    assert_eq!(exporter.locations(), [format!("http://{}/metrics", exporter.address())]);
    let index = request(exporter.address(), "GET", "/");
    assert!(index.body.contains("href=\"/metrics\"") && index.body.contains("run-a rank 3"));
    for path in ["/api/overview", "/api/heatmap", "/api/events"] {
        assert_eq!(request(exporter.address(), "GET", path).status, 404, "{path}");
    }
}

#[test]
fn health_tells_the_last_step_and_every_loss() {
    let sources = sources();
    let mut exporter = PrometheusExporter::start(&config(), run(), sources.clone()).unwrap();
    let before = request(exporter.address(), "GET", "/healthz").json();
    assert_eq!((&before["status"], before["step"].is_null()), (&serde_json::json!("ok"), true));
    exporter.export(&[], &step(12, Vec::new())).unwrap();
    sources.ledger.offer(3, Err(DropReason::QueueFull));
    sources.sinks[0].ledger.failed(2);
    let health = request(exporter.address(), "GET", "/healthz").json();
    assert_eq!(health["step"], 12);
    assert_eq!((&health["run"], health["rank"].as_u64()), (&serde_json::json!("run-a"), Some(3)));
    assert_eq!(health["records_dropped"], 5);
    assert!(health["seconds_since_last_step"].as_f64().unwrap() >= 0.0);
}

#[test]
fn top_names_the_parameters_behind_the_slots() {
    let mut exporter = start(&config());
    let names = names(&["a", "b", "c", "d", "e", "f"]);
    let records = [2.0, f64::NAN, 9.0, 1.0, f64::INFINITY, 3.0];
    let records = (0..).zip(records).map(|(tensor, norm)| gradient(tensor, norm)).collect();
    exporter.export(&names, &step(5, records)).unwrap();
    let top = request(exporter.address(), "GET", "/top").json();
    assert_eq!(top["step"], 5);
    let entries = top["top"].as_array().unwrap();
    let named: Vec<_> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["b", "e", "c", "f"]);
    let norms: Vec<_> = entries.iter().map(|entry| entry["grad_norm"].to_string()).collect();
    assert_eq!(norms, ["\"NaN\"", "\"+Inf\"", "9.0", "3.0"]);
    // Fewer gradients than before: the slots left over have no value.
    exporter.export(&names, &step(6, vec![gradient(3, 1.0)])).unwrap();
    let page = scrape(exporter.address());
    assert_eq!(value(&page, "trainmon_top_grad_norm{slot=\"0\"}"), Some(1.0));
    assert!(value(&page, "trainmon_top_grad_norm{slot=\"3\"}").unwrap().is_nan());
}

#[test]
fn two_scrapers_see_the_same_peak_and_its_step() {
    let mut exporter = start(&config());
    let names = names(&["a.weight"]);
    for (number, norm) in [(1, 1.0), (2, 50.0), (3, 2.0)] {
        exporter.export(&names, &step(number, vec![gradient(0, norm)])).unwrap();
    }
    for _scraper in 0..2 {
        let page = scrape(exporter.address());
        assert_eq!(value(&page, "trainmon_grad_norm"), Some(2.0));
        assert_eq!(value(&page, "trainmon_grad_norm_interval_max"), Some(50.0));
        assert_eq!(value(&page, "trainmon_grad_norm_interval_max_step"), Some(2.0));
    }
}

#[test]
fn a_scrape_never_mixes_two_steps() {
    let mut exporter = start(&config());
    let address = exporter.address();
    let names = names(&["a.weight"]);
    exporter.export(&names, &StepBatch { loss: Some(0.0), ..step(0, vec![gradient(0, 0.0)]) }).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                let page = scrape(address);
                let step = value(&page, "trainmon_step");
                assert_eq!(value(&page, "trainmon_loss"), step);
                assert_eq!(value(&page, "trainmon_grad_norm"), step);
                assert_eq!(value(&page, "trainmon_top_grad_norm{slot=\"0\"}"), step);
                seen += 1;
            }
            seen
        });
        for number in 1..=2000 {
            let norm = number as f64;
            let batch = StepBatch { loss: Some(norm), ..step(number, vec![gradient(0, norm)]) };
            exporter.export(&names, &batch).unwrap();
        }
        wait_for("scrape of the last step", || {
            (value(&scrape(address), "trainmon_step") == Some(2000.0)).then_some(())
        });
        done.store(true, Ordering::Relaxed);
        assert!(scraper.join().unwrap() > 0);
    });
}

#[test]
fn clients_that_stall_hold_up_neither_scrapes_nor_steps() {
    let mut exporter = start(&config());
    let address = exporter.address();
    let slow: Vec<TcpStream> = (0..12)
        .map(|_| {
            let mut stream = connect(address);
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lo").unwrap();
            stream
        })
        .collect();
    let deaf: Vec<TcpStream> = (0..12)
        .map(|_| {
            let mut stream = connect(address);
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            stream
        })
        .collect();
    exporter.export(&names(&["a.weight"]), &step(3, vec![gradient(0, 1.0)])).unwrap();
    assert_eq!(value(&scrape(address), "trainmon_step"), Some(3.0));
    drop((slow, deaf));
}

/// Whether the server has not closed it: there is neither an end nor anything to read.
fn is_open(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// A page that waited for its turn behind them would come when most of them had been sent away.
#[test]
fn half_open_connections_keep_no_scrape_waiting_and_the_oldest_make_room() {
    let exporter = start(&config());
    let address = exporter.address();
    let mut half_open: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut stream = connect(address);
            if number % 2 == 0 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lo").unwrap();
            }
            stream
        })
        .collect();
    assert!(scrape(address).contains("trainmon_step"));
    let open: Vec<bool> = half_open.iter_mut().map(is_open).collect();
    assert!(open[140..].iter().all(|&is_open| is_open), "the youngest are there still: {open:?}");
    assert!(open[..130].iter().all(|&is_open| !is_open), "as many as the server keeps, no more: {open:?}");
}

#[test]
fn a_taken_port_is_an_error_and_disturbs_nobody() {
    let first = start(&config());
    let mut taken = config();
    taken.port = first.address().port();
    let lead = RunInfo { local_rank: Rank(0), ..run() };
    match PrometheusExporter::start(&taken, lead, sources()) {
        Err(error @ ExportError::Bind { .. }) => assert!(error.hint().starts_with("another process uses the port")),
        other => panic!("{other:?}"),
    }
    assert_eq!(request(first.address(), "GET", "/healthz").status, 200);
}

#[test]
fn the_local_rank_is_added_to_the_port() {
    let exporter = (0..50)
        .find_map(|_| {
            // A port that was free a moment ago may be taken again: try another then.
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let mut shifted = config();
            shifted.port = port - 1;
            let exporter = PrometheusExporter::start(&shifted, run(), sources()).ok()?;
            assert_eq!(exporter.address().port(), port);
            Some(exporter)
        })
        .unwrap();
    assert_eq!(exporter.address().ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
}

/// What starting says and advises.
fn refusal(config: &Prometheus, local_rank: u32) -> (String, &'static str) {
    let run = RunInfo { local_rank: Rank(local_rank), ..run() };
    let error = PrometheusExporter::start(config, run, sources()).unwrap_err();
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    (format!("{error}{}", cause.unwrap_or_default()), error.hint())
}

#[test]
fn an_address_that_cannot_be_is_not_called_taken() {
    let (said, hint) = refusal(&Prometheus { port: 65_530, ..config() }, 7);
    assert_eq!(said, "`prometheus.port` + local rank is 65530 + 7 = 65537, expected at most 65535");
    assert!(hint.contains("set a lower `prometheus.port`"), "{hint}");
    let (_, hint) = refusal(&Prometheus { port: 1, ..config() }, u32::MAX);
    assert!(hint.contains("set a lower `prometheus.port`"), "{hint}");
    // TEST-NET-3: no machine has this address.
    let bind = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
    let (said, hint) = refusal(&Prometheus { bind, ..config() }, 0);
    assert!(said.starts_with("cannot listen on 203.0.113.1:0: "), "{said}");
    assert!(hint.starts_with("set `prometheus.bind` to an address of this host"), "{hint}");
}

#[test]
fn shutdown_closes_the_port_and_does_not_wait_for_a_stalled_client() {
    let mut exporter = start(&config());
    let address = exporter.address();
    let mut stalled = connect(address);
    stalled.write_all(b"GET /").unwrap();
    assert_eq!(request(address, "GET", "/healthz").status, 200);
    exporter.shutdown(Instant::now() + Duration::from_millis(100)).unwrap();
    wait_for("refusal", || TcpStream::connect(address).err());
    let mut rest = Vec::new();
    // Cut off: an end or a reset, no answer.
    assert!(matches!(stalled.read_to_end(&mut rest), Ok(0) | Err(_)));
    exporter.shutdown(Instant::now() + PATIENCE).unwrap();
}

#[test]
fn dropping_the_exporter_closes_the_port() {
    let exporter = start(&config());
    let address = exporter.address();
    drop(exporter);
    wait_for("refusal", || TcpStream::connect(address).err());
}

#[test]
fn every_rank_writes_its_target_file_and_takes_it_away() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config();
    config.target_file = Some(directory.path().join("sd/targets.json"));
    let start = |rank| {
        let run = RunInfo { run: "a \"b\"".to_owned(), rank: Rank(rank), ..run() };
        PrometheusExporter::start(&config, run, sources()).unwrap()
    };
    let mut exporters = [start(0), start(11)];
    let listed = || {
        let entries = std::fs::read_dir(directory.path().join("sd")).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        files
    };
    assert_eq!(listed(), ["targets.rank0.json", "targets.rank11.json"]);
    let written = std::fs::read_to_string(directory.path().join("sd/targets.rank11.json")).unwrap();
    let expected = serde_json::json!([{
        "targets": [exporters[1].address().to_string()],
        "labels": { "run": "a \"b\"", "rank": "11" },
    }]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), expected);
    assert!(exporters[1].locations()[2].ends_with("sd/targets.rank11.json"));
    for exporter in &mut exporters {
        exporter.shutdown(Instant::now() + PATIENCE).unwrap();
    }
    assert_eq!(listed(), [""; 0]);
}

#[test]
fn a_target_file_that_cannot_be_written_leaves_no_server_behind() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut config = config();
    config.target_file = Some(file.join("targets.json"));
    let error = PrometheusExporter::start(&config, run(), sources()).unwrap_err();
    assert!(matches!(error, ExportError::CreateDirectory { .. }), "{error}");
}
