//! What the fuzz targets call.

#![forbid(unsafe_code)]

mod entries;

pub use entries::{capture, pickle, tensor_file};
