//! The pages of many ranks, served by the exporter itself from numbers that are made up.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use trainmon_agent::core::{
    Kind, Ledger, MicroStep, Rank, Record, RunInfo, Step, StepBatch, TensorId, TensorInfo, TensorStats, config,
};
use trainmon_exporters::{Exporter, MeasuredStatistics, PrometheusExporter, QueueGauge, Sources};

/// The tensors of a transformer's layer.
const TENSORS: [&str; 9] = [
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
];
/// What a config that measures gradients, moments and parameters measures.
const KINDS: [Kind; 5] = [Kind::GradUnreduced, Kind::GradReduced, Kind::ExpAvg, Kind::ExpAvgSq, Kind::ParamUpdated];
/// More than any model here needs: what is measured is the server, not the limit.
const MAX_SERIES: usize = 1_000_000;

/// Ranks of one run, each with a page of its own.
pub(super) struct ServedRanks {
    exporters: Vec<PrometheusExporter>,
    tensors: Vec<TensorInfo>,
    step: u64,
}

impl ServedRanks {
    /// Serves the pages of so many ranks, and writes their target files beside `target_file`.
    ///
    /// # Errors
    /// The machine has no more ports, threads or file descriptors.
    pub(super) fn serve(ranks: u32, layers: usize, target_file: &Path) -> Result<Self> {
        let tensor =
            |layer: usize, name: &str| TensorInfo { name: format!("model.layers.{layer}.{name}").into(), vpp_stage: 0 };
        let tensors = (0..layers).flat_map(|layer| TENSORS.map(|name| tensor(layer, name))).collect();
        let exporters = (0..ranks)
            .map(|rank| start(rank, ranks, target_file).with_context(|| format!("rank {rank} of {ranks}")))
            .collect::<Result<_>>()?;
        Ok(Self { exporters, tensors, step: 0 })
    }

    /// One step of all ranks: every series gets a new value.
    ///
    /// # Errors
    /// An exporter refuses it.
    pub(super) fn step(&mut self, duration: Duration) -> Result<()> {
        self.step += 1;
        let mut batch = StepBatch {
            step: Step(self.step),
            time: SystemTime::now(),
            duration: Some(duration),
            collected: true,
            loss: Some(2.0 + 1.0 / self.step as f64),
            learning_rate: Some(1e-4),
            ..StepBatch::default()
        };
        for (rank, exporter) in self.exporters.iter_mut().enumerate() {
            batch.records.clear();
            for kind in KINDS {
                batch.records.extend((0..self.tensors.len()).map(|index| Record {
                    tensor: TensorId(index as u32),
                    kind,
                    micro_step: MicroStep(0),
                    reading: Some(TensorStats::of_value(made_up(self.step, rank, index, kind)).into()),
                }));
            }
            exporter.export(&self.tensors, &batch)?;
        }
        Ok(())
    }

    /// The size of a page in bytes.
    pub(super) fn page_bytes(&self) -> usize {
        self.exporters.first().map_or(0, |exporter| exporter.page().len())
    }

    /// Takes the pages and their target files away.
    pub(super) fn close(self) {
        for mut exporter in self.exporters {
            // The process ends: what a page has left to do is of no use.
            drop(exporter.shutdown(Instant::now() + Duration::from_secs(1)));
        }
    }
}

/// A value with as many digits as a measured one: how well a server compresses depends on that.
fn made_up(step: u64, rank: usize, tensor: usize, kind: Kind) -> f64 {
    let phase = (step * 31 + rank as u64 * 17 + tensor as u64 * 7 + kind as u64) as f64;
    1.0 / (1.5 + phase.sin())
}

fn start(rank: u32, ranks: u32, target_file: &Path) -> Result<PrometheusExporter> {
    let config = config::Prometheus {
        enabled: true,
        bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        max_series: MAX_SERIES,
        top_k: 8,
        per_parameter: false,
        per_layer: true,
        page: false,
        interval_max_seconds: 60,
        hosts: Vec::new(),
        target_file: Some(target_file.to_owned()),
    };
    let run = RunInfo { run: "load".to_owned(), rank: Rank(rank), local_rank: Rank(rank), world_size: ranks };
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
    Ok(PrometheusExporter::start(&config, run, sources)?)
}
