//! The history of a run in limited memory, for the live page, a page in a file, the terminal view and the report.
//!
//! A [`History`] is filled step by step from batches, or afterwards from a run's files. It is read as documents
//! ([`Overview`], [`Tail`], [`HeatMap`]) that are the same for all readers.

#![forbid(unsafe_code)]

mod axis;
mod curve;
pub mod curves;
mod document;
mod fill;
mod history;
mod level;
mod numbers;
mod read;
mod rows;

pub use axis::{Axis, Bin};
pub use document::{
    AxisDocument, AxisState, CollectiveDocument, CostDocument, Cursor, CurveDocument, HeatMap, KindDocument,
    LedgerDocument, Overview, QueueDocument, RunDocument, SinkDocument, Status, Tables, Tail, TensorState, VERSION,
};
pub use fill::{HistoryFiller, StepFigures, unix_seconds};
pub use history::{CurveId, History, Limits};
pub use rows::{ABSENT, Cell, NO_CELL, RowId, STATISTICS, statistics_of};
