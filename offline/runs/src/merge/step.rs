//! Merges one step's records of all ranks into those of one model.

use std::collections::{BTreeMap, HashMap, HashSet};

use trainmon_core::{
    Content, GradNorm, Kind, MicroStep, Reading, Record, Shape, StepBatch, TensorId, TensorInfo, TensorStats,
};

use super::layout::{Part, RankLayout};
use super::statistics::Together;
use trainmon_run_files::UNKNOWN_ELEMENTS;

/// The number of rows that could not be merged, by kind and reason.
pub(super) type LeftOut = BTreeMap<(Kind, Reason), u64>;

/// Why a row does not exist in a merged run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// Each rank has its own.
    OfEachRank,
    NotOfParts,
    /// The layout lacks the parameter.
    NoParameter,
    UnknownPart,
    MoreThanWhole,
}

impl Reason {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::OfEachRank => "of each rank's own data",
            Self::NotOfParts => "not computable from parts",
            Self::NoParameter => "of a parameter that `layout.json` does not list",
            Self::UnknownPart => "of a part that `layout.json` does not list",
            Self::MoreThanWhole => {
                "its parts have more elements than the parameter: `layout.json` lists copies as parts, or ranks use one name for several parameters"
            }
        }
    }

    /// Whether data of the whole model are missing because of it.
    pub(super) fn is_loss(self) -> bool {
        match self {
            Self::NoParameter | Self::UnknownPart | Self::MoreThanWhole => true,
            Self::OfEachRank | Self::NotOfParts => false,
        }
    }
}

/// The key of a row of the whole model.
type Key = (Kind, TensorId, MicroStep);

/// Merges steps and keeps names. For each step, it holds the merged rows so far, not those of the ranks.
#[derive(Default)]
pub(super) struct Merger {
    /// Parameters that only one rank has.
    held_by_one: HashSet<Box<str>>,
    /// Whether gradients without a row are missing.
    lacks_gradients: bool,
    pub(super) names: Vec<TensorInfo>,
    ids: HashMap<String, TensorId>,
    pub(super) left_out: LeftOut,
    /// The number of rows that lack a part.
    pub(super) incomplete: u64,
    pub(super) first_incomplete: Option<String>,
    /// The first row whose parts have more elements than the whole.
    pub(super) first_surplus: Option<String>,
    /// The step's rows in the order of their arrival.
    rows: Vec<(Key, Row)>,
    places: HashMap<Key, usize>,
    facts: Facts,
}

impl Merger {
    /// Creates a merger. `held_by_one`: parameters that only one rank has. `lacks_gradients`: ranks have gradients without
    /// rows.
    pub(super) fn knowing(held_by_one: HashSet<Box<str>>, lacks_gradients: bool) -> Self {
        Self { held_by_one, lacks_gradients, ..Self::default() }
    }

    /// Adds the records of one rank's step, lower ranks first. `names` are those of its records.
    pub(super) fn add(&mut self, layout: &RankLayout, names: &[TensorInfo], batch: &StepBatch) {
        self.facts.add(batch);
        self.facts.lacks_gradients |= self.lacks_gradients;
        for record in &batch.records {
            if let Err(reason) = self.add_record(layout, names, record) {
                self.leave_out(record.kind, reason, 1);
                self.facts.lacks_gradients |= reason.is_loss() && record.kind.is_gradient();
            }
        }
    }

    fn add_record(&mut self, layout: &RankLayout, names: &[TensorInfo], record: &Record) -> Result<(), Reason> {
        let Record { tensor, kind, micro_step, reading } = record;
        let (Some(info), Some(reading)) = (names.get(tensor.index()), reading) else { return Ok(()) };
        let content = Content::of(*kind).ok_or(Reason::OfEachRank)?;
        let (place, rest) = layout.find(*kind, info.vpp_stage, &info.name).ok_or(Reason::NoParameter)?;
        let parameter = layout.parameter(place).ok_or(Reason::NoParameter)?;
        let is_whole = || self.held_by_one.contains(parameter.name());
        let whole = || Part { first_rank: 0, elements: Some(parameter.shape.elements() as u64) };
        let part = layout.part(place, content).or_else(|| is_whole().then(whole)).ok_or(Reason::UnknownPart)?;
        let id = self.id(parameter.name(), rest);
        let key = (*kind, id, *micro_step);
        let next = self.rows.len();
        let found = *self.places.entry(key).or_insert(next);
        match self.rows.get_mut(found) {
            Some((_, row)) => row.add(*kind, part, reading),
            None => self.rows.push((key, Row::of(*kind, part, reading, parameter.shape))),
        }
        Ok(())
    }

