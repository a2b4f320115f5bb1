//! A requested comparison: the answer and its tables.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use trainmon_capture_files::Task;
use trainmon_report::{Advise, comparison_as_json};

use super::answer::{CaptureAnswer, Options, StepCaptures, compare_matched};
use super::compat;
use super::error::CompareError;
use super::evidence::Evidence;
use super::judge::Judge;
use super::matching::{How, Matching, Pair};
use super::messages;
use super::meter::Meter;
use super::output::Output;
use super::rounding::Positions;
use super::table;
use super::thresholds::Thresholds;
use super::write::{Format, Rows, TableSource, WriteError};

/// The paths and options of a comparison.
#[derive(Clone, Debug)]
pub struct Request {
    /// The capture under test.
    pub target: PathBuf,
    /// The baseline; further ones measure the variation between such runs.
    pub goldens: Vec<PathBuf>,
    /// The limits of rounding error.
    pub thresholds: Thresholds,
    /// How operators pair.
    pub matching: Matching,
    /// The tables to write.
    pub tables: Option<Tables>,
    /// Whether to write msprobe's tables, cell for cell.
    pub is_compat: bool,
    /// Whether to run msprobe's own search for the first difference as well, and write its JSON.
    pub is_diff_analyze: bool,
}

/// The output directory and formats of tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The directory.
    pub directory: PathBuf,
    /// The formats.
    pub formats: Vec<Format>,
}

/// An error of a requested comparison.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The comparison failed.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// A table could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Advise for RequestError {
    fn hint(&self) -> &str {
        match self {
            Self::Compare(error) => error.hint(),
            Self::Write(WriteError::IsFile { .. }) => {
                "pass a directory to `-o`; trainmon creates it if it does not exist"
            }
            Self::Write(_) => "check the free disk space and the permissions of the directory; no files were left",
        }
    }
}

/// The result of a comparison.
#[derive(Debug)]
pub struct Compared {
    /// The answer.
    pub answer: CaptureAnswer,
    /// The written files.
    pub files: Vec<PathBuf>,
    /// Whether a mapping file paired any values.
    pub is_mapping_used: bool,
}

impl Request {
    /// Compares and writes the tables. `meter` receives the progress, `see` the name of every operator.
    ///
    /// # Errors
    /// See [`RequestError`]. No files are left then.
    pub fn run(&self, meter: &Arc<Meter>, see: &mut dyn FnMut(&str)) -> Result<Compared, RequestError> {
        let Self { target, goldens, thresholds, matching, tables, is_compat, is_diff_analyze } = self;
        let prepare = |tables: &Tables| Output::prepare(&tables.directory, tables.formats.clone());
        let mut output = tables.as_ref().map(prepare).transpose()?;
        let mut work = Work { request: self, differences: is_diff_analyze.then(Vec::new) };
        let mut is_mapping_used = false;
        let each = |step: &StepCaptures| -> Result<(), RequestError> {
            for operator in step.ranks.iter().flat_map(|rank| &rank.target.document.operators) {
                see(&operator.name);
            }
            let mut pairs = step.ranks.iter().flat_map(|rank| &rank.pairs);
            is_mapping_used = is_mapping_used || pairs.any(|pair| pair.how == How::Mapping);
            match &mut output {
                Some(output) => {
                    output.step(step, thresholds);
                    work.tables(step, output)
                }
                None => Ok(()),
            }
        };
        let options = Options { matching, is_compat: *is_compat, is_for_tables: tables.is_some() };
        let answer = compare_matched((target, goldens), thresholds, options, meter, each)?;
        if let Some(output) = &mut output {
            output.write_report(&answer, (target, goldens))?;
        }
        let files = output.map(Output::put_in_place).transpose()?.unwrap_or_default();
        Ok(Compared { answer, files, is_mapping_used })
    }
}

