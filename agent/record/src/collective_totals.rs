//! Collective operations of the whole run: counts and times per operation and group, readable from any thread while the
//! training updates them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::{CollectiveOp, OpenCollectives, ProcessGroup};

/// Relaxed, because counters publish no other memory.
const COUNT: Ordering = Ordering::Relaxed;
/// Two significant digits: a quantile within 1 %.
const DIGITS: u8 = 2;
/// Longer operations count as this long in the quantiles. No operation takes longer and succeeds.
const LONGEST: Duration = Duration::from_hours(1);
/// A series takes about 40 kB. No job has more than ten operations in a dozen groups.
const MAX_SERIES: usize = 128;
/// The group name of operations beyond [`MAX_SERIES`].
const OTHER: &str = "other";

/// The counts of collective operations, by operation and group.
#[derive(Debug, Default)]
pub struct CollectiveTotals {
    series: Mutex<Vec<Arc<CollectiveSeries>>>,
    groups: Mutex<Vec<Arc<ProcessGroup>>>,
    open: OpenCollectives,
    stragglers: Mutex<Vec<Straggler>>,
}

/// The rank of a group that arrived last at its operations over a window of steps. It spent the least time inside the
/// operations, because the other ranks waited for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Straggler {
    /// The group.
    pub group: Box<str>,
    /// The global rank.
    pub rank: u32,
    /// The difference between the other ranks' median time inside the operations and this rank's, in seconds per step:
    /// how long they waited for it.
    pub lag: f64,
    /// The other ranks' median time inside the operations, in seconds per step.
    pub median: f64,
    /// The last step of the window.
    pub step: u64,
}

impl CollectiveTotals {
    /// The operations in progress.
    pub fn open(&self) -> &OpenCollectives {
        &self.open
    }

    /// Registers a group of ranks and returns it. If another group with different ranks has the same name, the returned
    /// group's name has a number appended.
    pub fn group(&self, group: ProcessGroup) -> Arc<ProcessGroup> {
        let mut groups = self.groups.lock();
        let name = group.name.clone();
        let mut group = group;
        let mut number = 1;
        while let Some(known) = groups.iter().find(|known| known.name == group.name) {
            if **known == group {
                return Arc::clone(known);
            }
            number += 1;
            group.name = format!("{name}_{number}").into();
        }
        let group = Arc::new(group);
        if groups.len() < MAX_SERIES {
            groups.push(Arc::clone(&group));
        }
        group
    }

    /// The groups in order of registration, at most 128.
    pub fn groups(&self) -> Vec<Arc<ProcessGroup>> {
        self.groups.lock().clone()
    }

    /// Sets a group's straggler, replacing the previous one.
    pub fn set_straggler(&self, straggler: Straggler) {
        let mut all = self.stragglers.lock();
        if let Some(known) = all.iter_mut().find(|known| known.group == straggler.group) {
            *known = straggler;
        } else if all.len() < MAX_SERIES {
            all.push(straggler);
        }
    }

    /// The stragglers by group. Only the rank that compares the group's ranks has them.
    pub fn stragglers(&self) -> Vec<Straggler> {
        self.stragglers.lock().clone()
    }

    /// The series of an operation in a group, created on first use. Takes a lock and a search: call it once and keep
    /// the result.
    ///
    /// Beyond 128 series, further groups are counted as `other`.
    pub fn series(&self, op: CollectiveOp, group: &str) -> Arc<CollectiveSeries> {
        let mut all = self.series.lock();
        let known = |group: &str| all.iter().find(|series| series.op == op && &*series.group == group).cloned();
        if let Some(series) = known(group) {
            return series;
        }
        let is_full = all.len() >= MAX_SERIES - CollectiveOp::ALL.len();
        let group = if is_full { OTHER } else { group };
        known(group).unwrap_or_else(|| {
            let series = Arc::new(CollectiveSeries::new(op, group));
            all.push(Arc::clone(&series));
            series
        })
    }

    /// All series, in order of creation.
    pub fn all(&self) -> Vec<Arc<CollectiveSeries>> {
        self.series.lock().clone()
    }

    /// Summaries of all series, in order of creation.
    pub fn summaries(&self) -> Vec<CollectiveSummary> {
        self.all().iter().map(|series| series.summary()).collect()
    }
}

/// The counts of one operation in one group of ranks.
pub struct CollectiveSeries {
    op: CollectiveOp,
    group: Box<str>,
    started: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    /// In nanoseconds.
    durations: Mutex<Durations>,
}

struct Durations {
    histogram: Histogram<u64>,
    sum: Duration,
    waited: Duration,
}

/// A snapshot of a [`CollectiveSeries`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveSummary {
    /// The operation.
    pub op: CollectiveOp,
    /// The group of ranks.
    pub group: String,
    /// Operations started.
    pub started: u64,
    /// Started operations that failed or were abandoned.
    pub failed: u64,
    /// Operations finished. The durations cover only these.
    pub finished: u64,
    /// Bytes passed to the operations, as [`CollectiveTiming::bytes`](crate::CollectiveTiming::bytes) counts them.
    pub bytes: u64,
    /// The sum of all durations.
    pub time: Duration,
    /// The part of `time` in which the caller only waited. In the rest, the operation overlapped with other work.
    pub waited: Duration,
    /// The median duration, within 1 %; zero if none is finished.
    pub median: Duration,
    /// The 99th percentile of the durations.
    pub late: Duration,
    /// The longest duration.
    pub longest: Duration,
}

