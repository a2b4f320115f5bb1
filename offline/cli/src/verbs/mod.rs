//! The verbs: the arguments of each, and the call that executes it.

pub(crate) mod alerts;
pub(crate) mod anomaly;
pub(crate) mod check_config;
pub(crate) mod checkpoint;
pub(crate) mod compare;
pub(crate) mod compare_runs;
pub(crate) mod convert;
pub(crate) mod ctl;
mod files;
pub(crate) mod graph;
mod log_columns;
pub(crate) mod merge;
pub(crate) mod merge_ranks;
pub(crate) mod overflow;
pub(crate) mod parse;
pub(crate) mod plot;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod top;
mod what_was_read;
