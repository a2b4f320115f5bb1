//! Device statistics by libtorch's own operators: several kernels per tensor, batched where libtorch has a batched form.

use tch::Tensor;
use trainmon_agent::core::{Statistic, StatisticSet};
use trainmon_agent::stats::Request;

use super::{DeviceStatistics, Found, InFlight};
use crate::ffi::{Pending, TensorRef};

/// Statistics by libtorch's operators, on any device it has. Sums, means and norms are accumulated in float64.
///
/// Costs a handful of kernel launches per tensor, short-lived boolean temporaries of a tensor's length for the counts,
/// and one float64 copy for `std`. Checksums are not taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct LibtorchStatistics;

/// Columns of the shim's result.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Column {
    Sum,
    Norm,
    Min,
    Max,
    AbsMax,
    Variance,
    Nans,
    Infs,
    Zeros,
}

impl DeviceStatistics for LibtorchStatistics {
    fn launch(&mut self, tensors: &[&Tensor], request: Request) -> Result<Box<dyn InFlight>, String> {
        let tensors: Vec<TensorRef<'_>> = tensors.iter().filter_map(|tensor| TensorRef::new(tensor)).collect();
        let pending = Pending::launch(&tensors, columns(request.statistics), request.eps)?;
        Ok(Box::new(pending))
    }
}

fn columns(statistics: StatisticSet) -> u32 {
    let bits = statistics.iter().filter_map(column).map(|column| 1 << column as u32);
    // An id is the smallest element of a tensor that has but one.
    bits.fold(0, |all, bit: u32| all | bit)
}

fn column(statistic: Statistic) -> Option<Column> {
    Some(match statistic {
        Statistic::Min | Statistic::Id => Column::Min,
        Statistic::Max => Column::Max,
        Statistic::Mean => Column::Sum,
        Statistic::Norm => Column::Norm,
        Statistic::AbsMax => Column::AbsMax,
        Statistic::Std => Column::Variance,
        Statistic::Nans => Column::Nans,
        Statistic::Infs => Column::Infs,
        Statistic::Zeros => Column::Zeros,
        Statistic::Count | Statistic::Crc32 | Statistic::Xor64 => return None,
    })
}

impl InFlight for Pending {
    fn is_ready(&self) -> Result<bool, String> {
        Pending::is_ready(self)
    }

    fn found(&self) -> Vec<Found> {
        let of = |row: &[f64], column: Column| row[column as usize];
        self.rows()
            .map(|row| Found {
                sum: of(row, Column::Sum),
                norm: of(row, Column::Norm),
                min: of(row, Column::Min),
                max: of(row, Column::Max),
                abs_max: of(row, Column::AbsMax),
                variance: of(row, Column::Variance),
                nans: of(row, Column::Nans),
                infs: of(row, Column::Infs),
                zeros: of(row, Column::Zeros),
            })
            .collect()
    }
}
