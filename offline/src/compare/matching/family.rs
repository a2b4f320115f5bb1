//! Families of operators that two frameworks spell differently.

use std::borrow::Cow;

use trainmon_dump::capture::Framework;

/// `MindSpore`'s families and torch's for the same operators.
const FAMILIES: [(&str, &str); 4] =
    [("Mint", "Torch"), ("MintFunctional", "Functional"), ("MintDistributed", "Distributed"), ("Cell", "Module")];

/// A callee as torch spells it: `Functional.relu` for `MindSpore`'s `MintFunctional.relu`.
pub(super) fn common_callee(callee: &str, framework: Framework) -> Cow<'_, str> {
    if framework == Framework::PyTorch {
        return Cow::Borrowed(callee);
    }
    let (family, rest) = callee.split_once('.').unwrap_or((callee, ""));
    match FAMILIES.iter().find(|(theirs, _)| *theirs == family) {
        Some((_, ours)) => Cow::Owned(format!("{ours}.{rest}")),
        None => Cow::Borrowed(callee),
    }
}
