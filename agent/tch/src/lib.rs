//! The Rust front of trainmon: watches a training loop written with tch.
//!
//! [`Optimizer`] is libtorch's, as tch's own, with its state in reach: shown, saved, loaded.

mod ffi;
mod moments;
mod names;
mod optimizer;

pub use moments::MomentSource;
pub use optimizer::{
    Adagrad, CheckpointError, GroupOptions, Optimizer, OptimizerConfig, OptimizerError, OptimizerKind, Settings,
};
