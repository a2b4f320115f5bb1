//! The graph of captures as one database file (`.vis.db`) in msprobe's format, which msprobe's TensorBoard plugin opens.
//!
//! The order of the work: `inputs` finds and pairs steps and ranks, and each rank is read, written and dropped. `tree` builds the
//! call tree, `matching` pairs its nodes, `metrics` takes the differences and results from `trainmon-compare`, `values` turns
//! values into texts, and `database` writes the rows.

#![forbid(unsafe_code)]

mod database;
mod error;
mod inputs;
mod json;
mod matching;
mod metrics;
mod names;
mod rank;
mod tree;
mod values;
mod words;
mod write;

pub use error::GraphError;
pub use matching::NodeMatching;
pub use write::{GraphRequest, WrittenGraph, as_json, write};
