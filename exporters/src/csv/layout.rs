//! msprobe's two file layouts: which file a record goes to, its header, its directory.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_core::config::{Config, Dialect, TimeTag, TimeWindow};
use trainmon_core::{CallsColumn, Kind, Rank, Statistic, Step, micro_step_column};

/// The columns of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Whether a `micro_step` column stands before the statistics.
    pub(super) micro_step: bool,
    /// The statistics, in the order asked for.
    pub(super) ops: Vec<Statistic>,
    /// Whether `shape` follows (V1).
    pub(super) shape: bool,
    /// Whether `dtype` follows (V1, and collective operations).
    pub(super) dtype: bool,
    /// The columns of plain numbers that stand in the statistics' place (`update_ratio`); empty for tensors.
    pub(super) values: &'static [&'static str],
    /// What follows of all calls that a row is of; empty where a row is of one record.
    pub(super) calls: &'static [CallsColumn],
}

/// A group of kinds that share a file: V1 has one per kind, V2 one per monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileClass {
    /// The file name's beginning.
    pub(super) prefix: &'static str,
    pub(super) columns: Columns,
}

/// The file a kind's records go to; `None` if the config does not measure it.
pub(super) fn file_class(config: &Config, kind: Kind) -> Option<FileClass> {
    if !config.measures(kind) {
        return None;
    }
    let values = kind.value_columns();
    let prefix = match (config.dialect, kind) {
        (Dialect::V1, Kind::MgDirection) => "other",
        (Dialect::V2, Kind::Actv | Kind::ActvGrad) => "module",
        (Dialect::V2, Kind::GradUnreduced | Kind::GradReduced) => "weight_grad",
        (Dialect::V2, Kind::ParamOrigin | Kind::ParamUpdated) => "param",
        (Dialect::V2, kind) if kind.is_moment() => "optimizer",
        (Dialect::V2, Kind::Comm) => "cc",
        (_, kind) => kind.name(),
    };
    let is_v1_tensor = config.dialect == Dialect::V1 && values.is_empty();
    let columns = Columns {
        micro_step: micro_step_column(config, kind),
        ops: config.signal(kind).filter(|_| values.is_empty()).map(|signal| signal.ops.clone()).unwrap_or_default(),
        shape: is_v1_tensor,
        dtype: is_v1_tensor || kind == Kind::CommTime,
        values,
        calls: if kind == Kind::CommTime { &CallsColumn::ALL } else { &[] },
    };
    Some(FileClass { prefix, columns })
}

impl FileClass {
    /// The header line, with its newline.
    pub(super) fn header(&self, dialect: Dialect) -> Vec<u8> {
        let mut names: Vec<&str> = match dialect {
            Dialect::V1 => vec!["vpp_stage", "name", "step"],
            Dialect::V2 => vec!["vpp_stage", "step", "module_name", "scope"],
        };
        if self.columns.micro_step {
            names.push("micro_step");
        }
        names.extend(self.columns.values);
        names.extend(self.columns.calls.iter().map(|column| column.name()));
        names.extend(self.columns.ops.iter().map(|op| op.name()));
        names.extend(self.columns.shape.then_some("shape"));
        names.extend(self.columns.dtype.then_some("dtype"));
        let mut line = names.join(",").into_bytes();
        line.push(b'\n');
        line
    }

    /// The file that holds `step`.
    pub(super) fn file_name(&self, config: &Config, step: Step, per_file: u64) -> String {
        let first = first_step(config, step, per_file);
        let infix = if config.dialect == Dialect::V2 { "step" } else { "" };
        format!("{}_{infix}{first}-{}.csv", self.prefix, first + per_file.max(1) - 1)
    }
}

/// The first step of the files that hold `step`: V1 counts in absolute multiples of `per_file`, V2 from its start step.
pub(super) fn first_step(config: &Config, step: Step, per_file: u64) -> u64 {
    let per_file = per_file.max(1);
    let origin = match config.dialect {
        Dialect::V1 => 0,
        Dialect::V2 => config.window.start_step.min(step.0),
    };
    origin + (step.0 - origin) / per_file * per_file
}

/// This rank's newest V1 run directory below `base` that was made within `window`. Its name tells the time; of two made
/// in the same second the one written to last.
pub(super) fn run_to_continue(base: &Path, rank: Rank, window: TimeWindow) -> io::Result<Option<PathBuf>> {
    let entries = match std::fs::read_dir(base) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut newest = None;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let made = name.to_str().and_then(|name| time_of_run(name, rank)).filter(|&made| window.contains(made));
        if let Some(made) = made.filter(|_| entry.path().is_dir()) {
            newest = newest.max(Some((made, entry.metadata()?.modified()?, entry.path())));
        }
    }
    Ok(newest.map(|(.., path)| path))
}

/// The time in a V1 run directory's name, if it is of this rank.
fn time_of_run(name: &str, rank: Rank) -> Option<TimeTag> {
    let (time, rest) = name.split_once("-rank")?;
    let (of_rank, _unique) = rest.split_once('-')?;
    if of_rank.parse() == Ok(rank.0) { TimeTag::parse(time).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_run_of_this_rank_in_the_window_is_continued() {
        let base = tempfile::tempdir().unwrap();
        let window = |first: &str, last: &str| TimeWindow {
            first: TimeTag::parse(first).unwrap(),
            last: TimeTag::parse(last).unwrap(),
        };
        let found = |window| {
            let path = run_to_continue(base.path(), Rank(1), window).unwrap()?;
            Some(path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        for name in [
            "Nov20_16-05-09-rank1-00000001",
            "Nov20_16-05-10-rank1-00000002",
            "Nov20_16-05-11-rank0-00000003",
            "Nov20_16-05-11-rank11-00000004",
            "Nov20_16-05-12-rank1-00000005",
            "notes-rank1-x",
        ] {
            std::fs::create_dir(base.path().join(name)).unwrap();
        }
        std::fs::write(base.path().join("Nov20_16-05-11-rank1-00000006"), "a file").unwrap();
        let wide = window("Nov20_16-05-09", "Nov20_16-05-11");
        assert_eq!(found(wide).as_deref(), Some("Nov20_16-05-10-rank1-00000002"));
        assert_eq!(found(window("Nov20_16-05-13", "Nov20_16-05-14")), None);
        let nowhere = run_to_continue(&base.path().join("nowhere"), Rank(1), wide);
        assert_eq!(nowhere.unwrap(), None);
    }
}
