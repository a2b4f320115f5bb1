//! The config of a capture, for Python.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde_json::Value;
use trainmon_capture::{
    CaptureConfig, CaptureLevel, CaptureTask, DataMode, NumberRanges, Precision, RiskLevel, Summary,
};

use crate::config_error::ConfigError;

/// A capture's config, read and checked.
#[pyclass(frozen, name = "CaptureConfig", module = "trainmon._trainmon")]
pub(crate) struct PyCaptureConfig(pub(crate) CaptureConfig);

fn invalid(message: impl Into<String>) -> PyErr {
    ConfigError::new_err(message.into())
}

fn ranges(value: Option<&Value>, key: &str) -> PyResult<NumberRanges> {
    let mut ranges = NumberRanges::default();
    let Some(value) = value else { return Ok(ranges) };
    let items = value.as_array().ok_or_else(|| invalid(format!("{key} is invalid, it should be a list")))?;
    for item in items {
        match item {
            Value::Number(number) => ranges.add(number.as_i64().unwrap_or(-1)),
            Value::String(text) => ranges.add_text(text),
            _ => return Err(invalid(format!("{key} element {item} must be an integer or string."))),
        }
        .map_err(|error| invalid(format!("{key}: {error}")))?;
    }
    Ok(ranges)
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn read(text: &str, task: Option<&str>, dump_path: Option<&str>, level: Option<&str>) -> PyResult<CaptureConfig> {
    let all: Value = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let said = |key: &str| all.get(key).and_then(Value::as_str);
    let mut config = CaptureConfig::default();
    let task = task.or(said("task")).unwrap_or("statistics");
    config.task = serde_json::from_value(task.into()).map_err(|error| invalid(error.to_string()))?;
    config.dump_path = PathBuf::from(dump_path.or(said("dump_path")).unwrap_or("./dump_path"));
    let level = level.or(said("level")).unwrap_or("L1");
    config.level = serde_json::from_value(level.into()).map_err(|error| invalid(error.to_string()))?;
    config.ranks = ranges(all.get("rank"), "rank")?;
    config.steps = ranges(all.get("step"), "step")?;
    config.async_dump = all.get("async_dump").and_then(Value::as_bool).unwrap_or(false);
    config.dump_enable = all.get("dump_enable").and_then(Value::as_bool);
    config.extra_info = all.get("extra_info").and_then(Value::as_bool).unwrap_or(true);
    if said("precision") == Some("low") {
        config.precision = Precision::Low;
    }
    match said("risk_level") {
        Some("ALL") => config.risk_level = RiskLevel::All,
        Some("CORE") => config.risk_level = RiskLevel::Core,
        _ => {}
    }
    let Some(block) = all.get(task) else { return Ok(config) };
    config.list = texts(block.get("list"));
    config.tensor_list = texts(block.get("tensor_list"));
    if let [from, to] = &texts(block.get("scope"))[..] {
        config.scope = Some([from.clone(), to.clone()]);
    }
    config.summary = match block.get("summary_mode").and_then(Value::as_str) {
        Some("md5") => Summary::Md5,
        Some("xor") => Summary::Xor,
        _ => Summary::Statistics,
    };
    let modes = texts(block.get("data_mode"));
    let has = |mode: &str| modes.iter().any(|it| it == mode);
    let is_all = modes.is_empty() || has("all");
    config.data_mode = DataMode {
        forward: is_all || has("forward") || !has("backward"),
        backward: is_all || has("backward") || !has("forward"),
        input: is_all || has("input") || !has("output"),
        output: is_all || has("output") || !has("input"),
    };
    Ok(config)
}

#[pymethods]
impl PyCaptureConfig {
    /// Reads a config; the arguments outrank it.
    #[staticmethod]
    #[pyo3(signature = (text, task = None, dump_path = None, level = None, step = None))]
    fn read(
        text: &str,
        task: Option<&str>,
        dump_path: Option<&str>,
        level: Option<&str>,
        step: Option<&str>,
    ) -> PyResult<Self> {
        let mut config = read(text, task, dump_path, level)?;
        if let Some(step) = step {
            let step: Value = serde_json::from_str(step).map_err(|error| invalid(error.to_string()))?;
            config.steps = ranges(Some(&step), "step")?;
        }
        if config.task == CaptureTask::Structure && !config.level.has_modules() {
            config.level = CaptureLevel::Mix;
        }
        Ok(Self(config))
    }

    #[getter]
    fn level(&self) -> &'static str {
        self.0.level.name()
    }

    #[getter]
    fn task(&self) -> &'static str {
        self.0.task.name()
    }

    #[getter]
    fn dump_path(&self) -> PathBuf {
        self.0.dump_path.clone()
    }

    #[getter]
    fn dump_enable(&self) -> Option<bool> {
        self.0.dump_enable
    }

    #[getter]
    fn wants_modules(&self) -> bool {
        self.0.level.has_modules()
    }

    #[getter]
    fn wants_functions(&self) -> bool {
        self.0.level.has_functions()
    }

    #[getter]
    fn wants_backward(&self) -> bool {
        self.0.data_mode.backward
    }

    fn wants_step(&self, step: u64) -> bool {
        self.0.steps.is_empty() || self.0.steps.contains(step)
    }

    fn is_past(&self, step: u64) -> bool {
        self.0.steps.last().is_some_and(|last| step > last)
    }

    #[pyo3(signature = (rank))]
    fn wants_rank(&self, rank: Option<u64>) -> bool {
        self.0.ranks.is_empty() || rank.is_some_and(|rank| self.0.ranks.contains(rank))
    }
}