impl CollectiveSeries {
    fn new(op: CollectiveOp, group: &str) -> Self {
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        // Fails only for an invalid range or precision, and these are constants.
        #[expect(clippy::expect_used, reason = "constants within the crate's bounds")]
        let histogram = Histogram::new_with_bounds(1, longest, DIGITS).expect("a valid histogram");
        Self {
            op,
            group: group.into(),
            started: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            durations: Mutex::new(Durations { histogram, sum: Duration::ZERO, waited: Duration::ZERO }),
        }
    }

    /// The operation.
    pub fn op(&self) -> CollectiveOp {
        self.op
    }

    /// The group of ranks: the `process_group` label.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Counts the start of an operation.
    pub fn start(&self, bytes: u64) {
        self.started.fetch_add(1, COUNT);
        self.bytes.fetch_add(bytes, COUNT);
    }

    /// Counts a finished operation, and for how long of it the caller waited. Cost: a lock held for nanoseconds, or for
    /// microseconds while a metrics page is rendered.
    pub fn finish(&self, duration: Duration, waited: Duration) {
        let mut durations = self.durations.lock();
        durations.histogram.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1));
        durations.sum += duration;
        durations.waited += waited.min(duration);
    }

    /// Counts a failed operation.
    pub fn fail(&self) {
        self.failed.fetch_add(1, COUNT);
    }

    /// For each of `bounds` (ascending), the number of finished operations that took at most that long; then the number
    /// of all finished operations and the sum of their durations.
    pub fn distribution<const N: usize>(&self, bounds: &[Duration; N]) -> ([u64; N], u64, Duration) {
        let mut counts = [0; N];
        let durations = self.durations.lock();
        for value in durations.histogram.iter_recorded() {
            let duration = Duration::from_nanos(value.value_iterated_to());
            let first = bounds.partition_point(|&bound| bound < duration);
            for count in &mut counts[first..] {
                *count += value.count_at_value();
            }
        }
        (counts, durations.histogram.len(), durations.sum)
    }

    /// The quantile of the durations at `share`, within 1 %; zero if none is finished.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.durations.lock().histogram.value_at_quantile(share))
    }

    /// Returns the current counts.
    pub fn summary(&self) -> CollectiveSummary {
        let durations = self.durations.lock();
        let at = |quantile| Duration::from_nanos(durations.histogram.value_at_quantile(quantile));
        CollectiveSummary {
            op: self.op,
            group: self.group.to_string(),
            started: self.started.load(COUNT),
            failed: self.failed.load(COUNT),
            finished: durations.histogram.len(),
            bytes: self.bytes.load(COUNT),
            time: durations.sum,
            waited: durations.waited,
            median: at(0.5),
            late: at(0.99),
            longest: Duration::from_nanos(durations.histogram.max()),
        }
    }
}

impl fmt::Debug for CollectiveSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_counts_starts_ends_and_failures() {
        let totals = CollectiveTotals::default();
        let series = totals.series(CollectiveOp::AllReduce, "dp");
        for milliseconds in [1, 2, 3, 400] {
            series.start(1000);
            let duration = Duration::from_millis(milliseconds);
            series.finish(duration, duration / 2);
        }
        series.start(1000);
        series.fail();
        assert!(Arc::ptr_eq(&series, &totals.series(CollectiveOp::AllReduce, "dp")));
        assert!(!Arc::ptr_eq(&series, &totals.series(CollectiveOp::AllReduce, "tp")));
        let summary = &totals.summaries()[0];
        assert_eq!((summary.started, summary.failed, summary.finished, summary.bytes), (5, 1, 4, 5000));
        assert_eq!((summary.time, summary.waited), (Duration::from_millis(406), Duration::from_millis(203)));
        let near = |found: Duration, milliseconds: f64| (found.as_secs_f64() * 1e3 / milliseconds - 1.0).abs() < 0.01;
        assert!(near(summary.median, 2.0) && near(summary.late, 400.0) && near(summary.longest, 400.0), "{summary:?}");
        let bounds = [0.5, 2.5, 100.0, 1000.0].map(|milliseconds: f64| Duration::from_secs_f64(milliseconds / 1e3));
        assert_eq!(series.distribution(&bounds), ([0, 2, 3, 4], 4, Duration::from_millis(406)));
    }

    #[test]
    fn a_name_belongs_to_one_group_of_ranks() {
        let totals = CollectiveTotals::default();
        let named = |ranks: Vec<u32>| totals.group(ProcessGroup::of_ranks("dp", Some("dp"), ranks)).name.to_string();
        assert_eq!(named(vec![0, 1]), "dp");
        assert_eq!(named(vec![0, 2]), "dp_2");
        assert_eq!(named(vec![0, 3]), "dp_3");
        assert_eq!([named(vec![0, 2]), named(vec![0, 1])], ["dp_2", "dp"]);
        assert_eq!(totals.groups().len(), 3);
    }

    #[test]
    fn groups_without_end_share_a_series_per_operation() {
        let totals = CollectiveTotals::default();
        for group in 0..1000 {
            totals.series(CollectiveOp::Send, &group.to_string()).start(1);
            totals.series(CollectiveOp::Recv, &group.to_string()).start(1);
        }
        let summaries = totals.summaries();
        assert!(summaries.len() <= MAX_SERIES, "{}", summaries.len());
        assert_eq!(summaries.iter().map(|series| series.started).sum::<u64>(), 2000);
        assert_eq!(summaries.iter().filter(|series| series.group == OTHER).count(), 2);
    }
}
