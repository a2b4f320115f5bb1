//! The config file: one JSON document in one of two dialects, read into one [`Config`].
//!
//! ```text
//! text ─▶ source: tree with positions ─▶ check: against the schema ─▶ file: typed ─▶ normalise ─▶ Config
//!                                           ▲
//!                                    schema: generated from file
//! ```

mod alert;
mod capture;
mod capture_order;
mod check;
mod collectives;
mod control;
mod diagnostic;
mod effective;
mod file;
mod general;
mod idle;
mod journal;
mod normalise;
mod on_demand;
mod ops;
mod otlp;
mod parse;
mod parse_capture;
mod places;
mod plan;
mod prometheus;
mod report;
mod schema;
mod signals;
mod similar;
mod source;
mod targets;
mod tensorboard;
mod time_tag;
mod tracker;
mod unmatched;
mod window;

pub use alert::{AlertActions, Alerting, Command, Rule, RuleArgs, Webhook};
pub use capture::{
    CaptureConfig, CaptureFiles, CaptureLevel, CaptureTask, DataMode, NumberRanges, NumberRangesError, Precision,
    RiskLevel, Slice, Summary, TensorFormat,
};
pub use capture_order::CaptureOrder;
pub use control::Control;
pub use diagnostic::{ConfigErrors, Diagnostic, DiagnosticKind};
pub use effective::{
    AttentionOrder, Collectives, Config, Csv, Dialect, Features, FileLayout, FrontTask, TargetRule, Targets,
};
pub use general::{General, Pipeline};
pub use journal::Journal;
pub use normalise::DYNAMIC_VARIABLE;
pub use on_demand::{CaptureOnDemand, CaptureRequest, DemandLevel, DemandTask};
pub use otlp::{Otlp, OtlpCompression, OtlpProtocol, Secret};
pub use parse::{Parsed, USUAL_CONFIG};
pub use parse_capture::{CaptureDialect, ParsedCapture};
pub use plan::{Plan, PlanChange};
pub use prometheus::Prometheus;
pub use schema::json_schema;
pub use signals::{Activations, Signal, SignalChange, SignalSwitches, Signals, WeightGrad};
pub use similar::did_you_mean;
pub use targets::squash_name;
pub use tensorboard::TensorBoard;
pub use time_tag::{TimeTag, TimeTagError, TimeWindow};
pub use tracker::{Mlflow, Tracker, TrackerLayers, Wandb};
pub use unmatched::{UnmatchedTarget, unmatched_targets};
pub use window::{Window, WindowChange};