/// The answer for a terminal, with the paths of the files.
pub fn in_words(compared: &Compared) -> String {
    let Compared { answer, files, .. } = compared;
    let more = messages::details(answer).into_iter().chain(files.iter().map(|path| path.display().to_string()));
    more.fold(messages::sentence(answer) + "\n", |text, line| text + "  " + &line + "\n")
}

/// The answer, or the error, as JSON.
pub fn as_json(compared: &Result<Compared, RequestError>) -> Value {
    let envelope = |answer, files: Result<&[PathBuf], &RequestError>| comparison_as_json("captures", answer, files);
    match compared {
        Ok(Compared { answer, files, .. }) => envelope(messages::as_json(answer), Ok(files)),
        Err(error) => envelope(json!({"verdict": "failed"}), Err(error)),
    }
}

/// The tables while they are written.
struct Work<'r> {
    request: &'r Request,
    /// The findings of msprobe's own search in a step.
    differences: Option<Vec<compat::RankDifferences>>,
}

impl Work<'_> {
    /// Writes a step's tables rank by rank: one table is in memory at a time.
    fn tables(&mut self, step: &StepCaptures, output: &mut Output) -> Result<(), RequestError> {
        for rank in &step.ranks {
            let (target, golden, pairs, sides) = (&rank.target, &rank.golden, &rank.pairs, rank.sides());
            // msprobe writes nothing for structures.
            let is_left_out = self.request.is_compat && target.document.task == Task::Structure;
            let Some(mode) = table::mode(target, golden).filter(|_| !is_left_out) else {
                // msprobe stops here; otherwise the answer is `cannot_tell`, with or without tables.
                if self.request.is_compat && target.document.has_digests() != golden.document.has_digests() {
                    let has = |digests| if digests { "checksums" } else { "statistics" };
                    return Err(RequestError::from(CompareError::NothingInCommon {
                        target: target.path.clone(),
                        target_has: has(target.document.has_digests()),
                        golden: golden.path.clone(),
                        golden_has: has(golden.document.has_digests()),
                    }));
                }
                continue;
            };
            if self.differences.is_some() {
                let mode = if mode == compat::Mode::Tensor { compat::Mode::Statistics } else { mode };
                let table = compat::table(sides, pairs, mode, true);
                let (differences, json) = compat::differences(rank.rank, table, target);
                let name = format!("compare_result_rank{}_{}.json", rank.rank, output.stamp());
                output.write_text(step, &name, &compat::dumps(&json, 4))?;
                self.differences.get_or_insert_default().push(differences);
            }
            if self.request.is_compat && self.differences.is_some() {
                // These are msprobe's tables.
            } else if self.request.is_compat {
                let gate = !matches!(self.request.matching, Matching::Data(_));
                let headers = compat::headers(mode, target.has_stacks);
                let pairs = pairs.iter().filter(|pair| pair.target.is_some()).copied().collect();
                let make =
                    Box::new(|pairs: &[Pair]| -> Box<dyn Rows> { Box::new(compat::table(sides, pairs, mode, gate)) });
                output.write(&TableSource::new(headers, pairs, make), step, rank)?;
            } else {
                let evidence = Evidence::of(step, rank);
                let (thresholds, spreads) = (&self.request.thresholds, rank.spreads.as_ref());
                let positions = &Positions::of(&target.document);
                let judge = Judge { thresholds, spreads, positions };
                let headers = table::headers(mode, target.has_stacks);
                let make = Box::new(|pairs: &[Pair]| -> Box<dyn Rows> {
                    Box::new(table::table(sides, pairs, mode, (judge, &evidence)))
                });
                output.write(&TableSource::new(headers, pairs.clone(), make), step, rank)?;
            }
        }
        if let Some(found) = self.differences.as_mut().and_then(|ranks| compat::analyze(&std::mem::take(ranks))) {
            output.write_text(
                step,
                &format!("diff_analyze_{}.json", Output::nanoseconds()),
                &compat::dumps(&found, 2),
            )?;
        }
        Ok(())
    }
}
