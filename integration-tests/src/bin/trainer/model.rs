//! The network and what it learns.

use std::hash::{DefaultHasher, Hasher};

use anyhow::Result;
use tch::nn::{self, Module, VarStore};
use tch::{Device, Kind, Tensor};
use trainmon_tch::Watch;

const WIDTH: i64 = 16;
const BATCH: i64 = 8;

/// Residual layers, one after the other.
pub(crate) struct Tower(Vec<Box<dyn Module>>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Layer(nn::Linear);

impl Module for Layer {
    fn forward(&self, xs: &Tensor) -> Tensor {
        xs + self.0.forward(xs).tanh()
    }
}

/// Fresh layers, `layers.0` and so on.
pub(crate) fn layers(vs: &VarStore, count: usize) -> Vec<Layer> {
    let layer = |index| Layer(nn::linear(vs.root() / "layers" / index, WIDTH, WIDTH, nn::LinearConfig::default()));
    (0..count).map(layer).collect()
}

impl Tower {
    /// The layers, each shown to the watch if there is one.
    pub(crate) fn new(layers: Vec<Layer>, watch: Option<&Watch>) -> Self {
        let boxed = |(index, layer)| -> Box<dyn Module> {
            match watch {
                Some(watch) => Box::new(watch.module(&format!("layers.{index}"), layer)),
                None => Box::new(layer),
            }
        };
        Self(layers.into_iter().enumerate().map(boxed).collect())
    }

    pub(crate) fn forward(&self, inputs: &Tensor) -> Tensor {
        self.0.iter().fold(inputs.shallow_clone(), |xs, layer| layer.forward(&xs))
    }
}

/// Inputs and targets that depend on `number` only.
pub(crate) fn examples(number: u64) -> (Tensor, Tensor) {
    let raw = Tensor::arange(BATCH * WIDTH, (Kind::Float, Device::Cpu)) * 0.37 + number as f64;
    let inputs = raw.sin().view([BATCH, WIDTH]);
    let targets = inputs.roll([1], [1]).square();
    (inputs, targets)
}

/// One number for the bits of all parameters, by name.
pub(crate) fn parameter_hash(vs: &VarStore) -> Result<u64> {
    let mut parameters: Vec<(String, Tensor)> = vs.variables().into_iter().collect();
    parameters.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut hasher = DefaultHasher::new();
    for (name, parameter) in parameters {
        hasher.write(name.as_bytes());
        for value in Vec::<f32>::try_from(parameter.f_detach()?.f_view(-1)?)? {
            hasher.write_u32(value.to_bits());
        }
    }
    Ok(hasher.finish())
}
