//! A capture of a list with one model beside a capture of the model itself.

use std::borrow::Cow;

use crate::input::Capture;
use crate::name::OperatorName;

/// The prefix of every module's path in a capture of a list with one model.
const INDEX: &str = "Module.0.";

/// Whether only the target's, or only the baseline's, modules have the index of a list.
pub(super) fn one_is_listed(target: &Capture, golden: &Capture) -> [bool; 2] {
    match [is_listed(target), is_listed(golden)] {
        [Some(true), Some(false)] => [true, false],
        [Some(false), Some(true)] => [false, true],
        _ => [false, false],
    }
}

/// Whether every module's path begins with 0; `None` without modules. A model whose only child is called 0 looks the same, but
/// then on both sides.
fn is_listed(capture: &Capture) -> Option<bool> {
    let operators = capture.document.operators.iter().map(|operator| &*operator.name);
    let mut modules = operators
        .filter(|name| OperatorName::parse(name).is_some_and(|name| !name.is_operator && name.family() == "Module"))
        .peekable();
    modules.peek()?;
    Some(modules.all(|name| name.starts_with(INDEX)))
}

/// A module's name without the index of the list.
pub(super) fn unlisted(name: &str, is_listed: bool) -> Cow<'_, str> {
    match name.strip_prefix(INDEX).filter(|_| is_listed) {
        Some(rest) => Cow::Owned(format!("Module.{rest}")),
        None => Cow::Borrowed(name),
    }
}

/// The other side's name of a module in this side's form; whether this side is listed, and whether the other is.
pub(super) fn relisted(name: &str, [this, other]: [bool; 2]) -> Cow<'_, str> {
    match name.strip_prefix("Module.").filter(|_| this) {
        Some(rest) => Cow::Owned(format!("{INDEX}{rest}")),
        None => unlisted(name, other),
    }
}

#[cfg(test)]
mod tests {
    use crate::matching::tests::{capture, names};
    use crate::matching::{How, Matching};

    const LISTED: [&str; 3] =
        ["Functional.linear.0.forward", "Module.0.a.Linear.forward.0", "Module.0.0.Net.forward.0"];
    const PLAIN: [&str; 3] = ["Functional.linear.0.forward", "Module.a.Linear.forward.0", "Module.0.Net.forward.0"];

    #[test]
    fn a_list_of_one_model_matches_the_model() {
        let (listed, plain) = (capture(&LISTED, &[]), capture(&PLAIN, &[]));
        for (target, golden) in [(&listed, &plain), (&plain, &listed)] {
            let paired = names(target, golden, &Matching::Name.pairs(target, golden, false));
            let hows: Vec<How> = paired.iter().map(|(_, _, how)| *how).collect();
            assert_eq!(hows, [How::Name, How::Listed, How::Listed], "{paired:?}");
            assert!(paired.iter().all(|(one, other, _)| one.is_some() && other.is_some()), "{paired:?}");
            let aligned: Vec<_> = (0..3).map(|index| (Some(index), Some(index))).collect();
            assert_eq!(Matching::Name.align(target, golden).operators, aligned);
            // msprobe does not see it.
            assert!(Matching::Name.pairs(target, golden, true).iter().any(|pair| pair.golden.is_none()));
        }
    }

    #[test]
    fn a_list_matches_by_sequence_where_calls_differ() {
        let parents = |module: &'static str| [("Functional.gelu.0.forward", Some(module))];
        let listed = capture(&["Functional.gelu.0.forward", LISTED[1]], &parents("Module.0.a.Linear.forward.0"));
        let plain = capture(
            &["Torch.zeros.0.forward", "Functional.gelu.0.forward", PLAIN[1]],
            &parents("Module.a.Linear.forward.0"),
        );
        let expected = [(None, Some(0)), (Some(0), Some(1)), (Some(1), Some(2))];
        assert_eq!(Matching::Name.align(&listed, &plain).operators, expected);
    }

    #[test]
    fn two_models_of_a_list_are_not_one() {
        let two = capture(&["Module.0.a.Linear.forward.0", "Module.1.a.Linear.forward.0"], &[]);
        let plain = capture(&PLAIN, &[]);
        let pairs = Matching::Name.pairs(&two, &plain, false);
        assert!(pairs.iter().all(|pair| pair.target.is_none() || pair.golden.is_none()), "{pairs:?}");
    }
}
