//! `trainmon._trainmon`: the monitor for Python.
//!
//! Wraps `trainmon-agent` and depends neither on torch's library nor on a framework: tensors are Python objects, whose
//! memory is found through their attributes (`torch`, `tensor`). One wheel supports every torch from 2.1 on.
//!
//! `monitor` and `pending_step` are the classes, `shared` holds their meter, `start` opens a monitor, and `arguments`
//! reads Python's arguments. `listener` receives the monitor's notices, `exit` handles the end of the interpreter,
//! `program` is the command `trainmon`, and `tracker` exports steps to Weights & Biases or MLflow.
//! `python/trainmon/_trainmon.pyi` declares the interface.

mod alert_state;
mod arguments;
mod capture;
mod capture_ticket;
mod collectives;
mod config;
mod config_error;
mod device;
mod device_block;
mod discard_error;
mod exit;
mod findings;
mod hangs;
mod interruptible;
mod listener;
mod monitor;
mod parts;
mod pending_step;
mod program;
mod rank_store;
mod shared;
mod start;
mod tensor;
#[cfg(target_os = "linux")]
mod termination;
#[cfg(not(target_os = "linux"))]
mod termination {
    //! On other systems SIGTERM ends the process as without trainmon.

    pub(crate) fn deliver_before_sigterm(_deliver: fn()) {}
}
mod torch;
mod tracker;
mod values;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use trainmon_agent::core::Kind;
use trainmon_agent::front::DeviceColumn;

#[pymodule]
mod _trainmon {
    use super::tensor::HostTensor;
    use super::{Bound, DeviceColumn, Kind, PyAny, PyModule, PyModuleMethods as _, PyResult, PyTuple, pyfunction};

    #[pymodule_export]
    use super::capture::{BackwardPass, CallMode, ModuleCall, OperatorCall, PyCapture, PyCaptureConfig};
    #[pymodule_export]
    use super::capture_ticket::PyCaptureTicket;
    #[pymodule_export]
    use super::collectives::{OpenCall, PyCollectives};
    #[pymodule_export]
    use super::config::{PyConfig, PyFeatureTargets, PySettings};
    #[pymodule_export]
    use super::config_error::ConfigError;
    #[pymodule_export]
    use super::device::{PyDeviceKernels, PyDeviceTable, PyDeviceTables};
    #[pymodule_export]
    use super::device_block::PyDeviceBlock;
    #[pymodule_export]
    use super::findings::PyFindings;
    #[pymodule_export]
    use super::monitor::PyMonitor;
    #[pymodule_export]
    use super::pending_step::PyPendingStep;
    #[pymodule_export]
    use super::program::run_program;

    /// Returns the tail of a parameter's name that identifies the parameter in the model.
    #[pyfunction]
    fn squash_name(name: &str) -> &str {
        trainmon_agent::core::config::squash_name(name)
    }

    /// Raises an error if a run cannot have this name.
    #[pyfunction]
    fn check_run_name(name: &str) -> PyResult<()> {
        trainmon_agent::check_run_name(name).map_err(|error| super::start::name_error(&error))
    }

    /// Returns the candidate most similar to a name.
    #[pyfunction]
    #[expect(clippy::needless_pass_by_value, reason = "Python passes owned values")]
    fn did_you_mean(name: &str, candidates: Vec<String>) -> Option<String> {
        let candidates = candidates.iter().map(String::as_str);
        trainmon_agent::core::config::did_you_mean(name, candidates).map(str::to_owned)
    }

    /// Returns a message that is safe to print.
    #[pyfunction]
    fn printable(message: &str) -> String {
        trainmon_agent::core::printable(message).into_owned()
    }

    /// Reads a host tensor's memory once, for benchmarks.
    #[pyfunction]
    fn read_only_pass(tensor: &Bound<'_, PyAny>) -> Option<u64> {
        HostTensor::describe(tensor).ok()?.read(trainmon_agent::stats::read_only_pass).ok()
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("USUAL_CONFIG", trainmon_agent::core::config::USUAL_CONFIG)?;
        module.add("CONFIG_KEYS", PyTuple::new(py, trainmon_agent::core::config::Config::keys())?)?;
        module.add("KINDS", PyTuple::new(py, Kind::ALL.map(Kind::name))?)?;
        module.add("DEVICE_COLUMNS", PyTuple::new(py, DeviceColumn::ALL.map(DeviceColumn::name))?)
    }
}
