//! Combines the calls of collective operations in one step: one row per operation, group and argument, as in msprobe's
//! files. The records are one per call.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::{Dtype, Kind, MicroStep, Reading, Record, Scalar, Shape, Statistic, TensorId, TensorStats, Values};

/// All calls in a step whose records are of the same tensor: of one operation in one group, or of one of its arguments.
#[derive(Clone, Debug)]
pub struct StepCalls<'a> {
    /// The tensor of the records.
    pub tensor: TensorId,
    /// [`Kind::Comm`] or [`Kind::CommTime`].
    pub kind: Kind,
    calls: Vec<&'a Reading>,
}

crate::named_enum! {
    /// A number over several calls, in the order of the file's columns.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CallsColumn: name {
        /// The number of calls.
        Calls = "calls",
        /// The median duration in seconds; the lower middle one of an even number.
        Median = "median",
        /// The 99th percentile of the durations.
        Late = "p99",
        /// The longest duration.
        Longest = "longest",
    }
}

/// The positions of a call's numbers: see [`Kind::value_columns`].
const BYTES: usize = 0;
const SECONDS: usize = 1;
const ALGBW: usize = 2;
const BUSBW: usize = 3;
const WAITED: usize = 4;
const SEQUENCE: usize = 5;

impl<'a> StepCalls<'a> {
    /// The calls of a step, in order of their first call. Empty for a step without collective operations.
    ///
    /// Cost: one pass over the records.
    pub fn of(records: &'a [Record]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let mut places: HashMap<(TensorId, Kind), usize> = HashMap::new();
        for record in records.iter().filter(|record| record.kind.is_of_calls()) {
            let Some(reading) = &record.reading else { continue };
            let place = *places.entry((record.tensor, record.kind)).or_insert_with(|| {
                all.push(Self { tensor: record.tensor, kind: record.kind, calls: Vec::new() });
                all.len() - 1
            });
            all[place].calls.push(reading);
        }
        all
    }

