//! A reading that can be used twice: a tensor nobody wrote to since need not be read again.

use trainmon_core::TensorStats;
use trainmon_stats::Request;

/// The last reading of one tensor. `C` says what the tensor held then: equal contents have equal readings.
#[derive(Clone, Copy, Debug)]
pub struct CachedReading<C>(Option<(C, Request, TensorStats)>);

impl<C> Default for CachedReading<C> {
    fn default() -> Self {
        Self(None)
    }
}

impl<C: PartialEq> CachedReading<C> {
    /// The reading, if the tensor still has these contents and the same is asked for. `None` too where the contents cannot
    /// be told.
    pub fn recall(&self, contents: Option<&C>, request: Request) -> Option<TensorStats> {
        let (then, asked, reading) = self.0.as_ref()?;
        (*asked == request && contents == Some(then)).then_some(*reading)
    }

    /// The contents are those of the reading from now on. Remembers nothing where they cannot be told.
    pub fn remember(&mut self, contents: Option<C>, request: Request, reading: TensorStats) {
        self.0 = contents.map(|contents| (contents, request, reading));
    }

    /// The next reading is taken anew.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}
