//! The overhead budget in a running monitor.

use std::collections::BTreeMap;
use std::time::Duration;

use trainmon_agent::core::config::Config;
use trainmon_agent::core::{Kind, MicroStep, Phase, TensorId, TensorView};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StepFacts};

use crate::training::{options, rows};

/// Sixteen layers of two tensors.
fn register(monitor: &Monitor) -> Vec<TensorId> {
    let names = (0..16).flat_map(|layer| ["attn", "attn.out"].map(|part| format!("h.{layer}.{part}.weight")));
    names.map(|name| monitor.register(&name, 0)).collect()
}

/// A step that shows everything; each tensor that is measured costs the training thread `cost`.
fn step(monitor: &Monitor, tensors: &[TensorId], cost: Duration) -> usize {
    let data = [3.0f32, 4.0];
    let view = TensorView::from_slice(&data, &[2]).unwrap();
    let mut measured = 0;
    for &tensor in tensors {
        for kind in [Kind::GradReduced, Kind::ExpAvg] {
            if monitor.observe(tensor, kind, MicroStep(0), &view).is_some() {
                measured += 1;
                monitor.add_cost(Phase::Measure, cost);
            }
        }
    }
    monitor.end_step(StepFacts::default());
    measured
}

#[test]
fn above_the_budget_layers_take_turns_visibly_and_the_books_balance() {
    let base = tempfile::tempdir().unwrap();
    let text = r#"{"wg_distribution": true, "mv_distribution": true, "overhead_budget": 1, "queue_steps": 4096,
                   "step_count_per_record": 1000000}"#;
    let config = Config::parse(text, "test.json", &|_| None).unwrap().config;
    let said = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&said);
    let notices = Notices::new(move |notice| heard.lock().unwrap().push(notice.to_string()));
    let options = Options { ranks: Some(Ranks::SINGLE), notices, ..options(base.path()) };
    let monitor = Monitor::start(config, options).unwrap();
    let tensors = register(&monitor);
    // What is booked as cost is far more than a step takes here, whatever the machine: the budget is exceeded by much.
    let mut strides = Vec::new();
    for _ in 0..2_000 {
        strides.push(monitor.sampling_stride());
        let measured = step(&monitor, &tensors, Duration::from_secs(1));
        assert!(measured == 64 || monitor.sampling_stride() > 1, "{measured}");
    }
    assert!(strides.is_sorted(), "the cost never falls below the budget");
    let (first, last) = (strides[0], *strides.last().unwrap());
    assert_eq!((first, last), (1, 256));
    let directory = monitor.locations()[0].1[0].clone();
    let report = monitor.shutdown();
    assert!(report.balances() && report.lost() == 0, "{report}");
    assert_eq!(report.counts.observed, 2_000 * 64);
    assert_eq!(report.counts.not_sampled + report.counts.accepted, 2_000 * 64);
    assert!(report.counts.not_sampled > report.counts.accepted);
    assert_rotation(&rows(directory.as_ref(), Kind::GradReduced), &strides);
    assert_steps_file(directory.as_ref(), &strides);
    let said = said.lock().unwrap();
    assert!(
        said[0].contains("measuring took more than 1 % of the step; trainmon now measures one layer in"),
        "{said:?}"
    );
    assert_eq!(said.iter().filter(|text| text.contains("even at the lowest sampling ratio")).count(), 1, "{said:?}");
}

/// In every turn of 256 steps at the largest stride each tensor is measured once, with its layer.
fn assert_rotation(rows: &[(u64, String)], strides: &[u32]) {
    let begin = strides.iter().position(|&stride| stride == 256).unwrap() as u64;
    for turn in 0..(2_000 - begin) / 256 {
        let steps = begin + 256 * turn..begin + 256 * (turn + 1);
        let mut seen: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (step, name) in rows.iter().filter(|(step, _)| steps.contains(step)) {
            seen.entry(name).or_default().push(*step);
        }
        assert_eq!(seen.len(), 32);
        assert!(seen.values().all(|steps| steps.len() == 1), "{seen:?}");
        for layer in 0..16 {
            let of = |part: &str| &seen[format!("h.{layer}.{part}.weight").as_str()];
            assert_eq!(of("attn"), of("attn.out"), "a layer stays together");
        }
    }
}

/// `steps.csv` shows the ratio, and a norm over a part is not passed off as the whole.
fn assert_steps_file(directory: &std::path::Path, strides: &[u32]) {
    let mut reader = csv::Reader::from_path(directory.join("steps.csv")).unwrap();
    let header = reader.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|found| found == name).unwrap();
    let (step, ratio, norm) = (column("step"), column("sampling_ratio"), column("grad_norm"));
    let mut lines = 0;
    for row in reader.records() {
        let row = row.unwrap();
        let stride = strides[row[step].parse::<usize>().unwrap()];
        assert_eq!(row[ratio].parse::<f64>().unwrap(), 1.0 / f64::from(stride));
        assert_eq!(row[norm].is_empty(), stride > 1, "{row:?}");
        lines += 1;
    }
    assert_eq!(lines, strides.len());
}

#[test]
fn without_a_budget_and_within_it_everything_is_measured() {
    let base = tempfile::tempdir().unwrap();
    for budget in ["", r#", "overhead_budget": 100"#] {
        let text = format!(r#"{{"wg_distribution": true, "mv_distribution": true, "queue_steps": 4096{budget}}}"#);
        let config = Config { csv: None, ..Config::parse(&text, "test.json", &|_| None).unwrap().config };
        let options = Options { ranks: Some(Ranks::SINGLE), notices: Notices::new(|_| {}), ..options(base.path()) };
        let monitor = Monitor::start(config, options).unwrap();
        let tensors = register(&monitor);
        for _ in 0..50 {
            assert_eq!(step(&monitor, &tensors, Duration::ZERO), 64);
        }
        assert!(monitor.shutdown().balances());
    }
}
