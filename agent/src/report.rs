//! The closing report: records observed, delivered and lost, and the cost.

use std::fmt;
use std::time::Duration;

use trainmon_core::{CollectiveSummary, LedgerSnapshot, SinkSnapshot, Step};

use crate::cost::CostSummary;
use crate::late::MissingNumbers;
use crate::queue_loss::QueueLoss;

/// The suggested fix for a slow worker.
pub(crate) const WORKER_HINT: &str = "raise `step_interval`, measure less, or raise `queue_steps`";
/// The suggested fix for a slow exporter.
pub(crate) const SINK_HINT: &str = "find out why it is slow, or raise `step_interval` or `queue_steps`";

/// The report of a run. `Display` gives the closing lines for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The step after the last one.
    pub next_step: Step,
    /// The monitor's counters.
    pub counts: LedgerSnapshot,
    /// Steps offered to the worker, and those its queue dropped.
    pub steps: QueueLoss,
    /// Expected numbers that arrived too late or never.
    pub missing: MissingNumbers,
    /// The counters of each exporter, and the locations of its output.
    pub sinks: Vec<SinkReport>,
    /// The totals of collective operations, by operation and group; empty if none was guarded.
    pub collectives: Vec<CollectiveSummary>,
    /// The monitor's cost.
    pub cost: CostSummary,
}

/// The report of one exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkReport {
    /// Its name, such as `csv` or `prometheus`.
    pub name: &'static str,
    /// Its counters.
    pub counts: SinkSnapshot,
    /// Steps offered by the worker, and those its queue dropped.
    pub steps: QueueLoss,
    /// The locations of its output: a directory, an address.
    pub locations: Vec<String>,
}

impl Report {
    /// Whether every observed record is accounted for, here and at every exporter.
    pub fn balances(&self) -> bool {
        self.counts.balances() && self.sinks.iter().all(|sink| sink.counts.balances())
    }

    /// The closing message: the report, indented below the first line.
    pub(crate) fn closing(&self) -> String {
        format!("ended before step {}: {self}", self.next_step).replace('\n', "\n  ")
    }

    /// The number of records that some exporter never delivered.
    pub fn lost(&self) -> u64 {
        self.counts.dropped.iter().sum::<u64>() + self.sinks.iter().map(|sink| sink.counts.lost()).sum::<u64>()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LedgerSnapshot { observed, not_sampled, offered, accepted: _, dropped } = self.counts;
        writeln!(
            f,
            "observed {observed} tensor{}: {offered} measured, {not_sampled} not sampled, {} dropped",
            if observed == 1 { "" } else { "s" },
            dropped.iter().sum::<u64>()
        )?;
        if self.steps.is_notable() {
            writeln!(f, "  the queue to the worker dropped {}: {WORKER_HINT}", self.steps)?;
        }
        if self.missing.total() > 0 {
            writeln!(f, "  missing: {}: {}", self.missing, self.missing.hint())?;
        }
        for sink in &self.sinks {
            let SinkSnapshot { accepted, exported, failed, abandoned, dropped } = sink.counts;
            write!(f, "{}: {exported} of {accepted} records delivered", sink.name)?;
            for (count, word) in [(failed, "failed"), (abandoned, "abandoned"), (dropped, "dropped")] {
                if count > 0 {
                    write!(f, ", {count} {word}")?;
                }
            }
            writeln!(f, "{}", sink.locations.iter().fold(String::new(), |text, place| text + "\n  " + place))?;
            if sink.steps.is_notable() {
                writeln!(f, "  its queue dropped {}: {SINK_HINT}", sink.steps)?;
            }
        }
        for series in &self.collectives {
            let CollectiveSummary { op, group, started, failed, bytes, median, late, .. } = series;
            let plural = if *started == 1 { "" } else { "s" };
            write!(f, "{op} in {group}: {started} operation{plural}, {:.1} MiB", *bytes as f64 / f64::from(1 << 20))?;
            if *failed > 0 {
                write!(f, ", {failed} failed")?;
            }
            writeln!(f, ", {:.3} ms (99th percentile {:.3} ms)", milliseconds(*median), milliseconds(*late))?;
        }
        if self.cost.steps == 0 {
            return write!(f, "cost: no step was timed");
        }
        write!(
            f,
            "cost: {:.2} % of the step (median step {:.1} ms), {:.1} MiB read",
            100.0 * self.cost.share_of_step,
            milliseconds(self.cost.step_median),
            self.cost.bytes_read as f64 / f64::from(1 << 20)
        )?;
        for (phase, median, late) in &self.cost.phases {
            let whose = if phase.is_in_step() { "per step" } else { "per step and exporter, in the background" };
            let (median, late) = (milliseconds(*median), milliseconds(*late));
            write!(f, "\n  {:<8}{median:.3} ms {whose} (99th percentile {late:.3} ms)", phase.name())?;
        }
        Ok(())
    }
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}
