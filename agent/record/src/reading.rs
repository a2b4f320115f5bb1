//! The values of a record: the statistics of a tensor, or plain numbers.

use crate::{CollectiveTiming, Dtype, Kind, Shape, Statistic};

/// An extreme value in the tensor's own arithmetic, because a float cannot represent every 64-bit integer.
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
    /// The value as a float: rounded for integers above 2^53, 0 or 1 for bool.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Int(value) => value as f64,
            Self::UInt(value) => value as f64,
            Self::Bool(value) => f64::from(u8::from(value)),
        }
    }
}

/// The values of a record: the statistics of a tensor, or plain numbers whose names follow from the record's [`Kind`].
///
/// [`Kind`]: crate::Kind
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// The statistics of a tensor.
    Tensor(TensorStats),
    /// The numbers of a kind with [`Kind::value_columns`](crate::Kind::value_columns), in that order.
    Values(Values),
}

/// The statistics of one tensor. Fields that were not requested have their neutral value and no meaning.
///
/// `min`, `max` and every count are exact; `mean`, `norm`, `std` are float64 sums. An empty tensor has `count` 0,
/// `norm` 0 and NaN elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorStats {
    /// The element type measured.
    pub dtype: Dtype,
    /// The shape measured.
    pub shape: Shape,
    /// Smallest element (magnitude for complex); NaN if any element is.
    pub min: Scalar,
    /// Largest element (magnitude for complex); NaN if any element is.
    pub max: Scalar,
    /// Arithmetic mean (of magnitudes for complex).
    pub mean: f64,
    /// Euclidean norm.
    pub norm: f64,
    /// Largest magnitude; NaN if any element is.
    pub abs_max: f64,
    /// Sample standard deviation.
    pub std: f64,
    /// The number of NaN elements.
    pub nans: u64,
    /// The number of infinite elements.
    pub infs: u64,
    /// The number of elements with a magnitude below eps.
    pub zeros: u64,
    /// The number of elements.
    pub count: u64,
    /// The CRC-32 of the bytes.
    pub crc32: u32,
    /// The XOR of the 64-bit words.
    pub xor64: u64,
}

impl TensorStats {
    /// The statistics of an empty tensor, and the initial value of all others.
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

    /// Whether all statistics are bitwise equal. NaN equals NaN.
    pub fn is_same(&self, other: &Self) -> bool {
        let bits = |of: &Self| {
            let floats = [of.min.as_f64(), of.max.as_f64(), of.mean, of.norm, of.abs_max, of.std];
            (floats.map(f64::to_bits), [of.nans, of.infs, of.zeros, of.count, u64::from(of.crc32), of.xor64])
        };
        let is_same_scalar =
            |one: Scalar, other: Scalar| one == other || (one.as_f64().is_nan() && other.as_f64().is_nan());
        self.dtype == other.dtype
            && self.shape == other.shape
            && is_same_scalar(self.min, other.min)
            && is_same_scalar(self.max, other.max)
            && bits(self) == bits(other)
    }

    /// The statistics of a 0-d float32 tensor. Readers see a single number that the monitor computed (such as
    /// `mg_direction`) as such a tensor, as in msprobe.
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

    /// The statistics of the concatenation of several tensors, with this shape. `crc32` is 0. Empty tensors change
    /// nothing; without any tensor, the statistics of an empty one.
    pub fn of_several(all: &[Self], shape: Shape) -> Self {
        let mut filled = all.iter().filter(|stats| stats.count > 0);
        let Some(first) = filled.next() else {
            return all.first().map_or_else(|| Self::empty(Dtype::F32, shape), |one| Self { shape, ..*one });
        };
        let start = Self { shape, crc32: if all.len() == 1 { first.crc32 } else { 0 }, ..*first };
        filled.fold(start, Self::with)
    }

    /// Combines two statistics that are not empty, like [`of_several`](Self::of_several).
    fn with(self, other: &Self) -> Self {
        let pick = |one: Scalar, two: Scalar, is_better: fn(&f64, &f64) -> bool| {
            if one.as_f64().is_nan() || is_better(&one.as_f64(), &two.as_f64()) { one } else { two }
        };
        let (own, others) = (self.count as f64, other.count as f64);
        let count = own + others;
        let mean = (self.mean * own + other.mean * others) / count;
        // A single element has no deviation, hence no square of one.
        let squares =
            |stats: &Self| if stats.count == 1 { 0.0 } else { stats.std.powi(2) * (stats.count as f64 - 1.0) };
        let between = (self.mean - other.mean).powi(2) * own * others / count;
        let is_larger = self.abs_max.is_nan() || self.abs_max >= other.abs_max;
        Self {
            min: pick(self.min, other.min, f64::le),
            max: pick(self.max, other.max, f64::ge),
            mean,
            norm: self.norm.hypot(other.norm),
            abs_max: if is_larger { self.abs_max } else { other.abs_max },
            std: ((squares(&self) + squares(other) + between) / (count - 1.0)).sqrt(),
            nans: self.nans + other.nans,
            infs: self.infs + other.infs,
            zeros: self.zeros + other.zeros,
            count: self.count + other.count,
            xor64: self.xor64 ^ other.xor64,
            ..self
        }
    }

