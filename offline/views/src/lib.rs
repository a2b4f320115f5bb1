//! A run looked at, finished or at work: `trainmon plot`, `report` and `top`.
//!
//! ```text
//! trainmon-runs: batches of a rank ─▶ rank_history: trainmon-history ─▶ plot: a page or a picture
//!                                                                    ├▶ report: what moved, in bounded size
//!                                                                    └▶ top: a terminal
//! ```

#![forbid(unsafe_code)]

pub mod plot;
mod rank_history;
pub mod report;
pub mod top;

pub use self::rank_history::RankHistory;
