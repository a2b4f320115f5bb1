//! Statistics of every tensor on a GPU: one read of the memory, and two launches however many tensors there are.
//!
//! # The life of a launch
//!
//! 1. [`Tables`] takes a [`Row`] per tensor: address, elements, dtype and requested statistics. It cuts the tensors into
//!    chunks and caches the tables: while the addresses are unchanged, it writes nothing and sends nothing to the device.
//! 2. [`Kernels`] launches `partial` with a block of threads per chunk, once more for rows of two tensors, and then `join`
//!    with a block per row, on the caller's stream. The host does not wait for them.
//!
//!    A single tensor, as a hook receives it, needs no table: [`One`] writes its words with a launch.
//! 3. The result is a row of eight float64 per tensor, in the columns of `trainmon_agent::front::DeviceColumn`.
//!
//! # The kernels
//!
//! The kernels are written in Triton and compiled ahead of time to PTX for compute capability 8.0. The driver compiles the PTX
//! for any newer card. `kernels/reductions.py` computes the statistics and reads elements of every dtype through
//! `kernels/elements.py`. `kernels/fingerprint.py` computes fingerprints, `kernels/copies.py` copies parameters, and
//! `kernels/one.py` writes single rows. `cargo xtask device-kernels` generates the texts in `kernels/compiled`; a test
//! regenerates and compares them.
//!
//! Reasons for this design:
//!
//! * **Triton at run time** requires Triton, a C compiler and Python's headers on the user's machine, and slim containers lack
//!   them. It compiles for seconds in the first step on every new machine and differs between releases (torch 2.1 came
//!   with Triton 2.1). It costs about 30 µs of Python per launch and does not work with tch. Compiled ahead of time, the same
//!   code runs everywhere, from torch 2.1 on. It needs only [`driver`](self): nine driver functions, unchanged since CUDA 7.
//! * **NVRTC** is a library of 50 to 90 MiB that is not always installed and whose version must match. Its C++ cannot run
//!   without a device, whereas Triton's interpreter runs these kernels on the CPU for the tests.
//! * **`CubeCL`** would add a second runtime with its own allocator and streams beside torch's, and also compiles at run
//!   time.
//! * **Cubins** would save the driver's compilation: a second or two at the first launch on a machine, cached on disk
//!   afterwards. They need one binary of 220 KB per architecture, and a release for every new card.
//! * **`ROCm`**: the kernels compile for it, which a test checks. trainmon does not launch them there, because they
//!   have not been run on such a card yet.

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
