//! Collective operations, from both dialects.

use super::diagnostic::DiagnosticKind as Kind;
use super::effective::Collectives;
use super::file::{CcFile, CollectivesFile};
use super::report::{Fault, Report};
use super::signals::Signal;

/// What `cc_distribution` asks for, given that it is on.
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

/// What the monitor `cc` asks for, given that it is on. Its keys may stand in an object `cc_distribution` of its own.
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

/// An empty pattern is found in every stack.
fn check_lines(lines: &[String], key: &str, report: &mut Report<'_>) {
    if lines.iter().any(|line| line.trim().is_empty()) {
        let fault = Fault::new(Kind::NoEffect, "holds an empty pattern, which every stack matches");
        report.warn(report.place(key), key, fault.hint("write a part of `<path>[<line>]`, or leave the key out"));
    }
}
