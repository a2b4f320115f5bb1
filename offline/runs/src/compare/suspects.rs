//! Series a little beyond their bounds: noise has a tail, a fault has a width.
//!
//! Among thousands of series one is now and then a little beyond its bound. A fault shows in many that follow from it in the
//! same step, or goes far beyond. So a step's suspects part if one of them does, or if they are many; else they were noise,
//! and their bounds learn from it.

use super::blow_up::is_proof;
use super::found::Divergence;
use super::judge::Judge;
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
    found: Vec<Suspect>,
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

    fn is_fault(&self) -> bool {
        let mut tensors: Vec<u32> =
            self.found.iter().filter(|suspect| !suspect.divergence.is_faint).map(|suspect| suspect.tensor).collect();
        tensors.sort_unstable();
        tensors.dedup();
        let is_broad = tensors.len() >= BROAD_LEAST && tensors.len() as f64 >= BROAD_SHARE * self.judged as f64;
        is_broad || self.found.iter().any(Suspect::is_decisive)
    }
}

impl Judge {
    /// Ends a step: its suspects part, or were noise. Where both runs blow up only proofs part.
    pub(super) fn settle(&mut self, is_blown_up: bool) {
        let suspects = std::mem::take(&mut self.suspects);
        let is_fault = suspects.is_fault();
        for Suspect { tensor, series, divergence } in suspects.found {
            let parts = is_fault && (!is_blown_up || is_proof(&divergence));
            if is_fault && !parts {
                self.blow_up.excuse(divergence.step);
            }
            // A shape is no series.
            let series = self.tensors[tensor as usize].series.get_mut(series);
            match series {
                Some(series) if parts => series.has_parted = true,
                Some(series) => {
                    // What has no bound is no measure either.
                    if divergence.difference.is_finite() {
                        series.farthest = series.farthest.max(divergence.difference);
                    }
                    series.closest = series.closest.max(1.0);
                }
                None => {}
            }
            if parts {
                self.found.divergences.push(divergence);
            }
        }
    }
}
