//! What one pass over a tensor found.

use crate::{CollectiveTiming, Dtype, Shape, Statistic};

/// An extreme value in its own arithmetic: 64-bit integers do not fit a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// Of a float or complex tensor; exact for every float dtype.
    Float(f64),
    /// Of a signed integer tensor.
    Int(i64),
    /// Of an unsigned integer tensor.
    UInt(u64),
    /// Of a bool tensor.
    Bool(bool),
}

impl Scalar {
    /// The value as a float: rounded for integers past 2^53, 0 or 1 for bool.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Int(value) => value as f64,
            Self::UInt(value) => value as f64,
            Self::Bool(value) => f64::from(u8::from(value)),
        }
    }
}

/// The statistics of one tensor. Fields that were not asked for hold their neutral value and mean nothing.
///
/// `min`, `max` and every count are exact; `mean`, `norm`, `std` are float64 sums. An empty tensor has `count` 0,
/// `norm` 0 and NaN elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The element type measured.
    pub dtype: Dtype,
    /// The shape measured.
    pub shape: Shape,
    /// Smallest element (magnitude for complex), NaN if any is.
    pub min: Scalar,
    /// Largest element (magnitude for complex), NaN if any is.
    pub max: Scalar,
    /// Arithmetic mean (of magnitudes for complex).
    pub mean: f64,
    /// Euclidean norm.
    pub norm: f64,
    /// Largest magnitude, NaN if any element is.
    pub abs_max: f64,
    /// Sample standard deviation.
    pub std: f64,
    /// NaN elements.
    pub nans: u64,
    /// Infinite elements.
    pub infs: u64,
    /// Elements with a magnitude below eps.
    pub zeros: u64,
    /// Elements.
    pub count: u64,
    /// CRC-32 of the bytes.
    pub crc32: u32,
    /// XOR of the 64-bit words.
    pub xor64: u64,
}

impl Reading {
    /// What an empty tensor gives, and the start of every other reading.
    pub fn empty(dtype: Dtype, shape: Shape) -> Self {
        Self {
            dtype,
            shape,
            min: Scalar::Float(f64::NAN),
            max: Scalar::Float(f64::NAN),
            mean: f64::NAN,
            norm: 0.0,
            abs_max: f64::NAN,
            std: f64::NAN,
            nans: 0,
            infs: 0,
            zeros: 0,
            count: 0,
            crc32: 0,
            xor64: 0,
        }
    }

    /// A reading of a single number the monitor computed itself (`mg_direction`, say): a 0-d float32 tensor to
    /// readers, as msprobe writes it.
    pub fn of_value(value: f64) -> Self {
        Self {
            min: Scalar::Float(value),
            max: Scalar::Float(value),
            mean: value,
            norm: value.abs(),
            abs_max: value.abs(),
            nans: u64::from(value.is_nan()),
            infs: u64::from(value.is_infinite()),
            zeros: u64::from(value == 0.0),
            count: 1,
            ..Self::empty(Dtype::F32, Shape::default())
        }
    }

    /// A reading of two plain numbers the front computed itself: a kind whose [`Kind::value_columns`] are two.
    ///
    /// [`Kind::value_columns`]: crate::Kind::value_columns
    pub fn of_values(first: f64, second: f64) -> Self {
        Self { std: second, ..Self::of_value(first) }
    }

    /// What a collective operation took: a kind whose [`Kind::value_columns`] are four.
    ///
    /// [`Kind::value_columns`]: crate::Kind::value_columns
    pub fn of_collective(dtype: Dtype, timing: &CollectiveTiming) -> Self {
        let CollectiveTiming { bytes, seconds, algbw, busbw } = *timing;
        Self { dtype, norm: algbw, abs_max: busbw, ..Self::of_values(bytes as f64, seconds) }
    }

    /// The plain numbers a kind has in place of statistics, in the order of its columns; what lies beyond them means
    /// nothing.
    pub fn values(&self) -> [f64; 4] {
        // A plain number has no deviation and no norm of its own: the fields are free for the others.
        [self.mean, self.std, self.norm, self.abs_max]
    }

    /// The share of elements below eps: NaN for an empty tensor and for bool, which has no magnitude (as torch).
    pub fn zeros_ratio(&self) -> f64 {
        if self.count == 0 || self.dtype == Dtype::Bool { f64::NAN } else { self.zeros as f64 / self.count as f64 }
    }

    /// The value of a tensor without dimensions.
    pub fn id(&self) -> Option<Scalar> {
        (self.shape.dims().is_empty() && self.count == 1).then_some(self.min)
    }

    /// Elements that are NaN or infinite.
    pub fn nonfinite(&self) -> u64 {
        self.nans + self.infs
    }

    /// One statistic as a float, the way time series carry it; `Id` of a tensor with dimensions is NaN.
    pub fn value(&self, statistic: Statistic) -> f64 {
        match statistic {
            Statistic::Min => self.min.as_f64(),
            Statistic::Max => self.max.as_f64(),
            Statistic::Mean => self.mean,
            Statistic::Norm => self.norm,
            Statistic::AbsMax => self.abs_max,
            Statistic::Std => self.std,
            Statistic::Nans => self.nans as f64,
            Statistic::Infs => self.infs as f64,
            Statistic::Zeros => self.zeros_ratio(),
            Statistic::Count => self.count as f64,
            Statistic::Crc32 => f64::from(self.crc32),
            Statistic::Xor64 => self.xor64 as f64,
            Statistic::Id => self.id().map_or(f64::NAN, Scalar::as_f64),
        }
    }
}
