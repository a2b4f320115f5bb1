//! Statistics of every tensor on a GPU: one read of the memory, and two launches however many tensors there are.
//!
//! # The life of a launch
//!
//! 1. [`Tables`] is given a [`Row`] per tensor: address, elements, dtype, what is asked. It cuts them into chunks and knows
//!    the tables it has made: while addresses stay, nothing is written and nothing is sent to the device.
//! 2. [`Kernels`] launches `partial` with a block of threads per chunk, once more for rows of two tensors, and then `join`
//!    with a block per row, on the stream the caller names. Nobody waits for them.
//!
//!    A single tensor, as hooks show them, needs no table: [`One`] has its words written by a launch.
//! 3. What they find is a row of eight float64 per tensor, in the columns of `trainmon_agent::front::DeviceColumn`.
//!
//! # The kernels
//!
//! They are written in Triton and compiled beforehand to PTX for compute capability 8.0, which the driver compiles on for any
//! newer card. `kernels/reductions.py` says how they count, and `kernels/elements.py` reads elements of every dtype for it;
//! `kernels/fingerprint.py` and `kernels/copies.py` have the kernels for fingerprints and for copies of parameters,
//! `kernels/one.py` that for single rows. The
//! texts in `kernels/compiled` are made by `cargo xtask device-kernels`; a test makes them anew and compares.
//!
//! Why so, and not otherwise:
//!
//! * **Triton at run time** needs Triton, a C compiler and Python's headers at the user's (slim containers have neither),
//!   compiles for seconds in the first step of every new machine, differs from release to release (torch 2.1 came with
//!   Triton 2.1), costs some 30 µs of Python per launch, and gives tch nothing. Compiled beforehand, the same bits run
//!   everywhere, from torch 2.1 on, for the price of [`driver`](self): ten functions of the driver that have been the same
//!   since CUDA 4.
//! * **NVRTC** is a library of 50 to 90 MiB that is not always there, has a version of its own to agree with, and its
//!   C++ cannot be run without a device: Triton's interpreter runs these very kernels on the CPU, which is how they are
//!   tested.
//! * **`CubeCL`** would bring a runtime with an allocator and streams of its own into the process beside torch's, and
//!   compiles at run time, too.
//! * **Cubins** would save the driver's compiler, a second or two at the first launch on a machine (it keeps the result on
//!   disk), for one binary per architecture, 220 KB each, and a release for every new card.
//! * **`ROCm`**: the kernels compile for it, and a test looks that they do; nothing is launched there until one has run.

mod cache;
mod code;
mod driver;
mod kernels;
mod table;

pub use cache::{Table, Tables};
#[doc(hidden)]
pub use driver::Api;
pub use kernels::{Factor, Kernels, LaunchError, One, Statistics, Words};
pub use table::{CHUNK, FOUND_COLUMNS, Row, Shows, Spread};
