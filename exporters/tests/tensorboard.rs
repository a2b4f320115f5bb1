//! Event files, taken apart again: framing, tags, values, times. TensorBoard's own reader is asked in
//! `agent/python/tests/integrations/test_tensorboard.py`.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use prost::Message;
use trainmon_core::config::{Config, TensorBoard};
use trainmon_core::{
    Alert, AlertPhase, AlertRule, AlertSeries, AlertSeverity, AlertSignal, Expectation, Kind, MicroStep, Rank, Reading,
    Record, Scalar, Statistic, Step, StepBatch, TensorId, TensorInfo, TensorStats,
};
use trainmon_exporters::tensorboard::TensorBoardExporter;
use trainmon_exporters::{ExportError, Exporter};

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, tag = "3")]
    file_version: String,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
#[expect(clippy::struct_field_names, reason = "the format's name")]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
    #[prost(bytes = "vec", optional, tag = "5")]
    histogram: Option<Vec<u8>>,
    #[prost(message, optional, tag = "8")]
    tensor: Option<Tensor>,
    #[prost(bytes = "vec", optional, tag = "9")]
    metadata: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(bytes = "vec", optional, tag = "2")]
    shape: Option<Vec<u8>>,
    #[prost(string, repeated, tag = "8")]
    text: Vec<String>,
}

/// The events of one file; its framing must be whole.
fn events(path: &Path) -> Vec<Event> {
    let masked = |data: &[u8]| crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let data = fs::read(path).unwrap();
    let (mut rest, mut found) = (&data[..], Vec::new());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(rest[8..12], masked(&rest[..8]));
        let content = &rest[12..12 + length];
        assert_eq!(rest[12 + length..16 + length], masked(content));
        found.push(Event::decode(content).unwrap());
        rest = &rest[16 + length..];
    }
    found
}

/// The event files of one run (one directory), in the order a reader takes them.
fn files(run: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

/// The scalars of one run: tag, step, value.
fn scalars(run: &Path) -> BTreeMap<(String, i64), f32> {
    let values = |event: Event| {
        let step = event.step;
        event.summary.unwrap_or_default().value.into_iter().map(move |value| (step, value))
    };
    let all = files(run).into_iter().flat_map(|file| events(&file)).flat_map(values);
    all.filter_map(|(step, value)| Some(((value.tag, step), value.simple_value?))).collect()
}

fn config(text: &str) -> Config {
    Config::parse(text, "test.json", &|_| None).unwrap_or_else(|errors| panic!("{errors}")).config
}

fn exporter(config: &Config, dir: &Path) -> TensorBoardExporter {
    let settings = TensorBoard { dir: Some(dir.to_path_buf()), ..config.tensorboard.clone().unwrap() };
    TensorBoardExporter::in_directory(config, &settings, dir.join("rank3"))
}

fn names(names: &[&str]) -> Vec<TensorInfo> {
    names.iter().map(|&name| TensorInfo { name: name.into(), vpp_stage: 0 }).collect()
}

fn record(tensor: u32, kind: Kind, micro_step: u32, reading: Option<Reading>) -> Record {
    Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(micro_step), reading }
}

fn reading(norm: f64) -> TensorStats {
    TensorStats { norm, min: Scalar::Float(-norm), ..TensorStats::of_value(norm) }
}

fn batch(step: u64, records: Vec<Record>) -> StepBatch {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250 + step * 1000);
    StepBatch { step: Step(step), time, records, ..StepBatch::default() }
}

const GRADIENTS: &str = r#"{"format": "tensorboard", "wg_distribution": true, "ops": ["norm", "min", "crc32"]}"#;

#[test]
fn a_kind_is_a_run_of_its_own_with_msprobes_tags_and_the_steps_time() {
    let place = tempfile::tempdir().unwrap();
    let mut exporter = exporter(&config(GRADIENTS), place.path());
    for step in 0..3 {
        let norm = 0.1 + step as f64;
        let records = vec![record(0, Kind::GradReduced, 0, Some(reading(norm).into()))];
        exporter.export(&names(&["fc1.weight"]), &batch(step, records)).unwrap();
    }
    exporter.shutdown(Instant::now()).unwrap();
    let run = place.path().join("rank3/grad_reduced");
    let [file] = &files(&run)[..] else { panic!("one file") };
    let name = file.file_name().unwrap().to_str().unwrap();
    let parts: Vec<&str> = name.split('.').collect();
    assert_eq!(parts[..3], ["events", "out", "tfevents"], "{name}");
    assert!(parts[3].len() == 10 && parts[3].parse::<u64>().is_ok(), "{name}");
    assert!(name.contains(&format!(".{}.", std::process::id())), "{name}");

    let events = events(file);
    assert_eq!((events[0].file_version.as_str(), events.len()), ("brain.Event:2", 4));
    for (step, event) in events[1..].iter().enumerate() {
        assert_eq!((event.step, event.wall_time), (step as i64, 1_700_000_000.25 + step as f64));
        let values = &event.summary.as_ref().unwrap().value;
        let shown: Vec<_> = values.iter().map(|value| (value.tag.as_str(), value.simple_value.unwrap())).collect();
        let norm = (0.1 + step as f64) as f32;
        // A checksum is no number that a float32 could carry.
        assert_eq!(shown, [("vp0:fc1.weight/norm", norm), ("vp0:fc1.weight/min", -norm)]);
        assert!(values.iter().all(|value| value.metadata.is_some() == (step == 0)), "described once");
    }
}

