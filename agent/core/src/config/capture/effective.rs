//! What is captured, read and checked.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::numbers::NumberRanges;

/// What a capture keeps of each value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaptureTask {
    /// Max, min, mean, norm, maybe a checksum.
    #[default]
    Statistics,
    /// The tensors themselves too.
    Tensor,
    /// Only which calls were made, in which modules, from where.
    Structure,
    /// Whether a call brought a NaN or an infinity into being.
    NanCheck,
    /// As `nan_check`, and the calls where it happens are counted: after `overflow_nums` of them the capture stops.
    OverflowCheck,
    /// Checksums are held against those of an earlier capture while the training runs; calls that differ are saved.
    DiffCheck,
}

/// How finely a capture looks.
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

    /// Whether calls of functions are.
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

/// What is said of a tensor's numbers.
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

/// How mean and norm are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// In float64, of every dtype that has them.
    #[default]
    High,
    /// As msprobe does: rounded to the tensor's dtype; null for integers and float64.
    Low,
}

/// Which functions are captured, by how much they can go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RiskLevel {
    /// Matrix products, convolutions, normalisations, attention, collectives, fused optimizers.
    #[serde(rename = "CORE")]
    Core,
    /// All but those that only move or create elements.
    #[default]
    #[serde(rename = "FOCUS")]
    Focus,
    /// All.
    #[serde(rename = "ALL")]
    All,
}

/// How tensors are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TensorFormat {
    /// What `torch.load` reads.
    #[default]
    Pt,
    /// numpy's.
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

/// Which halves of a call are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "two independent choices of two each")]
pub struct DataMode {
    /// Calls.
    pub forward: bool,
    /// Their gradients.
    pub backward: bool,
    /// What goes in.
    pub input: bool,
    /// What comes out.
    pub output: bool,
}

impl Default for DataMode {
    fn default() -> Self {
        Self { forward: true, backward: true, input: true, output: true }
    }
}

/// A part of a tensor's dimension that is captured in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Slice {
    /// The dimension, from 0.
    pub dim: usize,
    /// The first element; negative counts from the end.
    pub begin: i64,
    /// The first element no longer taken; negative counts from the end. Absent: to the end.
    pub end: Option<i64>,
    /// Only tensors with this size in the dimension are cut. Absent: all that have the dimension.
    pub size: Option<u64>,
}

/// A capture's effective config.
#[derive(Clone, Debug, PartialEq, SmartDefault, Serialize)]
pub struct CaptureConfig {
    /// What is kept.
    pub task: CaptureTask,
    /// Where the steps' directories are made. Empty: none was named.
    pub dump_path: PathBuf,
    /// The ranks that capture; empty means all.
    pub ranks: NumberRanges,
    /// The steps captured; empty means all.
    pub steps: NumberRanges,
    /// How finely.
    pub level: CaptureLevel,
    /// Whether a tensor on a device may be kept there until the step's end instead of being copied at once.
    pub async_dump: bool,
    /// The switch that may be turned while the training runs; `None`: there is none, and the capture is on.
    pub dump_enable: Option<bool>,
    /// Whether `stack.json` and `construct.json` are written.
    #[default = true]
    pub extra_info: bool,
    /// Whether modules' gradients are caught so that no sum of gradients is added in another order.
    #[default = true]
    pub neutral: bool,
    /// How mean and norm are computed.
    pub precision: Precision,
    /// Which functions, where neither `scope` nor `list` says it.
    pub risk_level: RiskLevel,
    /// Namespaces of `torch.ops` whose operators are captured as functions.
    #[default(vec!["_C_ascend".to_owned()])]
    pub custom_op_namespaces: Vec<String>,
    /// First and last entry, both with all that is theirs.
    pub scope: Option<[String; 2]>,
    /// Texts of which an entry's name must contain one; empty means any name.
    pub list: Vec<String>,
    /// Texts: entries whose names contain one have their tensors saved though the task is `statistics`.
    pub tensor_list: Vec<String>,
    /// Which halves.
    pub data_mode: DataMode,
    /// What is cut out of tensors.
    pub slice: Vec<Slice>,
    /// The request of a serving engine that is cut out, named as the scheduler names it.
    pub request_id: Option<String>,
    /// What is said of a tensor.
    pub summary: Summary,
    /// The dump that is held against, for `diff_check`: its root, step or rank directory.
    pub bench_path: Option<PathBuf>,
    /// How many differing calls end the capture; `None`: none does.
    #[default(Some(1))]
    pub diff_nums: Option<u64>,
    /// How many overflowing calls end the capture; `None`: none does.
    #[default(Some(1))]
    pub overflow_nums: Option<u64>,
    /// How tensors are written.
    pub file_format: TensorFormat,
    /// How files are written.
    #[serde(flatten)]
    pub files: CaptureFiles,
}

/// How a capture's files are written: keys that mean the same in a file and here. A new one is a field here, with its default,
/// range and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CaptureFiles {
    /// Compress tensor files with zstd; `.zst` is appended to their names.
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub compress: bool,
    /// Write a tensor whose file would be the same as one of this rank and step once: its name becomes a hard link. `false`: each
    /// has a file of its own, which may be changed without the others.
    #[schemars(extend("x-msprobe" = "not in msprobe: each tensor has a file of its own"))]
    #[default = true]
    pub share_files: bool,
    /// At most so many MiB of one rank's files in a step; then the step's capture ends, and what is there is kept. Absent:
    /// until the disk is full.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-msprobe" = "not in msprobe"))]
    pub disk_budget_mib: Option<u64>,
    /// At most so many MiB of tensors wait to be written; the training waits beyond.
    #[schemars(range(min = 1, max = 1_048_576))]
    #[schemars(extend("x-msprobe" = "not in msprobe: each tensor is written before the training goes on"))]
    // A training that is faster than the disk waits at this bound.
    #[default = 512]
    pub pool_mib: u64,
    /// Write each tensor before the call it is of returns: a killed process loses none. The training waits for the disk.
    #[schemars(extend("x-msprobe" = "not in msprobe: each tensor is written so, unless `async_dump` is set"))]
    pub durable: bool,
}