    /// The share of elements below eps. NaN for an empty tensor and for bool, which has no magnitude (as in torch).
    pub fn zeros_ratio(&self) -> f64 {
        if self.count == 0 || self.dtype == Dtype::Bool { f64::NAN } else { self.zeros as f64 / self.count as f64 }
    }

    /// The value of a tensor without dimensions.
    pub fn id(&self) -> Option<Scalar> {
        (self.shape.dims().is_empty() && self.count == 1).then_some(self.min)
    }

    /// The number of elements that are NaN or infinite.
    pub fn nonfinite(&self) -> u64 {
        self.nans + self.infs
    }

    /// Whether any measured statistic contains NaN or infinity, whichever statistics were requested.
    pub fn shows_nonfinite(&self) -> bool {
        let is_bad = |value: f64| !value.is_finite();
        self.nonfinite() > 0
            || (self.count > 0 && [self.norm, self.mean, self.min.as_f64(), self.max.as_f64()].into_iter().any(is_bad))
    }

    /// One statistic as a float, as time series store it. `Id` of a tensor with dimensions is NaN.
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

/// Plain numbers in place of a tensor's statistics, at most six.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    dtype: Dtype,
    shape: Shape,
    numbers: [f64; Values::MOST],
    count: u8,
}

impl Values {
    /// The highest number of values of any kind.
    pub const MOST: usize = 6;

    /// Stores these numbers; those beyond [`Values::MOST`] are dropped.
    pub fn of(numbers: &[f64]) -> Self {
        Self::with_dtype(Dtype::F32, numbers)
    }

    /// Like [`Values::of`], with the element type that the numbers are about.
    pub fn with_dtype(dtype: Dtype, numbers: &[f64]) -> Self {
        let count = numbers.len().min(Self::MOST);
        let mut all = [f64::NAN; Self::MOST];
        all[..count].copy_from_slice(&numbers[..count]);
        Self { dtype, shape: Shape::default(), numbers: all, count: count as u8 }
    }

    /// The values of a collective operation: size, seconds, both bandwidths.
    pub fn of_collective(dtype: Dtype, timing: &CollectiveTiming) -> Self {
        let CollectiveTiming { bytes, seconds, algbw, busbw } = *timing;
        Self::with_dtype(dtype, &[bytes as f64, seconds, algbw, busbw])
    }

    /// Like [`Values::of_collective`], with the seconds that the caller waited, the number in the group, and the shape
    /// sent.
    pub fn of_call(dtype: Dtype, shape: Shape, timing: &CollectiveTiming, waited: f64, sequence: u64) -> Self {
        let CollectiveTiming { bytes, seconds, algbw, busbw } = *timing;
        let numbers = [bytes as f64, seconds, algbw, busbw, waited, sequence as f64];
        Self { shape, ..Self::with_dtype(dtype, &numbers) }
    }

    /// The numbers.
    pub fn get(&self) -> &[f64] {
        &self.numbers[..usize::from(self.count)]
    }

    /// The element type of a collective operation; else float32.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The shape of a collective operation; else none.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The numbers in the fields of a tensor's statistics, for rules over all kinds and for the journal's format. The
    /// first is the value of a 0-d tensor; the others are in deviation, norm and largest magnitude. With more than
    /// four, the fifth and sixth are in the extremes, and their total count is in `infs`.
    pub fn as_stats(&self) -> TensorStats {
        let [first, second, third, fourth, fifth, sixth] = self.numbers;
        let mut stats = TensorStats { dtype: self.dtype, shape: self.shape, ..TensorStats::of_value(first) };
        let count = self.get().len();
        if count > 1 {
            stats.std = second;
        }
        if count > 2 {
            (stats.norm, stats.abs_max) = (third, fourth);
        }
        if count > FOUR {
            (stats.min, stats.max) = (Scalar::Float(fifth), Scalar::Float(sixth));
            stats.infs = count as u64;
        }
        stats
    }

    /// Reverses [`as_stats`](Self::as_stats) for a kind with `columns` numbers. Returns fewer numbers if an older
    /// version with fewer columns wrote them.
    fn of_stats(stats: &TensorStats, columns: usize) -> Self {
        let numbers = [stats.mean, stats.std, stats.norm, stats.abs_max, stats.min.as_f64(), stats.max.as_f64()];
        let count = if columns > FOUR && stats.infs != columns as u64 { FOUR } else { columns.min(Self::MOST) };
        Self { shape: stats.shape, ..Self::with_dtype(stats.dtype, &numbers[..count]) }
    }
}

/// The number of values that have fields of their own in a tensor's statistics.
const FOUR: usize = 4;

impl From<TensorStats> for Reading {
    fn from(stats: TensorStats) -> Self {
        Self::Tensor(stats)
    }
}

