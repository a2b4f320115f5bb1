//! msprobe's own tables, cell for cell: its columns, formulas, texts and results.
//!
//! The default table is right where this one is wrong; this module is for scripts that read msprobe's tables.
//! `docs/proof/compare-msprobe.md` lists the differences and their reasons.

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
pub use table::{Table, graph_rows, table};
