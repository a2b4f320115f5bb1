//! Where the recorded answers of the real msprobe are: `TRAINMON_GOLDEN`, else `shared/golden` beside the checkout.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A part of the recorded answers; `None` after saying that it is not here.
pub(crate) fn golden(part: &str, test: &str) -> Option<PathBuf> {
    let place = root().join(part);
    if place.is_dir() {
        return Some(place);
    }
    skip(test, &format!("`{}` does not exist; TRAINMON_GOLDEN names the data", place.display()));
    None
}

/// Where they all are, if they are here.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("TRAINMON_GOLDEN")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden"), PathBuf::from)
}

/// Says that a test, or a case of one, could not run here: on standard output, and in the file that `TRAINMON_SKIP_LOG`
/// names.
#[expect(clippy::print_stdout, reason = "a skip is said")]
pub(crate) fn skip(test: &str, reason: &str) {
    println!("SKIPPED {test}: {reason}");
    if let Some(log) = std::env::var_os("TRAINMON_SKIP_LOG") {
        let mut log = fs::File::options().append(true).create(true).open(log).expect("a log of skipped tests");
        writeln!(log, "{test}: {reason}").expect("a log of skipped tests");
    }
}
