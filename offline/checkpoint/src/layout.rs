//! How checkpoints are laid out, and whose habits are followed in reading them.

use serde::Serialize;

/// How a checkpoint is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One file.
    Plain,
    /// Megatron-LM's, a file per tensor, pipeline and expert rank.
    Megatron,
    /// DeepSpeed's.
    Deepspeed,
    /// torch's distributed checkpoint, as FSDP and Megatron's `torch_dist` write it.
    Distributed,
    /// Hugging Face's, in one file or several with an index.
    HuggingFace,
}

impl Layout {
    /// For people.
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

/// Whose habits are followed where there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// What the tensors are in truth.
    Ours,
    /// msprobe's re-assembly of Megatron's ranks, faults and all.
    Msprobe,
}
