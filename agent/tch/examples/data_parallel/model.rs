//! The trained model: a network of two layers, with examples that depend only on the step.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tch::nn::{self, Module as _};
use tch::{Device, Kind, Tensor};

const INPUTS: i64 = 16;
const HIDDEN: i64 = 32;
const OUTPUTS: i64 = 4;

pub(crate) struct Model {
    variables: nn::VarStore,
    net: nn::Sequential,
}

impl Model {
    pub(crate) fn new(seed: i64) -> Self {
        tch::manual_seed(seed);
        let variables = nn::VarStore::new(Device::Cpu);
        let root = variables.root();
        let net = nn::seq()
            .add(nn::linear(&root / "first", INPUTS, HIDDEN, nn::LinearConfig::default()))
            .add_fn(Tensor::tanh)
            .add(nn::linear(&root / "second", HIDDEN, OUTPUTS, nn::LinearConfig::default()));
        Self { variables, net }
    }

    pub(crate) fn variables(&self) -> &nn::VarStore {
        &self.variables
    }

    /// Returns the parameters by name, so that every rank has the same order; `VarStore` guarantees none.
    pub(crate) fn parameters(&self) -> Vec<Tensor> {
        let mut named: Vec<(String, Tensor)> = self.variables.variables().into_iter().collect();
        named.sort_by(|(a, _), (b, _)| a.cmp(b));
        named.into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// Returns the mean loss over this rank's part of a step's batch.
    pub(crate) fn loss(&self, step: u64, batch: i64, rank: i64, ranks: i64) -> Tensor {
        let part = batch / ranks;
        let inputs = wave(step as i64, batch, INPUTS, 0.37).narrow(0, rank * part, part);
        let targets = wave(step as i64, batch, OUTPUTS, 0.11).narrow(0, rank * part, part);
        self.net.forward(&inputs).mse_loss(&targets, tch::Reduction::Mean)
    }

    /// Hashes the bits of every parameter.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for parameter in self.parameters() {
            let values = Vec::<f32>::try_from(parameter.detach().view(-1)).expect("float32 tensors");
            for value in values {
                value.to_bits().hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

/// Returns numbers that look like noise but are equal in all processes, without a shared generator.
fn wave(step: i64, rows: i64, columns: i64, frequency: f64) -> Tensor {
    let places = Tensor::arange(rows * columns, (Kind::Double, Device::Cpu)) + (step * rows * columns) as f64;
    (places * frequency).sin().to_kind(Kind::Float).view([rows, columns])
}
