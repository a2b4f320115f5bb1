//! Whatever becomes of a log's bytes, reading it ends with steps or with an error that names the file.

use std::fs;
use std::path::{Path, PathBuf};

use trainmon_logs::{ColumnNames, Log, LogError};

/// Cuts and flips of each log.
const TRIES: usize = 150;

fn logs() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data/logs");
    let mut files: Vec<PathBuf> =
        ["trainer_state.json", "tiny.wandb", "megatron.log"].map(|name| data.join(name)).into();
    files.extend(fs::read_dir(data.join("tensorboard")).expect("data").map(|entry| entry.expect("data").path()));
    files
}

fn read(path: &Path) -> Result<Log, LogError> {
    trainmon_logs::read(path, &ColumnNames::default()).map(|log| log.expect("a file is a log or an error"))
}

/// A number that looks random, the same every time.
fn scattered(seed: usize) -> usize {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)) as usize
}

#[test]
fn a_log_that_is_cut_off_has_the_beginning_of_its_steps_and_says_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for file in logs() {
        let whole = read(&file).expect("a log");
        let bytes = fs::read(&file).expect("data");
        let path = directory.path().join(file.file_name().expect("a name"));
        for place in 0..TRIES {
            let length = bytes.len() * place / TRIES;
            fs::write(&path, &bytes[..length]).expect("writable");
            match read(&path) {
                Ok(cut) => {
                    assert!(cut.steps.len() <= whole.steps.len(), "{}: {length}", path.display());
                    for (one, other) in cut.steps.iter().zip(&whole.steps) {
                        assert_eq!(one.step, other.step, "{}: {length}", path.display());
                        let is_same = |a: Option<f64>, b: Option<f64>| {
                            a.is_none_or(|a| b.is_some_and(|b| a.to_bits() == b.to_bits()))
                        };
                        assert!(is_same(one.loss, other.loss), "{}: {length}: {one:?} {other:?}", path.display());
                    }
                }
                Err(error) => assert!(error.to_string().contains(&path.display().to_string()), "{error}"),
            }
        }
    }
}

#[test]
fn a_log_with_flipped_bits_is_read_or_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for file in logs() {
        let bytes = fs::read(&file).expect("data");
        let path = directory.path().join(file.file_name().expect("a name"));
        for seed in 0..TRIES {
            let mut flipped = bytes.clone();
            for bit in 0..=seed % 4 {
                let place = scattered(seed * 7 + bit) % flipped.len();
                flipped[place] ^= 1 << (scattered(seed + bit) % 8);
            }
            fs::write(&path, flipped).expect("writable");
            if let Err(error) = read(&path) {
                assert!(error.to_string().contains(&path.display().to_string()), "{error}");
            }
        }
    }
}
