//! The config file: one JSON document in one of two dialects, read into one [`Config`].
//!
//! ```text
//! text ─▶ source: tree with positions ─▶ check: against the schema ─▶ file: typed ─▶ normalise ─▶ Config
//!                                           ▲
//!                                    schema: generated from file
//! ```

mod alert;
mod check;
mod collectives;
mod diagnostic;
mod effective;
mod file;
mod normalise;
mod otlp;
mod parse;
mod plan;
mod report;
mod schema;
mod similar;
mod source;
mod targets;
mod time_tag;

pub use alert::{AlertActions, Alerting, Command, Rule, RuleArgs, Webhook};
pub use diagnostic::{ConfigErrors, Diagnostic, DiagnosticKind};
pub use effective::{
    Activations, AttentionOrder, Collectives, Config, Control, Csv, DEFAULT_QUEUE_STEPS, DEFAULT_SHUTDOWN_TIMEOUT_MS,
    Dialect, Features, FrontTask, Journal, Pipeline, Prometheus, Signal, TargetRule, Targets, TensorBoard, WeightGrad,
    Window,
};
pub use normalise::DYNAMIC_VARIABLE;
pub use otlp::{Otlp, OtlpCompression, OtlpProtocol, Secret};
pub use parse::Parsed;
pub use plan::{Plan, PlanChange, SignalName};
pub use schema::json_schema;
pub use targets::squash_name;
pub use time_tag::{TimeTag, TimeTagError, TimeWindow};
