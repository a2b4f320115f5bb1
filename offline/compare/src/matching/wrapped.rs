//! Names that a parallel wrapper adds to modules, possibly on one side only.

use std::borrow::Cow;

use crate::input::Capture;

/// Parts of a path that a wrapper adds: DDP and Megatron, FSDP 1, `torch.compile`, activation checkpoints.
const PARTS: [&str; 4] = ["module", "_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"];

/// The prefix that FSDP 2 adds to the class of a module.
const CLASS: &str = "FSDP";

/// Whether only the target's, or only the baseline's, modules have the names of a wrapper.
pub(super) fn one_is_wrapped(target: &Capture, golden: &Capture) -> bool {
    let modules = |capture: &Capture| {
        let names = capture.document.operators.iter().map(|operator| &*operator.name);
        names.filter(|name| name.starts_with("Module.")).map(|name| matches!(unwrapped(name), Cow::Owned(_))).max()
    };
    matches!((modules(target), modules(golden)), (Some(one), Some(other)) if one || other)
}

/// A module's name without the additions of wrappers.
pub(super) fn unwrapped(name: &str) -> Cow<'_, str> {
    let Some(path) = name.strip_prefix("Module.") else { return Cow::Borrowed(name) };
    let mut parts: Vec<&str> = path.split('.').collect();
    let count = parts.len();
    parts.retain(|part| !PARTS.contains(part));
    let mut is_changed = parts.len() != count;
    for part in &mut parts {
        let rest = part.strip_prefix(CLASS).filter(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()));
        if let Some(rest) = rest {
            (*part, is_changed) = (rest, true);
        }
    }
    if is_changed { Cow::Owned(format!("Module.{}", parts.join("."))) } else { Cow::Borrowed(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::Matching;
    use crate::matching::tests::{capture, names};

    #[test]
    fn wrappers_of_one_side_hide_no_module() {
        assert_eq!(unwrapped("Module.module.b.0.FSDPBlock.forward.0"), "Module.b.0.Block.forward.0");
        assert_eq!(unwrapped("Module.b.0._orig_mod.fc.Linear.forward.0"), "Module.b.0.fc.Linear.forward.0");
        assert!(matches!(unwrapped("Module.b.0.Block.forward.0"), Cow::Borrowed(_)));
        let sharded = capture(&["Module.b.0.FSDPBlock.forward.0", "Module.h.Linear.forward.0"], &[]);
        let copied = capture(&["Module.module.b.0.Block.forward.0", "Module.module.h.Linear.forward.0"], &[]);
        let pairs = Matching::Name.pairs(&sharded, &copied, false);
        let paired: Vec<_> = names(&sharded, &copied, &pairs)
            .iter()
            .map(|(one, other, how)| (one.is_some() && other.is_some(), how.word()))
            .collect();
        assert_eq!(paired, [(true, "wrapper"), (true, "wrapper")]);
    }
}
