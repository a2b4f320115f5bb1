//! The config of a capture, for Python.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde_json::{Map, Value};
use trainmon_agent::core::config::CaptureDialect;
use trainmon_capture::{CaptureConfig, CaptureLevel, CapturePlan, DataMode};

use crate::config_error::{ConfigError, config_error, with_hint};

/// The parsed and validated config of a capture.
#[pyclass(frozen, name = "CaptureConfig", module = "trainmon._trainmon")]
pub(crate) struct PyCaptureConfig {
    plan: CapturePlan,
    /// Warnings for the user.
    #[pyo3(get)]
    warnings: Vec<String>,
}

impl PyCaptureConfig {
    pub(crate) fn config(&self) -> &CaptureConfig {
        self.plan.config()
    }
}

#[pymethods]
impl PyCaptureConfig {
    /// Reads a config; the keys of the JSON object `over` replace its top-level keys. `like_msprobe`: missing keys have
    /// msprobe's defaults.
    #[staticmethod]
    fn read(text: &str, file: &str, over: &str, like_msprobe: bool) -> PyResult<Self> {
        let over: Map<String, Value> =
            serde_json::from_str(over).map_err(|error| ConfigError::new_err(error.to_string()))?;
        let dialect = if like_msprobe { CaptureDialect::Msprobe } else { CaptureDialect::Trainmon };
        let parsed = CaptureConfig::parse_over(text, &over, file, dialect).map_err(|errors| config_error(&errors))?;
        let warnings = parsed.warnings.iter().map(with_hint).collect();
        Ok(Self { plan: CapturePlan::new(parsed.config), warnings })
    }

    #[getter]
    fn level(&self) -> &'static str {
        self.config().level.name()
    }

    #[getter]
    fn task(&self) -> &'static str {
        self.config().task.name()
    }

    #[getter]
    fn dump_path(&self) -> PathBuf {
        self.config().dump_path.clone()
    }

    #[getter]
    fn dump_enable(&self) -> Option<bool> {
        self.config().dump_enable
    }

    #[getter]
    fn neutral(&self) -> bool {
        self.config().neutral
    }

    #[getter]
    fn wants_modules(&self) -> bool {
        self.config().level.has_modules()
    }

    #[getter]
    fn wants_operators(&self) -> bool {
        self.config().level == CaptureLevel::L2
    }

    /// Whether everything that the level supports is captured: no scope, no list, both directions, inputs and outputs.
    #[getter]
    fn is_whole(&self) -> bool {
        let CaptureConfig { scope, list, slice, data_mode, .. } = self.config();
        let DataMode { forward, backward, input, output } = *data_mode;
        let is_all = forward && backward && input && output;
        is_all && scope.is_none() && list.is_empty() && slice.is_empty()
    }

    #[getter]
    fn request_id(&self) -> Option<&str> {
        self.config().request_id.as_deref()
    }

    #[getter]
    fn custom_op_namespaces(&self) -> Vec<String> {
        self.config().custom_op_namespaces.clone()
    }

    #[getter]
    fn wants_functions(&self) -> bool {
        self.config().level.has_functions()
    }

    #[getter]
    fn wants_backward(&self) -> bool {
        self.config().data_mode.backward
    }

    fn wants_step(&self, step: u64) -> bool {
        self.plan.wants_step(step)
    }

    fn is_past(&self, step: u64) -> bool {
        self.plan.is_past(step)
    }

    #[pyo3(signature = (rank))]
    fn wants_rank(&self, rank: Option<u64>) -> bool {
        self.plan.wants_rank(rank)
    }
}
