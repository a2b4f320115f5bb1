//! Layouts of checkpoints, and the conventions used for reading them.

use serde::Serialize;

/// The layout of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One file.
    Plain,
    /// Megatron-LM's layout, with one file per tensor, pipeline and expert rank.
    Megatron,
    /// DeepSpeed's layout.
    Deepspeed,
    /// torch's distributed checkpoint, as FSDP and Megatron's `torch_dist` write it.
    Distributed,
    /// Hugging Face's layout, in one file or in several with an index.
    HuggingFace,
}

impl Layout {
    /// The layout's name for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Plain => "a file of tensors",
            Self::Megatron => "Megatron",
            Self::Deepspeed => "DeepSpeed",
            Self::Distributed => "torch distributed",
            Self::HuggingFace => "Hugging Face",
        }
    }
}

/// The conventions to follow where trainmon and msprobe differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The correct tensors.
    Ours,
    /// msprobe's re-assembly of Megatron's ranks, including its faults.
    Msprobe,
}
