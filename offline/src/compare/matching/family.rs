//! Families of operators, and parameters, that two frameworks spell differently.

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

/// Names of parameters of the same layers.
const PARAMETERS: [(&str, &str); 5] = [
    ("gamma", "weight"),
    ("beta", "bias"),
    ("embedding_table", "weight"),
    ("moving_mean", "running_mean"),
    ("moving_variance", "running_var"),
];

/// A parameter's name as torch spells it; `None` where it is the same.
pub(super) fn common_parameter(name: &str, framework: Framework) -> Option<&'static str> {
    let mut names = PARAMETERS.iter().filter(|_| framework == Framework::MindSpore);
    names.find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}
