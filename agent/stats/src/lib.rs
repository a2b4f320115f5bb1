//! Computes all requested statistics of a tensor in one pass over its memory.
//!
//! # Steps of a measurement
//!
//! 1. A [`TensorView`](trainmon_core::TensorView) arrives: pointer, dtype, shape, strides. The thread's floating-point
//!    environment is checked and, if the host flushes subnormals or traps, set to the default until the call returns.
//! 2. The layout is normalised: sizes of 1 and expanded (stride 0) dimensions vanish, the others are sorted by stride and
//!    merged. A contiguous, a transposed and an expanded tensor all become long runs of memory, each read once.
//! 3. From 2^18 elements on, the work is split into at most 64 shards for a few threads ([`threads`]). They are the
//!    host's own OpenMP team where torch has one, else a small pool whose parked threads are woken from 2^20 elements on.
//!    The split depends only on the tensor, and results are merged in order, so they are the same bits for any number of
//!    threads.
//! 4. Runs are folded in blocks of at most 4096 elements; short or strided runs are packed into a block on the stack
//!    first. The kernels (AVX-512, AVX2, or portable code) are chosen at run time; `TRAINMON_CPU=avx2` or `portable` in
//!    the environment forbids better ones. They widen to float64 for every sum and agree bit for bit. A block with a
//!    nonfinite sum is read again, from the cache, to count its NaN and infinities. Checksums of a contiguous tensor are
//!    computed block by block in the same pass.
//! 5. Block sums are added with compensation, and the [`TensorStats`](trainmon_core::TensorStats) is filled.
//!
//! # Semantics
//!
//! The same as torch's, with sums in float64:
//!
//! * A NaN anywhere makes `min`, `max`, `abs_max`, `mean`, `norm` and `std` NaN. Infinities make `norm` infinite, `mean`
//!   infinite or (both signs) NaN, `std` NaN.
//! * `zeros` counts |x| < eps, strictly, compared in float32 for float32 and narrower, in float64 for float64. NaN is not
//!   a zero. Integers and bool (0 and 1) are compared exactly.
//! * Complex tensors are measured by magnitude, which is NaN if either part is.
//! * Squares of float64 below its normal range (of magnitudes below 2^-511) count as 0: norms never use sums that small.
//! * An empty tensor gives [`TensorStats::empty`](trainmon_core::TensorStats::empty).
//! * The CRC-32 and the XOR are those of the contiguous little-endian bytes in logical order.
//!
//! # Cost
//!
//! One read of the memory, no allocation, no lock beyond the pool's own. `cargo bench -p trainmon-stats` prints times and
//! their ratios to a read-only pass. Only these cases need a second read:
//!
//! * `std` is requested and the variance is below 1e-7 of the mean square: a centred pass avoids cancellation;
//! * float64 or complex128 values whose squares overflow, or none above 1e-140: a scaled pass for the norm;
//! * checksums and the copy of a tensor that is not contiguous: they need logical order, with expanded elements repeated.

mod checksum;
mod copy;
mod fingerprint;
mod finish;
mod floor;
mod fp_env;
mod isa;
mod kernel;
mod layout;
mod many;
mod measure;
mod pair;
mod partial;
mod pool;
mod sample;
mod sync;
mod team;

pub use copy::{contiguous_bytes, copy_contiguous};
pub use fingerprint::{fingerprint, fingerprints};
#[doc(hidden)]
pub use floor::read_only_pass;
#[doc(hidden)]
pub use isa::Isa;
pub use many::measure_all;
pub use measure::{measure, measure_and_copy};
pub use pair::{difference, sign_agreement};
pub use pool::{set_threads, start_threads, threads, with_at_most};
pub use sample::sample;

use trainmon_core::StatisticSet;

/// The statistics requested from one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// The requested statistics; the pass may compute more.
    pub statistics: StatisticSet,
    /// The magnitude below which an element counts as zero.
    pub eps: f64,
}
