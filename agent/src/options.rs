//! What a monitor is told besides its config.

use std::path::PathBuf;

use trainmon_control::SharedBoard;
use trainmon_core::config::{Config, FrontTask};
use trainmon_service::{Voice, environment};

use crate::rank::Ranks;

/// What a monitor is told besides its config. `Options::default()` asks the environment for the rest.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rank, if the caller knows it; torchrun's, OpenMPI's or Slurm's variables otherwise.
    pub ranks: Option<Ranks>,
    /// The run's name, the same on every rank: the `run` label. `TRAINMON_RUN`, torchrun's or Slurm's job id otherwise.
    pub run: Option<String>,
    /// The number of the first step; not 0 after a resume.
    pub start_iteration: u64,
    /// Where output goes if the config does not say; `MONITOR_OUTPUT_DIR` or `./monitor_output` otherwise.
    pub output_dir: Option<PathBuf>,
    /// What the front does beside showing tensors: a task the config asks for and that is not listed here is warned of.
    pub front_tasks: &'static [FrontTask],
    /// The file the config was read from: watched in msprobe's dynamic mode.
    pub config_file: Option<PathBuf>,
    /// How the ranks agree on a change while the training runs; files in the control directory otherwise.
    pub board: Option<SharedBoard>,
    /// Who hears the monitor's notices.
    pub voice: Voice,
    /// Says warnings only: neither how the training begins and ends, nor what is good to know. `TRAINMON_QUIET=1` in the
    /// environment does the same.
    pub quiet: bool,
}

impl Options {
    /// These options, with a voice that leaves out what is only good to know where quiet is asked for.
    pub(crate) fn with_quiet_heeded(self) -> Self {
        let voice = if self.quiet || environment::is_quiet() { self.voice.warnings_only() } else { self.voice };
        Self { voice, ..self }
    }

    /// Where a config's output goes: run directories are made here.
    pub(crate) fn base_directory(&self, config: &Config) -> PathBuf {
        let configured = config.csv.as_ref().and_then(|csv| csv.output_dir.clone());
        let given = configured.or_else(|| self.output_dir.clone());
        given.unwrap_or_else(|| environment::default_output_dir(config.dialect))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ranks: None,
            run: None,
            start_iteration: 0,
            output_dir: None,
            // Guards are ours, whatever the front.
            front_tasks: &[FrontTask::Collectives],
            config_file: None,
            board: None,
            voice: Voice::stderr(),
            quiet: false,
        }
    }
}
