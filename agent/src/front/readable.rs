//! Tensors as a front provides them.

use std::convert::Infallible;
use std::fmt::Display;

use trainmon_core::TensorView;

/// A host tensor of a front.
pub trait Readable {
    /// The reason why its memory cannot be read.
    type Unreadable: Display;

    /// The memory, to be read immediately. It must not be written while the view lives.
    ///
    /// # Errors
    /// The memory cannot be viewed.
    fn view(&self) -> Result<TensorView<'_>, Self::Unreadable>;

    /// The number of writes that torch counted; `None` if it does not count them.
    fn version(&self) -> Option<i64>;

    /// Runs `body`, which reads this many elements. For many elements, a front releases a lock that other threads need.
    fn run<R: Send>(&self, _elements: usize, body: impl FnOnce() -> R + Send) -> R {
        body()
    }
}

/// Readable memory whose writes are not counted.
impl Readable for TensorView<'_> {
    type Unreadable = Infallible;

    fn view(&self) -> Result<TensorView<'_>, Infallible> {
        Ok(*self)
    }

    fn version(&self) -> Option<i64> {
        None
    }
}

/// The location of a tensor, as a front finds it.
#[derive(Clone, Copy, Debug)]
pub enum Found<T> {
    /// In host memory.
    Here(T),
    /// On a device, and already queued to be measured there.
    Queued,
    /// There is no tensor, for example for an output without gradient.
    Missing,
}
