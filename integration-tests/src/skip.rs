//! Tests that cannot run here say so.

use std::fs::OpenOptions;
use std::io::Write;

/// The file that collects `name: reason` lines for the summary of `cargo xtask test`.
const SKIP_LOG: &str = "TRAINMON_SKIP_LOG";

/// Says that a test could not run: on standard output, and in the file that `TRAINMON_SKIP_LOG` names. Of a reason of many
/// lines the first is taken: the log has one line per test.
///
/// # Errors
/// That file cannot be written.
pub fn skip(test: &str, reason: &str) -> std::io::Result<()> {
    let reason = reason.lines().next().unwrap_or_default();
    let line = format!("{test}: {reason}\n");
    std::io::stdout().write_all(format!("SKIPPED {line}").as_bytes())?;
    match std::env::var_os(SKIP_LOG) {
        Some(log) => OpenOptions::new().append(true).create(true).open(log)?.write_all(line.as_bytes()),
        None => Ok(()),
    }
}
