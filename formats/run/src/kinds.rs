//! Maps kinds to tables and rows to kinds, in either layout: V1 has one file per kind, V2 one per monitor, whose rows
//! have a scope column.

use trainmon_core::Kind;
use trainmon_core::config::Dialect;

/// V1's file of directions, into which msprobe also writes its collectives, in rows longer than the header.
pub(crate) const MIXED_PREFIX: &str = "other";
/// V2's file of collective operations.
const COLLECTIVES: &str = "cc";
const OPTIMIZER: &str = "optimizer";
const PARAM: &str = "param";

/// V2's files of kinds whose scope differs from the kind's name.
const SCOPES: [(Kind, &str, &str); 4] = [
    (Kind::Actv, "module", "forward"),
    (Kind::ActvGrad, "module", "backward"),
    (Kind::GradUnreduced, "weight_grad", "unreduced"),
    (Kind::GradReduced, "weight_grad", "reduced"),
];

/// The file name prefix of a kind's rows.
pub(crate) fn prefix_of(dialect: Dialect, kind: Kind) -> &'static str {
    match (dialect, kind) {
        (Dialect::V1, Kind::MgDirection) => MIXED_PREFIX,
        (Dialect::V1, kind) => kind.name(),
        (Dialect::V2, Kind::ParamOrigin | Kind::ParamUpdated) => PARAM,
        (Dialect::V2, kind) if kind.is_moment() => OPTIMIZER,
        (Dialect::V2, Kind::Comm) => COLLECTIVES,
        (Dialect::V2, kind) => SCOPES.iter().find(|(of, ..)| *of == kind).map_or(kind.name(), |(_, prefix, _)| prefix),
    }
}

/// The scope of a kind's rows in V2.
pub(crate) fn scope_of(kind: Kind) -> &'static str {
    SCOPES.iter().find(|(of, ..)| *of == kind).map_or(kind.name(), |(.., scope)| scope)
}

/// The kinds that rows of a file may have, in either layout.
pub fn kinds_of(prefix: &str) -> impl Iterator<Item = Kind> {
    let is_of =
        move |kind: &Kind| [Dialect::V1, Dialect::V2].iter().any(|&dialect| prefix_of(dialect, *kind) == prefix);
    Kind::ALL.into_iter().filter(is_of)
}

/// The file name prefixes of a kind's rows, in either layout; an unknown kind counts as an optimizer's state.
pub fn prefixes_of(kind: &str) -> [&str; 2] {
    match Kind::from_name(kind) {
        Some(kind) => [Dialect::V1, Dialect::V2].map(|dialect| prefix_of(dialect, kind)),
        None => [kind, OPTIMIZER],
    }
}

/// The kind of a row: the prefix of its V1 file, `mg_direction` for [`MIXED_PREFIX`]. `scope`: the scope in V2.
pub(crate) fn kind_of_row<'a>(prefix: &'a str, scope: Option<&'a str>) -> &'a str {
    match (prefix, scope) {
        (MIXED_PREFIX, None) => Kind::MgDirection.name(),
        (COLLECTIVES, Some(_)) => Kind::Comm.name(),
        (PARAM | OPTIMIZER, Some(scope)) if is_directory_name(scope) => scope,
        (prefix, Some(scope)) => {
            let of = SCOPES.iter().find(|(_, of, is)| (*of, *is) == (prefix, scope));
            of.map_or(prefix, |(kind, ..)| kind.name())
        }
        (prefix, None) => prefix,
    }
}

/// The name of a row's tensor, without V2's suffix: `fc.weight` of `fc.weight.exp_avg`.
pub(crate) fn name_of_row<'a>(prefix: &str, name: &'a str, scope: Option<&str>) -> &'a str {
    let of_state = scope.filter(|_| is_optimizer(prefix)).and_then(|scope| name.strip_suffix(scope)?.strip_suffix('.'));
    of_state.unwrap_or(name)
}

/// Whether it is V2's file of an optimizer's state, which may contain names that no kind has.
pub fn is_optimizer(prefix: &str) -> bool {
    prefix == OPTIMIZER
}

/// Scopes come from the file and may become directory names.
fn is_directory_name(scope: &str) -> bool {
    !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_the_kind_that_was_written_in_either_layout() {
        for kind in Kind::ALL {
            assert_eq!(kind_of_row(prefix_of(Dialect::V1, kind), None), kind.name());
            let prefix = prefix_of(Dialect::V2, kind);
            assert_eq!(kind_of_row(prefix, Some(scope_of(kind))), kind.name());
            assert!(prefixes_of(kind.name()).contains(&prefix));
            let kinds: Vec<Kind> = kinds_of(prefix).collect();
            assert!(kinds.contains(&kind), "{prefix}: {kinds:?}");
        }
        assert_eq!(kinds_of("weight_grad").collect::<Vec<_>>(), [Kind::GradUnreduced, Kind::GradReduced]);
        assert_eq!(kinds_of("optimizer").count(), Kind::ALL.into_iter().filter(|kind| kind.is_moment()).count());
        assert_eq!(kinds_of("stack_info").count(), 0);
        assert_eq!(prefixes_of("my_state"), ["my_state", "optimizer"]);
    }

    #[test]
    fn a_scope_that_is_no_directory_name_is_the_file() {
        assert_eq!(kind_of_row("param", Some("../x")), "param");
        assert_eq!(kind_of_row("optimizer", Some("my_state")), "my_state");
    }
}
