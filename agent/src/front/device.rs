//! The seam of every device path: which numbers are asked of a device, and how they lie in its result.
//!
//! A path (libtorch's operators, torch's from Python, a fused kernel to come) measures tensors of one device in a batch.
//! It is given a [`DevicePlan`], and fills a float64 table of one [`DeviceRow`] per tensor, in the tensors' order, without
//! making the host wait; a path without a column for a number leaves it 0. What reaches the host becomes readings by
//! [`DeviceRow::stats`].

use trainmon_core::{Dtype, Scalar, Shape, Statistic, TensorStats};
use trainmon_stats::Request;

/// One number of a result row, by its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceColumn {
    /// Smallest element (magnitude for complex), NaN if any is. Integers beyond 2^53 are rounded.
    Min,
    /// Largest element (magnitude for complex), NaN if any is.
    Max,
    /// Arithmetic mean, summed in float64.
    Mean,
    /// Euclidean norm, summed in float64.
    Norm,
    /// Sample standard deviation; NaN below two elements.
    Std,
    /// NaN elements.
    Nans,
    /// Infinite elements.
    Infs,
    /// Elements with a magnitude below eps.
    Zeros,
}

impl DeviceColumn {
    /// Every column, in the order of a row.
    pub const ALL: [Self; 8] =
        [Self::Min, Self::Max, Self::Mean, Self::Norm, Self::Std, Self::Nans, Self::Infs, Self::Zeros];

    /// The name: that of its statistic.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Norm => "norm",
            Self::Std => "std",
            Self::Nans => "nans",
            Self::Infs => "infs",
            Self::Zeros => "zeros",
        }
    }
}

/// What a device computes of each tensor of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DevicePlan {
    /// A bit per column, by its place.
    columns: u8,
    /// Below which magnitude an element counts as zero.
    pub eps: f64,
}

impl DevicePlan {
    /// The columns that the statistics asked for are made of: the largest magnitude of the two extremes, an id of the
    /// smallest. Checksums are not taken on a device.
    pub fn of(request: Request) -> Self {
        let columns = request.statistics.iter().flat_map(|statistic| columns(statistic).iter());
        Self { columns: columns.fold(0, |all, &column| all | 1 << column as u8), eps: request.eps }
    }

    /// Whether a column is asked for.
    pub const fn contains(self, column: DeviceColumn) -> bool {
        self.columns & 1 << column as u8 != 0
    }
}

fn columns(statistic: Statistic) -> &'static [DeviceColumn] {
    match statistic {
        Statistic::Min | Statistic::Id => &[DeviceColumn::Min],
        Statistic::Max => &[DeviceColumn::Max],
        Statistic::AbsMax => &[DeviceColumn::Min, DeviceColumn::Max],
        Statistic::Mean => &[DeviceColumn::Mean],
        Statistic::Norm => &[DeviceColumn::Norm],
        Statistic::Std => &[DeviceColumn::Std],
        Statistic::Nans => &[DeviceColumn::Nans],
        Statistic::Infs => &[DeviceColumn::Infs],
        Statistic::Zeros => &[DeviceColumn::Zeros],
        Statistic::Count | Statistic::Crc32 | Statistic::Xor64 => &[],
    }
}

/// What a device found in one tensor; columns that were not asked for mean nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceRow(pub [f64; DeviceColumn::ALL.len()]);

impl DeviceRow {
    /// One number.
    pub const fn get(&self, column: DeviceColumn) -> f64 {
        self.0[column as usize]
    }

    /// The statistics of a tensor of this type and shape; of an empty one whatever the device says.
    pub fn stats(&self, dtype: Dtype, shape: Shape) -> TensorStats {
        let empty = TensorStats::empty(dtype, shape);
        let count = shape.elements() as u64;
        if count == 0 {
            return empty;
        }
        let Self([min, max, mean, norm, std, nans, infs, zeros]) = *self;
        // `max` would pass a NaN over.
        let abs_max = if min.is_nan() || max.is_nan() { f64::NAN } else { min.abs().max(max.abs()) };
        TensorStats {
            min: scalar(dtype, min),
            max: scalar(dtype, max),
            mean,
            norm,
            abs_max,
            std,
            nans: nans as u64,
            infs: infs as u64,
            zeros: zeros as u64,
            count,
            ..empty
        }
    }
}

/// An extreme in the dtype's own arithmetic.
fn scalar(dtype: Dtype, value: f64) -> Scalar {
    match dtype {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Scalar::Int(value as i64),
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => Scalar::UInt(value as u64),
        Dtype::Bool => Scalar::Bool(value != 0.0),
        _ => Scalar::Float(value),
    }
}

#[cfg(test)]
mod tests {
    use trainmon_core::StatisticSet;

    use super::*;

    fn plan(statistics: &[Statistic]) -> Vec<&'static str> {
        let statistics: StatisticSet = statistics.iter().copied().collect();
        let plan = DevicePlan::of(Request { statistics, eps: 0.0 });
        DeviceColumn::ALL.into_iter().filter(|&column| plan.contains(column)).map(DeviceColumn::name).collect()
    }

    #[test]
    fn a_plan_has_the_columns_its_statistics_are_made_of() {
        assert_eq!(plan(&[Statistic::AbsMax, Statistic::Count]), ["min", "max"]);
        assert_eq!(plan(&[Statistic::Id, Statistic::Zeros]), ["min", "zeros"]);
        assert_eq!(plan(&Statistic::ALL), DeviceColumn::ALL.map(DeviceColumn::name));
    }

    #[test]
    fn a_row_becomes_a_reading_in_the_tensors_own_arithmetic() {
        let row = DeviceRow([-7.0, 3.0, 0.5, 9.0, 2.0, 1.0, 2.0, 3.0]);
        let shape = Shape::new(&[4]).unwrap();
        let reading = row.stats(Dtype::I32, shape);
        assert_eq!((reading.min, reading.max, reading.abs_max), (Scalar::Int(-7), Scalar::Int(3), 7.0));
        assert_eq!((reading.nans, reading.infs, reading.zeros, reading.count), (1, 2, 3, 4));
        let nan = DeviceRow([f64::NAN, f64::NAN, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(nan.stats(Dtype::F32, shape).abs_max.is_nan());
        let empty = Shape::new(&[0]).unwrap();
        assert_eq!(row.stats(Dtype::F32, empty).count, 0);
    }
}
