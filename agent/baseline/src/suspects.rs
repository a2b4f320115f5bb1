//! Series a little beyond their bounds: noise has a tail, a fault has a width.
//!
//! Among thousands of series one is now and then a little beyond its bound. A fault shows in many that follow from it in the
//! same step, or goes far beyond. So a step's suspects part if one of them does, or if they are many; else they were noise,
//! and their bounds learn from it.

use super::found::Divergence;
use super::noise::BoundSource;

/// So many times its bound a series parts whatever the others do.
const DECISIVE: f64 = 4.0;
/// Of the tensors judged in a step so many are no chance any more, and so many at least.
const BROAD_SHARE: f64 = 0.2;
const BROAD_LEAST: usize = 3;

/// A series beyond its bound.
pub(super) struct Suspect {
    pub(super) tensor: u32,
    /// Its place among the tensor's series.
    pub(super) series: usize,
    pub(super) divergence: Divergence,
}

/// Those of a step.
#[derive(Default)]
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

impl Suspects {
    pub(super) fn push(&mut self, suspect: Suspect) {
        self.found.push(suspect);
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
