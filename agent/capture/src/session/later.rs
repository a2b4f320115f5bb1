//! Values that are filled in later: numbers measured on a device, and values of a call that has not ended.

use trainmon_capture_files::{Frames, Hole, JsonText};
use trainmon_core::TensorStats;

use super::Session;
use super::tensor_text::numbers_of;
use super::values::Values;
use crate::tensor::{Later, LaterValue};

impl Session {
    /// Fills in the numbers of a tensor that was measured on a device. `is_scalar`: it has no dimensions.
    pub fn fill_numbers(&self, later: &Later, stats: &TensorStats, is_scalar: bool) {
        let numbers = numbers_of(stats, is_scalar, self.plan.config().precision);
        let fills = later.numbers.into_iter().zip(numbers).map(|(hole, number)| {
            let mut json = JsonText::new();
            json.number(number);
            (hole, json)
        });
        self.write_fills(&fills.collect::<Vec<_>>());
    }

    /// Fills in a value that became available later.
    pub fn fill_value(&self, later: &LaterValue, write: impl FnOnce(&mut Values<'_>)) {
        let mut values = Values::new(self, later.saves_tensors);
        values.path.clone_from(&later.path);
        write(&mut values);
        values.close();
        if !values.json.is_empty() {
            self.write_fills(&[(later.hole, values.json)]);
        }
    }

    fn write_fills(&self, fills: &[(Hole, JsonText)]) {
        let mut frames = Frames::new();
        frames.fills(fills.iter().map(|(hole, json)| (*hole, json.as_bytes())));
        self.write(&frames);
    }
}
