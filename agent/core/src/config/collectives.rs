//! Collective operations, from both dialects.

use super::diagnostic::DiagnosticKind as Kind;
use super::effective::Collectives;
use super::file::{CcFile, CollectivesFile};
use super::report::{Fault, Report};
use super::signals::Signal;

/// The collectives of `cc_distribution`, given that it is on.
pub(super) fn of_v1(file: &CollectivesFile, signal: Signal, report: &mut Report<'_>) -> Collectives {
    let CollectivesFile { enable: _, cc_codeline, cc_pre_hook, cc_log_only, cc_payload } = file;
    check_lines(cc_codeline, "cc_distribution.cc_codeline", report);
    Collectives {
        before: *cc_pre_hook,
        payload: cc_payload.unwrap_or(true),
        code_lines: cc_codeline.clone(),
        log_only: *cc_log_only,
        ..Collectives::of(signal)
    }
}

/// The collectives of the monitor `cc`, given that it is on. Its keys may be in an object `cc_distribution`.
pub(super) fn of_v2(file: &CcFile, report: &mut Report<'_>) -> Collectives {
    let nested = file.cc_distribution.clone().unwrap_or_default();
    check_lines(&file.cc_codeline, "monitors.cc.cc_codeline", report);
    check_lines(&nested.cc_codeline, "monitors.cc.cc_distribution.cc_codeline", report);
    Collectives {
        before: file.cc_pre_hook || nested.cc_pre_hook,
        payload: file.cc_payload.or(nested.cc_payload).unwrap_or(true),
        code_lines: file.cc_codeline.iter().chain(&nested.cc_codeline).cloned().collect(),
        log_only: file.cc_log_only || nested.cc_log_only,
        ranks: file.module_ranks.clone(),
        ..Collectives::of(file.signal.clone())
    }
}

/// Warns of an empty pattern, which matches every stack.
fn check_lines(lines: &[String], key: &str, report: &mut Report<'_>) {
    if lines.iter().any(|line| line.trim().is_empty()) {
        let fault = Fault::new(Kind::NoEffect, "contains an empty pattern, which matches every stack");
        report.warn(report.place(key), key, fault.hint("write a part of `<path>[<line>]`, or remove the key"));
    }
}
