//! Values for Python: those of a given tensor, the latest ones of a kind, and the monitor's counters.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyDict};
use trainmon_agent::Report;
use trainmon_agent::core::{Kind, Statistic, Step, TensorInfo};
use trainmon_agent::front::Latest;
use trainmon_agent::stats::{Request, measure};

use crate::shared::Shared;
use crate::tensor::HostTensor;

/// A tensor's name, model chunk, micro step, and its latest values.
pub(crate) type Row<'py> = (String, u32, u32, Bound<'py, PyDict>);

/// Returns the current statistics of a tensor without recording them. Empty if it cannot be read.
pub(crate) fn measured(shared: &Shared, tensor: &Bound<'_, PyAny>) -> Vec<(&'static str, f64)> {
    let statistics = shared.statistics();
    let request = Request { statistics: statistics.iter().copied().collect(), eps: shared.eps() };
    let read = || HostTensor::describe(tensor).ok()?.read(|view| measure(view, request)).ok();
    let Some(reading) = shared.monitor.guard("measure", read).flatten() else { return Vec::new() };
    statistics.iter().map(|&it| (it.name(), reading.value(it))).collect()
}

/// Returns the rows of a kind that were measured in this step or the previous one.
pub(crate) fn latest<'py>(shared: &Shared, py: Python<'py>, kind: Kind) -> PyResult<Vec<Row<'py>>> {
    let columns = kind.value_columns();
    let statistics = shared.statistics_of(kind);
    let oldest = Step(shared.monitor.step().0.saturating_sub(1));
    let mut rows = shared.meter.latest().map(|latest| latest.of(kind, oldest)).unwrap_or_default();
    // Drop readings without any of these statistics: live control may have changed them since.
    rows.retain(|(_, latest)| !columns.is_empty() || statistics.iter().any(|&it| latest.statistics.contains(it)));
    let row = |(TensorInfo { name, vpp_stage }, Latest { micro_step, statistics: measured, reading, .. })| {
        let values = if columns.is_empty() {
            let there = statistics.iter().filter(|&&it| measured.contains(it));
            there.map(|&it: &Statistic| (it.name(), reading.value(it))).into_py_dict(py)?
        } else {
            columns.iter().zip(reading.values()).into_py_dict(py)?
        };
        Ok((name.to_string(), vpp_stage, micro_step.0, values))
    };
    let named = |(tensor, latest)| Some((shared.monitor.tensor(tensor)?, latest));
    rows.into_iter().filter_map(named).map(row).collect()
}

/// Returns the numbers of records by outcome.
pub(crate) fn counts<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let counts = &report.counts;
    [
        ("observed", counts.observed),
        ("not_sampled", counts.not_sampled),
        ("offered", counts.offered),
        ("accepted", counts.accepted),
        ("dropped", counts.dropped.iter().sum()),
        ("lost", report.lost()),
        ("missing_numbers", report.missing.total()),
    ]
    .into_py_dict(py)
}
