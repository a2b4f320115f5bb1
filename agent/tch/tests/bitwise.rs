//! Watching changes no bit: the same training with and without trainmon, every signal on.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{bits, fill, monitor, parameter_bits};
use tch::nn::{self, Module, VarStore};
use tch::{Device, Kind, Tensor};
use trainmon_tch::{Optimizer, Watch};

const STEPS: i64 = 20;
const MICRO_BATCHES: i64 = 2;

/// A residual block: its input's gradient is a sum over two uses, so an extra node would show in the last bits.
#[derive(Debug)]
struct Block<M> {
    norm: nn::LayerNorm,
    inner: M,
}

impl<M: Module> Module for Block<M> {
    fn forward(&self, xs: &Tensor) -> Tensor {
        xs + self.inner.forward(&self.norm.forward(xs)).gelu("none")
    }
}

fn linear(vs: &VarStore, name: &str) -> nn::Linear {
    nn::linear(vs.root() / name, 24, 24, nn::LinearConfig::default())
}

fn norm(vs: &VarStore, name: &str) -> nn::LayerNorm {
    nn::layer_norm(vs.root() / name, vec![24], nn::LayerNormConfig::default())
}

fn inputs(step: i64) -> Tensor {
    let raw = Tensor::arange(16 * 24, (Kind::Float, Device::Cpu)) * 0.7 + step as f64;
    raw.sin().view([16, 24])
}

/// Parameters and gradients after the last step.
fn train(watched_with: Option<(&str, bool)>) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let vs = VarStore::new(Device::Cpu);
    let modules: Vec<nn::Linear> = ["first", "second", "third"].map(|name| linear(&vs, name)).into();
    let norms: Vec<nn::LayerNorm> = ["n1", "n2", "n3"].map(|name| norm(&vs, name)).into();
    fill(&vs, 42);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let mut watch = watched_with.map(|(json, is_device)| {
        let (monitor, _collected) = monitor(json);
        let builder = Watch::builder(monitor).model(&vs).grad_acc_steps(2);
        let builder = if is_device { builder.everything_through_the_device_path() } else { builder };
        builder.build().unwrap()
    });
    let mut net: Vec<Box<dyn Module>> = Vec::new();
    for ((index, inner), norm) in modules.into_iter().enumerate().zip(norms) {
        net.push(match &watch {
            Some(watch) => {
                let inner = watch.module(&format!("inner.{index}"), inner);
                Box::new(watch.module(&format!("block.{index}"), Block { norm, inner }))
            }
            None => Box::new(Block { norm, inner }),
        });
    }
    let mut gradients = Vec::new();
    for step in 0..STEPS {
        optimizer.zero_grad().unwrap();
        for micro in 0..MICRO_BATCHES {
            let mut hidden = inputs(step * MICRO_BATCHES + micro);
            for block in &net {
                hidden = block.forward(&hidden);
            }
            let loss = hidden.square().mean(Kind::Float) / MICRO_BATCHES as f64;
            if let Some(watch) = &watch {
                watch.observe("loss", &loss);
            }
            loss.backward();
        }
        optimizer.clip_grad_norm(0.5).unwrap();
        gradients = vs.trainable_variables().iter().map(|parameter| bits(&parameter.grad())).collect();
        match &mut watch {
            Some(watch) => watch.step(&mut optimizer).unwrap(),
            None => optimizer.step().unwrap(),
        }
    }
    if let Some(watch) = watch {
        let report = watch.finish();
        assert!(report.balances() && report.counts.offered > 0, "{report}");
    }
    (parameter_bits(&vs), gradients)
}

const V1: &str = r#"{"targets": {}, "ops": ["min", "max", "mean", "norm", "std", "nans", "zeros"], "eps": 1e-6,
    "wg_distribution": true, "monitor_mbs_grad": true, "mv_distribution": true, "param_distribution": true,
    "xy_distribution": true, "all_xy": true, "mg_direction": true, "update": true}"#;

const V2: &str = r#"{"monitors": {"weight_grad": {"enabled": true, "ops": ["min", "max", "norm"]},
    "optimizer": {"enabled": true, "ops": ["norm", "mean"]}, "param": {"enabled": true, "ops": ["norm", "mean"]},
    "module": {"enabled": true, "ops": ["norm", "mean"]}}}"#;

#[test]
fn parameters_and_gradients_are_bitwise_equal_with_and_without_trainmon() {
    for threads in [1, 2] {
        tch::set_num_threads(threads);
        let unwatched = train(None);
        for config in [V1, V2] {
            for is_device in [false, true] {
                let watched = train(Some((config, is_device)));
                assert!(watched == unwatched, "{threads} threads, device path: {is_device}, {config}");
            }
        }
    }
}
