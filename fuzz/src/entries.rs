//! One function per reader: it takes any bytes and must come back. The targets in `fuzz_targets` call them, and so does an
//! ordinary test of each reader's crate with the kept corpus.

use std::path::Path;

use trainmon_dump::tensor_file::{self, FileBytes, TensorFile};

/// Opens a file of tensors of any format and reads all there is.
pub fn tensor_file(bytes: &[u8]) {
    let Ok(file) = TensorFile::of_bytes(Path::new("fuzz"), FileBytes::from(bytes.to_vec())) else { return };
    for index in 0..file.entries().len().min(64) {
        let Ok(tensor) = file.read_at(index) else { continue };
        let mut numbers = [0.0; 64];
        let count = tensor.numbers().min(numbers.len());
        tensor.read_f64(tensor.numbers() - count, &mut numbers[..count]);
    }
    drop(file.leaves());
}

/// Reads a bare pickle.
pub fn pickle(bytes: &[u8]) {
    if let Ok((pickled, end)) = tensor_file::pickle::read(bytes) {
        assert!(end <= bytes.len());
        let root = pickled.root();
        std::hint::black_box((root.kind(), root.class(), root.state(), root.items().count(), root.pairs().count()));
    }
}
