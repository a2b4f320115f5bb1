//! The location of a run's files, and the run's name.
//!
//! ```text
//! layout `run`                              layout `msprobe`
//! monitor_output/                           monitor_output/
//!   latest -> train-1123-043812               Nov23_04-38-12-rank0-1f0a9c42/   CSV files, journal, tensorboard/
//!   train-1123-043812/                        anomaly_detected/rank0/
//!     run.json
//!     rank_0/   CSV files, journal, …
//!     anomaly_detected/rank0/
//! ```

mod claim;
mod launcher;
mod name;

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use jiff::Zoned;
use trainmon_core::config::{Config, Dialect, FileLayout};
use trainmon_core::{Rank, RunInfo};
use trainmon_run_files::{rank_directory, v1_directory};
use trainmon_service::environment;

use self::claim::{ClaimedPlace, link_latest};
pub(crate) use self::name::ranks_here;
pub use self::name::{RunNameError, check_run_name};
use crate::options::Options;
use crate::rank::Ranks;

/// The directories of a run's files.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunPlace {
    /// The parent of all runs' directories.
    pub(crate) base: PathBuf,
    /// The directory that the ranks share; in msprobe's layout, the base.
    pub(crate) shared: PathBuf,
    /// The directory of this run, if it has one: for all its ranks, in msprobe's layout for this rank.
    pub(crate) run_directory: Option<PathBuf>,
    /// The directory of this rank, if it has one.
    pub(crate) rank_directory: Option<PathBuf>,
    /// The directory of the rank's journal if the run writes no CSV files.
    pub(crate) journal: PathBuf,
    layout: Option<FileLayout>,
}

/// The run's name and this rank, and whether the name was given.
///
/// # Errors
/// The caller's name is invalid for a directory.
pub(crate) fn run_info(options: &Options, ranks: Ranks, now: &Zoned) -> Result<(RunInfo, bool), RunNameError> {
    let (run, is_given) = name::of_run(options, ranks, now)?;
    let Ranks { rank, local_rank, world_size } = ranks;
    Ok((RunInfo { run, rank, local_rank, world_size }, is_given))
}

impl RunPlace {
    /// Finds the directories of a run. In the layout `run`, claims and creates them. A rank that writes no files has none.
    pub(crate) fn open(config: &Config, options: &Options, run: &RunInfo, now: &Zoned) -> Self {
        let base = base_directory(config, options);
        let layout = config.csv_layout.layout;
        let nowhere = Self { journal: base.clone(), shared: base.clone(), layout, base, ..Self::default() };
        match layout {
            _ if !measures(config, run.rank) => nowhere,
            Some(FileLayout::Run) if writes_tables(config) || writes_beside_tables(config) => {
                let ClaimedPlace { run_directory, rank_directory } =
                    ClaimedPlace::take(&nowhere.base, run, &name::of_job(run.world_size), now.timestamp());
                if is_first_of_node(config, run) {
                    link_latest(&nowhere.base, &run_directory, run.rank);
                }
                Self {
                    shared: run_directory.clone(),
                    journal: rank_directory.clone(),
                    run_directory: Some(run_directory),
                    rank_directory: Some(rank_directory),
                    ..nowhere
                }
            }
            Some(FileLayout::Msprobe) | None if writes_tables(config) => {
                let directory = msprobes_directory(&nowhere.base, config.dialect, run.rank, now);
                Self { run_directory: Some(directory.clone()), rank_directory: Some(directory), ..nowhere }
            }
            _ => nowhere,
        }
    }

    /// Replaces the rank's directory by that of a continued earlier run.
    #[cfg(feature = "csv")]
    pub(crate) fn moved_to(&mut self, rank_directory: &Path) {
        self.run_directory = Some(rank_directory.to_path_buf());
        self.rank_directory = Some(rank_directory.to_path_buf());
    }

    /// The directory for the file with live control's addresses; in msprobe's layout only if there are CSV files.
    pub(crate) fn described_in(&self, config: &Config) -> Option<PathBuf> {
        self.rank_directory.clone().filter(|_| config.csv.is_some() || self.is_of_layout_run())
    }

    /// Whether each run has its own directory, which contains those of its ranks.
    pub(crate) fn is_of_layout_run(&self) -> bool {
        self.layout == Some(FileLayout::Run)
    }
}

/// The output directory of a config, in which run directories are created.
fn base_directory(config: &Config, options: &Options) -> PathBuf {
    let of_csv = config.csv.as_ref().and_then(|csv| csv.output_dir.clone());
    let configured = of_csv.or_else(|| config.csv_layout.output_dir.clone());
    let given = configured.or_else(|| options.output_dir.clone());
    let is_msprobes = config.csv_layout.layout != Some(FileLayout::Run);
    given.unwrap_or_else(|| match config.dialect {
        Dialect::V2 if is_msprobes => environment::msprobes_v2_output_dir(),
        _ => environment::default_output_dir(),
    })
}

fn measures(config: &Config, rank: Rank) -> bool {
    config.ranks.is_empty() || config.ranks.contains(&rank.0)
}

/// Whether measurements are written to the rank's directory, in either layout.
fn writes_tables(config: &Config) -> bool {
    config.csv.is_some() || config.tensorboard.as_ref().is_some_and(|events| events.dir.is_none())
}

/// Whether other files are written to the run's directory in the layout `run`.
fn writes_beside_tables(config: &Config) -> bool {
    config.journal.as_ref().is_some_and(|journal| journal.dir.is_none()) || config.alert.dump
}

/// Whether this rank creates the link for its node: the first rank that measures.
fn is_first_of_node(config: &Config, run: &RunInfo) -> bool {
    let of_node = run.rank.0.saturating_sub(run.local_rank.0);
    let first = config.ranks.iter().filter(|&&rank| rank >= of_node).min();
    run.rank.0 == *first.unwrap_or(&of_node)
}

/// The directory of a run and rank in msprobe's layout: V1 `Nov20_16-05-09-rank3-1f0a9c42`, V2 `rank_3`.
fn msprobes_directory(base: &Path, dialect: Dialect, rank: Rank, now: &Zoned) -> PathBuf {
    match dialect {
        Dialect::V1 => {
            // The eight digits only have to be unique, which the hasher's random seed ensures.
            let unique = RandomState::new().hash_one(now.timestamp().as_nanosecond()) as u32;
            base.join(v1_directory(now.strftime("%b%d_%H-%M-%S"), rank, unique))
        }
        Dialect::V2 => base.join(rank_directory(rank)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn msprobes_directory_is_what_its_tools_look_for() {
        let now: Zoned = "2026-11-20T16:05:09+00:00[UTC]".parse().unwrap();
        let path = msprobes_directory(Path::new("out"), Dialect::V1, Rank(3), &now);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("Nov20_16-05-09-rank3-"), "{name}");
        assert_eq!(name.len(), "Nov20_16-05-09-rank3-".len() + 8);
        assert_eq!(msprobes_directory(Path::new("out"), Dialect::V2, Rank(3), &now), Path::new("out/rank_3"));
        assert_ne!(path, msprobes_directory(Path::new("out"), Dialect::V1, Rank(3), &now));
    }
}
