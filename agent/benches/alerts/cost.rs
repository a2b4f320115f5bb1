//! What looking at a step of 2,000 records costs the worker thread.

use std::time::Duration;

use trainmon_agent::core::config::{Config, Pipeline};
use trainmon_agent::core::{Kind, MicroStep, Record, TensorStats};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StepFacts};

const LAYERS: usize = 50;
const TENSORS_PER_LAYER: usize = 10;
const STEPS: u64 = 300;

/// The rules a row of the table is measured with.
const CONFIGS: [(&str, &str); 5] = [
    ("none", r#"{"rules": []}"#),
    ("without a word about alerts", "{}"),
    (
        "msprobe's two, every tensor and statistic",
        r#"{"rules": [{"rule_name": "AnomalyTurbulence"}, {"rule_name": "AnomalyNan"}]}"#,
    ),
    (
        "Spike per layer",
        r#"{"rules": [{"rule_name": "Spike", "on": {"scope": "layer", "signal": ["grad", "exp_avg", "exp_avg_sq"]}}]}"#,
    ),
    (
        "Spike per tensor",
        r#"{"rules": [{"rule_name": "Spike", "on": {"scope": "tensor", "signal": ["grad", "exp_avg", "exp_avg_sq", "param_updated"]}}]}"#,
    ),
];

pub(crate) fn measure() {
    println!(
        "## A step of {} records in the worker, {STEPS} steps after the windows are full\n",
        4 * LAYERS * TENSORS_PER_LAYER
    );
    println!("| rules | per step |\n|---|---|");
    for (name, alert) in CONFIGS {
        let mut times: Vec<f64> = (0..5).map(|_| run(alert)).collect();
        times.sort_by(f64::total_cmp);
        println!("| {name} | {:.0} us ({:.0} to {:.0}) |", 1e6 * times[2], 1e6 * times[0], 1e6 * times[4]);
    }
}

/// Seconds per step.
fn run(alert: &str) -> f64 {
    let text = format!(
        r#"{{"wg_distribution": true, "mv_distribution": true, "param_distribution": true,
            "ops": ["min", "max", "mean", "norm", "nans", "zeros"], "alert": {alert}}}"#
    );
    let config = Config::parse(&text, "bench", &|_| None).unwrap().config;
    let pipeline = Pipeline { queue_steps: 4_096, shutdown_timeout_ms: 600_000 };
    let config = Config { csv: None, prometheus: None, pipeline, ..config };
    let options = Options { ranks: Some(Ranks::SINGLE), notices: Notices::new(|_| {}), ..Options::default() };
    let monitor = Monitor::start(config, options).unwrap();
    let name =
        |index: usize| format!("model.layers.{}.mlp.fc{}.weight", index / TENSORS_PER_LAYER, index % TENSORS_PER_LAYER);
    let tensors: Vec<_> = (0..LAYERS * TENSORS_PER_LAYER).map(|index| monitor.register(&name(index), 0)).collect();
    let mut step = |number: u64| {
        for kind in [Kind::GradReduced, Kind::ExpAvg, Kind::ExpAvgSq, Kind::ParamUpdated] {
            for (index, &tensor) in tensors.iter().enumerate() {
                let value = 1.0 + 0.05 * ((number * 31 + index as u64) as f64).sin();
                let record = Record {
                    tensor,
                    kind,
                    micro_step: MicroStep(0),
                    reading: Some(TensorStats::of_value(value).into()),
                };
                monitor.record(record, Duration::ZERO, 0);
            }
        }
        monitor.end_step(StepFacts { loss: Some(2.0), ..StepFacts::default() });
    };
    let looked = |monitor: &Monitor| {
        // The state is that after the last step: asking for it waits for the worker.
        monitor.alert_state();
        monitor.alert_totals().looking
    };
    (0..150).for_each(&mut step);
    let before = looked(&monitor);
    (150..150 + STEPS).for_each(&mut step);
    (looked(&monitor).as_secs_f64() - before.as_secs_f64()) / STEPS as f64
}
