//! What comes later: numbers found on a device, values of a call that has not ended.

use trainmon_capture_files::{Frames, Hole, JsonText};
use trainmon_core::TensorStats;

use super::Session;
use super::tensor_text::{device_numbers, digest_of, numbers_of};
use super::values::Values;
use crate::files::{Elements, TensorFile};
use crate::tensor::{DeviceNumbers, Later, LaterValue};

/// A device tensor's bytes, in the host's memory and logical order.
#[derive(Clone, Copy, Debug)]
pub struct FoundBytes<'b> {
    /// Their dtype.
    pub dtype: trainmon_core::Dtype,
    /// Their shape.
    pub shape: trainmon_core::Shape,
    /// They.
    pub bytes: &'b [u8],
}

impl Elements for FoundBytes<'_> {
    fn in_place(&self) -> Option<&[u8]> {
        Some(self.bytes)
    }

    fn sum(&mut self) -> u32 {
        crc32fast::hash(self.bytes)
    }

    fn copy(&mut self, target: &mut [u8]) -> u32 {
        target.copy_from_slice(self.bytes);
        crc32fast::hash(target)
    }
}

impl Session {
    /// Tells what was found on a device: numbers, and the bytes in logical order where they were wanted.
    pub fn fill(&self, later: &Later, found: &DeviceNumbers, bytes: Option<FoundBytes<'_>>) {
        let mut fills: Vec<(Hole, JsonText)> = Vec::with_capacity(5);
        let mut put = |hole: Hole, write: &dyn Fn(&mut JsonText)| {
            let mut json = JsonText::new();
            write(&mut json);
            fills.push((hole, json));
        };
        for (hole, number) in later.numbers.iter().flatten().zip(device_numbers(found)) {
            put(*hole, &|json| json.number(number));
        }
        if let (Some(hole), Some(found)) = (later.digest, &bytes) {
            let digest = digest_of(found.bytes, self.plan.config().summary);
            put(hole, &|json| json.checksum(digest));
        }
        if let (Some(file), Some(mut found)) = (&later.file, bytes) {
            let of = TensorFile { hole: file.hole, path: &file.path, dtype: found.dtype, shape: found.shape };
            if found.bytes.len() == found.shape.elements() * found.dtype.size() && !found.bytes.is_empty() {
                self.save(&of, found.bytes.len(), &mut found);
            }
        }
        self.write_fills(&fills);
    }

    /// Tells the numbers of a tensor that was measured on a device. `is_scalar`: it has no dimensions.
    pub fn fill_numbers(&self, later: &Later, stats: &TensorStats, is_scalar: bool) {
        let Some(holes) = later.numbers else { return };
        let numbers = numbers_of(stats, is_scalar, self.plan.config().precision);
        let fills = holes.into_iter().zip(numbers).map(|(hole, number)| {
            let mut json = JsonText::new();
            json.number(number);
            (hole, json)
        });
        self.write_fills(&fills.collect::<Vec<_>>());
    }

    /// Tells a value that came later.
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
        if fills.is_empty() {
            return;
        }
        let mut frames = Frames::new();
        frames.fills(fills.iter().map(|(hole, json)| (*hole, json.as_bytes())));
        self.write(&frames);
    }
}
