//! What a monitor is told besides its config.

use std::path::PathBuf;

use smart_default::SmartDefault;
use trainmon_control::{ConfigFile, SharedRankStore};
use trainmon_core::config::{FileLayout, FrontTask};
use trainmon_service::{Notices, environment};

use crate::rank::Ranks;

/// What a monitor is told besides its config. `Options::default()` asks the environment for the rest.
#[derive(Clone, Debug, SmartDefault)]
pub struct Options {
    /// The rank, if the caller knows it; torchrun's, OpenMPI's or Slurm's variables otherwise.
    pub ranks: Option<Ranks>,
    /// The run's name, the same on every rank: the `run` label, and in the layout `run` its directory. A name that no
    /// directory can have is an error of the start. Otherwise `TRAINMON_RUN_NAME`, torchrun's or Slurm's job id, or
    /// [`program`](Self::program) and the time.
    pub run: Option<String>,
    /// What a run is called that nobody named, before its time: the program's file name without its ending otherwise.
    pub program: Option<String>,
    /// How files are laid out where the config does not say: `run`, unless a front keeps msprobe's habits.
    #[default(FileLayout::Run)]
    pub layout: FileLayout,
    /// The number of the first step; not 0 after a resume.
    pub start_iteration: u64,
    /// Where output goes if the config does not say; `MONITOR_OUTPUT_DIR` or `./monitor_output` otherwise.
    pub output_dir: Option<PathBuf>,
    /// What the front does beside showing tensors: a task the config asks for and that is not listed here is warned of.
    // Guards are ours, whatever the front.
    #[default(&[FrontTask::Collectives])]
    pub front_tasks: &'static [FrontTask],
    /// The file the config was read from: watched in msprobe's dynamic mode.
    pub config_file: Option<ConfigFile>,
    /// How the ranks agree on a change while the training runs; files in the control directory otherwise.
    pub rank_store: Option<SharedRankStore>,
    /// Who hears the monitor's notices.
    #[default(Notices::stderr())]
    pub notices: Notices,
    /// Says warnings only: neither how the training begins and ends, nor what is good to know. `TRAINMON_QUIET=1` in the
    /// environment does the same.
    pub quiet: bool,
}

impl Options {
    /// These options, with a notices that leaves out what is only good to know where quiet is asked for.
    pub(crate) fn with_quiet_heeded(self) -> Self {
        let notices = if self.quiet || environment::is_quiet() { self.notices.warnings_only() } else { self.notices };
        Self { notices, ..self }
    }
}