    /// The records of a step with calls combined, for readers with one place per tensor and step. Borrowed if the step
    /// has no calls.
    pub fn put_together(records: &'a [Record]) -> Cow<'a, [Record]> {
        if !records.iter().any(|record| record.kind.is_of_calls()) {
            return Cow::Borrowed(records);
        }
        let others = records.iter().filter(|record| !record.kind.is_of_calls()).copied();
        Cow::Owned(others.chain(Self::of(records).iter().map(Self::record)).collect())
    }

    /// The number of calls, at least one.
    pub fn count(&self) -> usize {
        self.calls.len()
    }

    /// All calls as one record: sums of numbers (with the resulting rates and the last sequence number), and for
    /// tensors msprobe's aggregates. [`Self::statistic`] has the exact share of zeros.
    pub fn record(&self) -> Record {
        let reading = match self.kind {
            Kind::CommTime => Reading::Values(self.times()),
            _ => Reading::Tensor(self.stats()),
        };
        Record { tensor: self.tensor, kind: self.kind, micro_step: MicroStep(0), reading: Some(reading) }
    }

    /// The element type, if all calls have the same.
    pub fn dtype(&self) -> Option<Dtype> {
        self.same(Reading::dtype)
    }

    /// The shape, if all calls have the same.
    pub fn shape(&self) -> Option<Shape> {
        self.same(Reading::shape)
    }

    /// A statistic over the tensors of all calls, aggregated as in msprobe: smallest minimum, largest maximum, mean of
    /// means, sum of norms, sum of NaN elements, mean share of zeros. For statistics that
    /// msprobe does not have: the largest magnitude, sums of counts, and NaN if they cannot be combined.
    pub fn statistic(&self, statistic: Statistic) -> f64 {
        let values = self.calls.iter().map(|reading| reading.value(statistic));
        let count = self.calls.len() as f64;
        match statistic {
            Statistic::Min => values.reduce(smaller).unwrap_or(f64::NAN),
            Statistic::Max | Statistic::AbsMax => values.reduce(larger).unwrap_or(f64::NAN),
            Statistic::Mean | Statistic::Zeros => values.sum::<f64>() / count,
            Statistic::Norm | Statistic::Nans | Statistic::Infs | Statistic::Count => values.sum(),
            Statistic::Std | Statistic::Crc32 | Statistic::Xor64 | Statistic::Id if self.calls.len() == 1 => {
                values.sum()
            }
            Statistic::Std | Statistic::Crc32 | Statistic::Xor64 | Statistic::Id => f64::NAN,
        }
    }

    /// A number over all calls.
    pub fn number(&self, column: CallsColumn) -> f64 {
        let at = |share: f64| {
            let mut seconds: Vec<f64> = self.numbers(SECONDS).filter(|seconds| !seconds.is_nan()).collect();
            seconds.sort_unstable_by(f64::total_cmp);
            let place = ((seconds.len() as f64 * share).ceil() as usize).clamp(1, seconds.len().max(1)) - 1;
            seconds.get(place).copied().unwrap_or(f64::NAN)
        };
        match column {
            CallsColumn::Calls => self.calls.len() as f64,
            CallsColumn::Median => at(0.5),
            CallsColumn::Late => at(0.99),
            CallsColumn::Longest => at(1.0),
        }
    }

    fn same<T: PartialEq>(&self, of: impl Fn(&Reading) -> T) -> Option<T> {
        let mut all = self.calls.iter().map(|reading| of(reading));
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }

    fn numbers(&self, place: usize) -> impl Iterator<Item = f64> {
        self.calls.iter().map(move |reading| reading.values().get(place).copied().unwrap_or(f64::NAN))
    }

    /// Sums of the known values. The bandwidths are computed from the bytes with a known time and that time.
    fn times(&self) -> Values {
        let sum = |place| self.numbers(place).filter(|number| !number.is_nan()).sum::<f64>();
        let (bytes, seconds) = (sum(BYTES), sum(SECONDS));
        let timed = self.numbers(BYTES).zip(self.numbers(SECONDS)).filter(|(_, seconds)| !seconds.is_nan());
        let timed = timed.map(|(bytes, _)| bytes).sum::<f64>();
        let algbw = if seconds > 0.0 { timed / seconds / 1e9 } else { f64::NAN };
        let rates = self.numbers(ALGBW).zip(self.numbers(BUSBW));
        let factor = rates.map(|(algbw, busbw)| busbw / algbw).find(|factor| factor.is_finite()).unwrap_or(f64::NAN);
        let sequence = self.numbers(SEQUENCE).last().unwrap_or(f64::NAN);
        let numbers = [bytes, seconds, algbw, algbw * factor, sum(WAITED), sequence];
        let dtype = self.calls.last().map_or(Dtype::F32, |reading| reading.dtype());
        Values::with_dtype(dtype, &numbers)
    }

    fn stats(&self) -> TensorStats {
        let of_calls = || self.calls.iter().filter_map(|reading| reading.tensor());
        let extreme = |of: fn(&TensorStats) -> Scalar, pick: fn(f64, f64) -> f64| {
            let chosen = |a: Scalar, b: Scalar| {
                if pick(a.as_f64(), b.as_f64()).to_bits() == a.as_f64().to_bits() { a } else { b }
            };
            of_calls().map(of).reduce(chosen).unwrap_or(Scalar::Float(f64::NAN))
        };
        let sum = |of: fn(&TensorStats) -> u64| of_calls().map(of).sum();
        let (count, zeros) = (sum(|stats| stats.count), self.statistic(Statistic::Zeros));
        let single = of_calls().next().filter(|_| self.calls.len() == 1);
        TensorStats {
            min: extreme(|stats| stats.min, smaller),
            max: extreme(|stats| stats.max, larger),
            mean: self.statistic(Statistic::Mean),
            norm: self.statistic(Statistic::Norm),
            abs_max: self.statistic(Statistic::AbsMax),
            std: self.statistic(Statistic::Std),
            nans: sum(|stats| stats.nans),
            infs: sum(|stats| stats.infs),
            zeros: (zeros * count as f64).round() as u64,
            count,
            crc32: single.map_or(0, |stats| stats.crc32),
            xor64: single.map_or(0, |stats| stats.xor64),
            ..TensorStats::empty(self.dtype().unwrap_or(Dtype::F32), self.shape().unwrap_or_default())
        }
    }
}

fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{CollectiveOp, CollectiveTiming};

