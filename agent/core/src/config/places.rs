//! Places of faults in a text that trainmon assembled.

use super::diagnostic::{ConfigErrors, Diagnostic};

/// Removes the places of faults in an assembled text, which the user cannot look up.
pub(super) fn without_places(mut errors: ConfigErrors) -> ConfigErrors {
    errors.errors.iter_mut().chain(&mut errors.warnings).for_each(forget_place);
    errors
}

/// Gives warnings of such a text their places in the user's own text, `known`; the others have none.
pub(super) fn take_places(warnings: &mut [Diagnostic], known: &[Diagnostic]) {
    for warning in warnings {
        match known.iter().find(|known| (&known.key, known.kind) == (&warning.key, warning.kind)) {
            Some(known) => *warning = known.clone(),
            None => forget_place(warning),
        }
    }
}

fn forget_place(fault: &mut Diagnostic) {
    (fault.line, fault.column) = (0, 0);
}
