//! Prints what a command has read, before its result.

use trainmon_report::Printer;
use trainmon_runs::NewestRun;
use trainmon_runs::steps::Log;

/// Prints the chosen run if there were several, the format and columns of another tool's log, and warnings.
pub(super) fn say_what_was_read<'a>(
    printer: &mut Printer,
    doing: &str,
    newest: impl IntoIterator<Item = &'a NewestRun>,
    log: Option<&Log>,
    warnings: &[String],
) {
    for newest in newest {
        printer.note(&newest.in_words(doing));
    }
    if let Some(log) = log {
        printer.note(&log.in_words());
    }
    for warning in warnings {
        printer.warning(warning, "", None);
    }
}
