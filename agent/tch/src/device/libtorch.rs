//! Statistics by libtorch's own operators: several kernels per tensor, batched where libtorch has a batched form.

use tch::Tensor;
use trainmon_agent::front::{DeviceColumn, DevicePlan, DeviceRow};

use super::{DeviceStatistics, InFlight};
use crate::ffi::{Pending, TensorRef};

/// Statistics by libtorch's operators, on any device it has. Sums, means and norms are accumulated in float64.
///
/// Costs a handful of kernel launches per tensor, short-lived boolean temporaries of a tensor's length for the counts,
/// and one float64 copy for `std`. Checksums are not taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct LibtorchStatistics;

/// A launched batch, and how many elements each of its tensors has.
struct Batch {
    pending: Pending,
    counts: Vec<f64>,
}

impl DeviceStatistics for LibtorchStatistics {
    fn launch(&mut self, tensors: &[&Tensor], plan: DevicePlan) -> Result<Box<dyn InFlight>, String> {
        let counts = tensors.iter().map(|tensor| tensor.numel() as f64).collect();
        let tensors: Vec<TensorRef<'_>> = tensors.iter().filter_map(|tensor| TensorRef::new(tensor)).collect();
        // The shim numbers its columns as a row does, but leaves the last step of mean and deviation to us.
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
