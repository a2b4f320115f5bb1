//! The classes `ParsedConfig`, `Settings` and `FeatureTargets`: a parsed config, and the part of the effective one that
//! hooks need.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde_json::{Map, Value};
use trainmon_agent::ConfigFile;
use trainmon_agent::core::AlertRule;
use trainmon_agent::core::config::{self, CaptureOnDemand, Config, Dialect, Parsed};

use crate::config_error::{ConfigError, config_error, with_hint};

/// Returns an environment variable; an empty one counts as unset.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A parsed config.
#[pyclass(frozen, name = "ParsedConfig", module = "trainmon._trainmon")]
pub(crate) struct PyConfig {
    pub(crate) parsed: Parsed,
    /// The file to watch, if there is one.
    pub(crate) watched: Option<ConfigFile>,
}

// _trainmon.pyi declares the signatures.
#[pymethods]
impl PyConfig {
    #[new]
    #[pyo3(signature = (text, *, file = "config", is_path = false, over = None, like_msprobe = false))]
    fn new(text: &str, file: &str, is_path: bool, over: Option<&str>, like_msprobe: bool) -> PyResult<Self> {
        let over: Option<Map<String, Value>> = over.map(serde_json::from_str).transpose().map_err(|error| {
            ConfigError::new_err(format!("keyword arguments: {error}\nhint: use values that a config file can contain"))
        })?;
        let parsed = match &over {
            Some(over) => Config::parse_over(text, over, file, &variable),
            None if like_msprobe => Config::parse_for_msprobe(text, file, &variable),
            None => Config::parse_for_training(text, file, &variable),
        };
        let parsed = parsed.map_err(|errors| config_error(&errors))?;
        let watched = is_path.then(|| ConfigFile { path: file.into(), over: over.unwrap_or_default() });
        Ok(Self { parsed, watched })
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.parsed.warnings.iter().map(with_hint).collect()
    }

    #[getter]
    fn needs_agreement(&self) -> bool {
        self.parsed.config.joins_ranks()
    }

    #[getter]
    fn control_directory(&self) -> Option<PathBuf> {
        self.parsed.config.control.as_ref()?.directory.clone()
    }
}

/// The part of the effective config that hooks need.
#[pyclass(frozen, get_all, name = "Settings", module = "trainmon._trainmon")]
#[expect(clippy::struct_excessive_bools, reason = "switches of a config")]
pub(crate) struct PySettings {
    is_v2: bool,
    ranks: Vec<u32>,
    start_step: u64,
    step_interval: u64,
    squash_name: bool,
    like_msprobe: bool,
    every_micro_batch: bool,
    micro_batches: Option<u32>,
    forward: bool,
    backward: bool,
    print_struct: bool,
    stack_info: bool,
    is_live: bool,
    /// Whether captures may be requested, and whether by a signal: `None` if the config does not set it.
    has_captures: bool,
    capture_signal: Option<bool>,
    /// The number of latest steps that are kept for replay.
    kept_steps: u32,
    patch_optimizer_step: bool,
    features: Option<PyFeatureTargets>,
    /// The number of steps between replica checks; 0: never.
    replica_interval: u64,
    /// The rule `Stall`: a multiple of the usual step time, and seconds; `None` without the rule.
    stall: Option<(f64, f64)>,
    /// The rule `Straggler`: a share of the step; `None` without the rule.
    straggler: Option<f64>,
    /// Patterns of calling lines, and whether only stacks are requested; `None` if this rank measures no collectives.
    collectives: Option<(Vec<String>, bool)>,
    shutdown_timeout_s: f64,
}

impl PySettings {
    pub(crate) fn of(config: &Config, like_msprobe: bool, rank: u32) -> Self {
        let (weight_grad, activations) = (config.signals.weight_grad.as_ref(), config.signals.activations.as_ref());
        let is_v2 = config.dialect == Dialect::V2;
        let rule = |wanted| config.alert.rules.iter().find(|rule| rule.rule == wanted).map(|rule| rule.args);
        Self {
            is_v2,
            ranks: config.ranks.clone(),
            start_step: config.window.start_step,
            step_interval: config.window.step_interval,
            squash_name: config.squash_name,
            like_msprobe: like_msprobe || is_v2,
            every_micro_batch: weight_grad.is_some_and(|grad| grad.every_micro_batch),
            micro_batches: weight_grad.and_then(|grad| grad.micro_batches),
            forward: activations.is_some_and(|wanted| wanted.forward),
            backward: activations.is_some_and(|wanted| wanted.backward),
            print_struct: config.print_struct,
            stack_info: config.stack_info,
            is_live: config.control.is_some() || config.dynamic_on.is_some(),
            has_captures: config.capture.is_some(),
            capture_signal: config.capture.as_ref().and_then(|capture| capture.signal),
            kept_steps: config.capture.as_ref().map_or(0, CaptureOnDemand::kept_steps),
            patch_optimizer_step: config.patch_optimizer_step.unwrap_or(true),
            features: config.features.as_ref().map(PyFeatureTargets::of),
            replica_interval: config.general.replica_interval,
            stall: rule(AlertRule::Stall).map(|args| (args.threshold.unwrap_or_default(), args.seconds)),
            straggler: rule(AlertRule::Straggler).and_then(|args| args.threshold),
            collectives: config
                .collectives
                .as_ref()
                .filter(|collectives| collectives.includes(rank))
                .map(|collectives| (collectives.code_lines.clone(), collectives.log_only)),
            shutdown_timeout_s: config.pipeline.shutdown_timeout_ms as f64 / 1000.0,
        }
    }
}

/// The modules of each level-2 feature.
#[pyclass(frozen, get_all, name = "FeatureTargets", module = "trainmon._trainmon")]
#[derive(Clone)]
pub(crate) struct PyFeatureTargets {
    attention: Option<Vec<String>>,
    linear: Option<Vec<String>>,
    router_weight: Option<Vec<String>>,
    router_logit: Option<Vec<String>>,
    order: &'static str,
}

impl PyFeatureTargets {
    fn of(features: &config::Features) -> Self {
        let config::Features { attention, linear, router_weight, router_logit, order } = features.clone();
        Self { attention, linear, router_weight, router_logit, order: order.name() }
    }
}
