//! One pass over a tensor's memory gives every statistic asked for.

mod checksum;
mod finish;
mod float_env;
mod floor;
mod isa;
mod kernel;
mod layout;
mod measure;
mod pair;
mod partial;
mod pool;

#[doc(hidden)]
pub use floor::read_only_pass;
#[doc(hidden)]
pub use isa::Isa;
pub use layout::copy_contiguous;
pub use measure::measure;
pub use pair::{difference, sign_agreement};
pub use pool::{set_threads, threads};

use trainmon_core::StatisticSet;

/// What one pass is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// The statistics wanted; the pass may give more.
    pub statistics: StatisticSet,
    /// The magnitude below which an element counts as zero.
    pub eps: f64,
}
