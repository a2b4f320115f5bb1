//! What the fuzz targets call.

mod entries;

pub use entries::{capture, pickle, tensor_file};
