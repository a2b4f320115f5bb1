//! The effective config of a capture.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::numbers::NumberRanges;

/// The data that a capture keeps of each value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaptureTask {
    /// Maximum, minimum, mean, norm, and a checksum if requested.
    #[default]
    Statistics,
    /// The statistics and the tensors themselves.
    Tensor,
    /// Only the calls, their modules and their call stacks.
    Structure,
    /// Whether a call produced a NaN or an infinity.
    NanCheck,
    /// Like `nan_check`, with a count of such calls; the capture stops after `overflow_nums` of them.
    OverflowCheck,
    /// Compares checksums with those of an earlier capture during training and saves calls that differ.
    DiffCheck,
}

/// The level of detail of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CaptureLevel {
    /// Modules.
    L0,
    /// Calls of torch's functions.
    #[default]
    L1,
    /// The operators below them.
    L2,
    /// Modules and functions.
    #[serde(rename = "mix")]
    Mix,
    /// Values that the script saves by name.
    #[serde(rename = "debug")]
    Debug,
}

impl CaptureLevel {
    /// The name in configs and in `dump.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::L0 => "L0",
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::Mix => "mix",
            Self::Debug => "debug",
        }
    }

    /// Whether modules are entries.
    pub const fn has_modules(self) -> bool {
        matches!(self, Self::L0 | Self::Mix)
    }

    /// Whether function calls are entries.
    pub const fn has_functions(self) -> bool {
        matches!(self, Self::L1 | Self::Mix)
    }
}

impl CaptureTask {
    /// The name in configs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Statistics => "statistics",
            Self::Tensor => "tensor",
            Self::Structure => "structure",
            Self::NanCheck => "nan_check",
            Self::OverflowCheck => "overflow_check",
            Self::DiffCheck => "diff_check",
        }
    }
}

/// The summary of a tensor's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Summary {
    /// Max, min, mean, norm.
    #[default]
    Statistics,
    /// These and a CRC-32 of the bytes. (The name is msprobe's.)
    Md5,
    /// The exclusive or of the bytes as 64-bit words, and nothing else.
    Xor,
}

/// The precision of mean and norm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// In float64, for every dtype that has them.
    #[default]
    High,
    /// As msprobe does: rounded to the tensor's dtype; null for integers and float64.
    Low,
}

/// The functions captured, by their numerical risk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RiskLevel {
    /// Matrix products, convolutions, normalisations, attention, collectives, fused optimizers.
    #[serde(rename = "CORE")]
    Core,
    /// All but those that only move or create elements.
    #[default]
    #[serde(rename = "FOCUS")]
    Focus,
    /// All functions.
    #[serde(rename = "ALL")]
    All,
}

/// The file format of tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TensorFormat {
    /// `torch.save`'s format, for `torch.load`.
    #[default]
    Pt,
    /// The format of `NumPy`.
    Npy,
    /// safetensors, the tensor named `tensor`.
    Safetensors,
}

impl TensorFormat {
    /// The end of a file's name, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Pt => "pt",
            Self::Npy => "npy",
            Self::Safetensors => "safetensors",
        }
    }
}

/// The parts of a call that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "two independent choices of two each")]
pub struct DataMode {
    /// Forward calls.
    pub forward: bool,
    /// Backward calls: the gradients.
    pub backward: bool,
    /// Inputs.
    pub input: bool,
    /// Outputs.
    pub output: bool,
}

impl Default for DataMode {
    fn default() -> Self {
        Self { forward: true, backward: true, input: true, output: true }
    }
}

/// A slice of a tensor's dimension, captured instead of the whole tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Slice {
    /// The dimension, from 0.
    pub dim: usize,
    /// The first element; negative counts from the end.
    pub begin: i64,
    /// The end, exclusive; negative counts from the end. Default: all.
    pub end: Option<i64>,
    /// Cut only tensors with this size in the dimension. Default: all that have the dimension.
    pub size: Option<u64>,
}

/// A capture's effective config.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize)]
pub struct CaptureConfig {
    /// The data kept.
    pub task: CaptureTask,
    /// The parent directory of the steps' directories. Empty: not specified.
    pub dump_path: PathBuf,
    /// The ranks that capture; empty means all.
    pub ranks: NumberRanges,
    /// The steps captured; empty means all.
    pub steps: NumberRanges,
    /// The level of detail.
    pub level: CaptureLevel,
    /// Whether tensors stay on the device until the step's end instead of being copied at once.
    pub async_dump: bool,
    /// The switch that can change during training; `None`: no switch, the capture is on.
    pub dump_enable: Option<bool>,
    /// Whether `stack.json` and `construct.json` are written.
    #[default = true]
    pub extra_info: bool,
    /// Whether module gradients are captured without changing the order of any gradient sum.
    #[default = true]
    pub neutral: bool,
    /// The precision of mean and norm.
    pub precision: Precision,
    /// The functions captured if neither `scope` nor `list` selects them.
    pub risk_level: RiskLevel,
    /// Namespaces of `torch.ops` whose operators are captured as functions.
    #[default(vec!["_C_ascend".to_owned()])]
    pub custom_op_namespaces: Vec<String>,
    /// The first and the last entry, including everything in them.
    pub scope: Option<[String; 2]>,
    /// Substrings, one of which an entry's name must contain; empty means all names.
    pub list: Vec<String>,
    /// With the task `statistics`: substrings of the entries whose tensors are also saved.
    pub tensor_list: Vec<String>,
    /// The parts of a call that are kept.
    pub data_mode: DataMode,
    /// The slices of tensors.
    pub slice: Vec<Slice>,
    /// The scheduler's id of a serving request to extract.
    pub request_id: Option<String>,
    /// The summary of a tensor.
    pub summary: Summary,
    /// The dump to compare with, for `diff_check`: its root, step or rank directory.
    pub bench_path: Option<PathBuf>,
    /// The number of differing calls that ends the capture; `None`: never.
    #[default(Some(1))]
    pub diff_nums: Option<u64>,
    /// The number of overflowing calls that ends the capture; `None`: never.
    #[default(Some(1))]
    pub overflow_nums: Option<u64>,
    /// The file format of tensors.
    pub file_format: TensorFormat,
    /// The keys for writing files.
    #[serde(flatten)]
    pub files: CaptureFiles,
}

/// The keys for writing a capture's files, the same in the file and in the effective config. To add one, add a field here with
/// its default, range and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CaptureFiles {
    /// Compress tensor files with zstd; `.zst` is appended to their names.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub compress: bool,
    /// Write equal tensors of one rank and step once, as hard links. `false`: one independent file per tensor.
    #[schemars(extend("x-msprobe" = "not in msprobe; each tensor has its own file"))]
    #[default = true]
    pub share_files: bool,
    /// The maximum size of one rank's files in a step, in MiB; above it, the step's capture ends and keeps its files. Default: no limit.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub disk_budget_mib: Option<u64>,
    /// The maximum size of tensors queued for writing, in MiB; above it, the training waits.
    #[schemars(range(min = 1, max = 1_048_576))]
    #[schemars(extend("x-msprobe" = "not in msprobe; writes each tensor before the training continues"))]
    // A training that is faster than the disk waits at this limit.
    #[default = 512]
    pub pool_mib: u64,
    /// Write each tensor before its call returns: a killed process loses none, but training waits for the disk.
    #[schemars(extend("x-msprobe" = "not in msprobe; always, unless `async_dump` is set"))]
    pub durable: bool,
}
