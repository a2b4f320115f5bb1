//! How Python opens a monitor.

use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use trainmon_agent::core::Rank;
use trainmon_agent::core::config::{FileLayout, FrontTask};
use trainmon_agent::{Monitor, Options, RankError, Ranks, RunNameError, SharedRankStore, StartError};

use crate::config::{PyConfig, variable};
use crate::listener::notices;
use crate::rank_store::PyRankStore;
use crate::tracker::trackers;

/// What the package does of what a config may ask of a front: everything.
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

/// What `Monitor.start` is told besides the config.
pub(crate) struct StartOptions {
    pub(crate) rank: Option<u32>,
    pub(crate) local_rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    pub(crate) start_iteration: u64,
    pub(crate) output_dir: Option<PathBuf>,
    pub(crate) run: Option<String>,
    pub(crate) program: Option<String>,
    pub(crate) layout: FileLayout,
    pub(crate) listener: Option<Py<PyAny>>,
    pub(crate) quiet: bool,
    pub(crate) rank_store: Option<Py<PyAny>>,
}

/// Starts a monitor with a config.
pub(crate) fn start(py: Python<'_>, config: &PyConfig, options: StartOptions) -> PyResult<Monitor> {
    let PyConfig { parsed, watched } = config;
    let ranks = ranks(&options)?;
    let notices = notices(py, options.listener);
    let options = Options {
        ranks: Some(ranks),
        run: options.run,
        program: options.program.or_else(|| program(py)),
        layout: options.layout,
        start_iteration: options.start_iteration,
        output_dir: options.output_dir,
        front_tasks: &TASKS,
        config_file: watched.clone(),
        rank_store: options.rank_store.map(|rank_store| SharedRankStore::new(PyRankStore::new(rank_store))),
        notices,
        quiet: options.quiet,
    };
    let trackers = trackers(py, &parsed.config, ranks.rank);
    let monitor =
        py.detach(|| Monitor::start_with(parsed.config.clone(), options, trackers)).map_err(|error| match &error {
            StartError::RunName(name) => name_error(name),
            StartError::Rank(_) => PyRuntimeError::new_err(chain(&error)),
        })?;
    for warning in &parsed.warnings {
        monitor.warn(warning.to_string(), warning.hint.clone());
    }
    Ok(monitor)
}

pub(crate) fn name_error(error: &RunNameError) -> PyErr {
    PyValueError::new_err(format!("{error}\n  hint: {}", error.hint()))
}

/// How files are laid out, by its name in a config.
pub(crate) fn layout(name: &str) -> PyResult<FileLayout> {
    match name {
        "run" => Ok(FileLayout::Run),
        "msprobe" => Ok(FileLayout::Msprobe),
        _ => Err(PyValueError::new_err(format!("layout: expected \"run\" or \"msprobe\", found {name:?}"))),
    }
}

/// The script's file name without its ending; of a package that runs as one (`python -m`), the package's name.
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

/// This process's place in the job: the launcher's word, the caller's where it gives one.
fn ranks(options: &StartOptions) -> PyResult<Ranks> {
    let StartOptions { rank, local_rank, world_size, .. } = *options;
    let ranks = if let Some(rank) = rank {
        // A launcher's environment may be half set or another job's: it is not asked for what follows from the rank.
        Ranks {
            rank: Rank(rank),
            local_rank: Rank(local_rank.unwrap_or(rank)),
            world_size: world_size.unwrap_or(rank.saturating_add(1)),
        }
    } else {
        let told = Ranks::from_environment(variable)
            .map_err(|error: RankError| PyRuntimeError::new_err(format!("cannot tell which rank this is: {error}")))?;
        Ranks {
            local_rank: local_rank.map_or(told.local_rank, Rank),
            world_size: world_size.unwrap_or(told.world_size),
            ..told
        }
    };
    if ranks.rank.0 >= ranks.world_size {
        let (rank, size) = (ranks.rank, ranks.world_size);
        return Err(PyRuntimeError::new_err(format!("rank {rank} lies outside a job of {size} processes")));
    }
    Ok(ranks)
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
