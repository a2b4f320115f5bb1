//! The body of the training loop: one optimizer step.

use std::collections::BTreeMap;

use anyhow::Result;
use tch::nn::{self, VarStore};
use tch::{Device, Tensor};
use trainmon_tch::{Monitor, Optimizer, Watch};

use crate::data::{Batches, Corpus};
use crate::faults::Faults;
use crate::model::{CONTEXT, DRIFTING, Gpt};

pub(crate) const MICRO_BATCHES: u32 = 2;
const BATCH: usize = 16;
const PEAK_LEARNING_RATE: f64 = 2e-3;
const WARM_UP_STEPS: u64 = 20;
const CLIP_NORM: f64 = 1.0;
const SEED: u64 = 1337;
const VALIDATION_BATCHES: usize = 16;

/// A model in training, with or without a watch.
pub(crate) struct Trainer<'a> {
    corpus: &'a Corpus,
    vs: VarStore,
    net: Gpt,
    optimizer: Optimizer,
    watch: Option<Watch>,
    batches: Batches,
    faults: Faults,
    drifting: Vec<Tensor>,
    steps: u64,
    step: u64,
}

/// The results of one step.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) step: u64,
    pub(crate) loss: f64,
    pub(crate) grad_norm: f64,
    /// Unusual events in the step.
    pub(crate) note: Option<String>,
}

impl<'a> Trainer<'a> {
    /// Creates a model to train for `steps` steps. Every call creates the same model.
    pub(crate) fn new(corpus: &'a Corpus, steps: u64, faults: Faults, monitor: Option<Monitor>) -> Result<Self> {
        tch::manual_seed(SEED as i64);
        let vs = VarStore::new(Device::Cpu);
        let net = Gpt::new(&vs, corpus.vocabulary, &faults.switches);
        let optimizer = Optimizer::new(&nn::AdamW::default().beta2(0.95).wd(0.1), &vs, PEAK_LEARNING_RATE)?;
        let watch = monitor.map(|monitor| Watch::builder(monitor).model(&vs).grad_acc_steps(MICRO_BATCHES).build());
        let watch = watch.transpose()?;
        let net = match &watch {
            Some(watch) => net.watched(watch),
            None => net,
        };
        // Sorted by name, because the order of tch's map differs between runs.
        let drifting: BTreeMap<_, _> =
            vs.variables().into_iter().filter(|(name, _)| name.starts_with(DRIFTING)).collect();
        let drifting = drifting.into_values().collect();
        let batches = Batches::new(SEED, BATCH, CONTEXT as usize);
        Ok(Self { corpus, vs, net, optimizer, watch, batches, faults, drifting, steps, step: 0 })
    }

    /// The number of the model's parameters.
    pub(crate) fn parameters(&self) -> usize {
        self.vs.trainable_variables().iter().map(Tensor::numel).sum()
    }

    /// Makes one optimizer step over two micro-batches.
    pub(crate) fn step(&mut self) -> Result<Figures> {
        let step = self.step;
        self.faults.begin_step(step, &self.drifting);
        self.optimizer.set_lr(self.learning_rate())?;
        self.optimizer.zero_grad()?;
        let mut loss = 0.0;
        for _micro_batch in 0..MICRO_BATCHES {
            let (inputs, targets) = self.batches.draw(&self.corpus.training);
            let share = self.faults.loss(step, self.net.loss(&inputs, &targets)) / f64::from(MICRO_BATCHES);
            share.f_backward()?;
            loss += share.f_double_value(&[])?;
        }
        let grad_norm = self.optimizer.clip_grad_norm(CLIP_NORM)?;
        let was_skipped = !grad_norm.is_finite();
        self.optimizer_step(loss, was_skipped)?;
        self.step += 1;
        let skipped = was_skipped.then(|| "update skipped: the gradient is not finite".to_owned());
        let notes: Vec<String> = self.faults.beginning_at(step).into_iter().chain(skipped).collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Ok(Figures { step, loss, grad_norm, note })
    }

    /// Makes the optimizer's step. A step with a non-finite gradient is skipped, as by loss scalers, because it would
    /// ruin the weights.
    fn optimizer_step(&mut self, loss: f64, is_skipped: bool) -> Result<()> {
        let take = |optimizer: &mut Optimizer| if is_skipped { Ok(()) } else { optimizer.step() };
        match &mut self.watch {
            Some(watch) => {
                watch.loss(loss);
                watch.learning_rate(self.optimizer.learning_rate()?);
                watch.step_with(&mut self.optimizer, take)?;
            }
            None => take(&mut self.optimizer)?,
        }
        Ok(())
    }

    /// Returns the learning rate: linear warm-up, then half a cosine down to a tenth.
    fn learning_rate(&self) -> f64 {
        if self.step < WARM_UP_STEPS {
            return PEAK_LEARNING_RATE * (self.step + 1) as f64 / WARM_UP_STEPS as f64;
        }
        let left = (self.steps.saturating_sub(WARM_UP_STEPS)).max(1) as f64;
        let progress = ((self.step - WARM_UP_STEPS) as f64 / left).min(1.0);
        PEAK_LEARNING_RATE * (0.1 + 0.45 * (1.0 + (std::f64::consts::PI * progress).cos()))
    }

    /// Returns the loss on the validation text.
    pub(crate) fn validation_loss(&self) -> Result<f64> {
        let mut batches = Batches::new(SEED + 1, BATCH, CONTEXT as usize);
        tch::no_grad(|| {
            let mut sum = 0.0;
            for _batch in 0..VALIDATION_BATCHES {
                let (inputs, targets) = batches.draw(&self.corpus.validation);
                sum += self.net.loss(&inputs, &targets).f_double_value(&[])?;
            }
            Ok(sum / VALIDATION_BATCHES as f64)
        })
    }

    /// Returns the number of elements of each parameter, for the read-only pass.
    pub(crate) fn parameter_sizes(&self) -> Vec<usize> {
        self.vs.trainable_variables().iter().map(Tensor::numel).collect()
    }

    /// Whether both models hold the same bits.
    pub(crate) fn has_weights_of(&self, other: &Self) -> bool {
        let bits = |weights: &Tensor| weights.detach().view_dtype(tch::Kind::Int);
        let pairs = self.vs.trainable_variables().into_iter().zip(other.vs.trainable_variables());
        pairs.into_iter().all(|(mine, theirs)| bits(&mine).equal(&bits(&theirs)))
    }

    /// Ends the training and returns the watch.
    pub(crate) fn into_watch(self) -> Option<Watch> {
        self.watch
    }
}
