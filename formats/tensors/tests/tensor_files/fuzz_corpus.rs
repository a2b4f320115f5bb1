//! The fuzz targets' own functions over what is kept of their inputs, without the fuzzer.

#[expect(unreachable_pub, reason = "the fuzz targets reach it")]
#[path = "../../../../fuzz/src/entries.rs"]
mod entries;

use std::path::Path;

use crate::support::corpus_files;

#[test]
fn the_kept_inputs_of_the_fuzz_targets_do_no_harm() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut inputs = 0;
    for target in std::fs::read_dir(kept).unwrap() {
        for input in std::fs::read_dir(target.unwrap().path()).unwrap() {
            let bytes = std::fs::read(input.unwrap().path()).unwrap();
            entries::tensor_file(&bytes);
            entries::pickle(&bytes);
            entries::capture(&bytes);
            inputs += 1;
        }
    }
    assert!(inputs >= 4, "the corpus is there");
    for (_, bytes) in corpus_files() {
        entries::tensor_file(&bytes);
    }
}