    /// Completes the step after all its ranks: writes its records.
    pub(super) fn finish(&mut self, into: &mut StepBatch) {
        into.reset();
        let mut facts = self.facts.take();
        self.places.clear();
        for (key, row) in std::mem::take(&mut self.rows) {
            let (kind, tensor, micro_step) = key;
            match row.reading(kind) {
                Ok(reading) => into.records.push(Record { tensor, kind, micro_step, reading: Some(reading) }),
                Err(Unwritten::NotOfParts) => self.leave_out(kind, Reason::NotOfParts, 1),
                Err(Unwritten::OfOtherSize { found, whole }) => {
                    facts.lacks_gradients |= kind.is_gradient();
                    let name = self.names.get(tensor.index()).map_or("", |info| &info.name);
                    if found > whole {
                        self.first_surplus
                            .get_or_insert_with(|| format!("{kind} of `{name}`: {found} elements, it has {whole}"));
                        self.leave_out(kind, Reason::MoreThanWhole, 1);
                    } else {
                        self.first_incomplete
                            .get_or_insert_with(|| format!("{kind} of `{name}`: {found} of {whole} elements"));
                        self.incomplete += 1;
                    }
                }
            }
        }
        facts.put(into);
        into.collected = !into.records.is_empty();
    }

    fn id(&mut self, parameter: &str, rest: &str) -> TensorId {
        let joined;
        let name = if rest.is_empty() {
            parameter
        } else {
            joined = format!("{parameter}{rest}");
            &joined
        };
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = TensorId(self.names.len() as u32);
        self.names.push(TensorInfo { name: name.into(), vpp_stage: 0 });
        self.ids.insert(name.to_owned(), id);
        id
    }

    fn leave_out(&mut self, kind: Kind, why: Reason, rows: u64) {
        *self.left_out.entry((kind, why)).or_default() += rows;
    }
}

/// Why a row is not written.
enum Unwritten {
    NotOfParts,
    OfOtherSize { found: u64, whole: u64 },
}

/// The merged rows of a tensor so far.
struct Row {
    shape: Shape,
    /// The parts so far: a bit for the lowest rank of each.
    seen: Vec<u64>,
    parts: u32,
    /// The number of elements; `None` after a part of unknown size.
    elements: Option<u64>,
    first: Reading,
    /// The merged statistics of a tensor.
    together: Option<Together>,
    /// Shares times elements.
    shares: f64,
    /// Whether it is optimizer state with another shape than the parameter's part.
    is_of_other_shape: bool,
}

impl Row {
    fn of(kind: Kind, part: Part, reading: &Reading, shape: Shape) -> Self {
        let told = elements_of(kind, part, reading, shape);
        let elements = told.unwrap_or(part.elements);
        let together = reading.tensor().map(|stats| Together::of(stats, elements, shape));
        let mut row = Self {
            shape,
            seen: Vec::new(),
            parts: 1,
            elements,
            first: *reading,
            together,
            shares: elements.map_or(0.0, |count| share_of(reading) * count as f64),
            is_of_other_shape: told.is_err(),
        };
        row.see(part.first_rank);
        row
    }

    /// Adds a part. Of copies, the lowest rank's counts, which comes first.
    fn add(&mut self, kind: Kind, part: Part, reading: &Reading) {
        if !self.see(part.first_rank) {
            return;
        }
        let told = elements_of(kind, part, reading, self.shape);
        self.is_of_other_shape |= told.is_err();
        let elements = told.unwrap_or(part.elements);
        self.parts += 1;
        self.elements = self.elements.zip(elements).map(|(before, more)| before + more);
        self.shares += elements.map_or(0.0, |count| share_of(reading) * count as f64);
        match (&mut self.together, reading.tensor()) {
            (Some(together), Some(stats)) => together.add(stats, elements),
            _ => self.together = None,
        }
    }

