//! Compares a training with golden runs while it runs.
//!
//! ```text
//! step ─▶ equal up to rounding in the first steps?   yes: the noise model of `judge`, until noise is large
//!                                                    no:  the usual distance of each series (`levels`); settings and NaN exactly
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use trainmon_core::config::Config;
use trainmon_core::{StepBatch, TensorInfo};

use crate::batch::BatchReader;
use crate::departure::{Departure, leading};
use crate::error::ReadRunError;
use crate::found::{Divergence, leader_of};
use crate::golden::{Golden, OpenGoldenError, UserMessage};
use crate::judge::Judge;
use crate::names::Names;
use crate::rank_reader::RankReader;
use crate::statistics::Statistics;
use crate::steps::{RUN_KIND, StepRows};

/// Runs that diverge within this many common steps are not equal up to rounding.
const FIRST_STEPS: u64 = 2;
/// From this median difference on, faults are distinguished from noise by each series' own level instead of by growth.
const LARGE_NOISE: f64 = 1e-2;
/// The number of steps without a finding after which an alert ends, as for other rules.
const QUIET_STEPS: u32 = 10;
/// The maximum number of names listed in a message.
const NAMES_SHOWN: usize = 5;

/// The method of comparison with the golden runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// The runs are equal up to rounding: the noise model.
    Rounding,
    /// The runs agree in their statistics only: the usual distance of each series.
    Usual,
    /// The run has diverged from one that it was equal to up to rounding; nothing more is reported.
    Parted,
}

/// Whether the optimizer skipped steps in only one of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skips {
    Equal,
    /// Before the current step, for the first time. A skipped step has no number: the parameters were updated equally
    /// often in both runs, and only the data differ.
    PartHere,
    Differ,
}

impl Skips {
    /// Whether the skipped steps may explain the divergence of a series.
    fn may_explain(self, leader: &Divergence) -> bool {
        match self {
            Self::Equal => false,
            Self::PartHere => leader.tensor.kind != "param_origin",
            Self::Differ => true,
        }
    }
}

/// The results of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// The deviation that begins, with the cause first in the order of a step.
    pub departure: Option<Departure>,
    /// The deviation that ended.
    pub over: Option<Over>,
    /// The number of steps with a deviation during an earlier one; 1 or 0.
    pub findings: u64,
    /// Messages for the user.
    pub messages: Vec<UserMessage>,
}

/// A deviation that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Over {
    /// The deviation.
    pub departure: Departure,
    /// The number of steps with a deviation.
    pub findings: u64,
    /// The number of settings, shapes and invalid numbers that were reported and still differ.
    pub still_wrong: usize,
    /// Whether it ended because the golden run did.
    pub for_want_of_golden: bool,
}

/// Compares one rank of a training with golden runs.
pub struct BaselineWatch {
    names: Names,
    reader: BatchReader,
    rows: StepRows,
    golden: Golden,
    judge: Judge,
    statistics: Statistics,
    measure: Measure,
    /// The number of common steps in which both runs measured a tensor, and the last common step.
    common: u64,
    /// The number of steps before those in which only this run measured tensors.
    unpaired: u32,
    last: Option<u64>,
    skips: Skips,
    /// Whether the quantities of one run only were already reported.
    is_told: bool,
    standing: Option<OngoingDeparture>,
}

/// An ongoing deviation.
struct OngoingDeparture {
    departure: Departure,
    findings: u64,
    quiet: u32,
}

impl BaselineWatch {
    /// Opens the golden runs for a rank. `own` is the directory of the run that is being written, `config` its config.
    /// Returns messages for the user, such as which of several runs is used.
    ///
    /// Cost: the directories are listed and the first row of each file is read; journals are mapped as a whole.
    ///
    /// # Errors
    /// A path is not a run, lacks the rank, refers to the run itself, or cannot be read.
    pub fn open(
        golden: &[PathBuf],
        rank: u32,
        own: Option<&Path>,
        config: Config,
    ) -> Result<(Self, Vec<UserMessage>), OpenGoldenError> {
        let mut names = Names::default();
        let (golden, messages) = Golden::open(golden, rank, own, &mut names)?;
        let watch = Self {
            names,
            reader: BatchReader::new(config),
            rows: StepRows::default(),
            judge: Judge::new(rank, golden.runs(), 0.0),
            golden,
            statistics: Statistics::default(),
            measure: Measure::Rounding,
            common: 0,
            unpaired: 0,
            last: None,
            skips: Skips::Equal,
            is_told: false,
            standing: None,
        };
        Ok((watch, messages))
    }

