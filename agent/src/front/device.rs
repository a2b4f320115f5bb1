//! The interface to every device path: the numbers that a device computes, and their layout in its result.
//!
//! A path (libtorch's operators, torch's from Python, a fused kernel) measures tensors of one device in a batch. For a
//! [`DevicePlan`], it fills a float64 table with one [`DeviceRow`] per tensor, in the tensors' order. It does not make the
//! host wait, and leaves 0 in columns that it does not compute. On the host, [`DeviceRow::stats`] converts the rows.

use trainmon_core::{Dtype, Scalar, Shape, Statistic, TensorStats};
use trainmon_stats::Request;

/// A column of a result row. Its position here is its position in the row.
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
    /// The number of NaN elements.
    Nans,
    /// The number of infinite elements.
    Infs,
    /// The number of elements with a magnitude below eps.
    Zeros,
}

impl DeviceColumn {
    /// Every column, in the order of a row.
    pub const ALL: [Self; 8] =
        [Self::Min, Self::Max, Self::Mean, Self::Norm, Self::Std, Self::Nans, Self::Infs, Self::Zeros];

    /// The name of the column's statistic.
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

/// The columns that a device computes for each tensor of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DevicePlan {
    /// A bit per column, at its position.
    columns: u8,
    /// The magnitude below which an element counts as zero.
    pub eps: f64,
}

impl DevicePlan {
    /// The columns that the requested statistics are computed from: the largest magnitude from the two extremes, an id from
    /// the smallest. A device computes no checksums.
    pub fn of(request: Request) -> Self {
        let columns = request.statistics.iter().flat_map(|statistic| columns(statistic).iter());
        Self { columns: columns.fold(0, |all, &column| all | 1 << column as u8), eps: request.eps }
    }

    /// Whether a column is requested.
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

/// The numbers that a device computed for one tensor. Columns that were not requested are meaningless.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceRow(pub [f64; DeviceColumn::ALL.len()]);

impl DeviceRow {
    /// The number in a column.
    pub const fn get(&self, column: DeviceColumn) -> f64 {
        self.0[column as usize]
    }

    /// The statistics of a tensor of this type and shape. For an empty tensor, the row is ignored.
    pub fn stats(&self, dtype: Dtype, shape: Shape) -> TensorStats {
        let empty = TensorStats::empty(dtype, shape);
        let count = shape.elements() as u64;
        if count == 0 {
            return empty;
        }
        let Self([min, max, mean, norm, std, nans, infs, zeros]) = *self;
        // `f64::max` ignores NaN.
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

/// Converts an extreme to the scalar type of `dtype`.
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
