//! The golden runs of a rank, read in step with the training.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use trainmon_core::LATEST_RUN;

use crate::error::ReadRunError;
use crate::names::Names;
use crate::rank_reader::RankReader;
use crate::source::{RankSource, ranks_in};
use crate::steps::StepRows;

/// Why the golden runs cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum OpenGoldenError {
    /// A run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadRunError),
    /// A run lacks the rank.
    #[error("golden run `{}` has no rank {rank}; its ranks: {}", path.display(), listed(found))]
    NoRank { path: PathBuf, rank: u32, found: Vec<u32> },
    /// The path is the run that is being written (`own`), or contains it.
    #[error("`{}` is this run itself or contains it (`{}`)", path.display(), own.display())]
    Itself { path: PathBuf, own: PathBuf },
}

fn listed(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    let more = if ranks.len() > SHOWN { ", …" } else { "" };
    if ranks.is_empty() { "none".to_owned() } else { format!("{}{more}", shown.join(", ")) }
}

impl OpenGoldenError {
    /// Advice on what to do.
    pub fn hint(&self) -> &str {
        match self {
            Self::Read(error @ (ReadRunError::Missing { .. } | ReadRunError::Read { .. })) => error.hint(),
            Self::Read(_) => {
                "set `golden` to a monitored run: its directory, the directory of one of its ranks, or a journal (`.tmj`)"
            }
            Self::NoRank { .. } => {
                "set `golden` to a run with as many ranks, or to the directory of one rank, which then applies to every rank"
            }
            Self::Itself { .. } => {
                "set `golden` to the golden run's own directory; `latest`, and the directory that contains all runs, refer to \
                 the newest run, which is this one"
            }
        }
    }
}

/// A message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserMessage {
    /// Whether it is a warning.
    pub is_warning: bool,
    /// The text, one sentence.
    pub message: String,
}

impl UserMessage {
    pub(crate) fn info(message: String) -> Self {
        Self { is_warning: false, message }
    }

    pub(crate) fn warning(message: String) -> Self {
        Self { is_warning: true, message }
    }
}

/// The golden runs of one rank, each positioned at a step.
pub(crate) struct Golden {
    readers: Vec<RankReader>,
    /// The warnings already reported, by reader.
    told: Vec<BTreeSet<String>>,
    is_over: bool,
}

impl Golden {
    /// Opens the rank in each run; for a run of one rank, that rank. `own`: the directory of the run that is being
    /// written.
    pub(crate) fn open(
        paths: &[PathBuf],
        rank: u32,
        own: Option<&Path>,
        names: &mut Names,
    ) -> Result<(Self, Vec<UserMessage>), OpenGoldenError> {
        let (mut readers, mut messages) = (Vec::with_capacity(paths.len()), Vec::new());
        for path in paths {
            // Whether the run's own files already exist depends on timing, so its path and the directories above it are
            // refused in any case.
            if let Some(own) = own.filter(|own| is_within(own, path) || is_within(path, own) || is_latest(path, own)) {
                return Err(OpenGoldenError::Itself { path: path.clone(), own: own.to_path_buf() });
            }
            let (ranks, newest) = ranks_in(path)?;
            let source = of_rank(&ranks, rank).ok_or_else(|| OpenGoldenError::NoRank {
                path: path.clone(),
                rank,
                found: ranks.iter().map(|source| source.rank).collect(),
            })?;
            if let Some(newest) = newest {
                messages.push(UserMessage::info(newest.in_words("comparing with").trim_end().to_owned()));
            }
            if source.rank != rank {
                let message =
                    format!("comparing rank {rank} with rank {1}, the only rank of `{0}`", path.display(), source.rank);
                messages.push(UserMessage::info(message));
            }
            let reader = RankReader::open(source, names, None)?;
            messages.extend(reader.warnings().iter().cloned().map(UserMessage::warning));
            readers.push(reader);
        }
        let told = readers.iter().map(|reader| reader.warnings().clone()).collect();
        Ok((Self { readers, told, is_over: false }, messages))
    }

    pub(crate) fn runs(&self) -> usize {
        self.readers.len()
    }

    /// Advances to this step, or past it if it is missing. Returns messages: that the first run has ended before it,
    /// and warnings about its files.
    pub(crate) fn go_to(&mut self, step: u64, names: &mut Names) -> Result<Vec<UserMessage>, ReadRunError> {
        let mut messages = Vec::new();
        for (reader, told) in self.readers.iter_mut().zip(&mut self.told) {
            reader.go_to(step, names)?;
            if reader.warnings().len() > told.len() {
                messages.extend(reader.warnings().difference(told).cloned().map(UserMessage::warning));
                told.clone_from(reader.warnings());
            }
        }
        let ends = !self.is_over && self.readers.first().is_none_or(|reader| reader.step().is_none());
        self.is_over |= ends;
        if ends {
            let last = self.readers.first().and_then(RankReader::last_step);
            let last = last.map_or_else(|| "has no step".to_owned(), |last| format!("ends with step {last}"));
            messages.push(UserMessage::info(format!("the golden run {last}; the comparison stops at step {step}")));
        }
        Ok(messages)
    }

    /// The rows of this step in each run; `None` if the first run lacks it.
    pub(crate) fn rows(&self, step: u64) -> Option<Vec<Option<&StepRows>>> {
        let at = |reader: &'_ RankReader| reader.step() == Some(step);
        let rows: Vec<_> = self.readers.iter().map(|reader| at(reader).then_some(&reader.rows)).collect();
        rows.first().copied().flatten().is_some().then_some(rows)
    }

    /// Whether all steps have been read.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}

fn of_rank(ranks: &[RankSource], wanted: u32) -> Option<&RankSource> {
    match ranks {
        [only] => Some(only),
        _ => ranks.iter().find(|source| source.rank == wanted),
    }
}

/// Whether the path uses the `latest` link next to this run, which points to this run now or soon.
fn is_latest(path: &Path, own: &Path) -> bool {
    let runs = |of: &Path| {
        of.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent }.canonicalize())
    };
    let Some(Ok(own_runs)) = runs(own) else { return false };
    let is_link = |of: &&Path| of.file_name().is_some_and(|name| name == LATEST_RUN);
    path.ancestors().filter(is_link).any(|link| matches!(runs(link), Some(Ok(runs)) if runs == own_runs))
}

fn is_within(path: &Path, directory: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    whole(path).starts_with(whole(directory))
}
