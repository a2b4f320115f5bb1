//! The statistics that one pass can compute.

use std::fmt;

use serde::{Deserialize, Serialize};

crate::named_enum! {
    /// One statistic of a tensor. `mean`, `norm` and `std` are accumulated in float64 for every dtype.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Statistic: name, from_name {
        /// Smallest element; NaN if any element is.
        Min = "min",
        /// Largest element; NaN if any element is.
        Max = "max",
        /// Arithmetic mean.
        Mean = "mean",
        /// Euclidean norm over all elements.
        Norm = "norm",
        /// Largest magnitude; NaN if any element is.
        AbsMax = "absmax",
        /// Sample standard deviation (Bessel's correction, as `torch.std`); NaN below two elements.
        Std = "std",
        /// Number of NaN elements.
        Nans = "nans",
        /// Number of infinite elements.
        Infs = "infs",
        /// Share of elements with a magnitude below `eps`, 0 to 1. NaN for an empty tensor.
        Zeros = "zeros",
        /// Number of elements.
        Count = "count",
        /// CRC-32 (zlib polynomial) of the contiguous little-endian bytes.
        Crc32 = "crc32",
        /// XOR of the contiguous bytes as little-endian 64-bit words, the tail padded with zeros.
        Xor64 = "xor64",
        /// The value itself if the tensor has no dimensions, else nothing.
        Id = "id",
    }
}

/// A set of [`Statistic`]s to compute in one pass.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StatisticSet(u16);

impl StatisticSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Whether the set contains this statistic.
    pub const fn contains(self, statistic: Statistic) -> bool {
        self.0 & (1 << statistic as u16) != 0
    }

    /// The set with this statistic added.
    #[must_use]
    pub const fn with(self, statistic: Statistic) -> Self {
        Self(self.0 | (1 << statistic as u16))
    }

    /// The union of two sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set as a number, the inverse of [`from_bits`](Self::from_bits).
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The set for this number. Bits without a statistic are ignored.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & ((1 << Statistic::ALL.len()) - 1))
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members in order of declaration.
    pub fn iter(self) -> impl Iterator<Item = Statistic> {
        Statistic::ALL.into_iter().filter(move |&statistic| self.contains(statistic))
    }
}

impl FromIterator<Statistic> for StatisticSet {
    fn from_iter<I: IntoIterator<Item = Statistic>>(members: I) -> Self {
        members.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for StatisticSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
