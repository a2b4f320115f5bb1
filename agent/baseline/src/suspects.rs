//! Series a little beyond their bounds: noise has a tail, a fault has a width.
//!
//! Among thousands of series one is now and then a little beyond its bound. A fault shows in many that follow from it in the
//! same step, or goes far beyond. So a step's suspects part if one of them does, or if they are many; else they were noise,
//! and their bounds learn from it.

use super::found::Divergence;
use super::noise::{BoundSource, KindClass, class_of};

/// So many times its bound a series parts whatever the others do.
const DECISIVE: f64 = 4.0;
/// Of the tensors judged in a step so many are no chance any more, and so many at least.
const BROAD_SHARE: f64 = 0.2;
const BROAD_LEAST: usize = 3;

/// What a jump changes of a norm at most, and of single elements or means: more is a fault, whatever follows.
const JUMP_OF_NORM: f64 = 5e-3;
const JUMP_OF_ELEMENT: f64 = 5e-2;

/// A series beyond its bound.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) tensor: u32,
    /// Its place among the tensor's series.
    pub(super) series: usize,
    pub(super) divergence: Divergence,
}

/// Those of a step.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    pub(super) found: Vec<Suspect>,
    /// Tensors judged in the step.
    pub(super) judged: usize,
}

impl Suspect {
    fn is_decisive(&self) -> bool {
        let is_sharp = matches!(
            self.divergence.bound_source,
            BoundSource::NoBound | BoundSource::Exact | BoundSource::EqualUntilThen
        );
        !self.divergence.is_faint && (is_sharp || self.divergence.excess() >= DECISIVE)
    }
}

fn is_gradient(divergence: &Divergence) -> bool {
    matches!(divergence.place.0, 5 | 6 | 8 | 9)
}

/// Whether an optimizer makes it of gradients: parameters, moments, updates.
fn is_made_of_gradients(divergence: &Divergence) -> bool {
    let class = class_of(&divergence.tensor.kind, &divergence.tensor.name);
    matches!(class, KindClass::Parameter | KindClass::Elementwise)
}

impl Suspects {
    /// Whether all that part may do so because rounding took elements of an activation to the other side of a kink, as of a `ReLU`'s: loss
    /// and activations agree, gradients are another by a little, and those of the next step agree again.
    pub(super) fn may_be_jump(&self) -> bool {
        self.found.iter().any(|suspect| is_gradient(&suspect.divergence)) && self.are_small()
    }

    fn are_small(&self) -> bool {
        let is_small = |suspect: &Suspect| {
            let divergence = &suspect.divergence;
            let is_of_gradients = is_gradient(divergence) || is_made_of_gradients(divergence);
            let most =
                if matches!(&*divergence.statistic, "norm" | "std" | "value") { JUMP_OF_NORM } else { JUMP_OF_ELEMENT };
            let is_noisy = matches!(divergence.bound_source, BoundSource::RoundOff | BoundSource::Growth);
            is_of_gradients && is_noisy && divergence.difference <= most
        };
        self.found.iter().all(is_small)
    }

    pub(super) fn push(&mut self, suspect: Suspect) {
        self.found.push(suspect);
    }

    /// Whether they are no more than what a jump of the step before leaves behind, in moments and parameters.
    pub(super) fn follow_a_jump(&self) -> bool {
        self.are_small() && self.found.iter().all(|suspect| is_made_of_gradients(&suspect.divergence))
    }

    /// Whether they part: one is decisive, or they are many.
    pub(super) fn is_fault(&self) -> bool {
        let mut tensors: Vec<u32> =
            self.found.iter().filter(|suspect| !suspect.divergence.is_faint).map(|suspect| suspect.tensor).collect();
        tensors.sort_unstable();
        tensors.dedup();
        let is_broad = tensors.len() >= BROAD_LEAST && tensors.len() as f64 >= BROAD_SHARE * self.judged as f64;
        is_broad || self.found.iter().any(Suspect::is_decisive)
    }
}
