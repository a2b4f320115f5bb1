//! Reads and checks the journal of an ended process.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use trainmon_core::config::{Config, Csv};
use trainmon_core::{RunInfo, Step, StepBatch, TensorId, TensorInfo};

use super::bytes::Cursor;
use super::error::RecoverError;
use super::facts::Facts;
use super::fault::{Fault, Part};
use super::frame::{FrameHeader, FrameKind};
use super::layout::{HEADER_READ, Layout, STATE_AT};
use super::names::{MAX_TENSORS, Names};
use super::number_names::NumberNames;
use super::scan::{Gap, RegionSource, ScannedRegion, Written, never_written, read_up_to};
use super::state::{STATE_BYTES, State};
use super::step::{decode_step, read_name};

/// The largest plausible description of a run, which has a few kilobytes: a header with a larger size is forged.
const MAX_FACTS: u64 = 64 << 20;

/// A step from a journal.
#[derive(Clone, Debug)]
pub struct RecoveredStep {
    /// The step as it was written.
    pub batch: StepBatch,
    /// The number of tensors with names at that step: exporters receive that many of [`Recovered::names`].
    pub names_known: usize,
}

/// The beginning of a journal, which is required to read the rest.
struct Beginning {
    file: File,
    /// The file's length.
    found: u64,
    layout: Layout,
    facts: Facts,
}

impl Beginning {
    fn read(path: &Path) -> Result<Self, RecoverError> {
        let read = |source| RecoverError::Read { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(read)?;
        let metadata = file.metadata().map_err(read)?;
        if metadata.is_dir() {
            return Err(RecoverError::Directory { path: path.to_path_buf() });
        }
        let mut header = [0; HEADER_READ];
        let length = read_up_to(&file, 0, &mut header).map_err(read)?;
        let layout = Layout::decode(&header[..length]).map_err(|fault| fault.of(path))?;
        let facts = read_facts(path, &file, &layout, metadata.len())?;
        Ok(Self { file, found: metadata.len(), layout, facts })
    }
}

/// A journal file with every record checked.
///
/// The file may be in use: concurrent writes are read or not, and steps overwritten between [`open`](Self::open) and
/// [`steps`](Self::steps) are reported there as [`Fault::Overwritten`].
#[derive(Debug)]
pub struct Recovered {
    path: PathBuf,
    file: File,
    layout: Layout,
    facts: Facts,
    number_names: NumberNames,
    is_closed: bool,
    names: Vec<TensorInfo>,
    steps: Vec<FrameHeader>,
    alerts: Vec<String>,
    faults: Vec<Fault>,
}

impl Recovered {
    /// Reads and checks a journal. Cost: every byte is read once; memory: one step and the names.
    ///
    /// # Errors
    /// The file cannot be read, is not a journal, or its beginning, which is required to read the rest, is damaged.
    pub fn open(path: &Path) -> Result<Self, RecoverError> {
        let read = |source| RecoverError::Read { path: path.to_path_buf(), source };
        let Beginning { file, found, layout, facts } = Beginning::read(path)?;
        let number_names = NumberNames::of(&facts.number_names);
        let mut recovered = Self {
            path: path.to_path_buf(),
            file,
            layout,
            facts,
            number_names,
            is_closed: false,
            names: Vec::new(),
            steps: Vec::new(),
            alerts: Vec::new(),
            faults: Vec::new(),
        };
        if found < layout.file_length {
            recovered.faults.push(Fault::CutOff { expected: layout.file_length, found });
        }
        recovered.read_regions().map_err(read)?;
        Ok(recovered)
    }

    /// The process that wrote a journal. Cost: only the beginning is read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn run_of(path: &Path) -> Result<RunInfo, RecoverError> {
        Ok(Beginning::read(path)?.facts.run)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process that wrote the file.
    pub fn run(&self) -> &RunInfo {
        &self.facts.run
    }

    /// Whether the writer was closed cleanly. If not, the process was killed or is still running.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The run's effective config, as `trainmon check-config` printed it then.
    pub fn config_as_written(&self) -> &serde_json::Value {
        &self.facts.config
    }

    /// A config with which exporters write the same files as the run: same dialect, kinds, statistics and columns.
    pub fn config(&self) -> Config {
        self.facts.files.config()
    }

    /// The settings of the CSV files.
    pub fn csv(&self) -> Csv {
        self.facts.files.csv()
    }

