//! An exponential average without bias for its first values.

use serde::{Deserialize, Serialize};
use trainmon_core::number;

/// An average that weighs the last values most; the first ones form a plain mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Average {
    #[serde(with = "number")]
    sum: f64,
    #[serde(with = "number")]
    weight: f64,
}

impl Average {
    /// Adds a finite value. The last `horizon` values have about two thirds of the weight.
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
