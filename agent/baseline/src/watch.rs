//! A training held against golden runs while it goes on.
//!
//! ```text
//! step ─▶ equal up to rounding in the first steps?   yes: the noise model of `judge`, until noise is large
//!                                                    no:  how far each series usually is (`levels`); settings and NaN exactly
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

/// Runs that part in the first so many steps they have in common are not equal up to rounding.
const FIRST_STEPS: u64 = 2;
/// From this median difference on a fault is told from noise by each series' own level rather than by growth.
const LARGE_NOISE: f64 = 1e-2;
/// Steps without a finding after which an alert is over, as of the other rules.
const QUIET_STEPS: u32 = 10;
/// Names in a message before it says how many more there are.
const NAMES_SHOWN: usize = 5;

/// By what a run is held against the golden ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// They are equal up to rounding: by the noise model.
    Rounding,
    /// They are alike in their statistics: by how far each series usually is.
    Usual,
    /// It has parted from a run it was equal to up to rounding: there is nothing more to tell.
    Parted,
}

/// Whether the optimizer left steps out in one of the runs that it made in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skips {
    Equal,
    /// Before the step at hand, for the first time. A step that is left out has no number: the parameters were updated as often in
    /// both runs, and only the data are others.
    PartHere,
    Differ,
}

impl Skips {
    /// Whether they may be why a series parts.
    fn may_explain(self, leader: &Divergence) -> bool {
        match self {
            Self::Equal => false,
            Self::PartHere => leader.tensor.kind != "param_origin",
            Self::Differ => true,
        }
    }
}

/// What a step led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// What parts, the cause first: what stands first in the order of a step.
    pub departure: Option<Departure>,
    /// The departure that is over.
    pub over: Option<Over>,
    /// Steps in which something is beyond while an earlier departure stands; 1 or 0.
    pub findings: u64,
    /// Words for the user.
    pub news: Vec<UserMessage>,
}

/// A departure that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Over {
    /// What departed.
    pub departure: Departure,
    /// The number of steps in which something was beyond.
    pub findings: u64,
    /// Settings, shapes and numbers that are none, which were told and still differ.
    pub still_wrong: usize,
    /// Whether it is over because the golden run is.
    pub for_want_of_golden: bool,
}

/// Holds one rank of a training against golden runs.
pub struct BaselineWatch {
    names: Names,
    reader: BatchReader,
    rows: StepRows,
    golden: Golden,
    judge: Judge,
    statistics: Statistics,
    measure: Measure,
    /// Steps in common so far in which a tensor was measured in both, and the last common step of all.
    common: u64,
    /// Steps before the first of those in which this run alone measured tensors.
    unpaired: u32,
    last: Option<u64>,
    skips: Skips,
    /// Whether it was told what only one side measures.
    is_told: bool,
    standing: Option<OngoingDeparture>,
}

/// A departure that goes on.
struct OngoingDeparture {
    departure: Departure,
    findings: u64,
    quiet: u32,
}

impl BaselineWatch {
    /// Opens the golden runs for a rank; `own` is the directory of the run that is being written, `config` what it is measured
    /// with. With words for the user, such as which of several runs is taken.
    ///
    /// Cost: the directories are listed and each file's first row is read; of journals the whole file is mapped.
    ///
    /// # Errors
    /// A path is no run, has other ranks, means the run itself, or cannot be read.
    pub fn open(
        golden: &[PathBuf],
        rank: u32,
        own: Option<&Path>,
        config: Config,
    ) -> Result<(Self, Vec<UserMessage>), OpenGoldenError> {
        let mut names = Names::default();
        let (golden, news) = Golden::open(golden, rank, own, &mut names)?;
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
        Ok((watch, news))
    }

    /// Looks at a step. `tensors[record.tensor.index()]` is a record's tensor. Steps that were dropped before it, that the golden
    /// run has not, or that come again are passed over.
    ///
    /// Cost: the golden run is read up to the step; some microseconds per record.
    ///
    /// # Errors
    /// The golden run is damaged there; nothing can be held against it from then on.
    pub fn look_at(&mut self, tensors: &[TensorInfo], batch: &StepBatch) -> Result<Looked, ReadRunError> {
        let mut rows = std::mem::take(&mut self.rows);
        self.reader.read(tensors, batch, &mut self.names, &mut rows);
        let looked = self.look_at_rows(&mut rows);
        self.rows = rows;
        looked
    }