#[test]
fn the_micro_step_is_told_where_the_csv_file_tells_it_and_counts_as_there() {
    let v1 = r#"{"format": "tensorboard", "wg_distribution": true, "monitor_mbs_grad": true}"#;
    let v2 = r#"{"format": "tensorboard", "monitors": {"weight_grad": {"enabled": true, "ops": ["norm"]}}}"#;
    for (text, unreduced, reduced) in
        [(v1, "vp0:w:micro1/norm", "vp0:w/norm"), (v2, "vp0:w:micro2/norm", "vp0:w:micro2/norm")]
    {
        let place = tempfile::tempdir().unwrap();
        let records =
            [Kind::GradUnreduced, Kind::GradReduced].map(|kind| record(0, kind, 1, Some(reading(2.0).into())));
        exporter(&config(text), place.path()).export(&names(&["w"]), &batch(0, records.into())).unwrap();
        for (kind, tag) in [("grad_unreduced", unreduced), ("grad_reduced", reduced)] {
            let found = scalars(&place.path().join("rank3").join(kind));
            assert_eq!(found.into_keys().collect::<Vec<_>>(), [(tag.to_owned(), 0)], "{text}");
        }
    }
}

#[test]
fn a_number_that_is_nan_is_shown_and_one_that_nobody_told_is_not() {
    let place = tempfile::tempdir().unwrap();
    let mut exporter = exporter(&config(GRADIENTS), place.path());
    let records =
        vec![record(0, Kind::GradReduced, 0, Some(reading(f64::NAN).into())), record(1, Kind::GradReduced, 0, None)];
    let told = StepBatch { loss: Some(f64::NAN), ..batch(7, records) };
    exporter.export(&names(&["a", "b"]), &told).unwrap();
    let run = scalars(&place.path().join("rank3/grad_reduced"));
    assert_eq!(run.keys().map(|(tag, _)| tag.as_str()).collect::<Vec<_>>(), ["vp0:a/min", "vp0:a/norm"]);
    assert!(run.values().all(|value| value.is_nan()));
    let facts = scalars(&place.path().join("rank3"));
    assert!(facts[&("run/loss".to_owned(), 7)].is_nan());
    assert!(facts[&("run/grad_norm".to_owned(), 7)].is_nan());
    assert_eq!(facts[&("monitor/records".to_owned(), 7)], 2.0);
    for absent in ["run/learning_rate", "run/step_seconds", "run/framework_grad_norm", "monitor/tags_left_out"] {
        assert!(!facts.contains_key(&(absent.to_owned(), 7)), "{absent}");
    }
}

