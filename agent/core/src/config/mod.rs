//! The config file: one JSON document in one of two dialects, read into one [`Config`].

mod effective;

pub use effective::{
    Activations, Config, Csv, DEFAULT_QUEUE_STEPS, DEFAULT_SHUTDOWN_TIMEOUT_MS, Dialect, Pipeline, Prometheus, Signal,
    TargetRule, Targets, WeightGrad, Window,
};
