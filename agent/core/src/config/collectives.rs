//! Collective operations, from both dialects.

use super::effective::Collectives;
use super::file::{CcFile, CollectivesFile};
use super::report::Report;
use super::signals::Signal;

/// What `cc_distribution` asks for, given that it is on.
pub(super) fn of_v1(file: &CollectivesFile, signal: Signal, report: &mut Report<'_>) -> Collectives {
    refuse(&missing_of("cc_distribution", file), report);
    Collectives { signal, before: file.cc_pre_hook }
}

/// What the monitor `cc` asks for, given that it is on. Its keys may stand in an object `cc_distribution` of its own.
pub(super) fn of_v2(file: &CcFile, signal: Signal, report: &mut Report<'_>) -> Collectives {
    let mut missing = vec![
        ("monitors.cc.cc_codeline".to_owned(), !file.cc_codeline.is_empty()),
        ("monitors.cc.cc_log_only".to_owned(), file.cc_log_only),
        ("monitors.cc.module_ranks".to_owned(), !file.module_ranks.is_empty()),
    ];
    let nested = file.cc_distribution.as_ref();
    missing.extend(nested.into_iter().flat_map(|nested| missing_of("monitors.cc.cc_distribution", nested)));
    refuse(&missing, report);
    Collectives { signal, before: file.cc_pre_hook || nested.is_some_and(|nested| nested.cc_pre_hook) }
}

/// The keys that change what is measured and are not implemented, with whether each is switched on.
fn missing_of(key: &str, file: &CollectivesFile) -> Vec<(String, bool)> {
    vec![(format!("{key}.cc_codeline"), !file.cc_codeline.is_empty()), (format!("{key}.cc_log_only"), file.cc_log_only)]
}

/// Only now: a file may carry these keys while the measurement is off.
fn refuse(missing: &[(String, bool)], report: &mut Report<'_>) {
    for (key, _) in missing.iter().filter(|(_, is_on)| *is_on) {
        report.lacks(report.place(key), key, "", "leave it out: every call is measured");
    }
}