    fn record(tensor: u32, kind: Kind, reading: impl Into<Reading>) -> Record {
        Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(0), reading: Some(reading.into()) }
    }

    fn stats(values: &[f64], zeros: u64) -> TensorStats {
        let sum: f64 = values.iter().sum();
        TensorStats {
            min: Scalar::Float(values.iter().copied().fold(f64::INFINITY, f64::min)),
            max: Scalar::Float(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            mean: sum / values.len() as f64,
            norm: values.iter().map(|value| value * value).sum::<f64>().sqrt(),
            nans: 1,
            zeros,
            count: values.len() as u64,
            ..TensorStats::empty(Dtype::F32, Shape::new(&[values.len() as i64]).unwrap())
        }
    }

    #[test]
    fn tensors_of_a_steps_calls_are_put_together_as_msprobe_does() {
        let records =
            [record(3, Kind::Comm, stats(&[3.0, 4.0], 1)), record(3, Kind::Comm, stats(&[0.0, 0.0, 1.0, -7.0], 3))];
        let all = StepCalls::of(&records);
        let [calls] = &all[..] else { panic!("{all:?}") };
        assert_eq!((calls.count(), calls.dtype(), calls.shape()), (2, Some(Dtype::F32), None));
        let expected = [
            (Statistic::Min, -7.0),
            (Statistic::Max, 4.0),
            (Statistic::Mean, f64::midpoint(3.5, -1.5)),
            (Statistic::Norm, 5.0 + 50.0_f64.sqrt()),
            (Statistic::Nans, 2.0),
            (Statistic::Zeros, 0.625),
            (Statistic::Count, 6.0),
        ];
        for (statistic, value) in expected {
            assert_eq!(calls.statistic(statistic), value, "{statistic:?}");
        }
        assert!(calls.statistic(Statistic::Std).is_nan());
        let reading = calls.record().reading.unwrap();
        assert_eq!((reading.value(Statistic::Min), reading.value(Statistic::Count)), (-7.0, 6.0));
        let one = &StepCalls::of(&records[..1])[0];
        // As texts: a NaN differs from itself.
        assert_eq!(format!("{:?}", one.record().reading), format!("{:?}", records[0].reading));
    }

    #[test]
    fn times_of_a_steps_calls_are_summed_and_have_quantiles() {
        let call = |milliseconds: u64, sequence: u64| {
            let timing = CollectiveTiming::of(CollectiveOp::AllReduce, 4, 1000, Duration::from_millis(milliseconds));
            let shape = Shape::new(&[250]).unwrap();
            record(0, Kind::CommTime, Values::of_call(Dtype::Bf16, shape, &timing, 0.001, sequence))
        };
        let records: Vec<Record> = (1..=100).map(|n| call(n, 7 + n)).collect();
        let other = record(
            1,
            Kind::CommTime,
            Values::of_collective(Dtype::F32, &CollectiveTiming::of(CollectiveOp::Send, 2, 8, Duration::ZERO)),
        );
        let records: Vec<Record> = std::iter::once(other).chain(records).collect();
        let all = StepCalls::of(&records);
        let [_, calls] = &all[..] else { panic!("{all:?}") };
        let number = |column| calls.number(column);
        assert_eq!(CallsColumn::ALL.map(number), [100.0, 0.05, 0.099, 0.1]);
        let reading = calls.record().reading.unwrap();
        let [bytes, seconds, algbw, busbw, waited, sequence] = *reading.values() else { panic!("{reading:?}") };
        assert_eq!((bytes, sequence, calls.dtype()), (100_000.0, 107.0, Some(Dtype::Bf16)));
        assert!((seconds - 5.05).abs() < 1e-12 && (waited - 0.1).abs() < 1e-12);
        assert!((algbw - 1e5 / 5.05 / 1e9).abs() < 1e-15 && (busbw / algbw - 1.5).abs() < 1e-12);
    }
}
