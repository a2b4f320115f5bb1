//! What the fuzz targets call.

mod entries;

pub use entries::{pickle, tensor_file};
