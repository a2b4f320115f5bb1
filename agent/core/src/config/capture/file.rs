//! The keys of a capture's config file, msprobe's and our own. Defaults, ranges and meanings stand here and nowhere else.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smart_default::SmartDefault;

use super::effective::{
    CaptureConfig, CaptureFiles, CaptureLevel, CaptureTask, Precision, RiskLevel, Slice, Summary, TensorFormat,
};

/// A capture's config: what `PrecisionDebugger` and `trainmon.capture` are given.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the keys of a file, most of them msprobe's")]
pub(in crate::config) struct CaptureFile {
    /// The JSON Schema of this file, for editors.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub(in crate::config) schema: Option<String>,
    /// What is kept of each value. A file with this key is the config of a capture.
    pub(in crate::config) task: TaskFile,
    /// The directory in which `step<N>/rank<R>` are made. It may be given as an argument instead.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-msprobe" = "must be given; characters other than `a-zA-Z0-9_.:/-` are refused"))]
    pub(in crate::config) dump_path: Option<PathBuf>,
    /// The ranks that capture: numbers, and ranges like `"3-5"`. Empty: all.
    #[schemars(extend("x-msprobe" = "a list in a training of one process captures nothing there as well"))]
    pub(in crate::config) rank: Vec<NumberFile>,
    /// The steps captured: numbers, and ranges like `"3-5"`. Empty: all.
    pub(in crate::config) step: Vec<NumberFile>,
    /// How finely.
    pub(in crate::config) level: CaptureLevel,
    /// A tensor on a device stays there until the step's end, instead of being copied at once.
    #[schemars(extend("x-msprobe" = "refused with `tensor` without `list`, and with `md5`"))]
    pub(in crate::config) async_dump: bool,
    /// The switch that is turned by editing the file while the training runs. Absent: the capture is on, and the file is not
    /// looked at again.
    pub(in crate::config) dump_enable: Option<bool>,
    /// Write `stack.json` and `construct.json`.
    #[default = true]
    pub(in crate::config) extra_info: bool,
    /// Keep the bits of the training's gradients: a module's gradients are caught on its tensors, and that of an input which others
    /// use too is the whole of it. Absent: `true`; `false` where the training uses msprobe's names (`PrecisionDebugger`).
    #[schemars(extend("x-msprobe" = "not in msprobe: its hooks change the order in which gradients are added"))]
    pub(in crate::config) neutral: Option<bool>,
    /// How mean and norm are computed. Absent: `high`; `low` where the training uses msprobe's names (`PrecisionDebugger`).
    #[schemars(extend("x-msprobe" = "`low` when absent; `high` gives null for both"))]
    pub(in crate::config) precision: Option<Precision>,
    /// Which functions are captured, where neither `scope` nor `list` says it.
    #[schemars(extend("x-msprobe" = "`CORE` drops `linear` by a slip in its list"))]
    pub(in crate::config) risk_level: RiskLevel,
    /// Namespaces of `torch.ops` whose operators are captured as functions.
    #[default(CaptureConfig::default().custom_op_namespaces)]
    pub(in crate::config) custom_op_namespaces: Vec<String>,
    /// How files are written.
    #[serde(flatten)]
    pub(in crate::config) files: CaptureFiles,
    /// The keys of the task `statistics`.
    pub(in crate::config) statistics: Option<BlockFile>,
    /// The keys of the task `tensor`.
    pub(in crate::config) tensor: Option<BlockFile>,
    /// The keys of the task `structure`.
    pub(in crate::config) structure: Option<BlockFile>,
    /// The keys of the task `nan_check`.
    #[schemars(extend("x-msprobe" = "on Ascend only"))]
    pub(in crate::config) nan_check: Option<BlockFile>,
    /// The keys of the task `overflow_check`.
    #[schemars(extend("x-msprobe" = "of former versions"))]
    pub(in crate::config) overflow_check: Option<BlockFile>,
    /// The keys of the task `diff_check`.
    pub(in crate::config) diff_check: Option<BlockFile>,
    /// Of a tool of its own.
    #[schemars(extend("x-no-effect" = "capture both trainings with the task `tensor` and hold them against each other: `trainmon compare`"))]
    pub(in crate::config) acc_check: Option<Map<String, Value>>,
    /// The former name of `acc_check`.
    #[schemars(extend("x-no-effect" = "capture both trainings with the task `tensor` and hold them against each other: `trainmon compare`"))]
    pub(in crate::config) run_ut: Option<Map<String, Value>>,
    /// Gradients of parameters, step by step.
    #[schemars(extend("x-no-effect" = "the monitor measures them: `wg_distribution` in a config without `task`"))]
    pub(in crate::config) grad_probe: Option<Map<String, Value>>,
    /// Repeats calls with disturbed inputs.
    #[schemars(extend("x-no-effect" = "capture a run with and one without the disturbance and hold them against each other: `trainmon compare`"))]
    pub(in crate::config) free_benchmark: Option<Map<String, Value>>,
    /// Of `MindSpore`.
    #[schemars(extend("x-no-effect" = "the task `overflow_check` names the first calls that give a NaN or an infinity"))]
    pub(in crate::config) exception_dump: Option<Map<String, Value>>,
    /// Of former versions.
    #[schemars(extend("x-no-effect" = "name the steps captured in `step`"))]
    pub(in crate::config) enable_dataloader: bool,
    /// Of former versions.
    #[schemars(extend("x-no-effect" = "call `seed_all(seed)`"))]
    pub(in crate::config) seed: Option<u64>,
    /// Of former versions.
    #[schemars(extend("x-no-effect" = "call `seed_all(mode=True)`"))]
    pub(in crate::config) is_deterministic: bool,
    /// Of former versions.
    #[schemars(extend("x-no-effect" = "it is of Ascend's own runtime"))]
    pub(in crate::config) acl_config: Option<String>,
}

