//! What readers of a history are given: documents with a version, the same for the live page, a file and a terminal.

use serde::{Deserialize, Serialize};
use trainmon_core::{Alert, number};

use crate::numbers;

/// Goes up with every change that an older reader would misunderstand.
pub const VERSION: u32 = 2;

/// Everything the page shows: what is given to a page in a file, and what the live page asks for part by part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunDocument {
    /// [`VERSION`].
    pub version: u32,
    /// Curves, worst tensors, alerts.
    pub overview: Overview,
    /// Who this is, and what the monitor says of itself.
    pub status: Status,
    /// The heat maps, where nobody can be asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heat_maps: Vec<HeatMap>,
}

/// How far a reader has read, for [`History::since`](crate::History::since).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Of the axis of the curves.
    pub generation: u64,
    /// Bins that will not change any more.
    pub bins: usize,
    /// Alerts ever seen.
    pub alerts: u64,
}

/// A history but for its heat maps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// [`VERSION`].
    pub version: u32,
    /// Where to go on reading.
    pub cursor: Cursor,
    /// The steps of the curves.
    pub steps: AxisDocument,
    /// In the order they came.
    pub curves: Vec<CurveDocument>,
    /// Curves that found no room.
    pub curves_left_out: u64,
    /// The tables.
    pub tables: Tables,
    /// The newest alerts, oldest first.
    pub alerts: Vec<Alert>,
    /// Alerts ever seen.
    pub alerts_seen: u64,
    /// Of those, alerts that begin: an alert that ends is none.
    pub alerts_begun: u64,
}

/// What is given whole every time: it is short, and changes with every step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tables {
    /// The kinds that have rows.
    pub kinds: Vec<KindDocument>,
    /// Rows that found no room.
    pub rows_left_out: u64,
    /// The steps of the heat maps: which of them a reader has is seen from it.
    pub columns: AxisState,
    /// The tensors farthest from their usual level, worst first: those that are not finite, then by distance.
    pub worst: Vec<TensorState>,
    /// The largest update ratios, largest first.
    pub update_ratios: Vec<TensorState>,
    /// From how many deviations on a tensor's newest value is no chance, given how many tensors there are and how many steps were
    /// measured. 0 in documents of older versions.
    #[serde(default)]
    pub far_deviations: f64,
    /// The curves whose numbers are labels, a rank or an id: they are shown as text.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// The state of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisState {
    /// [`Axis::generation`](crate::Axis::generation).
    pub generation: u64,
    /// How many steps a bin takes.
    pub width: u64,
    /// Bins in all.
    pub bins: usize,
}

/// Bins of an axis, from one on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AxisDocument {
    /// The whole axis.
    #[serde(flatten)]
    pub state: AxisState,
    /// The first bin told of here.
    pub from: usize,
    /// By bin: its first step.
    pub first: Vec<u64>,
    /// By bin: its last step.
    pub last: Vec<u64>,
    /// By bin: Unix seconds at the end of its last step.
    pub time: Vec<f64>,
}

/// A curve, over the bins of the axis beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveDocument {
    /// `loss`, `grad_norm`, `scalar/accuracy`.
    pub name: String,
    /// By bin: the newest value, `null` where there is none.
    #[serde(with = "numbers")]
    pub last: Vec<Option<f64>>,
    /// By bin: the smallest finite value, or one that is not finite where all are such; empty while bins hold one step each.
    #[serde(with = "numbers", default, skip_serializing_if = "Vec::is_empty")]
    pub low: Vec<Option<f64>>,
    /// As `low`: the largest.
    #[serde(with = "numbers", default, skip_serializing_if = "Vec::is_empty")]
    pub high: Vec<Option<f64>>,
    /// The bins, counted from the axis' first, in which a value was not finite; empty while bins hold one step each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<usize>,
}

impl CurveDocument {
    /// Whether a value of a bin, counted from the first that is told of here, was not finite; `from`: that bin's place on the axis.
    pub fn is_broken(&self, bin: usize, from: usize) -> bool {
        let is_broken =
            |values: &[Option<f64>]| values.get(bin).copied().flatten().is_some_and(|value| !value.is_finite());
        is_broken(&self.last) || self.broken.contains(&(from + bin))
    }
}

/// A kind of measurement that has rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindDocument {
    /// `grad_reduced`.
    pub name: String,
    /// What a cell holds.
    pub statistics: Vec<String>,
    /// How many tensors.
    pub rows: usize,
}

