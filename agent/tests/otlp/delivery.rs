//! What arrives when all is well: every step once, with its own time, over both protocols, however it is compressed.

use std::collections::BTreeSet;

use serde_json::json;
use trainmon_agent::CollectiveCall;
use trainmon_agent::core::{CollectiveOp, Dtype, HeldPart, ParameterParts, TensorInfo, catalog};

use crate::receiver::{Log, PATIENT, PROTOCOLS, Receiver, UNHURRIED, is_provisioned};
use crate::run::{NAMES, Run};

/// The scrape page's own: over OTLP the resource carries their facts, every step is there, and nothing is rendered.
const PAGE_ONLY: [&str; 6] = [
    "training.grad.norm.interval_max",
    "training.grad.norm.interval_max_step",
    "training.monitor.series.served",
    "training.monitor.series.limit",
    "training.monitor.series.overflow",
    "training.monitor.scrape.duration",
];

fn endpoint(protocol: &str, receiver: &Receiver) -> String {
    format!(r#""endpoint": "http://127.0.0.1:{}", "protocol": "{protocol}", {PATIENT}"#, receiver.port)
}

/// What these runs give no occasion for: a framework's norm, a budget, a change's tensor, detail.
const NO_OCCASION: [&str; 9] = [
    "training.alert.first_move",
    "training.collective.straggler.lag",
    "training.collective.straggler.rank",
    "training.grad.norm.self_check",
    "training.monitor.budget",
    "training.monitor.sampling",
    "training.update.norm",
    "training.parameter.norm",
    "training.parameter.part.norm",
];

#[test]
fn every_step_arrives_once_with_its_time_and_values_over_both_protocols() {
    if !is_provisioned("every_step_arrives_once_with_its_time_and_values_over_both_protocols") {
        return;
    }
    for protocol in PROTOCOLS {
        for (compression, spelt) in [("none", "identity"), ("gzip", "gzip"), ("zstd", "zstd")] {
            if protocol == "grpc" && compression == "zstd" {
                continue; // Python's gRPC has no zstd: `exporters/tests/otlp.rs` has this one, and looks at the encoding.
            }
            let spelt = if protocol == "grpc" { "grpc" } else { spelt };
            let directory = tempfile::tempdir().unwrap();
            let log = directory.path().join("log");
            let receiver = Receiver::start(protocol, &log, &["--require-header", "x-key=s3cret"]);
            let otlp = format!(
                r#"{}, "compression": "{compression}", "headers": {{"X-Key": "s3cret"}}, "per_parameter": true"#,
                endpoint(protocol, &receiver)
            );
            let mut run = Run::start(&otlp, UNHURRIED);
            run.steps(40);
            let ended = run.end();
            receiver.stop();
            let log = Log::read(&log);
            assert!(log.requests.iter().all(|how| how == spelt), "{:?}", log.requests);
            ended.assert_arrived_exactly_once(&log);
            ended.assert_detail(&log);
            assert_eq!(ended.notices, "");
            assert!(!ended.report.to_string().contains("s3cret"));
        }
    }
}

#[test]
fn points_are_named_as_the_catalogue_says_and_the_resource_says_who_sent_them() {
    if !is_provisioned("points_are_named_as_the_catalogue_says_and_the_resource_says_who_sent_them") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let receiver = Receiver::start("http/protobuf", &path, &[]);
    let members = format!(r#", "journal": {{"size_mb": 64}}{UNHURRIED}"#);
    let mut run = Run::start(&endpoint("http/protobuf", &receiver), &members);
    let send = CollectiveCall::new(CollectiveOp::Send, Dtype::F32, 64);
    run.monitor.collective_group("pp", 2).start(send).finish(None);
    // This rank has a half of one parameter, which no other has.
    let held = Some(HeldPart { is_counted: true, elements: None });
    let parts =
        ParameterParts { whole_name: NAMES[0].into(), elements: 2, held: [held; 3], is_stepped_by_holders: true };
    run.monitor.tell_parts([(TensorInfo { name: NAMES[0].into(), vpp_stage: 0 }, parts)]);
    run.steps(12);
    let ended = run.end();
    receiver.stop();
    let log = Log::read(&path);
    for point in &log.points {
        let metric = catalog::ALL.iter().find(|metric| metric.otel_name == point.metric);
        let metric = metric.unwrap_or_else(|| panic!("{point:?}"));
        assert_eq!(point.unit, metric.unit, "{point:?}");
        let kind = match metric.metric_type {
            catalog::MetricType::Gauge => "gauge",
            catalog::MetricType::Counter => "sum",
            catalog::MetricType::Histogram => "histogram",
        };
        assert_eq!(point.kind, kind, "{point:?}");
        assert!(point.attributes.keys().all(|key| metric.labels.contains(&key.as_str())), "{point:?}");
        assert!(!PAGE_ONLY.contains(&metric.otel_name), "{point:?}");
        let resource = &point.resource;
        assert_eq!(resource["service.name"], "trainmon");
        // Of the same run, whatever it is called: one instance, from the first request to the last.
        assert_eq!(resource["service.instance.id"], log.points[0].resource["service.instance.id"]);
        assert!(resource["service.instance.id"].as_str().is_some_and(|id| id.len() == 36), "a UUID: {resource}");
        let ranks = json!([resource["dl.rank"], resource["dl.local_rank"], resource["dl.world_size"]]);
        assert_eq!(ranks, json!([3, 1, 8]));
        assert_eq!(resource["process.pid"], json!(std::process::id()));
    }
    let arrived: BTreeSet<&str> = log.points.iter().map(|point| point.metric.as_str()).collect();
    let served = catalog::ALL.iter().filter(|metric| metric.status == catalog::Status::Available);
    let expected: BTreeSet<&str> = served
        .map(|metric| metric.otel_name)
        .filter(|name| !name.is_empty() && !PAGE_ONLY.contains(name) && !NO_OCCASION.contains(name))
        .collect();
    assert_eq!(arrived, expected);
    // A sum counts from one start on, never less, and ends with what happened.
    let steps = log.of("training.steps");
    assert_eq!(steps.last().unwrap().value, 12.0);
    assert!(steps.windows(2).all(|pair| pair[0].value < pair[1].value && pair[0].start == pair[1].start));
    assert!(steps.iter().all(|point| point.temporality == Some(2) && point.start <= point.time));
    assert_eq!(log.of("training.step.duration").last().unwrap().value, 11.0);
    let layer = log.of("training.layer.norm");
    assert!(layer.iter().any(|point| point.label("layer") == "blocks.0" && point.label("scope") == "reduced"));
    let observed = log.of("training.monitor.records.observed").last().unwrap().value;
    assert_eq!(observed, ended.report.counts.observed as f64);
    assert_queues(&log);
    assert_zscores(&log);
}

/// Every step tells how full every queue is.
fn assert_queues(log: &Log) {
    let (lengths, capacities) = (log.of("training.monitor.queue.length"), log.of("training.monitor.queue.capacity"));
    for points in [&lengths, &capacities] {
        for sink in ["worker", "csv", "otlp", "journal"] {
            assert_eq!(points.iter().filter(|point| point.label("sink") == sink).count(), log.steps().len(), "{sink}");
        }
    }
    for (length, capacity) in lengths.iter().zip(&capacities) {
        assert_eq!((length.label("sink"), length.time), (capacity.label("sink"), capacity.time));
        assert!((0.0..=capacity.value).contains(&length.value) && capacity.value > 0.0, "{length:?} {capacity:?}");
    }
}

/// A z-score is sent with the step it is of: its norm's distance from those before it. Steps come faster here than they
/// are encoded, so that some go without; the last one does not.
fn assert_zscores(log: &Log) {
    let (norms, zscores) = (log.of("training.grad.norm"), log.of("training.grad.norm.zscore"));
    assert_eq!(zscores.last().unwrap().time, norms.last().unwrap().time);
    for zscore in zscores {
        let place = norms.iter().position(|norm| norm.time == zscore.time).unwrap();
        let before: Vec<f64> = norms[..place].iter().map(|norm| norm.value).collect();
        let mean = before.iter().sum::<f64>() / place as f64;
        let deviation = (before.iter().map(|norm| (norm - mean).powi(2)).sum::<f64>() / place as f64).sqrt();
        let expected = (norms[place].value - mean) / deviation;
        assert!((zscore.value - expected).abs() < 1e-9 * expected.abs().max(1.0), "{zscore:?}: {expected}");
    }
}

#[test]
fn an_alert_arrives_as_a_log_record() {
    if !is_provisioned("an_alert_arrives_as_a_log_record") {
        return;
    }
    for protocol in PROTOCOLS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let receiver = Receiver::start(protocol, &path, &[]);
        let alert = r#""alert": {"rules": [{"rule_name": "NonFinite"}]}"#;
        // A budget so wide that every layer is measured.
        let members = format!(r#", "overhead_budget": 100, {alert}{UNHURRIED}"#);
        let mut run = Run::start(&endpoint(protocol, &receiver), &members);
        run.steps(4);
        run.nan_step();
        drop(run.end());
        receiver.stop();
        let log = Log::read(&path);
        assert_eq!(log.steps(), [0, 1, 2, 3, 4]);
        let nan = log.of("training.nonfinite.elements").into_iter().rfind(|point| point.label("tensor") == "grad");
        assert_eq!(nan.unwrap().value, 3.0);
        for metric in ["training.monitor.budget", "training.monitor.sampling"] {
            let values: Vec<f64> = log.of(metric).iter().map(|point| point.value).collect();
            assert_eq!(values, [1.0; 5], "{metric}");
        }
        assert!(!log.records.is_empty());
        for line in &log.records {
            let record = &line["log"];
            assert_eq!(record["eventName"], "training.alert");
            assert_eq!(line["resource"], log.points[0].resource, "the same instance as the points");
            let attributes = record["attributes"].as_array().unwrap();
            let value = |key: &str| attributes.iter().find(|pair| pair["key"] == key).map(|pair| pair["value"].clone());
            assert_eq!(value("training.alert.rule"), Some(json!({"stringValue": "NonFinite"})));
            assert_eq!(value("training.step"), Some(json!({"intValue": "4"})));
            assert!(record["body"]["stringValue"].as_str().is_some_and(|sentence| !sentence.is_empty()));
            // The record and the step's points have one time.
            let time: u64 = record["timeUnixNano"].as_str().unwrap().parse().unwrap();
            assert_eq!(time, log.of("training.step").last().unwrap().time);
        }
    }
}
