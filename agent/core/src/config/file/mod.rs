//! The config file as written, one type per object.
//!
//! These types are the only list of keys. Some are part of the effective config too: the outputs
//! ([`Prometheus`](super::Prometheus) and the like), [`Window`](super::Window), [`General`](super::General),
//! [`Pipeline`](super::Pipeline) and [`Signal`](super::Signal). Their doc comments, defaults, ranges and `x-` marks become the
//! JSON Schema. The schema drives the checks ([`super::check`]) and the reference page. The marks:
//!
//! - `x-not-implemented`: switching the key on is an error, or a warning if a training starts with the file;
//! - `x-no-effect`: the reason why a known key has no effect; giving it is a warning;
//! - `x-msprobe`: the difference from msprobe's key; `not in msprobe` or `not in msprobe; <what it does instead>` if there is none;
//! - `x-secret`: messages never quote the value;
//! - `x-hint`: the hint if the value is refused.

mod alert;
mod common;
mod v1;
mod v2;

pub(super) use alert::{AlertAction, AlertArgsFile, AlertFile, AlertOnFile, AlertRuleFile, GoldenPaths, SignalNames};
pub(super) use common::{CommonFile, Format};
pub(super) use v1::{CollectivesFile, FeatureTargetsFile, V1File};
pub(super) use v2::{CcFile, RankFile, V2File};
