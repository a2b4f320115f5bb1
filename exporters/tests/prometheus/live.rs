//! The live page over real HTTP: the page, its documents, its events.

use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::Value;
use trainmon_core::config::Prometheus;
use trainmon_core::{Kind, MicroStep, Reading, Record, StepBatch};
use trainmon_exporters::{Exporter, PrometheusExporter};
use trainmon_history::{HeatMap, RunDocument};

use crate::support::{
    PATIENCE, alert, collectives, config, connect, gradient, names, record, request, request_as, run, scrape, sources,
    start, step, value, wait_for,
};

const OVERVIEW: &str = "/api/overview";

fn overview(address: SocketAddr) -> RunDocument {
    serde_json::from_str(&request(address, "GET", OVERVIEW).body).unwrap()
}

/// The events of a stream, one by one.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(address: SocketAddr, query: &str) -> Self {
        let mut stream = connect(address);
        write!(stream, "GET /api/events{query} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut events = Self(BufReader::new(stream));
        let head: Vec<String> = std::iter::from_fn(|| events.line()).take_while(|line| !line.is_empty()).collect();
        assert!(
            head[0].contains("200") && head.iter().any(|line| line == "content-type: text/event-stream"),
            "{head:?}"
        );
        events
    }

    /// A line; `None` at the end of the stream. Lines of the chunked encoding are among them.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).unwrap_or(0);
        (length > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event's name and data; `None` at the end.
    fn next(&mut self) -> Option<(String, Value)> {
        let name = loop {
            if let Some(name) = self.line()?.strip_prefix("event: ") {
                break name.to_owned();
            }
        };
        let data = self.line()?;
        Some((name, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()))
    }

    /// The next event of that name.
    fn wait(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next().unwrap();
            if name == wanted {
                return data;
            }
        }
    }
}

fn export(exporter: &mut PrometheusExporter, number: u64, norm: f64) {
    let batch = StepBatch { loss: Some(norm), ..step(number, vec![gradient(0, norm)]) };
    exporter.export(&names(&["h.0.weight"]), &batch).unwrap();
}

