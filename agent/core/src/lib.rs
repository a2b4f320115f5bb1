//! The vocabulary every other crate of trainmon speaks.
//!
//! No I/O, no async runtime, no torch, no Python. A [`TensorView`] borrows a tensor's memory, a [`Reading`] is what
//! one pass over it found, a [`StepBatch`] carries one step's readings from the hooks to the exporters, and the
//! [`Ledger`] counts every record that got lost on the way.

mod activation;
mod alert;
mod alert_book;
mod batch;
pub mod catalog;
mod causes;
mod collective;
mod collective_book;
mod columns;
pub mod config;
mod dtype;
mod id;
mod kind;
mod ledger;
mod lines;
mod naming;
mod norm_check;
pub mod number;
mod open_collectives;
mod python_float;
mod reading;
mod shape;
mod statistic;
mod step_calls;
mod summary;
mod tensors;
mod view;

pub use activation::{ModuleEnd, activation_name};
pub use alert::{
    Alert, AlertPhase, AlertRule, AlertScope, AlertSeries, AlertSeverity, AlertSignal, Expectation, FirstMove,
};
pub use alert_book::{AlertBook, AlertBookSnapshot};
pub use batch::{GradNorm, Phase, PhaseTimes, Record, StepBatch};
pub use causes::with_causes;
pub use collective::{CollectiveOp, CollectiveTiming, ProcessGroup};
pub use collective_book::{CollectiveBook, CollectiveSeries, CollectiveSummary, Straggler};
pub use columns::{is_number_column, micro_step_column};
pub use dtype::Dtype;
pub use id::{LATEST_RUN, MicroStep, RUN_FILE, Rank, RunFile, RunInfo, Step, TensorId};
pub use kind::Kind;
pub use ledger::{DropReason, Ledger, LedgerSnapshot, SinkLedger, SinkSnapshot};
pub use lines::end_of_last_line;
pub use naming::{Group, MAX_LAYER_BYTES, layer_of};
pub use norm_check::{GRAD_NORM_TOLERANCE, GradNormCheck};
pub use open_collectives::{OpenCollective, OpenCollectives, OpenSlot};
pub use python_float::{python_float, write_python_float};
pub use reading::{Reading, Scalar, TensorStats, Values};
pub use shape::{MAX_DIMS, Shape, ShapeError};
pub use statistic::{Statistic, StatisticSet};
pub use step_calls::{CallsColumn, StepCalls};
pub use summary::{combine_norms, largest};
pub use tensors::{TensorInfo, TensorTable};
pub use view::{Element, TensorView, ViewError};
