//! Small models and exact comparisons.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::allow_attributes, reason = "each test uses its own part")]

use tch::nn::{self, Module, VarStore};
use tch::{Device, Kind, Tensor};

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
            let values = Tensor::arange(elements, (Kind::Double, Device::Cpu)) + (seed * 1009 + index as i64 * 131) as f64;
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
