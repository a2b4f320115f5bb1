//! The output directory. Tables are written elsewhere and moved there at the end: a failed comparison leaves nothing.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use trainmon_report::{Unfinished, unfinished_in};

use super::answer::{CaptureAnswer, RankCaptures, StepCaptures};
use super::report::Report;
use super::thresholds::Thresholds;
use super::write::{Format, TableSource, WriteError, write};

/// The tables while they are written.
pub(super) struct Output {
    aside: Unfinished,
    /// Dropped after its content.
    _made: Option<RemovedIfEmpty>,
    directory: PathBuf,
    formats: Vec<Format>,
    stamp: String,
    /// The page, if it is among the formats.
    report: Option<Report>,
    /// The written files, relative to the directory.
    written: Vec<PathBuf>,
}

/// A directory that is removed if it stays empty.
struct RemovedIfEmpty(PathBuf);

impl Drop for RemovedIfEmpty {
    fn drop(&mut self) {
        // It has files, or another process has removed it: both are fine.
        drop(std::fs::remove_dir(&self.0));
    }
}

impl Output {
    /// Creates a temporary directory next to the output directory, on the same file system.
    pub(super) fn prepare(directory: &Path, formats: Vec<Format>) -> Result<Self, WriteError> {
        let failed = |source| WriteError::Io { path: directory.to_path_buf(), source };
        if directory.is_file() {
            return Err(WriteError::IsFile { path: directory.to_path_buf() });
        }
        let made = (!directory.exists()).then(|| RemovedIfEmpty(directory.to_path_buf()));
        std::fs::create_dir_all(directory).map_err(failed)?;
        let aside = unfinished_in(directory).map_err(failed)?;
        let stamp = jiff::Zoned::now().strftime("%Y%m%d%H%M%S").to_string();
        let report = formats.contains(&Format::Html).then(|| Report::new(aside.path())).transpose().map_err(failed)?;
        Ok(Self { aside, _made: made, directory: directory.to_path_buf(), formats, stamp, report, written: Vec::new() })
    }

    /// Adds a step to the page before its tables.
    pub(super) fn step(&mut self, step: &StepCaptures, thresholds: &Thresholds) {
        if let Some(report) = &mut self.report {
            report.step(step, thresholds);
        }
    }

    /// Writes the page, if requested.
    pub(super) fn write_report(
        &mut self,
        answer: &CaptureAnswer,
        (target, goldens): (&Path, &[PathBuf]),
    ) -> Result<(), WriteError> {
        let Some(mut report) = self.report.take() else { return Ok(()) };
        let name = format!("compare_report_{}.html", self.stamp);
        let path = self.aside.path().join(&name);
        let failed = |source| WriteError::Io { path: path.clone(), source };
        let mut file = BufWriter::with_capacity(1 << 18, std::fs::File::create(&path).map_err(failed)?);
        report.write(answer, (target, goldens), &mut file).and_then(|()| file.flush()).map_err(failed)?;
        self.written.push(PathBuf::from(name));
        Ok(())
    }

    /// Writes a rank's table under msprobe's name; each of several steps has its own directory.
    pub(super) fn write(
        &mut self,
        source: &TableSource<'_>,
        step: &StepCaptures,
        rank: &RankCaptures,
    ) -> Result<(), WriteError> {
        let prefix = if rank.is_debug { "debug_" } else { "" };
        let of_rank = if rank.is_alone { String::new() } else { format!("rank{}_", rank.rank) };
        let stem = format!("{prefix}compare_result_{of_rank}{}", self.stamp);
        let directory = self.room_of(step)?;
        let report = self.report.as_mut().map(|report| report.table(source, step, rank));
        let files = write(source, &self.formats, &directory, &stem, report)?;
        self.written
            .extend(files.iter().filter_map(|file| file.strip_prefix(self.aside.path()).ok()).map(Path::to_path_buf));
        Ok(())
    }

    /// Writes a file next to a step's tables.
    pub(super) fn write_text(&mut self, step: &StepCaptures, name: &str, text: &str) -> Result<(), WriteError> {
        let path = self.room_of(step)?.join(name);
        std::fs::write(&path, text).map_err(|source| WriteError::Io { path: path.clone(), source })?;
        self.written.extend(path.strip_prefix(self.aside.path()).ok().map(Path::to_path_buf));
        Ok(())
    }

    /// The directory of a step's files: its own if there may be several steps.
    fn room_of(&self, step: &StepCaptures) -> Result<PathBuf, WriteError> {
        let inside = match (step.is_alone, step.part.as_str()) {
            (true, _) => PathBuf::new(),
            (false, "") => PathBuf::from(format!("step{}", step.step)),
            (false, part) => Path::new(part).join(format!("step{}", step.step)),
        };
        let directory = self.aside.path().join(inside);
        std::fs::create_dir_all(&directory).map_err(|source| WriteError::Io { path: directory.clone(), source })?;
        Ok(directory)
    }

    /// The start time of the comparison, as used in file names.
    pub(super) fn stamp(&self) -> &str {
        &self.stamp
    }

    /// The time in nanoseconds, as msprobe uses it in a file name.
    pub(super) fn nanoseconds() -> i128 {
        jiff::Timestamp::now().as_nanosecond()
    }

    /// Moves the files to the output directory and returns their paths.
    pub(super) fn put_in_place(self) -> Result<Vec<PathBuf>, WriteError> {
        let placed = self.aside.put_in_place(&self.written, &self.directory);
        placed.map_err(|(path, source)| WriteError::Io { path, source })
    }
}
