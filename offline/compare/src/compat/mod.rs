//! msprobe's own tables, cell for cell: its columns, formulas, texts and verdicts.
//!
//! Where its answer is wrong the default table is right; this room is for scripts that read the old one.
//! `docs/compare.md` lists what differs between the two and why.

mod cell;
mod columns;
mod distances;
mod first_difference;
mod json;
mod row;
mod statistics;
mod table;
mod verdict;

pub use cell::{Cell, Texts};
pub use columns::{Mode, headers};
pub(crate) use first_difference::search;
pub use first_difference::{RankDifferences, analyze, differences};
pub use json::dumps;
pub(crate) use json::text;
pub use row::Row;
pub use table::{Table, table};
