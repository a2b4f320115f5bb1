//! Faults on order: what a training run dies of, at a step of your choice.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tch::Tensor;

/// How much larger the loss is at a spike.
const SPIKE_FACTOR: f64 = 50.0;
/// What a drifting layer's weights are multiplied by in each step.
const DRIFT_FACTOR: f64 = 1.01;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    /// The loss times 50, for one step.
    Spike,
    /// A NaN in one attention output, for one step.
    Nan,
    /// One layer gets zero gradients from then on.
    Dead,
    /// One layer's weights grow by 1 % per step from then on.
    Drift,
}

/// A fault and the step it begins at, written `spike@200`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    kind: FaultKind,
    step: u64,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, step) = text.split_once('@').ok_or("write it as kind@step, say spike@200")?;
        let kind = match kind {
            "spike" => FaultKind::Spike,
            "nan" => FaultKind::Nan,
            "dead" => FaultKind::Dead,
            "drift" => FaultKind::Drift,
            other => return Err(format!("unknown fault `{other}`: spike, nan, dead or drift")),
        };
        let step = step.parse().map_err(|why| format!("`{step}` is no step: {why}"))?;
        Ok(Self { kind, step })
    }
}

impl Fault {
    fn in_words(&self) -> &'static str {
        match self.kind {
            FaultKind::Spike => "injected: the loss times 50",
            FaultKind::Nan => "injected: a NaN in an attention output",
            FaultKind::Dead => "injected: blocks.2.mlp gets no gradient any more",
            FaultKind::Drift => "injected: the weights of blocks.2.mlp grow by 1 % per step",
        }
    }
}

/// Switches the model's own faults, from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switches {
    poisoned_attention: Arc<AtomicBool>,
    dead_layer: Arc<AtomicBool>,
}

impl Switches {
    /// The attention's output, with a NaN in it if one is due.
    pub(crate) fn attention_output(&self, output: Tensor) -> Tensor {
        if !self.poisoned_attention.swap(false, Ordering::Relaxed) {
            return output;
        }
        let poison = Tensor::zeros_like(&output);
        let _filled = poison.view(-1).narrow(0, 0, 1).fill_(f64::NAN);
        output + poison
    }

    /// The layer's output: the same values, but no gradient flows back once the layer is dead.
    pub(crate) fn layer_output(&self, output: Tensor) -> Tensor {
        if !self.dead_layer.load(Ordering::Relaxed) {
            return output;
        }
        let value = output.detach();
        (output - &value) * 0.0 + value
    }
}

/// The faults of a run.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    pub(crate) switches: Switches,
}

impl Faults {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        Self { faults, switches: Switches::default() }
    }

    /// What goes wrong from this step on, for the progress line.
    pub(crate) fn beginning_at(&self, step: u64) -> Option<String> {
        let words: Vec<&str> = self.faults.iter().filter(|fault| fault.step == step).map(Fault::in_words).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Sets the model's switches for this step, and lets the weights of a layer drift.
    pub(crate) fn begin_step(&self, step: u64, layer: &[Tensor]) {
        self.switches.poisoned_attention.store(self.strikes(FaultKind::Nan, step), Ordering::Relaxed);
        self.switches.dead_layer.store(self.lasts(FaultKind::Dead, step), Ordering::Relaxed);
        if self.lasts(FaultKind::Drift, step) {
            tch::no_grad(|| {
                for weight in layer {
                    let _grown = weight.shallow_clone().f_mul_scalar_(DRIFT_FACTOR);
                }
            });
        }
    }

    pub(crate) fn loss(&self, step: u64, loss: Tensor) -> Tensor {
        if self.strikes(FaultKind::Spike, step) { loss * SPIKE_FACTOR } else { loss }
    }

    fn strikes(&self, kind: FaultKind, step: u64) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind && fault.step == step)
    }

    fn lasts(&self, kind: FaultKind, step: u64) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind && fault.step <= step)
    }
}
