//! msprobe's two file layouts: which file a record goes to, its header, its directory.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use jiff::Zoned;
use trainmon_core::config::{Config, Dialect};
use trainmon_core::{Kind, Rank, Statistic, Step};

/// The columns of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Whether a `micro_step` column stands before the statistics.
    pub(super) micro_step: bool,
    /// The statistics, in the order asked for.
    pub(super) ops: Vec<Statistic>,
    /// Whether `shape,dtype` follow (V1).
    pub(super) shape_and_dtype: bool,
    /// Whether the single column after the step is the value itself, named like the kind (`update_ratio`).
    pub(super) is_value: bool,
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
    let signal = config.signal(kind)?;
    let every_micro_batch = config.weight_grad.as_ref().is_some_and(|grad| grad.every_micro_batch);
    let is_value = kind == Kind::UpdateRatio;
    let (prefix, micro_step) = match config.dialect {
        Dialect::V1 => (
            if kind == Kind::MgDirection { "other" } else { kind.name() },
            matches!(kind, Kind::Actv | Kind::ActvGrad) || (kind == Kind::GradUnreduced && every_micro_batch),
        ),
        Dialect::V2 => {
            let prefix = match kind {
                Kind::Actv | Kind::ActvGrad => "module",
                Kind::GradUnreduced | Kind::GradReduced => "weight_grad",
                Kind::ParamOrigin | Kind::ParamUpdated => "param",
                kind if kind.is_moment() => "optimizer",
                kind => kind.name(),
            };
            (prefix, prefix == "weight_grad")
        }
    };
    let columns = Columns {
        micro_step,
        ops: signal.ops.clone(),
        shape_and_dtype: config.dialect == Dialect::V1 && !is_value,
        is_value,
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
        if self.columns.is_value {
            names.push(self.prefix);
        } else {
            names.extend(self.columns.ops.iter().map(|op| op.name()));
        }
        if self.columns.shape_and_dtype {
            names.extend(["shape", "dtype"]);
        }
        let mut line = names.join(",").into_bytes();
        line.push(b'\n');
        line
    }

    /// The file that holds `step`: V1 counts in absolute multiples of `per_file`, V2 from its start step.
    pub(super) fn file_name(&self, config: &Config, step: Step, per_file: u64) -> String {
        let per_file = per_file.max(1);
        let (origin, infix) = match config.dialect {
            Dialect::V1 => (0, ""),
            Dialect::V2 => (config.window.start_step.min(step.0), "step"),
        };
        let first = origin + (step.0 - origin) / per_file * per_file;
        format!("{}_{infix}{first}-{}.csv", self.prefix, first + per_file - 1)
    }
}

/// The directory of this run and rank below `base`: V1 `Nov20_16-05-09-rank3-1f0a9c42`, V2 `rank_3`.
pub(super) fn run_directory(base: &Path, dialect: Dialect, rank: Rank, now: &Zoned) -> PathBuf {
    match dialect {
        Dialect::V1 => {
            // Only uniqueness is asked of the eight digits; the hasher's random seed gives it.
            let unique = RandomState::new().hash_one(now.timestamp().as_nanosecond()) as u32;
            base.join(format!("{}-rank{rank}-{unique:08x}", now.strftime("%b%d_%H-%M-%S")))
        }
        Dialect::V2 => base.join(format!("rank_{rank}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_directory_is_what_msprobes_tools_look_for() {
        let now: Zoned = "2026-11-20T16:05:09+00:00[UTC]".parse().unwrap();
        let path = run_directory(Path::new("out"), Dialect::V1, Rank(3), &now);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("Nov20_16-05-09-rank3-"), "{name}");
        assert_eq!(name.len(), "Nov20_16-05-09-rank3-".len() + 8);
        assert_eq!(run_directory(Path::new("out"), Dialect::V2, Rank(3), &now), Path::new("out/rank_3"));
        assert_ne!(path, run_directory(Path::new("out"), Dialect::V1, Rank(3), &now));
    }
}
