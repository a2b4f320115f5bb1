//! The readers, one for each format.

pub(crate) mod csv;
pub(crate) mod json;
pub(crate) mod megatron;
pub(crate) mod mlflow;
pub(crate) mod tensorboard;
pub(crate) mod trainer_state;
pub(crate) mod wandb;
