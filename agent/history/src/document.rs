//! The documents for readers of a history: versioned, and the same for the live page, a file and a terminal.

use serde::{Deserialize, Serialize};
use trainmon_core::{Alert, number};

use crate::numbers;

/// Increases with every change that an older reader would misinterpret.
pub const VERSION: u32 = 2;

/// Everything that the page shows: embedded in a page file, and served in parts to the live page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunDocument {
    /// [`VERSION`].
    pub version: u32,
    /// Curves, worst tensors, alerts.
    pub overview: Overview,
    /// The run's identity and the monitor's counters.
    pub status: Status,
    /// The heat maps, for a page without a server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heat_maps: Vec<HeatMap>,
}

/// A reader's position, for [`History::since`](crate::History::since).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The generation of the axis of the curves.
    pub generation: u64,
    /// The number of bins that will not change any more.
    pub bins: usize,
    /// The number of alerts so far.
    pub alerts: u64,
}

/// A history without its heat maps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// [`VERSION`].
    pub version: u32,
    /// The position from which to continue.
    pub cursor: Cursor,
    /// The steps of the curves.
    pub steps: AxisDocument,
    /// The curves in the order of their first values.
    pub curves: Vec<CurveDocument>,
    /// The number of curves that did not fit.
    pub curves_left_out: u64,
    /// The tables.
    pub tables: Tables,
    /// The newest alerts, oldest first.
    pub alerts: Vec<Alert>,
    /// The number of alerts so far.
    pub alerts_seen: u64,
    /// The number of these that begin; the end of an alert does not count.
    pub alerts_begun: u64,
}

/// The tables, which are always complete: they are short and change with every step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tables {
    /// The kinds that have rows.
    pub kinds: Vec<KindDocument>,
    /// The number of rows that did not fit.
    pub rows_left_out: u64,
    /// The steps of the heat maps, so that a reader can tell which ones it has.
    pub columns: AxisState,
    /// The tensors farthest from their usual level, worst first: non-finite ones, then by distance.
    pub worst: Vec<TensorState>,
    /// The largest update ratios, largest first.
    pub update_ratios: Vec<TensorState>,
    /// The number of deviations from which on a tensor's newest value is unlikely to be chance, given the numbers of
    /// tensors and measured steps. 0 in documents of older versions.
    #[serde(default)]
    pub far_deviations: f64,
    /// The curves whose numbers are labels, such as a rank or an id: they are shown as text.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// The state of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisState {
    /// [`Axis::generation`](crate::Axis::generation).
    pub generation: u64,
    /// The number of steps per bin.
    pub width: u64,
    /// The total number of bins.
    pub bins: usize,
}

/// The bins of an axis, from one bin on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AxisDocument {
    /// The whole axis.
    #[serde(flatten)]
    pub state: AxisState,
    /// The first bin in this document.
    pub from: usize,
    /// The first step of each bin.
    pub first: Vec<u64>,
    /// The last step of each bin.
    pub last: Vec<u64>,
    /// The Unix seconds at the end of each bin's last step.
    pub time: Vec<f64>,
}

/// A curve over the bins of the document's axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveDocument {
    /// The name: `loss`, `grad_norm`, `scalar/accuracy`.
    pub name: String,
    /// The newest value of each bin; `null` if it has none.
    #[serde(with = "numbers")]
    pub last: Vec<Option<f64>>,
    /// The smallest finite value of each bin, or a non-finite one if no value is finite; empty while bins hold one step
    /// each.
    #[serde(with = "numbers", default, skip_serializing_if = "Vec::is_empty")]
    pub low: Vec<Option<f64>>,
    /// The largest finite value of each bin, like `low`.
    #[serde(with = "numbers", default, skip_serializing_if = "Vec::is_empty")]
    pub high: Vec<Option<f64>>,
    /// The bins with a non-finite value, counted from the axis' first bin; empty while bins hold one step each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<usize>,
}

impl CurveDocument {
    /// Whether a bin, counted from this document's first, has a non-finite value; `from`: the first bin's index on the
    /// axis.
    pub fn is_broken(&self, bin: usize, from: usize) -> bool {
        let is_broken =
            |values: &[Option<f64>]| values.get(bin).copied().flatten().is_some_and(|value| !value.is_finite());
        is_broken(&self.last) || self.broken.contains(&(from + bin))
    }
}

/// A kind of measurement that has rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindDocument {
    /// The name: `grad_reduced`.
    pub name: String,
    /// The statistics in its cells.
    pub statistics: Vec<String>,
    /// The number of tensors.
    pub rows: usize,
}

/// A tensor's newest measurement compared with its usual value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorState {
    /// The kind of measurement.
    pub kind: String,
    /// The tensor.
    pub name: String,
    /// The tensor's layer.
    pub layer: String,
    /// The newest step with a value.
    pub step: u64,
    /// The value: the norm, or the kind's first number.
    #[serde(with = "number")]
    pub value: f64,
    /// The usual value; `null` before it is known.
    #[serde(with = "number::optional", default)]
    pub usual: Option<f64>,
    /// The distance between the value and its usual value, in standard deviations of its logarithm; 0 before the
    /// scatter is known and for a non-finite value.
    #[serde(with = "number")]
    pub deviations: f64,
}