impl From<Values> for Reading {
    fn from(values: Values) -> Self {
        Self::Values(values)
    }
}

impl Reading {
    /// Reverses [`as_stats`](Self::as_stats) for a record of this kind.
    pub fn of_kind(kind: Kind, stats: TensorStats) -> Self {
        match kind.value_columns().len() {
            0 => Self::Tensor(stats),
            count => Self::Values(Values::of_stats(&stats, count)),
        }
    }

    /// A reading of plain numbers.
    pub fn of_values(numbers: &[f64]) -> Self {
        Self::Values(Values::of(numbers))
    }

    /// The tensor's statistics; `None` for plain numbers.
    pub fn tensor(&self) -> Option<&TensorStats> {
        match self {
            Self::Tensor(stats) => Some(stats),
            Self::Values(_) => None,
        }
    }

    /// The plain numbers; empty for a tensor.
    pub fn values(&self) -> &[f64] {
        match self {
            Self::Tensor(_) => &[],
            Self::Values(values) => values.get(),
        }
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::Tensor(stats) => stats.dtype,
            Self::Values(values) => values.dtype(),
        }
    }

    /// The shape; for plain numbers, that of a tensor without dimensions.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Tensor(stats) => stats.shape,
            Self::Values(values) => values.shape,
        }
    }

    /// One statistic as a float, see [`TensorStats::value`]. For plain numbers, that of [`Values::as_stats`].
    pub fn value(&self, statistic: Statistic) -> f64 {
        match self {
            Self::Tensor(stats) => stats.value(statistic),
            Self::Values(values) => values.as_stats().value(statistic),
        }
    }

    /// The number of elements; 1 for plain numbers.
    pub fn count(&self) -> u64 {
        self.tensor().map_or(1, |stats| stats.count)
    }

    /// The value of a tensor without dimensions; plain numbers count as one.
    pub fn id(&self) -> Option<Scalar> {
        match self {
            Self::Tensor(stats) => stats.id(),
            Self::Values(values) => values.as_stats().id(),
        }
    }

    /// The statistics for rules over all kinds, see [`Values::as_stats`].
    pub fn as_stats(&self) -> TensorStats {
        match self {
            Self::Tensor(stats) => *stats,
            Self::Values(values) => values.as_stats(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(values: &[f64]) -> TensorStats {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        TensorStats {
            min: Scalar::Float(values.iter().copied().fold(f64::INFINITY, f64::min)),
            max: Scalar::Float(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            mean,
            norm: values.iter().map(|value| value * value).sum::<f64>().sqrt(),
            abs_max: values.iter().copied().map(f64::abs).fold(0.0, f64::max),
            std: (squares / (count - 1.0)).sqrt(),
            zeros: values.iter().filter(|value| **value == 0.0).count() as u64,
            count: values.len() as u64,
            ..TensorStats::empty(Dtype::F32, Shape::new(&[values.len() as i64]).unwrap())
        }
    }

    #[test]
    fn several_tensors_together_are_as_one() {
        let shape = Shape::new(&[6]).unwrap();
        let empty = TensorStats::empty(Dtype::F32, Shape::new(&[0]).unwrap());
        let parts = [empty, stats(&[1.0, 0.0]), stats(&[-3.0]), stats(&[2.0, 5.0, 0.0])];
        let (together, whole) = (TensorStats::of_several(&parts, shape), stats(&[1.0, 0.0, -3.0, 2.0, 5.0, 0.0]));
        for statistic in [Statistic::Min, Statistic::Max, Statistic::AbsMax, Statistic::Zeros, Statistic::Count] {
            assert_eq!(together.value(statistic), whole.value(statistic), "{statistic:?}");
        }
        for statistic in [Statistic::Mean, Statistic::Norm, Statistic::Std] {
            assert!((together.value(statistic) - whole.value(statistic)).abs() < 1e-12, "{statistic:?}");
        }
        assert_eq!((together.shape, TensorStats::of_several(&[], shape).count), (shape, 0));
        assert!(TensorStats::of_several(&[stats(&[f64::NAN, 1.0]), stats(&[2.0, 3.0])], shape).mean.is_nan());
    }

    #[test]
    fn a_collectives_numbers_and_shape_survive_as_statistics() {
        let timing = CollectiveTiming { bytes: 4096, seconds: 0.25, algbw: 1.5, busbw: 2.25 };
        let shape = Shape::new(&[32, 32]).unwrap();
        let call = Values::of_call(Dtype::F32, shape, &timing, 0.125, 77);
        assert_eq!(call.get(), [4096.0, 0.25, 1.5, 2.25, 0.125, 77.0]);
        assert_eq!(Reading::of_kind(Kind::CommTime, call.as_stats()), Reading::Values(call));
        // Written before there were as many numbers.
        let earlier = Values::of_collective(Dtype::F32, &timing);
        // As texts: a NaN differs from itself.
        let read = Reading::of_kind(Kind::CommTime, earlier.as_stats());
        assert_eq!(format!("{read:?}"), format!("{:?}", Reading::Values(earlier)));
    }
}
