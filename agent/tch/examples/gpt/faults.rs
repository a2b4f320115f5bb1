//! Injected faults: common reasons why a training fails, at a step of your choice.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tch::Tensor;

/// The factor of the loss at a spike.
const SPIKE_FACTOR: f64 = 50.0;
/// The factor of a drifting layer's weights in each step.
const DRIFT_FACTOR: f64 = 1.01;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    /// Multiplies the loss by 50 in one step.
    Spike,
    /// Puts a NaN into one attention output in one step.
    Nan,
    /// Gives one layer zero gradients from this step on.
    Dead,
    /// Makes one layer's weights grow by 1 % per step from this step on.
    Drift,
}

/// A fault and its first step, written `spike@200`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    kind: FaultKind,
    step: u64,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, step) = text.split_once('@').ok_or("write it as `kind@step`, for example `spike@200`")?;
        let kind = match kind {
            "spike" => FaultKind::Spike,
            "nan" => FaultKind::Nan,
            "dead" => FaultKind::Dead,
            "drift" => FaultKind::Drift,
            other => return Err(format!("unknown fault `{other}`: use `spike`, `nan`, `dead` or `drift`")),
        };
        let step = step.parse().map_err(|why| format!("`{step}` is not a step: {why}"))?;
        Ok(Self { kind, step })
    }
}

impl Fault {
    fn in_words(&self) -> &'static str {
        match self.kind {
            FaultKind::Spike => "injected: the loss times 50",
            FaultKind::Nan => "injected: a NaN in an attention output",
            FaultKind::Dead => "injected: `blocks.2.mlp` no longer gets a gradient",
            FaultKind::Drift => "injected: the weights of `blocks.2.mlp` grow by 1 % per step",
        }
    }
}

/// Switches for the faults within the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switches {
    poisoned_attention: Arc<AtomicBool>,
    dead_layer: Arc<AtomicBool>,
}

impl Switches {
    /// Returns the attention's output, with a NaN if one is due.
    pub(crate) fn attention_output(&self, output: Tensor) -> Tensor {
        if !self.poisoned_attention.swap(false, Ordering::Relaxed) {
            return output;
        }
        let poison = Tensor::zeros_like(&output);
        let _filled = poison.view(-1).narrow(0, 0, 1).fill_(f64::NAN);
        output + poison
    }

    /// Returns the layer's output. Its values do not change, but a dead layer gets no gradient.
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

    /// Describes the faults that begin at this step, for the progress line.
    pub(crate) fn beginning_at(&self, step: u64) -> Option<String> {
        let words: Vec<&str> = self.faults.iter().filter(|fault| fault.step == step).map(Fault::in_words).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Sets the model's switches for this step, and scales the weights of a drifting layer.
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
