//! Small models and exact comparisons.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::allow_attributes, reason = "each test uses its own part")]

pub mod socket;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tch::nn::{self, Module, VarStore};
use tch::{Device, Kind, Tensor};
use trainmon_agent::core::config::Config;
use trainmon_agent::core::{Kind as Signal, StepBatch, TensorInfo, TensorStats};
use trainmon_agent::exporters::{ExportError, ExportFailure, Exporter};
use trainmon_agent::{Monitor, Notices, Options};

/// The bits of every trainable variable, in creation order.
pub fn parameter_bits(vs: &VarStore) -> Vec<Vec<u32>> {
    vs.trainable_variables().iter().map(bits).collect()
}

/// The bits of a float tensor's elements.
pub fn bits(tensor: &Tensor) -> Vec<u32> {
    let flat = tensor.detach().to_kind(Kind::Float).contiguous().view(-1);
    Vec::<f32>::try_from(flat).unwrap().into_iter().map(f32::to_bits).collect()
}

/// Two linear layers; the second in parameter group 1.
pub fn two_layers(seed: i64) -> (VarStore, impl Module) {
    let vs = VarStore::new(Device::Cpu);
    let second = (vs.root() / "second").set_group(1);
    let net = nn::seq()
        .add(nn::linear(vs.root() / "first", 8, 16, nn::LinearConfig::default()))
        .add_fn(Tensor::tanh)
        .add(nn::linear(second, 16, 4, nn::LinearConfig::default()));
    fill(&vs, seed);
    (vs, net)
}

/// Overwrites every variable with values that depend on `seed` only: libtorch's generator is shared by all threads, and
/// tests run in several.
pub fn fill(vs: &VarStore, seed: i64) {
    tch::no_grad(|| {
        for (index, mut variable) in vs.trainable_variables().into_iter().enumerate() {
            let elements = variable.numel() as i64;
            let values =
                Tensor::arange(elements, (Kind::Double, Device::Cpu)) + (seed * 1009 + index as i64 * 131) as f64;
            let values = ((values * 12.9898).sin() * 43_758.5).frac() * 0.5;
            variable.copy_(&values.view(variable.size().as_slice()));
        }
    });
}

/// A batch that depends on `step` only.
pub fn batch(step: i64) -> (Tensor, Tensor) {
    let element = |index: i64, scale: f64| ((index * 37 + step * 11) % 101) as f64 * scale - 1.0;
    let inputs: Vec<f32> = (0..32).map(|index| element(index, 0.02) as f32).collect();
    let targets: Vec<f32> = (0..16).map(|index| element(index, 0.015) as f32).collect();
    (Tensor::from_slice(&inputs).view([4, 8]), Tensor::from_slice(&targets).view([4, 4]))
}

pub fn loss(net: &impl Module, step: i64) -> Tensor {
    let (inputs, targets) = batch(step);
    net.forward(&inputs).mse_loss(&targets, tch::Reduction::Mean)
}

/// Keeps what the monitor exports.
#[derive(Clone, Default)]
pub struct Collected {
    batches: Arc<Mutex<Vec<StepBatch>>>,
    names: Arc<Mutex<Vec<TensorInfo>>>,
    pub notices: Arc<Mutex<Vec<String>>>,
}

struct Collector(Collected);

impl Exporter for Collector {
    fn name(&self) -> &'static str {
        "collector"
    }

    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        *self.0.names.lock().unwrap() = names.to_vec();
        self.0.batches.lock().unwrap().push(batch.clone());
        Ok(())
    }

    fn shutdown(&mut self, _deadline: Instant) -> Result<(), ExportError> {
        Ok(())
    }

    fn locations(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A reading with the step and name it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub step: u64,
    pub name: String,
    pub vpp_stage: u32,
    pub kind: Signal,
    pub micro_step: u32,
    pub reading: Option<TensorStats>,
}

impl Collected {
    /// Everything exported; to be asked after the monitor was shut down.
    pub fn rows(&self) -> Vec<Row> {
        let names = self.names.lock().unwrap();
        let batches = self.batches.lock().unwrap();
        let rows = batches.iter().flat_map(|batch| {
            batch.records.iter().map(|record| Row {
                step: batch.step.0,
                name: names[record.tensor.index()].name.to_string(),
                vpp_stage: names[record.tensor.index()].vpp_stage,
                kind: record.kind,
                micro_step: record.micro_step.0,
                reading: record.reading.map(|reading| reading.as_stats()),
            })
        });
        rows.collect()
    }

    pub fn of_kind(&self, kind: Signal) -> Vec<Row> {
        self.rows().into_iter().filter(|row| row.kind == kind).collect()
    }

    pub fn batches(&self) -> Vec<StepBatch> {
        self.batches.lock().unwrap().clone()
    }
}

/// A monitor whose output lands in the second value. `json` is a config file's text.
pub fn monitor(json: &str) -> (Monitor, Collected) {
    let mut config = Config::parse(json, "test.json", &|_| None).unwrap().config;
    (config.csv, config.prometheus) = (None, None);
    // Nothing may get lost on a slow machine.
    config.pipeline.queue_steps = 1000;
    let collected = Collected::default();
    let heard = Arc::clone(&collected.notices);
    let notices = Notices::new(move |notice| heard.lock().unwrap().push(notice.message.clone()));
    let options = Options { notices, ..Options::default() };
    let own: Vec<Box<dyn Exporter>> = vec![Box::new(Collector(collected.clone()))];
    (Monitor::start_with(config, options, own).unwrap(), collected)
}
