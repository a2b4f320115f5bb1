//! The keys of a capture's config file: msprobe's and trainmon's own. Defaults, ranges and meanings are defined only here.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smart_default::SmartDefault;

use super::effective::{
    CaptureConfig, CaptureFiles, CaptureLevel, CaptureTask, Precision, RiskLevel, Slice, Summary, TensorFormat,
};

/// A capture's config, for `PrecisionDebugger` and `trainmon.capture`.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the keys of a file, most of them msprobe's")]
pub(in crate::config) struct CaptureFile {
    /// The JSON Schema of this file, for editors.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub(in crate::config) schema: Option<String>,
    /// The data kept of each value. This key marks a file as the config of a capture.
    pub(in crate::config) task: TaskFile,
    /// The parent directory of `step<N>/rank<R>`, if not given as an argument.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-msprobe" = "must be given; characters other than `a-zA-Z0-9_.:/-` are refused"))]
    pub(in crate::config) dump_path: Option<PathBuf>,
    /// The ranks that capture: numbers, and ranges like `"3-5"`. Empty: all.
    #[schemars(extend("x-msprobe" = "a list in a single-process training also captures nothing"))]
    pub(in crate::config) rank: Vec<NumberFile>,
    /// The steps captured: numbers, and ranges like `"3-5"`. Empty: all.
    pub(in crate::config) step: Vec<NumberFile>,
    /// The level of detail.
    pub(in crate::config) level: CaptureLevel,
    /// Keep tensors on the device until the step's end instead of copying them at once.
    #[schemars(extend("x-msprobe" = "refused with `tensor` without `list`, and with `md5`"))]
    pub(in crate::config) async_dump: bool,
    /// Switches the capture while the training runs: edit the file. By default, the capture is on and trainmon does not read the
    /// file again.
    pub(in crate::config) dump_enable: Option<bool>,
    /// Write `stack.json` and `construct.json`.
    #[default = true]
    pub(in crate::config) extra_info: bool,
    /// Keep the training's gradients bitwise unchanged: module gradients are captured on their tensors. The gradient of a shared
    /// input is then its total. Default: `true`; `false` with msprobe's names (`PrecisionDebugger`).
    #[schemars(extend("x-msprobe" = "not in msprobe; its hooks change the order of gradient sums"))]
    pub(in crate::config) neutral: Option<bool>,
    /// The precision of mean and norm. Default: `high`; `low` with msprobe's names (`PrecisionDebugger`).
    #[schemars(extend("x-msprobe" = "default `low`; `high` gives null for both"))]
    pub(in crate::config) precision: Option<Precision>,
    /// The functions captured if neither `scope` nor `list` selects them.
    #[schemars(extend("x-msprobe" = "`CORE` omits `linear`, a bug in its list"))]
    pub(in crate::config) risk_level: RiskLevel,
    /// Namespaces of `torch.ops` whose operators are captured as functions.
    #[default(CaptureConfig::default().custom_op_namespaces)]
    pub(in crate::config) custom_op_namespaces: Vec<String>,
    /// The keys for writing files.
    #[serde(flatten)]
    pub(in crate::config) files: CaptureFiles,
    /// Keys of this task.
    pub(in crate::config) statistics: Option<BlockFile>,
    /// Keys of this task.
    pub(in crate::config) tensor: Option<BlockFile>,
    /// Keys of this task.
    pub(in crate::config) structure: Option<BlockFile>,
    /// Keys of this task.
    #[schemars(extend("x-msprobe" = "Ascend only"))]
    pub(in crate::config) nan_check: Option<BlockFile>,
    /// Keys of this task.
    #[schemars(extend("x-msprobe" = "former versions only"))]
    pub(in crate::config) overflow_check: Option<BlockFile>,
    /// Keys of this task.
    pub(in crate::config) diff_check: Option<BlockFile>,
    /// Operator accuracy check.
    #[schemars(extend("x-no-effect" = "capture both trainings with the task `tensor`, then run `trainmon compare`"))]
    pub(in crate::config) acc_check: Option<Map<String, Value>>,
    /// The former name of `acc_check`.
    #[schemars(extend("x-no-effect" = "see `acc_check`"))]
    pub(in crate::config) run_ut: Option<Map<String, Value>>,
    /// Gradients of parameters per step.
    #[schemars(extend("x-no-effect" = "use `wg_distribution` in a config without `task`"))]
    pub(in crate::config) grad_probe: Option<Map<String, Value>>,
    /// Repeated calls with perturbed inputs.
    #[schemars(extend("x-no-effect" = "capture a run with and one without the perturbation, then run `trainmon compare`"))]
    pub(in crate::config) free_benchmark: Option<Map<String, Value>>,
    /// For `MindSpore`.
    #[schemars(extend("x-no-effect" = "use the task `overflow_check`"))]
    pub(in crate::config) exception_dump: Option<Map<String, Value>>,
    /// Former versions.
    #[schemars(extend("x-no-effect" = "list the steps in `step`"))]
    pub(in crate::config) enable_dataloader: bool,
    /// Former versions.
    #[schemars(extend("x-no-effect" = "call `seed_all(seed)`"))]
    pub(in crate::config) seed: Option<u64>,
    /// Former versions.
    #[schemars(extend("x-no-effect" = "call `seed_all(mode=True)`"))]
    pub(in crate::config) is_deterministic: bool,
    /// Former versions.
    #[schemars(extend("x-no-effect" = "it configures Ascend's runtime"))]
    pub(in crate::config) acl_config: Option<String>,
}

