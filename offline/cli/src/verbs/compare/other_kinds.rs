//! Paths that are not captures: two monitored runs or two checkpoints are passed to their own comparisons.

use std::io;
use std::path::Path;

use trainmon_capture_files::{CaptureError, find};
use trainmon_compare::{CompareError, RequestError};
use trainmon_core::RUN_FILE;
use trainmon_report::{Outcome, Printer};

use super::arguments::{Arguments, FailOn, level, paths};
use crate::verbs::{checkpoint, compare_runs};

/// Compares the paths if they are of another kind.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Option<Outcome>> {
    let outcome = if let Some(runs) = monitored_runs(arguments) {
        say_what_is_not_used(arguments, "monitored runs", printer);
        compare_runs::run(&runs, printer)?
    } else if let Some(checkpoints) = checkpoints(arguments) {
        say_what_is_not_used(arguments, "checkpoints", printer);
        checkpoint::run(&checkpoints, printer)?
    } else {
        return Ok(None);
    };
    let is_fine = outcome == Outcome::Difference && level(arguments) == FailOn::Never;
    Ok(Some(if is_fine { Outcome::Fine } else { outcome }))
}

/// The arguments for two monitored runs, if the paths are such.
fn monitored_runs(arguments: &Arguments) -> Option<compare_runs::Arguments> {
    let (target, golden) = paths(arguments);
    // A run without files of numbers is one too: its own comparison reports what is missing.
    let is_run = trainmon_runs::compare::is_run(target) || target.join(RUN_FILE).is_file();
    let is_monitored = !golden.is_empty() && find(target).is_err() && is_run;
    is_monitored.then(|| {
        let on_warning = level(arguments) == FailOn::Warning;
        let output = arguments.output_path.clone();
        compare_runs::Arguments::of(target.to_path_buf(), golden, output, arguments.json, on_warning)
    })
}

/// The arguments for two checkpoints, if the paths are such.
fn checkpoints(arguments: &Arguments) -> Option<checkpoint::Arguments> {
    let (target, golden) = paths(arguments);
    let [golden] = &golden[..] else { return None };
    let is_checkpoint = |path: &Path| (path.is_file() || find(path).is_err()) && trainmon_checkpoint::is_one(path);
    (is_checkpoint(target) && is_checkpoint(golden)).then(|| {
        let output = arguments.output_path.as_deref();
        checkpoint::Arguments::of((target, golden), output, arguments.compat, arguments.json)
    })
}

/// Prints which options have no effect for this kind of input.
fn say_what_is_not_used(arguments: &Arguments, of: &str, printer: &mut Printer) {
    let Arguments { format, xlsx, fuzzy_match, data_mapping, cell_mapping, layer_mapping, .. } = arguments;
    let Arguments { api_mapping, diff_analyze, thresholds, is_print_compare_log, .. } = arguments;
    let options = [
        (!format.is_empty(), "--format"),
        (*xlsx, "--xlsx"),
        (*fuzzy_match, "--fuzzy-match"),
        (data_mapping.is_some(), "--data-mapping"),
        (cell_mapping.is_some(), "--cell-mapping"),
        (layer_mapping.is_some(), "--layer-mapping"),
        (api_mapping.is_some(), "--api-mapping"),
        (*diff_analyze, "--diff-analyze"),
        (thresholds.is_some(), "--thresholds"),
        (*is_print_compare_log, "--is-print-compare-log"),
    ];
    let unused: Vec<&str> = options.into_iter().filter(|(is_given, _)| *is_given).map(|(_, option)| option).collect();
    if !unused.is_empty() {
        printer.note(&format!("note: {} has no effect for {of}\n", unused.join(", ")));
    }
}

/// Explains a path that can be compared, but not with a capture.
pub(crate) fn named(error: RequestError) -> RequestError {
    let RequestError::Compare(CompareError::Capture(CaptureError::NoCapture { path })) = error else { return error };
    let what = match () {
        () if trainmon_runs::compare::is_run(&path) => "a monitor's output",
        () if trainmon_checkpoint::is_one(&path) => "a checkpoint",
        () => return CompareError::Capture(CaptureError::NoCapture { path }).into(),
    };
    CompareError::AnotherKind { path, what }.into()
}
