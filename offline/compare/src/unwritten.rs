//! Unwritten memory in results of operators: its content means nothing.

use std::collections::{HashMap, HashSet};

use trainmon_capture_files::{Operator, Section, TensorFacts};

use super::fingerprint::Fingerprint;
use super::input::Capture;
use super::item::Item;
use super::name::{Direction, Hashes, OperatorName};

/// Functions whose result shares the memory of their first input.
const VIEWS: [&str; 32] = [
    "__getitem__",
    "_unsafe_view",
    "alias",
    "as_strided",
    "chunk",
    "data",
    "detach",
    "diagonal",
    "expand",
    "expand_as",
    "flatten",
    "moveaxis",
    "movedim",
    "narrow",
    "permute",
    "reshape",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "swapaxes",
    "swapdims",
    "t",
    "tensor_split",
    "transpose",
    "unbind",
    "unflatten",
    "unfold",
    "unsqueeze",
    "view",
    "view_as",
];

/// The unwritten memory of two captures: a tensor of the target, and the baseline's at the same place.
///
/// A tensor is identified by its statistics, and both have to be those of one allocating call: a computed tensor of zeros is
/// not excluded because unwritten memory is often zero. Such memory may also contain what was freed before, in this step or in
/// the last one: tensors that another call returns, or received before, are compared.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    /// Whether any call of the target allocates such memory.
    is_given: bool,
    pairs: HashSet<(Fingerprint, Fingerprint), Hashes>,
}

impl Unwritten {
    /// Collects such memory from the calls with equal names on both sides, in the target's order. Without allocating calls, it
    /// costs a look at each name.
    pub(crate) fn of(target: &Capture, golden: &Capture) -> Self {
        let mut unwritten = Self { is_given: calls(target).next().is_some(), ..Self::default() };
        if !unwritten.is_given {
            return unwritten;
        }
        let of_golden: HashMap<&str, &Operator, Hashes> =
            calls(golden).map(|(operator, _)| (&*operator.name, operator)).collect();
        let mut of_interest = calls(target).peekable();
        let [mut met, mut made]: [HashSet<Fingerprint, Hashes>; 2] = Default::default();
        for operator in &target.document.operators {
            let call = of_interest.next_if(|(next, _)| std::ptr::eq(*next, operator));
            let twin = call.and_then(|_| of_golden.get(&*operator.name));
            let is_given = call.is_some_and(|(_, gives)| gives);
            if let Some(twin) = twin.filter(|twin| is_given || unwritten.is_view_of_it(operator, twin)) {
                unwritten.pairs.extend(pairs(operator, twin, Section::Output).filter(|(one, _)| !met.contains(one)));
                continue;
            }
            if is_given {
                continue;
            }
            for value in &operator.values {
                let Some(one) = Item { operator, value }.tensor().and_then(seen) else { continue };
                if value.section == Section::Output {
                    made.insert(one);
                }
                met.insert(one);
            }
        }
        unwritten.pairs.retain(|(one, _)| !made.contains(one));
        unwritten
    }

    /// Whether both values are such memory.
    pub(crate) fn has(&self, target: Item<'_>, golden: Item<'_>) -> bool {
        let is_marked = |item: Item<'_>| item.tensor().is_some_and(|tensor| tensor.is_unwritten);
        is_marked(target) || is_marked(golden) || (self.is_given && self.has_pair(target, golden))
    }

    fn has_pair(&self, target: Item<'_>, golden: Item<'_>) -> bool {
        let tensors = || Some((seen(target.tensor()?)?, seen(golden.tensor()?)?));
        tensors().is_some_and(|pair| self.pairs.contains(&pair))
    }

    fn is_view_of_it(&self, operator: &Operator, twin: &Operator) -> bool {
        pairs(operator, twin, Section::Input).next().is_some_and(|first| self.pairs.contains(&first))
    }
}

/// Whether a call returns a view of its first input.
pub(crate) fn gives_view(name: OperatorName<'_>) -> bool {
    name.direction == Direction::Forward && VIEWS.contains(&name.operation())
}

/// The calls that allocate such memory (`true`), and those that may return a view of it. Empty if no call allocates any.
fn calls(capture: &Capture) -> impl Iterator<Item = (&Operator, bool)> {
    let named = capture.document.operators.iter().filter_map(|one| Some((one, OperatorName::parse(&one.name)?)));
    let judged = named.map(|(operator, name)| (operator, name.gives_unwritten_memory(), gives_view(name)));
    let of_interest =
        judged.filter(|&(_, gives, is_view)| gives || is_view).map(|(operator, gives, _)| (operator, gives));
    of_interest.skip_while(|(_, gives)| !gives)
}

/// The tensors of a section, paired with the baseline's.
fn pairs(operator: &Operator, twin: &Operator, section: Section) -> impl Iterator<Item = (Fingerprint, Fingerprint)> {
    let values = operator.values.iter().filter(move |value| value.section == section);
    values.filter_map(|value| {
        let other = twin.values.iter().find(|other| other.place == value.place)?;
        let (one, other) = (Item { operator, value }, Item { operator: twin, value: other });
        Some((seen(one.tensor()?)?, seen(other.tensor()?)?))
    })
}

/// The fingerprint of a tensor; `None` without statistics.
fn seen(tensor: &TensorFacts) -> Option<Fingerprint> {
    tensor.statistics[0].number().map(|_| Fingerprint::of(tensor))
}
