//! What a front finds of a tensor.

use std::convert::Infallible;
use std::fmt::Display;

use trainmon_core::TensorView;

/// A host tensor, as a front finds it.
pub trait Readable {
    /// Why its memory cannot be read.
    type Unreadable: Display;

    /// The memory, to be read now: nobody writes it while the view lives.
    ///
    /// # Errors
    /// It is no memory that a view can be of.
    fn view(&self) -> Result<TensorView<'_>, Self::Unreadable>;

    /// How often torch wrote into the tensor; `None` where it does not count.
    fn version(&self) -> Option<i64>;

    /// Runs what reads this many elements. A front that holds what other threads need gives it away if that is long.
    fn run<R: Send>(&self, _elements: usize, body: impl FnOnce() -> R + Send) -> R {
        body()
    }
}

/// Memory that is known to be readable, and whose writes nobody counts.
impl Readable for TensorView<'_> {
    type Unreadable = Infallible;

    fn view(&self) -> Result<TensorView<'_>, Infallible> {
        Ok(*self)
    }

    fn version(&self) -> Option<i64> {
        None
    }
}

/// Where a front found what it was to show.
#[derive(Clone, Copy, Debug)]
pub enum Found<T> {
    /// In host memory.
    Here(T),
    /// On a device, whose queue has it now.
    Queued,
    /// Nowhere: there is no tensor (an output without gradient).
    Missing,
}
