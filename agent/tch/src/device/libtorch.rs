//! Statistics with libtorch's own operators: several kernels per tensor, batched if libtorch has a batched form.

use tch::Tensor;
use trainmon_agent::front::{DeviceColumn, DevicePlan, DeviceRow};

use super::{DeviceStatistics, InFlight};
use crate::ffi::{Pending, TensorRef};

/// Statistics with libtorch's operators, on every device it supports. Sums, means and norms are accumulated in float64.
///
/// The cost per tensor is several kernel launches, temporary boolean tensors of its length for the counts, and one
/// float64 copy for `std`. Checksums are not computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct LibtorchStatistics;

/// A launched batch, with the number of elements of each tensor.
struct Batch {
    pending: Pending,
    counts: Vec<f64>,
}

impl DeviceStatistics for LibtorchStatistics {
    fn launch(&mut self, tensors: &[&Tensor], plan: DevicePlan) -> Result<Box<dyn InFlight>, String> {
        let counts = tensors.iter().map(|tensor| tensor.numel() as f64).collect();
        let tensors: Vec<TensorRef<'_>> = tensors.iter().filter_map(|tensor| TensorRef::new(tensor)).collect();
        // The shim uses a row's column numbers, but `rows` makes the last step of mean and deviation.
        let wanted = DeviceColumn::ALL.into_iter().filter(|&column| plan.contains(column));
        let wanted = wanted.fold(0, |all, column| all | 1 << column as u32);
        Ok(Box::new(Batch { pending: Pending::launch(&tensors, wanted, plan.eps)?, counts }))
    }
}

impl InFlight for Batch {
    fn is_ready(&self) -> Result<bool, String> {
        self.pending.is_ready()
    }

    fn rows(&self) -> Vec<DeviceRow> {
        let row = |(found, count): (&[f64; DeviceColumn::ALL.len()], &f64)| {
            let mut row = *found;
            row[DeviceColumn::Mean as usize] /= count;
            row[DeviceColumn::Std as usize] = row[DeviceColumn::Std as usize].sqrt();
            DeviceRow(row)
        };
        self.pending.rows().zip(&self.counts).map(row).collect()
    }
}