    /// Compares a step. `tensors[record.tensor.index()]` is a record's tensor. Dropped steps, steps that the golden run
    /// lacks, and repeated steps are skipped.
    ///
    /// Cost: the golden run is read up to the step; a few microseconds per record.
    ///
    /// # Errors
    /// The golden run is damaged at this step. The comparison is impossible from then on.
    pub fn look_at(&mut self, tensors: &[TensorInfo], batch: &StepBatch) -> Result<Looked, ReadRunError> {
        let mut rows = std::mem::take(&mut self.rows);
        self.reader.read(tensors, batch, &mut self.names, &mut rows);
        let looked = self.look_at_rows(&mut rows);
        self.rows = rows;
        looked
    }

    /// Compares a recorded run with golden ones as if it were being trained. Returns the steps with results. For
    /// measuring false alarms of the rule.
    ///
    /// # Errors
    /// As [`Self::open`], also for the recorded run.
    pub fn replay(target: &Path, golden: &[PathBuf]) -> Result<Vec<(u64, Looked)>, OpenGoldenError> {
        let (ranks, _) = crate::source::ranks_in(target)?;
        let Some(source) = ranks.first() else { return Ok(Vec::new()) };
        let (mut watch, _) = Self::open(golden, source.rank, None, Config::default())?;
        let mut reader = RankReader::open(source, &mut watch.names, None)?;
        let mut found = Vec::new();
        while let Some(step) = reader.step() {
            let mut rows = std::mem::take(&mut reader.rows);
            let looked = watch.look_at_rows(&mut rows);
            reader.rows = rows;
            let looked = looked?;
            if looked != Looked::default() {
                found.push((step, looked));
            }
            reader.advance(&mut watch.names)?;
        }
        Ok(found)
    }

    fn look_at_rows(&mut self, target: &mut StepRows) -> Result<Looked, ReadRunError> {
        let mut looked = Looked::default();
        if self.golden.is_over() {
            looked.over = self.end(true);
            return Ok(looked);
        }
        if self.last.is_some_and(|last| target.step <= last) {
            return Ok(looked);
        }
        looked.messages.extend(self.golden.go_to(target.step, &mut self.names)?);
        let Some(golden) = self.golden.rows(target.step) else { return Ok(looked) };
        let first_golden = golden.first().copied().flatten();
        // A loss or norm that the golden run does not have in this step.
        target.rows.retain(|row| !is_of_run(&self.names, row.tensor) || !lacks_number(first_golden, row.tensor));
        let gap = self.last.map_or(1, |last| target.step - last);
        if first_golden.is_some_and(|golden| golden.skipped != target.skipped) {
            let is_first = self.skips == Skips::Equal && gap == 1;
            self.skips = if is_first { Skips::PartHere } else { Skips::Differ };
        } else if self.skips == Skips::PartHere {
            self.skips = Skips::Differ;
        }
        let target = &*target;
        let has_tensors = target.rows.iter().any(|row| !is_of_run(&self.names, row.tensor));
        let is_paired = has_tensors && first_golden.is_some_and(|golden| shares_tensor(&self.names, target, golden));
        (self.common, self.last) = (self.common + u64::from(is_paired), Some(target.step));
        // Both are updated in every step, so that the usual values are known when noise has grown large.
        let beyond = self.statistics.look(&self.names, target, &golden);
        // The numbers of the run alone do not show whether the runs are equal up to rounding.
        if self.common == 0 {
            looked.messages.extend(self.unpaired_message(has_tensors));
            self.by_usual(beyond, true, &mut looked);
            return Ok(looked);
        }
        let parted = if self.measure == Measure::Rounding {
            self.judge.step_after(gap, &mut self.names, target, &golden);
            self.judge.take_found()
        } else {
            Vec::new()
        };
        if is_paired && !std::mem::replace(&mut self.is_told, true) {
            looked.messages.extend(self.one_sided());
        }
        match self.measure {
            Measure::Rounding => self.by_rounding(parted, beyond, target.step, &mut looked),
            Measure::Usual => self.by_usual(beyond, has_tensors, &mut looked),
            Measure::Parted => {}
        }
        Ok(looked)
    }

    /// The comparison of runs that are equal up to rounding.
    fn by_rounding(&mut self, mut parted: Vec<Divergence>, beyond: Vec<Departure>, step: u64, looked: &mut Looked) {
        if self.common <= FIRST_STEPS && !parted.is_empty() {
            self.measure = Measure::Usual;
            let place = leader_of(&parted);
            let leader = Departure::of_divergence(&parted[place], 0);
            let message = format!(
                "this run and the golden run differ by more than rounding (another seed, other data or another start): {leader}; \
                 trainmon compares usual levels from here on"
            );
            looked.messages.push(UserMessage::info(message));
            // Only differences that no seed explains: settings, NaN, other shapes.
            parted.retain(|divergence| divergence.note.is_some() && !divergence.tensor.kind.starts_with("actv"));
            let shapes = parted.iter().map(|divergence| Departure::of_divergence(divergence, 0));
            self.begin(beyond.into_iter().chain(shapes).collect(), looked);
            return;
        }
        let leader = parted.get(leader_of(&parted));
        if let Some(leader) = leader.filter(|leader| self.skips.may_explain(leader)) {
            self.measure = Measure::Usual;
            let leader = Departure::of_divergence(leader, parted.len() - 1);
            let message = format!(
                "the optimizer skipped steps in only one of the two runs, and they diverge: \
                 {leader}; a fault may have caused the skips; trainmon compares usual levels from step {step} on"
            );
            looked.messages.push(UserMessage::warning(message));
            self.begin(beyond, looked);
        } else if !parted.is_empty() {
            let place = leader_of(&parted);
            looked.departure = Some(Departure::of_divergence(&parted[place], parted.len() - 1));
            looked.findings = 1;
            self.measure = Measure::Parted;
        } else if self.judge.noise() > LARGE_NOISE {
            self.measure = Measure::Usual;
            let message = format!(
                "noise has grown to {} of the values at step {step}; trainmon compares usual levels from here on",
                crate::numbers::short(self.judge.noise())
            );
            looked.messages.push(UserMessage::info(message));
            self.begin(beyond, looked);
        }
        if self.measure == Measure::Rounding {
            self.statistics.forget_told();
        }
    }

