//! What a command says of the run that it has read, before its answer.

use trainmon_report::Printer;
use trainmon_runs::NewestRun;
use trainmon_runs::steps::Log;

/// Which run is meant where that needs saying, what was taken of another tool's log, and what is not as it should be.
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
