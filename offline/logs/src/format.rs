//! The log formats.

use std::fmt;

use serde::Serialize;

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// A table with commas, semicolons or tabs between the cells.
    Csv,
    /// JSON: one object per line, an array of objects, or an object of arrays.
    Json,
    /// `trainer_state.json` of Hugging Face's Trainer.
    TrainerState,
    /// TensorBoard event files.
    TensorBoard,
    /// The `.wandb` file of a Weights & Biases run.
    Wandb,
    /// The directory of a run in `mlruns`.
    MlFlow,
    /// The text that Megatron-LM prints.
    Megatron,
}

impl LogFormat {
    /// The name of the format in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
            Self::Json => "JSON",
            Self::TrainerState => "trainer state of Hugging Face's Trainer",
            Self::TensorBoard => "TensorBoard events",
            Self::Wandb => "wandb offline run",
            Self::MlFlow => "MLflow run",
            Self::Megatron => "Megatron-LM log",
        }
    }

    /// The noun for one of its rows.
    pub(crate) fn row(self) -> &'static str {
        match self {
            Self::Csv => "row",
            Self::Json | Self::Megatron => "line",
            Self::TrainerState => "entry",
            Self::TensorBoard | Self::Wandb => "record",
            Self::MlFlow => "value",
        }
    }

    /// The noun for several rows.
    pub(crate) fn rows(self) -> &'static str {
        match self {
            Self::Csv => "rows",
            Self::Json | Self::Megatron => "lines",
            Self::TrainerState => "entries",
            Self::TensorBoard | Self::Wandb => "records",
            Self::MlFlow => "values",
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
