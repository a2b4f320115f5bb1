//! One function per reader: it takes any bytes and must come back. The targets in `fuzz_targets` call them, and so does an
//! ordinary test of each reader's crate with the kept corpus.

use std::path::Path;

use trainmon_capture_files::{Construct, Stacks, operator_json, parse_document};
use trainmon_tensor_files::{FileBytes, TensorFile};

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
    if let Ok((pickled, end)) = trainmon_tensor_files::pickle::read(bytes) {
        assert!(end <= bytes.len());
        let root = pickled.root();
        std::hint::black_box((root.kind(), root.class(), root.state(), root.items().count(), root.pairs().count()));
    }
}

/// Reads the JSON files of a dump.
pub fn capture(bytes: &[u8]) {
    let path = Path::new("fuzz");
    let construct = Construct::parse(bytes, path).unwrap_or_default();
    std::hint::black_box(Stacks::parse(bytes, path).is_ok());
    let Ok(document) = parse_document(bytes, path) else { return };
    for operator in document.operators.iter().take(64) {
        std::hint::black_box((construct.ancestors(&operator.name), operator_json(bytes, path, &operator.name).is_ok()));
    }
}
