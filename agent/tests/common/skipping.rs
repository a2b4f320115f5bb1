//! Tests that cannot run here.

use std::io::Write;

/// Says that a check could not run: on standard output, and in the file that `TRAINMON_SKIP_LOG` names.
pub(crate) fn skip(name: &str, reason: &str) {
    println!("SKIPPED {name}: {reason}");
    if let Some(log) = std::env::var_os("TRAINMON_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{name}: {reason}").unwrap();
    }
}