    /// Holds a recorded run against golden ones as if it were being trained: what each step led to, for those that led to
    /// anything. For measuring how often the rule is wrong.
    ///
    /// # Errors
    /// As [`Self::open`], of the recorded run too.
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
        looked.news.extend(self.golden.go_to(target.step, &mut self.names)?);
        let Some(golden) = self.golden.rows(target.step) else { return Ok(looked) };
        let first_golden = golden.first().copied().flatten();
        // A loss or a norm that the golden run was not told in this step.
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
        // Both look at every step: when noise has grown large, what is usual is known already.
        let beyond = self.statistics.look(&self.names, target, &golden);
        // Whether the runs are equal up to rounding, numbers of the run alone do not tell.
        if self.common == 0 {
            looked.news.extend(self.unpaired_news(has_tensors));
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
            looked.news.extend(self.one_sided());
        }
        match self.measure {
            Measure::Rounding => self.by_rounding(parted, beyond, target.step, &mut looked),
            Measure::Usual => self.by_usual(beyond, has_tensors, &mut looked),
            Measure::Parted => {}
        }
        Ok(looked)
    }

    /// Of runs that are equal up to rounding.
    fn by_rounding(&mut self, mut parted: Vec<Divergence>, beyond: Vec<Departure>, step: u64, looked: &mut Looked) {
        if self.common <= FIRST_STEPS && !parted.is_empty() {
            self.measure = Measure::Usual;
            let place = leader_of(&parted);
            let leader = Departure::of_divergence(&parted[place], 0);
            let message = format!(
                "this run is not equal to the golden one up to rounding: {leader} (another seed, other data or another start); \
                 from here on each series is held against how far it usually is from the golden run's"
            );
            looked.news.push(UserMessage::info(message));
            // Beside what no seed explains: settings, NaN, other shapes.
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
                "the optimizer left steps out in one of the runs that it made in the other (a loss scaler, say), and they part: \
                 {leader}; a fault may be why it left them out. From step {step} on each series is held against how far it usually \
                 is from the golden run's"
            );
            looked.news.push(UserMessage::warning(message));
            self.begin(beyond, looked);
        } else if !parted.is_empty() {
            let place = leader_of(&parted);
            looked.departure = Some(Departure::of_divergence(&parted[place], parted.len() - 1));
            looked.findings = 1;
            self.measure = Measure::Parted;
        } else if self.judge.noise() > LARGE_NOISE {
            self.measure = Measure::Usual;
            let message = format!(
                "noise has grown to {} of the values at step {step}: from here on each series is held against how far it \
                 usually is from the golden run's",
                crate::numbers::short(self.judge.noise())
            );
            looked.news.push(UserMessage::info(message));
            self.begin(beyond, looked);
        }
        if self.measure == Measure::Rounding {
            self.statistics.forget_told();
        }
    }

    /// Of runs that are alike in their statistics only.
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

    /// The word that nothing can be held against the golden run, once that has been so for some steps.
    fn unpaired_news(&mut self, has_tensors: bool) -> Option<UserMessage> {
        self.unpaired += u32::from(has_tensors);
        if !has_tensors || self.unpaired != QUIET_STEPS {
            return None;
        }
        let message = "this run and the golden one have no tensor in common that was measured in the same step: of tensors nothing \
                       is held against it";
        Some(UserMessage::warning(message.to_owned()))
    }

    fn begin(&mut self, beyond: Vec<Departure>, looked: &mut Looked) {
        let Some(departure) = leading(beyond) else { return };
        self.standing = Some(OngoingDeparture { departure: departure.clone(), findings: 1, quiet: 0 });
        (looked.departure, looked.findings) = (Some(departure), 1);
    }

    /// What is not held against the golden run, since only one side measures it.
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
        let mut news = Vec::new();
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
            news.push(UserMessage::info(format!("not held against the golden run, which has none: {shown}{more}")));
        }
        news
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
