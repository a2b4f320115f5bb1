//! The config file as it is written, one type per object.
//!
//! These types, and those that are the effective config's too ([`Prometheus`](super::Prometheus) and its like, which say how an
//! output is to be, [`Window`](super::Window), [`General`](super::General), [`Pipeline`](super::Pipeline), and
//! [`Signal`](super::Signal)), are the only list of keys. Their doc comments, defaults, ranges and `x-` marks become the JSON Schema;
//! the schema drives the checks ([`super::check`]) and the reference page. The marks:
//!
//! - `x-not-implemented`: switching it on is an error, but a warning where a training starts with the file;
//! - `x-no-effect`: understood, has no effect, and why; giving it is a warning;
//! - `x-msprobe`: how this differs from msprobe's key;
//! - `x-secret`: its value is never quoted;
//! - `x-hint`: what to do when the value is refused.

mod alert;
mod common;
mod v1;
mod v2;

pub(super) use alert::{AlertAction, AlertArgsFile, AlertFile, AlertOnFile, AlertRuleFile, GoldenPaths, SignalNames};
pub(super) use common::{CommonFile, Format};
pub(super) use v1::{CollectivesFile, FeatureTargetsFile, V1File};
pub(super) use v2::{CcFile, RankFile, V2File};
