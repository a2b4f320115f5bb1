//! The Rust front of trainmon: watches a training loop written with tch.
//!
//! It has four parts:
//!
//! - [`Watch`] hooks the gradients of a `VarStore`'s variables, wraps modules ([`Watched`]), and makes the optimizer's
//!   step with measurements before and after it.
//! - [`Optimizer`] is libtorch's optimizer, like tch's, but you can read, save and load its state.
//! - [`DeviceStatistics`] measures tensors on a device without copying them to the host.
//! - [`Capture`] records the inputs and outputs of every operator of a step.
//!
//! The feature `mpi` adds the module `mpi`, for jobs whose processes communicate over MPI.
//!
//! The C++ shim in `shim/` provides what tch lacks: the optimizers' state, gradient hooks, device events and observers
//! of operators. All calls into it are in `ffi`. Measuring never writes to a tensor, adds a node to the graph, or waits
//! for a device.

mod capture;
mod device;
mod ffi;
mod moments;
#[cfg(feature = "mpi")]
pub mod mpi;
mod names;
mod optimizer;
mod watch;

pub use capture::{Capture, CaptureBeginError, CaptureOptions};
#[doc(hidden)]
pub use device::Launch;
pub use device::{DeviceStatistics, InFlight, KernelStatistics, LibtorchStatistics};
pub use moments::MomentSource;
pub use optimizer::{
    Adagrad, CheckpointError, GroupOptions, Optimizer, OptimizerConfig, OptimizerError, OptimizerKind, Settings,
};
pub use trainmon_agent::Monitor;
pub use trainmon_agent::front::{DeviceColumn, DevicePlan, DeviceRow};
/// Plans, places and notices of captures.
pub use trainmon_capture;
pub use watch::{Observer, Watch, WatchBuilder, WatchError, Watched, WatchedT};
