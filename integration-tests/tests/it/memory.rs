//! The memory bound, with an exporter that is stuck.

use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use anyhow::{Context as _, Result};
use trainmon_agent::core::config::Config;
use trainmon_agent::core::{Kind, MicroStep, Record, StepBatch, TensorInfo, TensorStats};
use trainmon_agent::exporters::{ExportError, ExportFailure, Exporter};
use trainmon_agent::{Monitor, Options, StepFacts};
use trainmon_integration_tests::wait_for;

/// Stuck in its first export until the other end of the channel is dropped.
struct Stuck(Receiver<()>);

impl Exporter for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn export(&mut self, _names: &[TensorInfo], _batch: &StepBatch) -> Result<(), ExportFailure> {
        let _released = self.0.recv();
        Ok(())
    }

    fn shutdown(&mut self, _deadline: Instant) -> Result<(), ExportError> {
        Ok(())
    }

    fn locations(&self) -> Vec<String> {
        Vec::new()
    }
}

const QUEUE_STEPS: u64 = 16;
const TENSORS: u64 = 4096;
const STEPS: u64 = 400;
/// As the agent's documentation states it.
const RECORD_BYTES: u64 = 250;
/// One queue before the worker and one for the exporter, four that may wait for a device, one open.
const BATCHES: u64 = 2 * QUEUE_STEPS + 4 + 1;
/// Threads, names, whatever else this test program does meanwhile.
const ELSEWHERE_BYTES: u64 = 8 << 20;

fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes << 10)
}

/// Set in the process that measures.
const ALONE: &str = "TRAINMON_TEST_ALONE";

#[test]
fn a_stuck_exporter_costs_no_more_memory_than_stated() -> Result<()> {
    // In a process of its own: what the tests beside it take would count too.
    if std::env::var_os(ALONE).is_some() {
        return measure();
    }
    let this = ["--exact", "memory::a_stuck_exporter_costs_no_more_memory_than_stated", "--nocapture"];
    let output = Command::new(std::env::current_exe()?).args(this).env(ALONE, "1").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn measure() -> Result<()> {
    let text = format!(r#"{{"wg_distribution": true, "queue_steps": {QUEUE_STEPS}}}"#);
    let mut config = Config::parse(&text, "memory.json", &|_| None)?.config;
    config.csv = None;
    let (release, stuck) = channel();
    let before = resident_bytes()?;
    let monitor = Monitor::start_with(config, Options::default(), vec![Box::new(Stuck(stuck))])?;
    let tensors: Vec<_> = (0..TENSORS).map(|index| monitor.register(&format!("layers.{index}.weight"), 0)).collect();
    for step in 0..STEPS {
        for &tensor in &tensors {
            let reading = Some(TensorStats::of_value(step as f64).into());
            let record = Record { tensor, kind: Kind::GradReduced, micro_step: MicroStep(0), reading };
            monitor.record(record, std::time::Duration::ZERO, 0);
        }
        monitor.end_step(StepFacts::default());
        // The worker takes every batch before the next: the queue that fills is the stuck exporter's.
        wait_for("batch with the worker", || {
            let report = monitor.report();
            Ok((report.sinks[0].counts.accepted == report.counts.accepted).then_some(()))
        })?;
    }
    let grown = resident_bytes()?.saturating_sub(before);
    let kept = (QUEUE_STEPS + 1) * TENSORS * size_of::<Record>() as u64;
    let stated = BATCHES * TENSORS * RECORD_BYTES + ELSEWHERE_BYTES;
    assert!((kept..=stated).contains(&grown), "{grown} bytes more, {kept} are kept, {stated} are stated");
    drop(release);
    let report = monitor.shutdown();
    assert!(report.balances(), "{report}");
    let counts = report.sinks[0].counts;
    assert_eq!(counts.exported, (QUEUE_STEPS + 1) * TENSORS, "one in its hands, the queue behind it");
    assert_eq!(counts.dropped, (STEPS - QUEUE_STEPS - 1) * TENSORS);
    Ok(())
}