    /// The comparison of runs that agree in their statistics only.
    fn by_usual(&mut self, beyond: Vec<Departure>, has_tensors: bool, looked: &mut Looked) {
        match &mut self.standing {
            None => self.begin(beyond, looked),
            Some(standing) if !beyond.is_empty() => {
                (standing.findings, standing.quiet, looked.findings) = (standing.findings + 1, 0, 1);
            }
            Some(standing) => {
                standing.quiet += u32::from(has_tensors);
                if standing.quiet >= QUIET_STEPS {
                    looked.over = self.end(false);
                    self.statistics.forget();
                }
            }
        }
    }

    fn end(&mut self, for_want_of_golden: bool) -> Option<Over> {
        let OngoingDeparture { departure, findings, .. } = self.standing.take()?;
        Some(Over { departure, findings, still_wrong: self.statistics.still_wrong(), for_want_of_golden })
    }

    /// The message that the golden run has no comparable tensors, after several such steps.
    fn unpaired_message(&mut self, has_tensors: bool) -> Option<UserMessage> {
        self.unpaired += u32::from(has_tensors);
        if !has_tensors || self.unpaired != QUIET_STEPS {
            return None;
        }
        let message =
            "tensors are not compared, because this run and the golden run have measured none in the same step";
        Some(UserMessage::warning(message.to_owned()))
    }

    fn begin(&mut self, beyond: Vec<Departure>, looked: &mut Looked) {
        let Some(departure) = leading(beyond) else { return };
        self.standing = Some(OngoingDeparture { departure: departure.clone(), findings: 1, quiet: 0 });
        (looked.departure, looked.findings) = (Some(departure), 1);
    }

    /// The messages about quantities that only one side measures, which are not compared.
    fn one_sided(&self) -> Vec<UserMessage> {
        let mut kinds: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
        for (tensor, has) in self.judge.sides() {
            let place = match has {
                [true, true] => 0,
                [true, false] => 1,
                _ => 2,
            };
            let kind = self.names.kind_name(self.names.tensors[tensor as usize].kind);
            if kind != RUN_KIND {
                kinds.entry(kind).or_default()[place] += 1;
            }
        }
        let mut messages = Vec::new();
        let only: Vec<String> = kinds
            .iter()
            .filter(|(_, counts)| counts[1] > 0)
            .map(|(kind, counts)| match counts {
                [0, _, _] => (*kind).to_owned(),
                [_, count, _] => format!("{count} tensors of {kind}"),
            })
            .collect();
        let statistics: BTreeSet<String> =
            self.judge.found.statistics[0].iter().map(|(kind, statistic)| format!("{statistic} of {kind}")).collect();
        let unknown: Vec<String> = only.into_iter().chain(statistics).collect();
        if !unknown.is_empty() {
            let more = unknown.len().saturating_sub(NAMES_SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let shown = unknown.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
            messages.push(UserMessage::info(format!("not compared, because the golden run has none: {shown}{more}")));
        }
        messages
    }
}

fn is_of_run(names: &Names, tensor: u32) -> bool {
    names.tensors.get(tensor as usize).is_some_and(|known| names.kind_name(known.kind) == RUN_KIND)
}

fn lacks_number(golden: Option<&StepRows>, tensor: u32) -> bool {
    let row = golden.and_then(|golden| golden.rows.iter().find(|row| row.tensor == tensor));
    row.is_some_and(|row| golden.and_then(|golden| golden.values.get(row.first)).is_some_and(|value| value.is_nan()))
}

fn shares_tensor(names: &Names, target: &StepRows, golden: &StepRows) -> bool {
    let of_golden: BTreeSet<u32> = golden.rows.iter().map(|row| row.tensor).collect();
    target.rows.iter().any(|row| !is_of_run(names, row.tensor) && of_golden.contains(&row.tensor))
}