/// The task of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum TaskFile {
    /// Maximum, minimum, mean, norm, and a checksum if requested.
    #[default]
    Statistics,
    /// The statistics and the tensors themselves.
    Tensor,
    /// Only the calls, their modules and their call stacks.
    Structure,
    /// Whether the output of a call has a NaN or an infinity.
    NanCheck,
    /// Like `nan_check`; the step's capture ends after `overflow_nums` such calls.
    OverflowCheck,
    /// Compares checksums with those of an earlier capture and saves the tensors of calls that differ.
    DiffCheck,
    /// Compares one operator with another implementation.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "capture both trainings with the task `tensor`, then run `trainmon compare`"))]
    AccCheck,
    /// The former name of `acc_check`.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "capture both trainings with the task `tensor`, then run `trainmon compare`"))]
    RunUt,
    /// A task for `MindSpore`.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "write \"overflow_check\", which reports the first calls that produce a NaN or an infinity"))]
    ExceptionDump,
    /// Gradients of parameters per step.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "use `wg_distribution` in a config without `task`"))]
    GradProbe,
    /// Repeats calls with perturbed inputs.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "capture a run with and one without the perturbation, then run `trainmon compare`"))]
    FreeBenchmark,
    /// Compares environments.
    #[schemars(extend("x-not-implemented" = true, "x-hint" = "capture both trainings with the task `statistics`, then run `trainmon compare`"))]
    ConfigCheck,
}

impl TaskFile {
    /// The task in trainmon; `None` if it was refused before.
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

/// The values that a task captures, and the data it keeps.
#[derive(Clone, Debug, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct BlockFile {
    /// The full names of the first and last entry captured, including their contents. Empty: all.
    #[schemars(extend("x-msprobe" = "excludes the last entry's outputs and, in `mix`, its contents"))]
    pub(in crate::config) scope: Vec<String>,
    /// Substrings, one of which an entry's name must contain; in `mix`, a module is captured with its contents. Empty: all.
    pub(in crate::config) list: Vec<String>,
    /// With the task `statistics`: substrings of the entries whose tensors are also saved.
    pub(in crate::config) tensor_list: Vec<String>,
    /// The parts of a call that are kept.
    #[default(vec![ModeFile::All])]
    pub(in crate::config) data_mode: Vec<ModeFile>,
    /// Slices of tensors, as in Python. They apply to statistics, checksums and files.
    pub(in crate::config) slice: Vec<Slice>,
    /// The scheduler's id of a serving request to extract from a batch.
    pub(in crate::config) request_id: Option<String>,
    /// The summary of a tensor.
    pub(in crate::config) summary_mode: Summary,
    /// The capture to compare checksums with: its root, step or rank directory.
    #[schemars(length(min = 1))]
    pub(in crate::config) bench_path: Option<PathBuf>,
    /// The number of differing calls that ends the capture; -1: never.
    #[default = 1]
    #[schemars(extend("x-msprobe" = "-1 never ends"))]
    pub(in crate::config) diff_nums: i64,
    /// The number of calls with NaN or infinite outputs that ends the capture; -1: never.
    #[default = 1]
    pub(in crate::config) overflow_nums: i64,
    /// For `MindSpore`'s static graphs.
    #[schemars(extend("x-no-effect" = "every call is checked"))]
    pub(in crate::config) check_mode: Option<String>,
    /// The file format of tensors.
    #[schemars(extend("x-msprobe" = "`npy` and `bin`, MindSpore's static graphs only"))]
    pub(in crate::config) file_format: TensorFormat,
    /// For `MindSpore`'s static graphs.
    #[schemars(extend("x-no-effect" = "tensors are measured on their own device"))]
    pub(in crate::config) device: Option<String>,
    /// For `MindSpore`'s static graphs.
    #[schemars(extend("x-no-effect" = "write `precision` beside `task`"))]
    pub(in crate::config) precision: Option<String>,
}

/// A part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum ModeFile {
    /// Everything.
    All,
    /// Inputs.
    Input,
    /// Outputs.
    Output,
    /// Forward calls.
    Forward,
    /// Backward calls: the gradients.
    Backward,
}