/// A tensor's newest measurement against its usual one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorState {
    /// What was measured.
    pub kind: String,
    /// The tensor.
    pub name: String,
    /// Its layer.
    pub layer: String,
    /// The newest step with a value.
    pub step: u64,
    /// The value: the norm, or the kind's first number.
    #[serde(with = "number")]
    pub value: f64,
    /// What it usually is; `null` before that is known.
    #[serde(with = "number::optional", default)]
    pub usual: Option<f64>,
    /// How far the value lies from it, in standard deviations of its logarithm; 0 before a scatter is known and for a value that
    /// is not finite.
    #[serde(with = "number")]
    pub deviations: f64,
}

/// What came since a [`Cursor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// [`VERSION`].
    pub version: u32,
    /// Where to go on reading.
    pub cursor: Cursor,
    /// The bins from [`Cursor::bins`] on; they replace those a reader has.
    pub steps: AxisDocument,
    /// Every curve, over these bins.
    pub curves: Vec<CurveDocument>,
    /// The tables, whole.
    pub tables: Tables,
    /// The alerts since, oldest first.
    pub alerts: Vec<Alert>,
    /// Alerts ever seen.
    pub alerts_seen: u64,
    /// Of those, alerts that begin.
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
    /// The steps; `from` says which column is the first one here.
    pub columns: AxisDocument,
    /// The tensors; empty in an answer that goes on from columns a reader has already.
    pub names: Vec<String>,
    /// The layers, in the order they came.
    pub layers: Vec<String>,
    /// By tensor: the index of its layer.
    pub layer_of: Vec<u32>,
    /// How many rows there are, also where `names` is empty.
    pub rows: usize,
    /// Row after row, `columns.first.len()` values each; -1 where there is none. Little-endian float32 in base64.
    #[serde(with = "numbers::base64")]
    pub values: Vec<f32>,
}

/// Who a run is, and what the monitor says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The run's name.
    pub run: String,
    /// This rank.
    pub rank: u32,
    /// Ranks in all.
    pub world_size: u32,
    /// The machine.
    pub host: String,
    /// trainmon's version.
    pub version: String,
    /// The newest step.
    pub step: Option<u64>,
    /// Since then; `None` before the first, and in a file.
    pub seconds_since_last_step: Option<f64>,
    /// What became of every record; `None` where nobody knows.
    pub ledger: Option<LedgerDocument>,
    /// Of the whole run.
    pub collectives: Vec<CollectiveDocument>,
    /// What the monitor costs; `None` where nobody knows.
    pub cost: Option<CostDocument>,
}

/// The books: where every record went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerDocument {
    /// Tensors shown to the hooks.
    pub observed: u64,
    /// Of those, not measured: outside the window.
    pub not_sampled: u64,
    /// Handed to the worker.
    pub accepted: u64,
    /// Lost before it.
    pub dropped: u64,
    /// The worker's queue.
    pub queue: QueueDocument,
    /// The exporters.
    pub sinks: Vec<SinkDocument>,
    /// Alerts that some action or exporter did not get.
    pub alerts_lost: u64,
    /// Bytes written to the journal, where one is kept.
    pub journal_bytes: Option<u64>,
    /// Failed writes to the journal.
    pub journal_errors: Option<u64>,
}

/// A queue of step batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDocument {
    /// Waiting now.
    pub length: usize,
    /// As many may wait.
    pub capacity: usize,
}

/// One exporter's books.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkDocument {
    /// `csv`.
    pub name: String,
    /// Records meant for it.
    pub accepted: u64,
    /// Delivered.
    pub exported: u64,
    /// Lost, for whatever reason.
    pub lost: u64,
    /// Its queue.
    pub queue: QueueDocument,
}

/// A collective operation in one group of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CollectiveDocument {
    /// `all_reduce`.
    pub op: String,
    /// The group of ranks.
    pub group: String,
    /// Started.
    pub started: u64,
    /// Failed or given up.
    pub failed: u64,
    /// Bytes handed over.
    pub bytes: u64,
    /// All together.
    pub seconds: f64,
    /// Of that, time in which the caller only waited.
    #[serde(default)]
    pub waited_seconds: f64,
    /// The middle one.
    pub median_seconds: f64,
    /// The 99th percentile.
    pub p99_seconds: f64,
    /// The longest.
    pub max_seconds: f64,
}

/// What the monitor takes from the training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostDocument {
    /// Steps these figures are of.
    pub steps: u64,
    /// All their time.
    pub step_seconds: f64,
    /// In the training thread: reading tensor memory.
    pub measure_seconds: f64,
    /// In the training thread: launching and collecting device statistics.
    pub launch_seconds: f64,
    /// In the training thread: handing over, the journal included.
    pub offer_seconds: f64,
    /// The share of the step time that measuring may take; `None` without a limit.
    pub budget: Option<f64>,
    /// The share of layers and groups measured to keep it.
    pub sampling: Option<f64>,
    /// Tensor memory read.
    pub bytes_read: u64,
}
