//! An exponential average that is right from its first value on.

use serde::{Deserialize, Serialize};
use trainmon_core::number;

/// Weighs the last values most; early on it is the plain mean of what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Average {
    #[serde(with = "number")]
    sum: f64,
    #[serde(with = "number")]
    weight: f64,
}

impl Average {
    /// Takes a finite value; `horizon` values count about two thirds of all.
    pub(crate) fn add(&mut self, value: f64, horizon: f64) {
        let decay = 1.0 - 1.0 / horizon;
        self.sum = decay * self.sum + (1.0 - decay) * value;
        self.weight = decay * self.weight + (1.0 - decay);
    }

    /// The average; `None` before the first value.
    pub(crate) fn get(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}