/// The changes since a [`Cursor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// [`VERSION`].
    pub version: u32,
    /// The position from which to continue.
    pub cursor: Cursor,
    /// The bins from [`Cursor::bins`] on; they replace the reader's bins.
    pub steps: AxisDocument,
    /// Every curve, over these bins.
    pub curves: Vec<CurveDocument>,
    /// The tables, complete.
    pub tables: Tables,
    /// The alerts since the cursor, oldest first.
    pub alerts: Vec<Alert>,
    /// The number of alerts so far.
    pub alerts_seen: u64,
    /// The number of these that begin.
    pub alerts_begun: u64,
}

/// One statistic of one kind: rows are tensors, columns are steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatMap {
    /// [`VERSION`].
    pub version: u32,
    /// The kind.
    pub kind: String,
    /// The statistic.
    pub statistic: String,
    /// The steps; `from` is the index of the first column here.
    pub columns: AxisDocument,
    /// The tensors; empty in a response that continues from columns the reader has.
    pub names: Vec<String>,
    /// The layers, in the order of their first rows.
    pub layers: Vec<String>,
    /// The index of each tensor's layer.
    pub layer_of: Vec<u32>,
    /// The number of rows, also if `names` is empty.
    pub rows: usize,
    /// Row after row, `columns.first.len()` values each; -1 for a missing value. Little-endian float32 in base64.
    #[serde(with = "numbers::base64")]
    pub values: Vec<f32>,
}

/// The run's identity and the monitor's counters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The run's name.
    pub run: String,
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// The machine.
    pub host: String,
    /// trainmon's version.
    pub version: String,
    /// The newest step.
    pub step: Option<u64>,
    /// The time since the newest step; `None` before the first step, and in a file.
    pub seconds_since_last_step: Option<f64>,
    /// The counts of all records; `None` if unknown.
    pub ledger: Option<LedgerDocument>,
    /// The collective operations of the whole run.
    pub collectives: Vec<CollectiveDocument>,
    /// The cost of the monitor; `None` if unknown.
    pub cost: Option<CostDocument>,
}

/// The counters: how many records were measured, exported and lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerDocument {
    /// Tensors that the hooks received.
    pub observed: u64,
    /// Of these, not measured: outside the window or not sampled.
    pub not_sampled: u64,
    /// Records handed to the worker.
    pub accepted: u64,
    /// Records lost before the worker.
    pub dropped: u64,
    /// The worker's queue.
    pub queue: QueueDocument,
    /// The exporters.
    pub sinks: Vec<SinkDocument>,
    /// Alerts that an action or exporter did not receive.
    pub alerts_lost: u64,
    /// Bytes written to the journal, if there is one.
    pub journal_bytes: Option<u64>,
    /// Failed writes to the journal.
    pub journal_errors: Option<u64>,
}

/// A queue of step batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDocument {
    /// The number of waiting batches.
    pub length: usize,
    /// The largest number of waiting batches.
    pub capacity: usize,
}

/// The counters of one exporter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkDocument {
    /// The name: `csv`.
    pub name: String,
    /// Records accepted for it.
    pub accepted: u64,
    /// Records delivered.
    pub exported: u64,
    /// Records lost, for all reasons.
    pub lost: u64,
    /// Its queue.
    pub queue: QueueDocument,
}

/// A collective operation in one group of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CollectiveDocument {
    /// The operation: `all_reduce`.
    pub op: String,
    /// The group of ranks.
    pub group: String,
    /// Operations started.
    pub started: u64,
    /// Operations that failed or were aborted.
    pub failed: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// The total duration.
    pub seconds: f64,
    /// The part of it in which the caller only waited.
    #[serde(default)]
    pub waited_seconds: f64,
    /// The median duration.
    pub median_seconds: f64,
    /// The 99th percentile of the duration.
    pub p99_seconds: f64,
    /// The longest duration.
    pub max_seconds: f64,
}

/// The cost of the monitor for the training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostDocument {
    /// The number of steps that these figures cover.
    pub steps: u64,
    /// The total duration of these steps.
    pub step_seconds: f64,
    /// Time on the training thread for reading tensor memory.
    pub measure_seconds: f64,
    /// Time on the training thread for launching and collecting device statistics.
    pub launch_seconds: f64,
    /// Time on the training thread for handing over batches, including the journal.
    pub offer_seconds: f64,
    /// The share of the step time that measuring may take; `None` without a limit.
    pub budget: Option<f64>,
    /// The current share of measured layers and groups.
    pub sampling: Option<f64>,
    /// Bytes of tensor memory read.
    pub bytes_read: u64,
}
