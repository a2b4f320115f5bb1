//! The Rust front of trainmon: watches a training loop written with tch.
//!
//! Four rooms:
//!
//! - [`Watch`] is what a loop holds: it hooks the gradients of a `VarStore`'s variables, wraps modules ([`Watched`]) and
//!   makes the optimizer's step, measuring around it;
//! - [`Optimizer`] is libtorch's, as tch's own, with its state in reach: shown, saved, loaded;
//! - [`DeviceStatistics`] measures tensors where they lie, when that is not the host's memory;
//! - [`Capture`] records what every operator of a step takes in and gives out.
//!
//! With the feature `mpi` a fifth one, `mpi`, for jobs whose processes talk over MPI.
//!
//! The C++ shim in `shim/` reaches what tch does not: the optimizers' state, gradient hooks, device events, observers of operators. All calls into
//! it are in `ffi`. Nothing here writes to a tensor, adds a node to the graph, or waits for a device.

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
/// What a capture is made with: its plan, its place, its words.
pub use trainmon_capture;
pub use watch::{Observer, Watch, WatchBuilder, WatchError, Watched, WatchedT};
