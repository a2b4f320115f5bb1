//! The types of a record: the statistics of a tensor, its name, and the counts of records on their way.
//!
//! A crate separate from `trainmon-core`, which re-exports it: a step uses only these few types, which are compiled for
//! speed, and not the config, which is most of the core.

mod alert;
mod alert_marks;
mod alert_text;
mod alert_totals;
mod causes;
mod collective;
mod collective_totals;
mod dtype;
mod figures;
mod id;
mod kind;
mod ledger;
mod lines;
mod named;
mod naming;
mod norm_check;
pub mod number;
mod open_collectives;
mod part_table;
mod python_float;
mod reading;
mod record;
mod shape;
mod statistic;
mod step_calls;
mod tensors;
mod view;

pub use alert::{
    ALERTS_FILE, Alert, AlertEnd, AlertPhase, AlertRule, AlertScope, AlertSeries, AlertSeverity, AlertSignal,
    DIGITS as ALERT_DIGITS, Expectation, FirstMove, INCIDENT_STEPS, Incident,
};
pub use alert_marks::{AlertMark, AlertMarks};
pub use alert_totals::{AlertTotals, AlertTotalsSnapshot};
pub use causes::with_causes;
pub use collective::{CollectiveOp, CollectiveTiming, ProcessGroup};
pub use collective_totals::{CollectiveSeries, CollectiveSummary, CollectiveTotals, Straggler};
pub use dtype::Dtype;
pub use figures::{quoted_name, short, shown_name};
pub use id::{LATEST_RUN, MicroStep, RUN_FILE, Rank, RunFile, RunInfo, Step, TensorId};
pub use kind::Kind;
pub use ledger::{DropReason, Ledger, LedgerSnapshot, SinkLedger, SinkSnapshot};
pub use lines::end_of_last_line;
pub use naming::{CALL_MARK, Group, MAX_LAYER_BYTES, layer_of};
pub use norm_check::{GRAD_NORM_TOLERANCE, GradNormCheck};
pub use open_collectives::{OpenCollective, OpenCollectives, OpenSlot};
pub use part_table::{Content, HeldPart, ParameterParts, PartTable, Share};
pub use python_float::{python_float, write_python_float};
pub use reading::{Reading, Scalar, TensorStats, Values};
pub use record::Record;
pub use shape::{MAX_DIMS, Shape, ShapeError};
pub use statistic::{Statistic, StatisticSet};
pub use step_calls::{CallsColumn, StepCalls};
pub use tensors::{TensorInfo, TensorTable};
pub use view::{Element, TensorView, ViewError};