#[test]
fn the_page_allows_its_own_script_and_nothing_else() {
    let exporter = start(&config());
    let page = request(exporter.address(), "GET", "/");
    assert_eq!((page.status, page.body.as_str()), (200, trainmon_web::RUN_PAGE));
    let policy = page.head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(policy.contains("connect-src 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    for path in ["/", "/metrics", OVERVIEW, "/nothing"] {
        let head = request(exporter.address(), "GET", path).head;
        assert!(head.contains("x-content-type-options: nosniff") && head.contains("default-src 'none'"), "{head}");
        assert!(!head.contains("access-control-allow-origin"), "{head}");
    }
}

#[test]
fn an_overview_holds_the_run_from_its_first_step_on() {
    let sources = trainmon_exporters::Sources { collectives: collectives(), ..sources() };
    let mut exporter = PrometheusExporter::start(&config(), run(), sources).unwrap();
    let before = overview(exporter.address());
    assert_eq!((before.status.step, before.overview.curves.len()), (None, 0));
    let tensors = names(&["h.0.weight", "h.1.weight", "accuracy"]);
    for number in 1..=3 {
        let records = vec![
            gradient(0, number as f64),
            gradient(1, f64::NAN),
            record(0, Kind::UpdateRatio, Reading::of_values(&[0.01])),
            record(2, Kind::Scalar, Reading::of_values(&[0.5])),
        ];
        let batch = StepBatch { loss: Some(f64::INFINITY), learning_rate: Some(0.1), ..step(number, records) };
        exporter.export(&tensors, &batch).unwrap();
    }
    exporter.alert(&alert(3)).unwrap();
    let RunDocument { version: _, overview, status, heat_maps: _ } = overview(exporter.address());
    assert_eq!(overview.steps.first, [1, 2, 3]);
    let curve = |name: &str| overview.curves.iter().find(|curve| curve.name == name).map(|curve| curve.last.clone());
    assert_eq!(curve("loss"), Some(vec![Some(f64::INFINITY); 3]));
    assert_eq!(curve("scalar/accuracy"), Some(vec![Some(0.5); 3]));
    assert_eq!(curve("update_ratio_max"), Some(vec![Some(0.01); 3]));
    assert_eq!(curve("step_seconds"), Some(vec![Some(2.0); 3]));
    assert!(curve("grad_norm").unwrap().iter().all(|norm| norm.unwrap().is_nan()));
    let kinds: Vec<(&str, usize)> = overview.tables.kinds.iter().map(|kind| (&*kind.name, kind.rows)).collect();
    assert_eq!(kinds, [("grad_reduced", 2), ("update_ratio", 1)]);
    assert_eq!(overview.tables.worst[0].name, "h.1.weight");
    assert_eq!(overview.alerts, [alert(3)]);
    assert_eq!((&*status.run, status.rank, status.world_size, status.step), ("run-a", 3, 8, Some(3)));
    let ledger = status.ledger.unwrap();
    assert_eq!((ledger.queue.length, ledger.sinks[0].name.as_str()), (1, "csv"));
    assert_eq!((status.collectives.len(), status.collectives[0].op.as_str()), (2, "all_reduce"));
    let cost = status.cost.unwrap();
    assert_eq!((cost.steps, cost.step_seconds, cost.bytes_read, cost.budget), (3, 6.0, 3000, Some(0.01)));
}

#[test]
fn a_heat_map_is_asked_for_by_kind_and_statistic() {
    let mut exporter = start(&config());
    (1..=3).for_each(|number| export(&mut exporter, number, number as f64));
    let ask = |query: &str| request(exporter.address(), "GET", &format!("/api/heatmap{query}"));
    let map: HeatMap = serde_json::from_str(&ask("?kind=grad_reduced&statistic=norm").body).unwrap();
    assert_eq!((map.values, map.layers), (vec![1.0, 2.0, 3.0], vec!["h.0".to_owned()]));
    let tail: HeatMap = serde_json::from_str(&ask("?from=2&statistic=norm&kind=grad_reduced").body).unwrap();
    assert_eq!((tail.values, tail.columns.from), (vec![3.0], 2));
    let unknown = ask("?kind=update&statistic=norm");
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.body, "no such heat map; available: grad_reduced (norm, absmax, zeros)\n");
    let statuses =
        ["", "?kind=grad_reduced", "?kind=grad_reduced&statistic=norm&from=x"].map(|query| ask(query).status);
    assert_eq!(statuses, [400; 3]);
}

#[test]
fn events_bring_each_step_and_alert_once() {
    let mut exporter = start(&config());
    export(&mut exporter, 1, 1.0);
    let mut events = Events::open(exporter.address(), "?generation=0&bins=0&alerts=0");
    assert_eq!(events.wait("tail")["tail"]["steps"]["first"], serde_json::json!([1]));
    export(&mut exporter, 2, 0.5);
    exporter.alert(&alert(2)).unwrap();
    let mut alerts = 0;
    let tail = loop {
        let event = events.wait("tail");
        alerts += event["tail"]["alerts"].as_array().unwrap().len();
        if event["tail"]["steps"]["first"].as_array().unwrap().contains(&2.into()) && alerts > 0 {
            break event;
        }
    };
    assert_eq!((alerts, &tail["status"]["step"]), (1, &serde_json::json!(2)));
    let loss = tail["tail"]["curves"].as_array().unwrap().iter().find(|curve| curve["name"] == "loss").unwrap();
    assert_eq!(loss["last"].as_array().unwrap().last().unwrap(), 0.5);
}

#[test]
fn a_reader_with_bins_of_another_run_is_told_to_begin_anew() {
    let mut exporter = start(&config());
    export(&mut exporter, 1, 1.0);
    let mut events = Events::open(exporter.address(), "?generation=7&bins=40&alerts=0");
    assert_eq!(events.next().unwrap().0, "reset");
    assert_eq!(events.next(), None, "the stream ends with it");
    assert_eq!(request(exporter.address(), "GET", "/api/events?bins=many").status, 400);
}