#[test]
fn update_ratios_have_tags_and_a_distribution() {
    let place = tempfile::tempdir().unwrap();
    let config = config(r#"{"format": "tensorboard", "update": true}"#);
    let ratios = [1e-3, 2e-3, f64::INFINITY];
    let record = |(tensor, ratio): (usize, &f64)| {
        record(tensor as u32, Kind::UpdateRatio, 0, Some(Reading::of_values(&[*ratio])))
    };
    let records = ratios.iter().enumerate().map(record).collect();
    exporter(&config, place.path()).export(&names(&["a", "b", "c"]), &batch(0, records)).unwrap();
    let run = place.path().join("rank3/update_ratio");
    let found = scalars(&run);
    assert_eq!(found[&("vp0:b/update_ratio".to_owned(), 0)], 2e-3);
    assert_eq!(found[&("update_ratio_log10_left_out".to_owned(), 0)], 1.0);
    let values = events(&files(&run)[0])[1].summary.clone().unwrap().value;
    let histogram = values.iter().find(|value| value.tag == "update_ratio_log10").unwrap();
    assert!(histogram.histogram.is_some() && histogram.metadata.is_some());
}

#[test]
fn an_alert_is_a_text_under_its_rule_at_its_step() {
    let place = tempfile::tempdir().unwrap();
    let mut exporter = exporter(&config(GRADIENTS), place.path());
    exporter.export(&names(&["w"]), &batch(7, vec![])).unwrap();
    let alert = |rule, message: &str| Alert {
        rule,
        severity: AlertSeverity::Warning,
        phase: AlertPhase::Begins,
        findings: 1,
        step: Step(7),
        rank: Rank(3),
        time: batch(7, vec![]).time,
        series: AlertSeries::global(AlertSignal::Grad, Some(Statistic::Norm)),
        value: 9.0,
        expected: Expectation::default(),
        message: message.to_owned(),
        moved_first: None,
        incident: None,
    };
    for (rule, message) in [(AlertRule::Spike, "one"), (AlertRule::Spike, "two"), (AlertRule::NonFinite, "three")] {
        exporter.alert(&alert(rule, message)).unwrap();
    }
    let run = place.path().join("rank3");
    let all = files(&run).into_iter().flat_map(|file| events(&file));
    let texts: Vec<_> = all
        .flat_map(|event| {
            event.summary.unwrap_or_default().value.into_iter().map(move |v| (event.step, event.wall_time, v))
        })
        .filter_map(|(step, time, value)| Some((value.tag, step, time, value.tensor?, value.metadata)))
        .collect();
    // plugin_data { plugin_name: "text" }, data_class: a tensor; given with a tag's first value.
    let described = Some([&b"\x0a\x06\x0a\x04text"[..], b"\x20\x02"].concat());
    let text = |text: &str| Tensor { dtype: 7, shape: Some(Vec::new()), text: vec![text.to_owned()] };
    let expected = [
        ("alert/Spike", "**warning** one", described.clone()),
        ("alert/Spike", "**warning** two", None),
        ("alert/NonFinite", "**warning** three", described),
    ]
    .map(|(tag, words, described)| (tag.to_owned(), 7, 1_700_000_007.25, text(words), described));
    assert_eq!(texts, expected);
}

#[test]
fn tags_beyond_the_most_are_left_out_whole_counted_and_told() {
    let place = tempfile::tempdir().unwrap();
    let mut config = config(GRADIENTS);
    config.tensorboard.as_mut().unwrap().max_tags = 5;
    let mut exporter = exporter(&config, place.path());
    for step in 0..2 {
        let records = (0..4).map(|tensor| record(tensor, Kind::GradReduced, 0, Some(reading(1.0).into()))).collect();
        let failure = exporter.export(&names(&["a", "b", "c", "d"]), &batch(step, records)).unwrap_err();
        assert_eq!(failure.lost_records, 2, "two tensors of two tags fit");
        let ExportError::TooManyTags { max: 5, left_out: 4 } = failure.source else { panic!("{failure:?}") };
    }
    assert_eq!(scalars(&place.path().join("rank3/grad_reduced")).len(), 2 * 4);
    assert_eq!(scalars(&place.path().join("rank3"))[&("monitor/tags_left_out".to_owned(), 1)], 4.0);
}

#[test]
fn statistics_asked_for_in_mid_run_have_tags_from_then_on() {
    let place = tempfile::tempdir().unwrap();
    let mut exporter = exporter(&config(GRADIENTS), place.path());
    for (step, ops) in [None, Some([Statistic::Max, Statistic::Norm])].into_iter().enumerate() {
        let records = vec![record(0, Kind::GradReduced, 0, Some(reading(1.0).into()))];
        let ops = ops.map(|ops| ops[..].into());
        exporter.export(&names(&["a"]), &StepBatch { ops, ..batch(step as u64, records) }).unwrap();
    }
    let found = scalars(&place.path().join("rank3/grad_reduced"));
    let shown: Vec<_> = found.keys().map(|(tag, step)| (tag.trim_start_matches("vp0:a/"), *step)).collect();
    assert_eq!(shown, [("max", 1), ("min", 0), ("norm", 0), ("norm", 1)]);
}

#[test]
fn a_file_that_vanished_or_failed_is_followed_by_a_new_one_that_stands_for_itself() {
    let place = tempfile::tempdir().unwrap();
    let mut exporter = exporter(&config(GRADIENTS), place.path());
    let mut export = |step| {
        let records = vec![record(0, Kind::GradReduced, 0, Some(reading(1.0).into()))];
        exporter.export(&names(&["a"]), &batch(step, records))
    };
    let run = place.path().join("rank3/grad_reduced");
    export(0).unwrap();
    // Where the directory was there is a file.
    fs::remove_dir_all(&run).unwrap();
    fs::write(&run, "in the way").unwrap();
    let failure = export(1).unwrap_err();
    assert_eq!(failure.lost_records, 1);
    assert!(matches!(failure.source, ExportError::CreateDirectory { .. }), "{failure:?}");
    fs::remove_file(&run).unwrap();
    export(2).unwrap();
    export(3).unwrap();
    let events = events(&files(&run)[0]);
    assert_eq!(events.iter().map(|event| event.step).collect::<Vec<_>>(), [0, 2, 3]);
    assert!(events[1].summary.as_ref().unwrap().value.iter().all(|value| value.metadata.is_some()));
}

#[test]
fn what_a_script_tells_by_name_has_the_name_as_tag_beside_the_runs_own_numbers() {
    let place = tempfile::tempdir().unwrap();
    let mut limited = config(GRADIENTS);
    limited.tensorboard.as_mut().unwrap().max_tags = 1;
    let mut exporter = exporter(&limited, place.path());
    let told = |tensor, value| record(tensor, Kind::Scalar, 0, Some(Reading::of_values(&[value])));
    let names = names(&["val/accuracy", "one too many"]);
    let lost = exporter.export(&names, &batch(4, vec![told(0, 0.5), told(1, 1.0)])).unwrap_err();
    assert_eq!(lost.lost_records, 1);
    let facts = scalars(&place.path().join("rank3"));
    assert_eq!(facts[&("val/accuracy".to_owned(), 4)], 0.5);
    assert!(!place.path().join("rank3/scalar").exists());
}
