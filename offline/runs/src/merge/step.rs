//! One step's records of all ranks as those of one model.

use std::collections::{BTreeMap, HashMap};

use trainmon_core::{GradNorm, Kind, MicroStep, Reading, Record, StepBatch, TensorId, TensorInfo, TensorStats};

use super::layout::{Content, LaidOut, Part, RankLayout};
use super::statistics::put_together;
use crate::steps::UNKNOWN_ELEMENTS;

/// What could not be put together, by kind: how many rows and why.
pub(super) type LeftOut = BTreeMap<(Kind, &'static str), u64>;

pub(super) const OF_EACH_RANK: &str = "of each rank's own data";
pub(super) const NOT_OF_PARTS: &str = "not to be had of parts";
pub(super) const NO_PARAMETER: &str = "of no parameter that layout.json names";
pub(super) const UNKNOWN_PART: &str = "of a part that layout.json does not know";

/// A row of the whole model.
type Key = (Kind, String, MicroStep);

/// The rows of one tensor, by part.
struct Gathered {
    laid_out: LaidOut,
    rest: String,
    parts: BTreeMap<u32, (Part, Reading)>,
}

/// Puts steps together, and remembers names.
#[derive(Default)]
pub(super) struct Merger {
    pub(super) names: Vec<TensorInfo>,
    ids: HashMap<String, TensorId>,
    pub(super) left_out: LeftOut,
    /// Rows that lack a part, with the first of them.
    pub(super) incomplete: u64,
    pub(super) first_incomplete: Option<String>,
}

impl Merger {
    /// The records of a step. `ranks`: the batches of the ranks that have the step, lowest rank first.
    pub(super) fn merge(&mut self, ranks: &[(&RankLayout, &[TensorInfo], &StepBatch)], into: &mut StepBatch) {
        into.reset();
        let Some((_, _, first)) = ranks.first() else { return };
        into.step = first.step;
        into.time = first.time;
        facts(ranks, into);
        let mut order: Vec<Key> = Vec::new();
        let mut gathered: HashMap<Key, Gathered> = HashMap::new();
        for (layout, names, batch) in ranks {
            for record in &batch.records {
                self.gather(layout, names, record, &mut order, &mut gathered);
            }
        }
        for key in order {
            if let Some(of) = gathered.remove(&key)
                && let Some(reading) = self.reading(&key, &of)
            {
                let tensor = self.id(format!("{}{}", of.laid_out.name, of.rest));
                into.records.push(Record { tensor, kind: key.0, micro_step: key.2, reading: Some(reading) });
            }
        }
        into.collected = !into.records.is_empty();
    }

    fn gather(
        &mut self,
        layout: &RankLayout,
        names: &[TensorInfo],
        record: &Record,
        order: &mut Vec<Key>,
        gathered: &mut HashMap<Key, Gathered>,
    ) {
        let Record { tensor, kind, micro_step, reading } = record;
        let (Some(info), Some(reading)) = (names.get(tensor.index()), reading) else { return };
        let Some(content) = Content::of(*kind) else { return self.leave_out(*kind, OF_EACH_RANK) };
        let Some((laid_out, rest)) = layout.find(*kind, info.vpp_stage, &info.name) else {
            return self.leave_out(*kind, NO_PARAMETER);
        };
        let Some(part) = laid_out.part(content) else { return self.leave_out(*kind, UNKNOWN_PART) };
        let key = (*kind, format!("{}{rest}", laid_out.name), *micro_step);
        let of = gathered.entry(key.clone()).or_insert_with(|| {
            order.push(key);
            Gathered { laid_out: laid_out.clone(), rest: rest.to_owned(), parts: BTreeMap::new() }
        });
        // Of copies the lowest rank's is taken: it came first.
        of.parts.entry(part.first_rank).or_insert((part, *reading));
    }

    fn reading(&mut self, key: &Key, of: &Gathered) -> Option<Reading> {
        let kind = key.0;
        let parts: Vec<(Part, Reading)> = of.parts.values().copied().collect();
        let counts: Option<Vec<u64>> = parts.iter().map(|(part, reading)| elements_of(kind, *part, reading)).collect();
        let whole = of.laid_out.shape.elements() as u64;
        if let Some(found) = counts.as_ref().map(|counts| counts.iter().sum::<u64>()).filter(|&found| found != whole) {
            self.incomplete += 1;
            self.first_incomplete.get_or_insert_with(|| format!("{kind} of `{}`: {found} of {whole} elements", key.1));
            return None;
        }
        let together = match (&parts[..], counts) {
            // A number of its own, whatever its form.
            ([(_, only)], _) if !is_of_elements(kind) => Some(*only),
            (parts, Some(counts)) if kind == Kind::MgDirection => Some(share(parts, &counts, whole)),
            (parts, counts) if is_of_elements(kind) => {
                let known = |place: usize| counts.as_ref().map(|counts| counts[place]);
                let stats = parts.iter().enumerate();
                let stats: Option<Vec<_>> =
                    stats.map(|(place, (_, reading))| Some((*reading.tensor()?, known(place)))).collect();
                stats.and_then(|stats| put_together(&stats, of.laid_out.shape)).map(Reading::Tensor)
            }
            _ => None,
        };
        if together.is_none() {
            self.leave_out(kind, NOT_OF_PARTS);
        }
        together
    }

    fn id(&mut self, name: String) -> TensorId {
        if let Some(id) = self.ids.get(&name) {
            return *id;
        }
        let id = TensorId(self.names.len() as u32);
        self.names.push(TensorInfo { name: name.as_str().into(), vpp_stage: 0 });
        self.ids.insert(name, id);
        id
    }

    fn leave_out(&mut self, kind: Kind, why: &'static str) {
        *self.left_out.entry((kind, why)).or_default() += 1;
    }
}

/// Numbers of the step itself. Every rank has the same norm and rate; each tells the loss of its own data.
fn facts(ranks: &[(&RankLayout, &[TensorInfo], &StepBatch)], into: &mut StepBatch) {
    let batches = || ranks.iter().map(|(_, _, batch)| *batch);
    into.duration = batches().filter_map(|batch| batch.duration).max();
    let losses: Vec<f64> = batches().filter_map(|batch| batch.loss).collect();
    into.loss = (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64);
    into.learning_rate = batches().find_map(|batch| batch.learning_rate);
    into.framework_grad_norm = batches().find_map(|batch| batch.framework_grad_norm);
    let known = batches().find_map(|batch| match batch.grad_norm {
        GradNorm::Known(norm) => Some(norm),
        GradNorm::OfRecords | GradNorm::Unknown => None,
    });
    into.grad_norm = known.map_or(GradNorm::OfRecords, GradNorm::Known);
    into.bytes_read = batches().map(|batch| batch.bytes_read).sum();
    into.skipped_steps = batches().map(|batch| batch.skipped_steps).max().unwrap_or_default();
    into.sampling_stride = batches().map(|batch| batch.sampling_stride).max().unwrap_or(1);
}

/// Whether a row has the statistics of a tensor's elements, and is no number made of them.
fn is_of_elements(kind: Kind) -> bool {
    kind != Kind::MgDirection && kind.value_columns().is_empty()
}

/// How many elements a row is of: as the layout says, else as the row does.
fn elements_of(kind: Kind, part: Part, reading: &Reading) -> Option<u64> {
    let told = || {
        let count = reading.tensor().filter(|_| is_of_elements(kind))?.count;
        Some(count).filter(|&count| count != UNKNOWN_ELEMENTS)
    };
    part.elements.or_else(told)
}

/// A share of the elements of all parts.
fn share(parts: &[(Part, Reading)], counts: &[u64], whole: u64) -> Reading {
    let of = |((_, reading), &count): (&(Part, Reading), &u64)| {
        let share = reading.tensor().map(|stats| stats.mean).or_else(|| reading.values().first().copied());
        // A column of means may not have been asked for; the number is the same in all.
        let share = share.filter(|share| !share.is_nan()).or_else(|| Some(reading.tensor()?.norm));
        share.unwrap_or(f64::NAN) * count as f64
    };
    let sum: f64 = parts.iter().zip(counts).map(of).sum();
    Reading::Tensor(TensorStats::of_value(sum / whole as f64))
}
