//! The statistics one pass can give.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One statistic of a tensor. `mean`, `norm`, `std` are accumulated in float64 whatever the dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Smallest element; NaN if any element is.
    Min,
    /// Largest element; NaN if any element is.
    Max,
    /// Arithmetic mean.
    Mean,
    /// Euclidean norm over all elements.
    Norm,
    /// Largest magnitude; NaN if any element is.
    AbsMax,
    /// Sample standard deviation (Bessel's correction, as `torch.std`); NaN below two elements.
    Std,
    /// Number of NaN elements.
    Nans,
    /// Number of infinite elements.
    Infs,
    /// Share of elements with a magnitude below `eps`, 0 to 1; NaN for an empty tensor.
    Zeros,
    /// Number of elements.
    Count,
    /// CRC-32 (zlib polynomial) of the contiguous little-endian bytes.
    Crc32,
    /// XOR of the contiguous bytes as little-endian 64-bit words, the tail padded with zeros.
    Xor64,
    /// The value itself if the tensor has no dimensions, else nothing.
    Id,
}

impl Statistic {
    /// Every statistic, in declaration order.
    pub const ALL: [Self; 13] = [
        Self::Min,
        Self::Max,
        Self::Mean,
        Self::Norm,
        Self::AbsMax,
        Self::Std,
        Self::Nans,
        Self::Infs,
        Self::Zeros,
        Self::Count,
        Self::Crc32,
        Self::Xor64,
        Self::Id,
    ];

    /// The name in configs and CSV headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Norm => "norm",
            Self::AbsMax => "absmax",
            Self::Std => "std",
            Self::Nans => "nans",
            Self::Infs => "infs",
            Self::Zeros => "zeros",
            Self::Count => "count",
            Self::Crc32 => "crc32",
            Self::Xor64 => "xor64",
            Self::Id => "id",
        }
    }

    /// The statistic of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|statistic| statistic.name() == name)
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of [`Statistic`]s: what one pass is asked for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StatisticSet(u16);

impl StatisticSet {
    /// Nothing.
    pub const EMPTY: Self = Self(0);

    /// Whether the set holds this statistic.
    pub const fn contains(self, statistic: Statistic) -> bool {
        self.0 & (1 << statistic as u16) != 0
    }

    /// The set with this statistic added.
    #[must_use]
    pub const fn with(self, statistic: Statistic) -> Self {
        Self(self.0 | (1 << statistic as u16))
    }

    /// Everything in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set as a number: what [`from_bits`](Self::from_bits) takes.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The set of that number; bits that are no statistic are left out.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & ((1 << Statistic::ALL.len()) - 1))
    }

    /// Whether nothing is asked for.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members in declaration order.
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