#[test]
fn open_pages_keep_no_scrape_waiting_and_the_oldest_make_room() {
    let mut exporter = start(&config());
    export(&mut exporter, 1, 1.0);
    let mut streams: Vec<Events> = (0..20).map(|_| Events::open(exporter.address(), "")).collect();
    assert_eq!(value(&scrape(exporter.address()), "trainmon_step"), Some(1.0));
    export(&mut exporter, 2, 1.0);
    streams[19].wait("tail");
    let is_cut_off = |events: &mut Events| std::iter::from_fn(|| events.next()).take(50).count() < 50;
    assert!(streams[..4].iter_mut().all(is_cut_off), "as many as the server keeps, no more");
    // More scrapes than may be open at once take no stream its place.
    for _ in 0..40 {
        scrape(exporter.address());
    }
    export(&mut exporter, 3, 1.0);
    assert!(wait_for("the newest step", || (streams[19].wait("tail")["status"]["step"] == 3).then_some(true)));
}

#[test]
fn open_pages_end_at_once_at_shutdown() {
    let mut exporter = start(&config());
    export(&mut exporter, 1, 1.0);
    let mut events = Events::open(exporter.address(), "");
    events.wait("tail");
    let deadline = Instant::now() + PATIENCE;
    exporter.shutdown(deadline).unwrap();
    assert!(Instant::now() < deadline, "the stream did not hold up the shutdown until its deadline");
    while events.next().is_some() {}
}

#[test]
fn a_socket_without_a_request_does_not_hold_up_the_shutdown() {
    let mut exporter = start(&config());
    // Browsers keep one ready for the next request.
    let mut idle = connect(exporter.address());
    scrape(exporter.address());
    let deadline = Instant::now() + PATIENCE;
    exporter.shutdown(deadline).unwrap();
    assert!(Instant::now() < deadline);
    assert!(!matches!(idle.read(&mut [0]), Ok(1..)), "nothing was said to it");
}

#[test]
fn a_page_of_elsewhere_reads_nothing_and_a_scraper_may_use_any_name() {
    let mut exporter = start(&config());
    export(&mut exporter, 1, 1.0);
    let status = |path: &str, host: &str| request_as(exporter.address(), host, "GET", path).status;
    for path in ["/", OVERVIEW, "/api/events", "/api/heatmap?kind=grad_reduced&statistic=norm", "/top"] {
        assert_eq!(status(path, "rebound.example:9464"), 403, "{path}");
    }
    for host in ["localhost:9464", "127.0.0.1:9464", "[::1]:9464"] {
        assert_eq!(status(OVERVIEW, host), 200, "{host}");
    }
    assert_eq!(
        (status("/metrics", "node17.cluster.example"), status("/healthz", "node17.cluster.example")),
        (200, 200)
    );
}

#[test]
fn the_page_answers_under_the_names_of_the_config() {
    let exporter = start(&Prometheus { hosts: vec!["Node17.Cluster.example".to_owned()], ..config() });
    let page = |host: &str| request_as(exporter.address(), host, "GET", "/");
    assert_eq!(page("node17.cluster.EXAMPLE:9464").status, 200);
    for host in ["cluster.example", "node17.cluster.example.evil.example", "a.node17.cluster.example"] {
        let refused = page(host);
        assert!(refused.status == 403 && refused.body.contains("prometheus.hosts"), "{host}: {}", refused.body);
    }
}

#[test]
fn a_micro_batch_that_is_not_the_last_has_no_cell() {
    let mut exporter = start(&Prometheus { per_layer: false, ..config() });
    let of_micro_step = |number, norm| Record {
        micro_step: MicroStep(number),
        ..record(0, Kind::GradUnreduced, crate::support::reading(4, norm))
    };
    exporter.export(&names(&["w"]), &step(1, vec![of_micro_step(0, 100.0), of_micro_step(1, 2.0)])).unwrap();
    let answer = request(exporter.address(), "GET", "/api/heatmap?kind=grad_unreduced&statistic=norm");
    let map: HeatMap = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(map.values, [2.0]);
}
