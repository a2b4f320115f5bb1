//! Series slightly beyond their tolerance, which may be noise.
//!
//! Among thousands of series, one is sometimes slightly beyond its tolerance by chance. A fault shows in many dependent
//! series in the same step, or is far beyond. So a step's suspects diverge if one of them is decisive, or if they are
//! many; if not, they were noise, and their tolerances adapt.

use super::found::Divergence;
use super::noise::{BoundSource, KindClass, class_of};

/// A series this many times beyond its tolerance diverges whatever the others do.
const DECISIVE: f64 = 4.0;
/// The share of the tensors judged in a step, and their minimum number, that are no longer chance.
const BROAD_SHARE: f64 = 0.2;
const BROAD_LEAST: usize = 3;

/// The largest change of a norm by a jump, and of single elements or means. A larger change is a fault in any case.
const JUMP_OF_NORM: f64 = 5e-3;
const JUMP_OF_ELEMENT: f64 = 5e-2;

/// A series beyond its tolerance.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) tensor: u32,
    /// Its position among the tensor's series.
    pub(super) series: usize,
    pub(super) divergence: Divergence,
}

/// The suspects of a step.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    pub(super) found: Vec<Suspect>,
    /// The number of tensors judged in the step.
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

/// Whether an optimizer computes it from gradients: parameters, moments, updates.
fn is_made_of_gradients(divergence: &Divergence) -> bool {
    let class = class_of(&divergence.tensor.kind, &divergence.tensor.name);
    matches!(class, KindClass::Parameter | KindClass::Elementwise)
}

impl Suspects {
    /// Whether the suspects may differ because rounding moved elements of an activation across a kink, as of a `ReLU`:
    /// loss and activations agree, gradients differ slightly, and those of the next step agree again.
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

    /// Whether they are only the effect of a jump in the previous step on moments and parameters.
    pub(super) fn follow_a_jump(&self) -> bool {
        self.are_small() && self.found.iter().all(|suspect| is_made_of_gradients(&suspect.divergence))
    }

    /// Whether they diverge: one is decisive, or they are many.
    pub(super) fn is_fault(&self) -> bool {
        let mut tensors: Vec<u32> =
            self.found.iter().filter(|suspect| !suspect.divergence.is_faint).map(|suspect| suspect.tensor).collect();
        tensors.sort_unstable();
        tensors.dedup();
        let is_broad = tensors.len() >= BROAD_LEAST && tensors.len() as f64 >= BROAD_SHARE * self.judged as f64;
        is_broad || self.found.iter().any(Suspect::is_decisive)
    }
}
