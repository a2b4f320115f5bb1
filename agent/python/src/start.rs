//! Starts a monitor for Python.

use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use trainmon_agent::core::config::{FileLayout, FrontTask};
use trainmon_agent::core::{Rank, with_causes};
use trainmon_agent::{Monitor, Options, RankError, Ranks, RunNameError, StartError};

use crate::config::{PyConfig, variable};
use crate::tracker::trackers;

/// The front tasks that the package performs: all of them.
const TASKS: [FrontTask; 8] = [
    FrontTask::PrintStruct,
    FrontTask::StackInfo,
    FrontTask::Features,
    FrontTask::PatchOptimizerStep,
    FrontTask::Collectives,
    FrontTask::CollectiveStacks,
    FrontTask::Wandb,
    FrontTask::Mlflow,
];

/// Starts a monitor with a config; `options` supplement the config and this module's settings.
pub(crate) fn start(py: Python<'_>, config: &PyConfig, ranks: Ranks, options: Options) -> PyResult<Monitor> {
    let PyConfig { parsed, watched } = config;
    let options = Options {
        ranks: Some(ranks),
        program: options.program.or_else(|| program(py)),
        front_tasks: &TASKS,
        config_file: watched.clone(),
        ..options
    };
    let trackers = trackers(py, &parsed.config, ranks.rank);
    let monitor =
        py.detach(|| Monitor::start_with(parsed.config.clone(), options, trackers)).map_err(|error| match &error {
            StartError::RunName(name) => name_error(name),
            StartError::Rank(_) => PyRuntimeError::new_err(with_causes(&error)),
        })?;
    for warning in &parsed.warnings {
        monitor.warn(warning.to_string(), warning.hint.clone());
    }
    Ok(monitor)
}

pub(crate) fn name_error(error: &RunNameError) -> PyErr {
    PyValueError::new_err(format!("{error}\n  hint: {}", error.hint()))
}

/// Returns the file layout with this name in a config.
pub(crate) fn layout(name: &str) -> PyResult<FileLayout> {
    match name {
        "run" => Ok(FileLayout::Run),
        "msprobe" => Ok(FileLayout::Msprobe),
        _ => Err(PyValueError::new_err(format!("layout: expected \"run\" or \"msprobe\", found {name:?}"))),
    }
}

/// Returns the script's file name without its suffix, or the name of a package that runs as a script (`python -m`).
fn program(py: Python<'_>) -> Option<String> {
    let arguments = py.import("sys").and_then(|sys| sys.getattr("argv")).ok()?;
    let script: PathBuf = arguments.get_item(0).and_then(|first| first.extract()).ok()?;
    let stem = |path: &Path| Some(path.file_stem()?.to_string_lossy().into_owned());
    match stem(&script)?.as_str() {
        "__main__" => stem(script.parent()?),
        "-c" | "-m" => Some("python".to_owned()),
        named => Some(named.to_owned()),
    }
}

/// Returns the ranks of this process: from the caller if it passes one, else from the launcher.
pub(crate) fn ranks(rank: Option<u32>, local_rank: Option<u32>, world_size: Option<u32>) -> PyResult<Ranks> {
    let ranks = if let Some(rank) = rank {
        // The launcher's environment may be incomplete or belong to another job, so values that follow from the rank are
        // not read from it.
        Ranks {
            rank: Rank(rank),
            local_rank: Rank(local_rank.unwrap_or(rank)),
            world_size: world_size.unwrap_or(rank.saturating_add(1)),
        }
    } else {
        let told = Ranks::from_environment(variable).map_err(|error: RankError| {
            PyRuntimeError::new_err(format!("cannot determine the rank of this process: {error}"))
        })?;
        Ranks {
            local_rank: local_rank.map_or(told.local_rank, Rank),
            world_size: world_size.unwrap_or(told.world_size),
            ..told
        }
    };
    if ranks.rank.0 >= ranks.world_size {
        let (rank, size) = (ranks.rank, ranks.world_size);
        return Err(PyRuntimeError::new_err(format!("rank {rank} is out of range: the world size is {size}")));
    }
    Ok(ranks)
}
