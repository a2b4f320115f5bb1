//! Rendering a scrape page: the exporter's table against the `prometheus` crate, same series, same run.
//!
//! `cargo bench -p trainmon-exporters --bench scrape`. It prints medians and their ratio; it asserts nothing about time.
#![expect(clippy::print_stdout, reason = "a benchmark's output is its result")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use prometheus::core::Collector;
use prometheus::{GaugeVec, Opts, TextEncoder};
use trainmon_core::catalog::PARAMETER_NORM;
use trainmon_core::config;
use trainmon_core::{
    Kind, Ledger, MicroStep, Rank, Record, Statistic, Step, StepBatch, TensorId, TensorInfo, TensorStats,
};
use trainmon_exporters::{Exporter, MeasuredStatistics, PrometheusExporter, QueueGauge, RunInfo, Sources};

const ROUNDS: usize = 15;

fn main() -> Result<()> {
    println!(
        "{:>8} {:>12} {:>12} {:>7} {:>12} {:>14} {:>10} {:>12}",
        "series", "table", "prometheus", "ratio", "export", "and live page", "page", "memory"
    );
    for series in [2_000, 10_000, 100_000] {
        let names = names(series);
        let before = resident_bytes();
        let mut exporter = exporter(series, false)?;
        let mut batch = batch(series);
        let export = export(&mut exporter, &names, &mut batch)?;
        let memory = (resident_bytes() - before) / series as f64;
        let table = median(|| anyhow::Ok(exporter.page()))?;
        let gauges = crate_gauges(&names, &batch)?;
        let by_crate = median(|| TextEncoder::new().encode_to_string(&gauges.collect()))?;
        let ratio = by_crate.as_secs_f64() / table.as_secs_f64();
        let mut with_page = self::exporter(series, true)?;
        let with_history = self::export(&mut with_page, &names, &mut batch)?;
        let bytes = exporter.page().len() as f64 / 1e6;
        println!(
            "{series:>8} {table:>12.2?} {by_crate:>12.2?} {ratio:>6.1}x {export:>12.2?} {with_history:>14.2?} {bytes:>7.1} MB {memory:>7.0} B/series"
        );
        for mut exporter in [exporter, with_page] {
            exporter.shutdown(Instant::now() + Duration::from_secs(1))?;
        }
    }
    Ok(())
}

/// What a step costs the exporter's thread.
fn export(exporter: &mut PrometheusExporter, names: &[TensorInfo], batch: &mut StepBatch) -> Result<Duration> {
    median(|| {
        batch.step = Step(batch.step.0 + 1);
        exporter.export(names, batch)
    })
}

/// One series per parameter: the most expensive tier, with the longest labels.
fn exporter(series: usize, page: bool) -> Result<PrometheusExporter> {
    let config = config::Prometheus {
        enabled: true,
        bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        max_series: series + 10_000,
        top_k: 16,
        per_parameter: true,
        per_layer: false,
        interval_max_seconds: 60,
        page,
        hosts: Vec::new(),
        target_file: None,
    };
    let run = RunInfo { run: "bench".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 1 };
    let sources = Sources {
        ledger: Arc::new(Ledger::default()),
        worker_queue: QueueGauge { length: Arc::new(|| 0), capacity: 16 },
        sinks: Vec::new(),
        journal: None,
        statistics: MeasuredStatistics::everything(),
        overhead_budget: None,
        alerts: Arc::default(),
        collectives: Arc::default(),
        parts: Arc::default(),
        has_account: true,
    };
    PrometheusExporter::start(&config, run, sources).context("starting the exporter")
}

fn names(count: usize) -> Vec<TensorInfo> {
    let name = |index: usize| format!("model.layers.{}.mlp.experts.{}.down_proj.weight", index / 100, index % 100);
    (0..count).map(|index| TensorInfo { name: name(index).into(), vpp_stage: 0 }).collect()
}

fn batch(count: usize) -> StepBatch {
    let record = |index: usize| Record {
        tensor: TensorId(index as u32),
        kind: Kind::GradReduced,
        micro_step: MicroStep(0),
        reading: Some(TensorStats::of_value(1.0 / (index as f64 + 3.0)).into()),
    };
    StepBatch {
        time: SystemTime::now(),
        collected: true,
        records: (0..count).map(record).collect(),
        ..StepBatch::default()
    }
}

fn crate_gauges(names: &[TensorInfo], batch: &StepBatch) -> Result<GaugeVec> {
    let gauges = GaugeVec::new(Opts::new(PARAMETER_NORM.name, PARAMETER_NORM.help), PARAMETER_NORM.labels)?;
    for record in &batch.records {
        let name = &*names[record.tensor.index()].name;
        let norm = record.reading.map_or(f64::NAN, |reading| reading.value(Statistic::Norm));
        gauges.get_metric_with_label_values(&[name, "0", "grad", "reduced"])?.set(norm);
    }
    Ok(gauges)
}

/// What the process holds in memory; 0 where the system does not tell (not Linux).
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).map_or(0.0, |kib: f64| kib * 1024.0)
}

fn median<T, E: Into<anyhow::Error>>(mut work: impl FnMut() -> Result<T, E>) -> Result<Duration> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        std::hint::black_box(work().map_err(Into::into)?);
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}