    /// Marks a part and returns whether it is new.
    fn see(&mut self, first_rank: u32) -> bool {
        let (word, bit) = (first_rank as usize / 64, 1 << (first_rank % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    fn reading(&self, kind: Kind) -> Result<Reading, Unwritten> {
        let whole = self.shape.elements() as u64;
        if let Some(found) = self.elements.filter(|&found| found != whole) {
            return Err(if self.is_of_other_shape {
                Unwritten::NotOfParts
            } else {
                Unwritten::OfOtherSize { found, whole }
            });
        }
        match (self.parts, self.elements) {
            // A number of its own, whatever its shape; state of which the ranks have copies.
            (1, _) if !is_of_elements(kind) || self.is_of_other_shape => Ok(self.first),
            (_, Some(_)) if kind == Kind::MgDirection => {
                Ok(Reading::Tensor(TensorStats::of_value(self.shares / whole as f64)))
            }
            _ if is_of_elements(kind) && !self.is_of_other_shape => {
                let together = self.together.as_ref().ok_or(Unwritten::NotOfParts)?;
                Ok(Reading::Tensor(together.stats()))
            }
            _ => Err(Unwritten::NotOfParts),
        }
    }
}

/// Whether a row has the statistics of elements, not a number computed from them.
fn is_of_elements(kind: Kind) -> bool {
    kind != Kind::MgDirection && kind.value_columns().is_empty()
}

/// A row has optimizer state of another shape than the parameter's part.
#[derive(Clone, Copy)]
struct OtherShape;

/// The number of elements of a row: from the row, or else from the layout.
fn elements_of(kind: Kind, part: Part, reading: &Reading, whole: Shape) -> Result<Option<u64>, OtherShape> {
    let stats = reading.tensor().filter(|_| is_of_elements(kind));
    let Some(stats) = stats.filter(|stats| stats.count != UNKNOWN_ELEMENTS) else { return Ok(part.elements) };
    let is_number = stats.shape.dims().is_empty() && !whole.dims().is_empty();
    let is_alike = part.elements.is_none_or(|of_part| stats.count == of_part) && !is_number;
    if !kind.is_moment() || is_alike || stats.count == whole.elements() as u64 {
        return Ok(Some(stats.count));
    }
    Err(OtherShape)
}

/// A share of the elements of a row.
fn share_of(reading: &Reading) -> f64 {
    let share = reading.tensor().map(|stats| stats.mean).or_else(|| reading.values().first().copied());
    // The means may not have been requested; the number is the same in all columns.
    let share = share.filter(|share| !share.is_nan()).or_else(|| Some(reading.tensor()?.norm));
    share.unwrap_or(f64::NAN)
}

/// The largest relative difference of equal norms that ranks have exchanged.
const SAME_NORM: f64 = 1e-6;

/// The numbers of the step itself. Every rank has the same learning rate and the loss of its own data. Ranks with the norm of
/// the whole model have the same norm; if they differ, each has that of its own part, and the norm is that of all rows.
#[derive(Default)]
struct Facts {
    /// The batch of the lowest rank that has the step.
    first: Option<StepBatch>,
    /// Whether the norms of the ranks differ.
    are_norms_own: bool,
    /// Whether gradients of the step could not be merged.
    lacks_gradients: bool,
    loss: f64,
    losses: u32,
}

impl Facts {
    fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    fn add(&mut self, batch: &StepBatch) {
        if let Some(loss) = batch.loss {
            self.loss += loss;
            self.losses += 1;
        }
        let Some(first) = &mut self.first else {
            let mut first = StepBatch { step: batch.step, time: batch.time, ..StepBatch::default() };
            first.duration = batch.duration;
            first.learning_rate = batch.learning_rate;
            first.framework_grad_norm = batch.framework_grad_norm;
            first.grad_norm = known(batch.grad_norm);
            first.bytes_read = batch.bytes_read;
            first.skipped_steps = batch.skipped_steps;
            first.sampling_stride = batch.sampling_stride;
            self.first = Some(first);
            return;
        };
        first.duration = first.duration.max(batch.duration);
        first.learning_rate = first.learning_rate.or(batch.learning_rate);
        first.framework_grad_norm = first.framework_grad_norm.or(batch.framework_grad_norm);
        match (first.grad_norm, known(batch.grad_norm)) {
            (GradNorm::OfRecords, other) => first.grad_norm = other,
            (GradNorm::Known(one), GradNorm::Known(other)) => {
                self.are_norms_own |= (one - other).abs() > SAME_NORM * one.abs().max(other.abs());
            }
            _ => {}
        }
        first.bytes_read += batch.bytes_read;
        first.skipped_steps = first.skipped_steps.max(batch.skipped_steps);
        first.sampling_stride = first.sampling_stride.max(batch.sampling_stride);
    }

    fn put(self, into: &mut StepBatch) {
        let Some(first) = self.first else { return };
        let records = std::mem::take(&mut into.records);
        *into = StepBatch { records, ..first };
        into.loss = (self.losses > 0).then(|| self.loss / f64::from(self.losses));
        if self.are_norms_own {
            into.grad_norm = GradNorm::OfRecords;
            into.framework_grad_norm = None;
        }
        if self.lacks_gradients && matches!(into.grad_norm, GradNorm::OfRecords) {
            into.grad_norm = GradNorm::Unknown;
        }
    }
}

fn known(norm: GradNorm) -> GradNorm {
    match norm {
        GradNorm::Known(norm) => GradNorm::Known(norm),
        GradNorm::OfRecords | GradNorm::Unknown => GradNorm::OfRecords,
    }
}