    /// The names of all tensors, by id. A tensor whose name is lost is named `unnamed_tensor_<id>`.
    pub fn names(&self) -> &[TensorInfo] {
        &self.names
    }

    /// The step numbers, oldest first.
    pub fn step_numbers(&self) -> impl ExactSizeIterator<Item = Step> + '_ {
        self.steps.iter().map(|frame| Step(frame.step))
    }

    /// The steps, oldest first, each read when the iterator reaches it.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = Result<RecoveredStep, Fault>> + '_ {
        self.steps.iter().map(|frame| self.read_step(frame))
    }

    /// The step at an index, the oldest at 0; `None` after the newest.
    pub fn step(&self, index: usize) -> Option<Result<RecoveredStep, Fault>> {
        self.steps.get(index).map(|frame| self.read_step(frame))
    }

    fn read_step(&self, frame: &FrameHeader) -> Result<RecoveredStep, Fault> {
        // It was intact when the file was opened.
        let gone = Fault::Overwritten { step: Step(frame.step) };
        let content = self.source(Part::Steps).content(frame).ok_or(gone)?;
        let step = decode_step(&content, &self.number_names).map_err(|why| Fault::NotUnderstood {
            part: Part::Steps,
            number: frame.seq,
            why: why.to_string(),
        })?;
        Ok(RecoveredStep { batch: step.batch, names_known: step.names_known as usize })
    }

    /// The alerts, oldest first, as they were written.
    pub fn alerts(&self) -> &[String] {
        &self.alerts
    }

    /// The damage found; empty for an intact journal.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    fn source(&self, part: Part) -> RegionSource<'_> {
        let region = match part {
            Part::Names => self.layout.names,
            Part::Alerts => self.layout.alerts,
            Part::Steps => self.layout.steps,
        };
        RegionSource { file: &self.file, journal: self.layout.journal, region }
    }

    fn read_regions(&mut self) -> std::io::Result<()> {
        let state = self.read_state()?;
        if state.is_none() {
            self.faults.push(Fault::CountsDamaged);
        }
        let state = state.unwrap_or_default();
        self.is_closed = state.closed != 0;
        let written = Written { begun: state.names_begun, end: state.names_end };
        let found = self.source(Part::Names).find(&[FrameKind::Names], written)?;
        let mut names = self.read_names(&found);
        let written = Written { begun: state.alerts_begun, end: state.alerts_end };
        let found = self.source(Part::Alerts).find(&[FrameKind::Alert], written)?;
        self.read_alerts(&found);
        let written = Written { begun: state.steps_begun, end: state.steps_end };
        let found = self.source(Part::Steps).find(&[FrameKind::Step, FrameKind::LostStep], written)?;
        self.read_steps(found, &mut names);
        Ok(())
    }

    fn read_state(&self) -> std::io::Result<Option<State>> {
        let mut newest: Option<State> = None;
        for copy in STATE_AT {
            let mut bytes = [0; STATE_BYTES];
            let length = read_up_to(&self.file, copy, &mut bytes)?;
            let state = State::decode(&bytes[..length], self.layout.journal);
            newest = newest.into_iter().chain(state).max_by_key(|state| state.generation);
        }
        Ok(newest)
    }

    fn read_names(&mut self, found: &ScannedRegion) -> Names {
        self.report_missing(Part::Names, found);
        let mut names = Names::default();
        for frame in &found.frames {
            let Some(content) = self.source(Part::Names).content(frame) else { continue };
            let read = || -> Result<Vec<(u64, TensorInfo)>, super::bytes::Malformed> {
                let mut cursor = Cursor::new(&content);
                let first = cursor.u64()?;
                if first.checked_add(u64::from(frame.records)).is_none_or(|end| end > MAX_TENSORS) {
                    return Err(cursor.malformed("more tensors than any model has"));
                }
                let infos = (0..frame.records).map(|_| read_name(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
                cursor.finish()?;
                Ok((first..).zip(infos).collect())
            };
            match read() {
                Ok(infos) => infos.into_iter().for_each(|(id, info)| names.set(id as usize, info)),
                Err(why) => self.faults.push(Fault::NotUnderstood {
                    part: Part::Names,
                    number: frame.seq,
                    why: why.to_string(),
                }),
            }
        }
        names
    }

    fn read_alerts(&mut self, found: &ScannedRegion) {
        self.report_missing(Part::Alerts, found);
        for frame in &found.frames {
            let content = self.source(Part::Alerts).content(frame).unwrap_or_default();
            match String::from_utf8(content) {
                Ok(alert) => self.alerts.push(alert),
                Err(why) => {
                    let why = why.to_string();
                    self.faults.push(Fault::NotUnderstood { part: Part::Alerts, number: frame.seq, why });
                }
            }
        }
    }

    /// Decodes every step once, to collect names and to find undecodable steps.
    fn read_steps(&mut self, found: ScannedRegion, names: &mut Names) {
        self.report_missing(Part::Steps, &found);
        self.report_never_written(&found);
        let mut used: BTreeSet<TensorId> = BTreeSet::new();
        let mut names_known = 0;
        for frame in found.frames {
            if frame.kind == FrameKind::LostStep {
                self.faults.push(Fault::TooLarge { step: Step(frame.step), records: frame.records });
                continue;
            }
            let content = self.source(Part::Steps).content(&frame);
            match content.map(|content| decode_step(&content, &self.number_names)) {
                Some(Ok(step)) => {
                    // The first step of a process has no duration.
                    if frame.seq == 0 && frame.step > 0 && step.batch.duration.is_some() {
                        self.faults.push(Fault::NeverWrittenBefore { step: Step(frame.step) });
                    }
                    names_known = names_known.max(step.names_known as usize);
                    step.late_names.into_iter().for_each(|(id, info)| names.set(id.index(), info));
                    used.extend(step.batch.records.iter().map(|record| record.tensor));
                    self.steps.push(frame);
                }
                Some(Err(why)) => {
                    let why = why.to_string();
                    self.faults.push(Fault::NotUnderstood { part: Part::Steps, number: frame.seq, why });
                }
                // It was intact a moment ago.
                None => self.faults.push(Fault::Overwritten { step: Step(frame.step) }),
            }
        }
        let nameless = used.iter().filter(|id| !names.has(id.index())).count() as u64;
        if nameless > 0 {
            self.faults.push(Fault::Nameless { count: nameless });
        }
        self.names = names.finish(names_known);
    }

    /// Reports the steps that the run made and never wrote.
    fn report_never_written(&mut self, found: &ScannedRegion) {
        let torn = found.gaps.iter().filter_map(|gap| if let Gap::Torn(header) = gap { Some(*header) } else { None });
        let gaps = never_written(found.frames.iter().copied().chain(torn));
        self.faults
            .extend(gaps.into_iter().map(|(first, last)| Fault::NeverWritten { first: Step(first), last: Step(last) }));
    }

    /// Reports the missing records of a part.
    fn report_missing(&mut self, part: Part, found: &ScannedRegion) {
        let step_before = |number: u64| {
            let before = found.frames.iter().rev().find(|frame| frame.seq < number && frame.kind == FrameKind::Step);
            before.map(|frame| Step(frame.step))
        };
        for &gap in &found.gaps {
            self.faults.push(match gap {
                Gap::Torn(frame) if part == Part::Steps => Fault::TornStep { step: Step(frame.step) },
                Gap::Torn(frame) => Fault::Torn { part, number: frame.seq },
                Gap::Missing { first, last } => Fault::Missing { part, first, last, after: step_before(first) },
                Gap::Unfinished => Fault::Unfinished { part, after: step_before(u64::MAX) },
                Gap::NothingLeft { written } => Fault::NothingLeft { part, written },
            });
        }
    }
}

fn read_facts(path: &Path, file: &File, layout: &Layout, found: u64) -> Result<Facts, RecoverError> {
    let expected = layout.facts.offset.saturating_add(layout.facts.length);
    if found < expected {
        return Err(RecoverError::CutOff { path: path.to_path_buf(), expected, found });
    }
    if layout.facts.length > MAX_FACTS {
        return Err(RecoverError::HeaderDamaged { path: path.to_path_buf() });
    }
    let mut bytes = vec![0; layout.facts.length as usize];
    let length = read_up_to(file, layout.facts.offset, &mut bytes)
        .map_err(|source| RecoverError::Read { path: path.to_path_buf(), source })?;
    if crc32fast::hash(&bytes[..length]) != layout.facts_crc {
        return Err(RecoverError::FactsDamaged { path: path.to_path_buf() });
    }
    serde_json::from_slice(&bytes).map_err(|source| RecoverError::FactsUnreadable { path: path.to_path_buf(), source })
}