/// What a capture may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum TaskFile {
    /// Max, min, mean, norm, maybe a checksum.
    #[default]
    Statistics,
    /// The tensors themselves too.
    Tensor,
    /// Only which calls were made, in which modules, from where.
    Structure,
    /// Whether a NaN or an infinity came out of a call.
    NanCheck,
    /// As `nan_check`; after `overflow_nums` such calls the step's capture ends.
    OverflowCheck,
    /// Checksums are held against those of an earlier capture; calls that differ are saved with their tensors.
    DiffCheck,
    /// One operator against another implementation.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "capture both trainings with the task `tensor`, then `trainmon compare`"))]
    AccCheck,
    /// The former name of `acc_check`.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "capture both trainings with the task `tensor`, then `trainmon compare`"))]
    RunUt,
    /// Of `MindSpore`.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "write \"overflow_check\": it names the first calls that give a NaN or an infinity"))]
    ExceptionDump,
    /// Gradients of parameters, step by step.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "the monitor measures them: `wg_distribution` in a config without `task`"))]
    GradProbe,
    /// Repeats calls with disturbed inputs.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "capture a run with and one without the disturbance, then `trainmon compare`"))]
    FreeBenchmark,
    /// Compares environments.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "capture both trainings with the task `statistics`, then `trainmon compare`"))]
    ConfigCheck,
}

impl TaskFile {
    /// What it does here; `None`: it was refused before.
    pub(in crate::config) fn task(self) -> Option<CaptureTask> {
        Some(match self {
            Self::Statistics => CaptureTask::Statistics,
            Self::Tensor => CaptureTask::Tensor,
            Self::Structure => CaptureTask::Structure,
            Self::NanCheck => CaptureTask::NanCheck,
            Self::OverflowCheck => CaptureTask::OverflowCheck,
            Self::DiffCheck => CaptureTask::DiffCheck,
            Self::AccCheck
            | Self::RunUt
            | Self::ExceptionDump
            | Self::GradProbe
            | Self::FreeBenchmark
            | Self::ConfigCheck => return None,
        })
    }
}

/// A number, or a range of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::config) enum NumberFile {
    /// `3`.
    Number(u64),
    /// `"3"` or `"3-5"`.
    Range(String),
}

/// What a task looks at, and what it keeps.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct BlockFile {
    /// The full names of the first and the last entry captured, both with everything in them. Empty: everything.
    #[schemars(extend("x-msprobe" = "the last entry's outputs, and in `mix` what runs in it, are not captured"))]
    pub(in crate::config) scope: Vec<String>,
    /// Texts of which an entry's name must contain one; in `mix` a module is captured with everything in it. Empty: all.
    pub(in crate::config) list: Vec<String>,
    /// Texts: entries whose names contain one have their tensors saved though the task is `statistics`.
    pub(in crate::config) tensor_list: Vec<String>,
    /// Which halves of a call are kept.
    #[default(vec![ModeFile::All])]
    pub(in crate::config) data_mode: Vec<ModeFile>,
    /// What is cut out of tensors, with Python's meaning of a slice. It applies to numbers, checksums and files.
    pub(in crate::config) slice: Vec<Slice>,
    /// The request of a serving engine that is cut out of a batch, as the scheduler names it.
    pub(in crate::config) request_id: Option<String>,
    /// What is said of a tensor.
    pub(in crate::config) summary_mode: Summary,
    /// The capture that checksums are held against: its root, step or rank directory.
    #[schemars(length(min = 1))]
    pub(in crate::config) bench_path: Option<PathBuf>,
    /// So many differing calls end the capture; -1: none does.
    #[default = 1]
    #[schemars(extend("x-msprobe" = "-1 never ends"))]
    pub(in crate::config) diff_nums: i64,
    /// So many calls that give a NaN or an infinity end the capture; -1: none does.
    #[default = 1]
    pub(in crate::config) overflow_nums: i64,
    /// Of `MindSpore`'s static graphs.
    #[schemars(extend("x-no-effect" = "every call is looked at"))]
    pub(in crate::config) check_mode: Option<String>,
    /// How tensors are written.
    #[schemars(extend("x-msprobe" = "`npy` and `bin`, of MindSpore's static graphs only"))]
    pub(in crate::config) file_format: TensorFormat,
    /// Of `MindSpore`'s static graphs.
    #[schemars(extend("x-no-effect" = "tensors are measured where they lie"))]
    pub(in crate::config) device: Option<String>,
    /// Of `MindSpore`'s static graphs.
    #[schemars(extend("x-no-effect" = "write `precision` beside `task`"))]
    pub(in crate::config) precision: Option<String>,
}

/// A half of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum ModeFile {
    /// Everything.
    All,
    /// What goes in.
    Input,
    /// What comes out.
    Output,
    /// Calls.
    Forward,
    /// Their gradients.
    Backward,
}
