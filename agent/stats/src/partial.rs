//! Partial results of a pass, and how two of them are merged.

/// A float64 sum with Neumaier compensation, for the few thousand block sums of a large tensor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    total: f64,
    lost: f64,
}

impl Sum {
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        let next = self.total + value;
        self.lost +=
            if self.total.abs() >= value.abs() { (self.total - next) + value } else { (value - next) + self.total };
        self.total = next;
    }

    #[inline]
    pub(crate) fn merge(&mut self, other: &Self) {
        self.add(other.total);
        self.lost += other.lost;
    }

    /// Returns the sum. If the total is not finite, the compensation is meaningless (NaN) and is ignored.
    #[inline]
    pub(crate) fn value(self) -> f64 {
        if self.total.is_finite() { self.total + self.lost } else { self.total }
    }
}

/// The sums and extremes of a block of floats, before NaN and infinities are counted.
pub(crate) struct Totals {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) sum: f64,
    pub(crate) squares: f64,
    pub(crate) zeros: u64,
}

/// A number type that stores extremes.
pub(crate) trait Extreme: Copy + PartialOrd + Send + Sync + 'static {
    /// At or above every value.
    const TOP: Self;
    /// At or below every value.
    const BOTTOM: Self;
}

impl Extreme for f64 {
    const TOP: Self = Self::INFINITY;
    const BOTTOM: Self = Self::NEG_INFINITY;
}

impl Extreme for i64 {
    const TOP: Self = Self::MAX;
    const BOTTOM: Self = Self::MIN;
}

impl Extreme for u64 {
    const TOP: Self = Self::MAX;
    const BOTTOM: Self = Self::MIN;
}

/// The results of one pass over a number of elements. Extremes skip NaN; `nans` counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partial<E> {
    pub(crate) min: E,
    pub(crate) max: E,
    pub(crate) sum: Sum,
    pub(crate) squares: Sum,
    pub(crate) nans: u64,
    pub(crate) infs: u64,
    pub(crate) zeros: u64,
}

impl<E: Extreme> Partial<E> {
    const NOTHING: Self = Self {
        min: E::TOP,
        max: E::BOTTOM,
        sum: Sum { total: 0.0, lost: 0.0 },
        squares: Sum { total: 0.0, lost: 0.0 },
        nans: 0,
        infs: 0,
        zeros: 0,
    };

    #[inline]
    pub(crate) fn include(&mut self, min: E, max: E) {
        if min < self.min {
            self.min = min;
        }
        if max > self.max {
            self.max = max;
        }
    }

    /// Adds the sums and the number of zeros of a block.
    #[inline]
    pub(crate) fn add_sums(&mut self, found: &Totals) {
        self.sum.add(found.sum);
        self.squares.add(found.squares);
        self.zeros += found.zeros;
    }

    /// Adds the results of the elements that follow.
    pub(crate) fn merge(&mut self, next: &Self) {
        self.include(next.min, next.max);
        self.sum.merge(&next.sum);
        self.squares.merge(&next.squares);
        self.nans += next.nans;
        self.infs += next.infs;
        self.zeros += next.zeros;
    }
}

impl<E: Extreme> Default for Partial<E> {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl Partial<f64> {
    /// Adds all results of a block of floats.
    #[inline]
    pub(crate) fn include_totals(&mut self, found: &Totals) {
        self.include(found.min, found.max);
        self.add_sums(found);
    }
}
