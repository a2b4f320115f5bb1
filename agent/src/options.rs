//! A monitor's options besides its config.

use std::path::PathBuf;

use smart_default::SmartDefault;
use trainmon_control::{ConfigFile, SharedRankStore};
use trainmon_core::config::{FileLayout, FrontTask};
use trainmon_service::{Notices, environment};

use crate::rank::Ranks;

/// A monitor's options besides its config. `Options::default()` takes the rest from the environment.
#[derive(Clone, Debug, SmartDefault)]
pub struct Options {
    /// The rank, if the caller knows it; by default, the variables of torchrun, OpenMPI or Slurm.
    pub ranks: Option<Ranks>,
    /// The run's name, equal on all ranks: the `run` label, and in the layout `run` its directory. A name that is not valid for a
    /// directory is an error at the start. By default, `TRAINMON_RUN_NAME`, torchrun's or Slurm's job id, or
    /// [`program`](Self::program) and the time.
    pub run: Option<String>,
    /// The first part of the name of a run without a name, before the time; by default, the program's file name without
    /// extension.
    pub program: Option<String>,
    /// The file layout if the config has none: `run`, unless a front follows msprobe.
    #[default(FileLayout::Run)]
    pub layout: FileLayout,
    /// The number of the first step; not 0 after a resume.
    pub start_iteration: u64,
    /// The output directory if the config has none; by default, `MONITOR_OUTPUT_DIR` or `./monitor_output`.
    pub output_dir: Option<PathBuf>,
    /// The front's tasks besides passing tensors. trainmon warns of a task in the config that is not listed here.
    // The monitor's guards measure collectives for every front.
    #[default(&[FrontTask::Collectives])]
    pub front_tasks: &'static [FrontTask],
    /// The config file, watched in msprobe's dynamic mode.
    pub config_file: Option<ConfigFile>,
    /// The store through which the ranks agree on a change; by default, files in the control directory.
    pub rank_store: Option<SharedRankStore>,
    /// The receiver of the monitor's notices.
    #[default(Notices::stderr())]
    pub notices: Notices,
    /// Log warnings only, without start, end and information. `TRAINMON_QUIET=1` in the environment does the same.
    pub quiet: bool,
}

impl Options {
    /// These options with notices that omit information if `quiet` is set.
    pub(crate) fn with_quiet_heeded(self) -> Self {
        let notices = if self.quiet || environment::is_quiet() { self.notices.warnings_only() } else { self.notices };
        Self { notices, ..self }
    }
}
