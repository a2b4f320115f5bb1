//! The first divergence for the page: its neighbours, modules, values and stacks.

use similar::DiffTag;
use trainmon_capture_files::{Leaf, Operator, Plain};

use crate::answer::{RankCaptures, StepCaptures};
use crate::deviation::{Deviation, What};
use crate::evaluation::Sides;
use crate::first::{Divergence, Finding, Suspect};
use crate::input::Capture;
use crate::item::Address;
use crate::judge::{GoldenSpreads, Judge};
use crate::python;
use crate::rounding::Positions;
use crate::script::{Numbers, script};
use crate::thresholds::Thresholds;

/// Operators shown before the divergence.
const BEFORE: usize = 4;
/// Values of suspects that are shown.
const SUSPECTS: usize = 8;

/// The first divergence.
pub(super) struct Place {
    /// The step as the page names it, with its graph if there is one, and the rank.
    pub(super) at: (String, u64),
    /// The modules around the operator, the outermost first.
    pub(super) modules: Vec<String>,
    /// The operators before it, the operator itself, and those to which the difference spreads.
    pub(super) chain: Vec<Link>,
    /// The differing values, the leading one first.
    pub(super) suspects: Vec<SuspectFacts>,
    /// The number of further ones.
    pub(super) more_suspects: usize,
    /// Both stacks line by line; `None` if neither side has one.
    pub(super) stacks: Option<Stacks>,
}

/// An operator of the chain.
pub(super) struct Link {
    /// Before, at or after the divergence.
    pub(super) role: Role,
    /// The name.
    pub(super) operator: String,
    /// The largest difference of its inputs.
    pub(super) input: Deviation,
    /// The largest difference of its outputs.
    pub(super) output: Deviation,
}

/// The position of an operator in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Before,
    At,
    After,
}

/// A differing value.
pub(super) struct SuspectFacts {
    pub(super) name: String,
    pub(super) deviation: Deviation,
    pub(super) bound: f64,
    /// The source of the tolerance.
    pub(super) source: String,
    /// Its properties: label, target's, baseline's.
    pub(super) values: Vec<(&'static str, String, String)>,
}

/// Both stacks, side by side.
pub(super) struct Stacks {
    /// The operator that the stacks belong to: for a backward call, its forward call.
    pub(super) operator: String,
    /// The frames, the innermost first.
    pub(super) lines: Vec<Line>,
}

/// The frames of target and baseline, and whether they are equal.
pub(super) type Line = (Option<String>, Option<String>, bool);

impl Place {
    /// Collects the facts while the step's captures are in memory; `None` if the step has no origin.
    pub(super) fn of(step: &StepCaptures, divergence: &Divergence, thresholds: &Thresholds) -> Option<Self> {
        let (rank, finding) = divergence.origins.first()?;
        let captures = step.ranks.iter().find(|captures| captures.rank == *rank)?;
        let (target, golden) = (&captures.target, &captures.golden);
        let (one, other) = operators(target, golden, finding.target, finding.golden);
        let mut modules: Vec<String> = if finding.target.is_some() { target } else { golden }
            .construct
            .ancestors(&finding.operator)
            .into_iter()
            .map(str::to_owned)
            .collect();
        modules.reverse();
        let positions = Positions::of(&target.document);
        let spreads = captures.spreads.as_ref();
        let judge = Judge { thresholds, spreads, positions: &positions };
        let suspects =
            finding.suspects.iter().take(SUSPECTS).map(|suspect| facts(suspect, finding, one, other, judge)).collect();
        let spread = divergence.walked.iter().find(|(walked, _)| walked == rank).map(|(_, walked)| &walked.spread[..]);
        let name = if step.part.is_empty() { step.step.to_string() } else { format!("{}/{}", step.part, step.step) };
        Some(Self {
            at: (name, *rank),
            modules,
            chain: chain(captures, finding, spread.unwrap_or(&[])),
            suspects,
            more_suspects: finding.suspects.len().saturating_sub(SUSPECTS),
            stacks: stacks(target, golden, one, other),
        })
    }
}

fn operators<'c>(
    target: &'c Capture,
    golden: &'c Capture,
    one: Option<u32>,
    other: Option<u32>,
) -> (Option<&'c Operator>, Option<&'c Operator>) {
    let at = |capture: &'c Capture, index: Option<u32>| capture.document.operators.get(index? as usize);
    (at(target, one), at(golden, other))
}

fn chain(captures: &RankCaptures, finding: &Finding, spread: &[String]) -> Vec<Link> {
    let (sides, aligned) = (captures.sides(), &captures.aligned.operators);
    let (target, golden) = (sides.target, sides.golden);
    let link = |role, place: usize| {
        let (one, other) = aligned.get(place).copied()?;
        let (input, output) = apart(sides, one, other);
        let (one, other) = operators(target, golden, one, other);
        Some(Link { role, operator: one.or(other)?.name.to_string(), input, output })
    };
    let before = finding.place.saturating_sub(BEFORE)..finding.place;
    let mut chain: Vec<Link> = before.filter_map(|place| link(Role::Before, place)).collect();
    chain.extend(link(Role::At, finding.place));
    let mut left = spread.iter().peekable();
    for (place, (one, _)) in aligned.iter().enumerate().skip(finding.place + 1) {
        let Some(next) = left.peek() else { break };
        let name = one.map(|index| &target.document.operators[index as usize].name);
        if name.is_some_and(|name| **name == ***next) {
            left.next();
            chain.extend(link(Role::After, place));
        }
    }
    chain
}

/// The largest differences of inputs and outputs.
fn apart(sides: Sides<'_>, one: Option<u32>, other: Option<u32>) -> (Deviation, Deviation) {
    let presence = Deviation::of(What::Presence);
    let (Some(one), Some(other)) = (one, other) else { return (presence, presence) };
    let (mut input, mut output) = (Deviation::NONE, Deviation::NONE);
    for (value, at) in sides.target.document.operators[one as usize].values.iter().zip(0..) {
        let found = match sides.golden.counterpart(other, &value.place) {
            Some(twin) => sides.deviation(Address { operator: one, value: at }, twin),
            None if matches!(value.leaf, Leaf::Nothing) => Deviation::NONE,
            None => presence,
        };
        let side = if value.section.is_input() { &mut input } else { &mut output };
        *side = side.max(found);
    }
    (input, output)
}

fn facts(
    suspect: &Suspect,
    finding: &Finding,
    one: Option<&Operator>,
    other: Option<&Operator>,
    judge: Judge<'_>,
) -> SuspectFacts {
    let item = |operator: Option<&Operator>| -> Vec<(&'static str, String)> {
        let Some(operator) = operator else { return Vec::new() };
        // A renumbered call has another name but the same places.
        let own = [one, other].into_iter().flatten().find_map(|own| {
            let value = own.values.iter().find(|value| own.name_of(value) == suspect.name)?;
            Some(&value.place)
        });
        let value = own.and_then(|place| operator.values.iter().find(|value| value.place == *place));
        value.map_or_else(Vec::new, |value| described(&value.leaf))
    };
    let (target, golden) = (item(one), item(other));
    let labels = if target.len() >= golden.len() { &target } else { &golden };
    let values = labels.iter().map(|(label, _)| {
        let of = |side: &[(&'static str, String)]| {
            side.iter().find(|(other, _)| other == label).map_or_else(|| "none".to_owned(), |(_, text)| text.clone())
        };
        (*label, of(&target), of(&golden))
    });
    SuspectFacts {
        name: suspect.name.clone(),
        deviation: suspect.deviation,
        bound: suspect.bound,
        source: source(suspect, finding, one, judge),
        values: values.collect(),
    }
}

fn described(leaf: &Leaf) -> Vec<(&'static str, String)> {
    match leaf {
        Leaf::Nothing => vec![("value", "None".to_owned())],
        Leaf::Plain { kind, value } => vec![("type", kind.to_string()), ("value", python::text(value))],
        Leaf::Group { ranks, .. } => vec![("ranks", python::text(ranks))],
        Leaf::Tensor(tensor) => {
            let mut lines = vec![("dtype", python::text(&tensor.dtype)), ("shape", python::text(&tensor.shape))];
            for (label, value) in ["max", "min", "mean", "norm"].into_iter().zip(&tensor.statistics) {
                if !matches!(value, Plain::Null) {
                    lines.push((label, python::text(value)));
                }
            }
            if let Some(digest) = tensor.digest.as_ref().filter(|digest| !digest.is_null()) {
                lines.push(("checksum", python::text(digest)));
            }
            lines
        }
    }
}

/// The source of a suspect's tolerance, as a text.
fn source(suspect: &Suspect, finding: &Finding, operator: Option<&Operator>, judge: Judge<'_>) -> String {
    if suspect.section.is_input() {
        return match suspect.bound {
            0.0 => "exact: no earlier difference",
            _ => "the largest earlier rounding error, amplified",
        }
        .to_owned();
    }
    let bound = operator.map(|operator| judge.bound(operator, finding.input));
    let known = bound.filter(|bound| bound.bound.to_bits() == suspect.bound.to_bits());
    let spread = judge.spreads.is_some_and(|_: &GoldenSpreads| known.is_none());
    match known {
        Some(bound) => bound.source.words().into_owned(),
        None if spread => "earlier rounding error, amplified, or the spread of the baselines".to_owned(),
        None => "earlier rounding error, amplified, plus round-off".to_owned(),
    }
}

fn stacks(target: &Capture, golden: &Capture, one: Option<&Operator>, other: Option<&Operator>) -> Option<Stacks> {
    let name = one.or(other)?.name.to_string();
    let (own, forward) = (str::to_owned as fn(&str) -> String, forward as fn(&str) -> String);
    for call in [own, forward] {
        let frames = |capture: &Capture, operator: Option<&Operator>| -> Vec<String> {
            let frames = operator.and_then(|operator| capture.stacks.of(&call(&operator.name)));
            frames.into_iter().flatten().map(|frame| frame.trim_end().to_owned()).collect()
        };
        let (one, other) = (frames(target, one), frames(golden, other));
        if !one.is_empty() || !other.is_empty() {
            return Some(Stacks { operator: call(&name), lines: side_by_side(&one, &other) });
        }
    }
    None
}

fn forward(operator: &str) -> String {
    operator.replacen(".backward", ".forward", 1)
}

fn side_by_side(one: &[String], other: &[String]) -> Vec<Line> {
    let mut numbers = Numbers::new();
    let [one_numbers, other_numbers] = [one, other].map(|frames| numbers.of(frames.iter()));
    let mut lines = Vec::new();
    for piece in script(&one_numbers, &other_numbers) {
        let (old, new) = (&one[piece.old_range()], &other[piece.new_range()]);
        for at in 0..old.len().max(new.len()) {
            lines.push((old.get(at).cloned(), new.get(at).cloned(), piece.tag() == DiffTag::Equal));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_one_side_alone_stand_beside_nothing() {
        let frames = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let lines = side_by_side(&frames(&["a", "b", "d"]), &frames(&["a", "c", "b", "e"]));
        let shown: Vec<_> = lines
            .iter()
            .map(|(one, other, same)| (one.as_deref().unwrap_or("-"), other.as_deref().unwrap_or("-"), *same))
            .collect();
        assert_eq!(shown, [("a", "a", true), ("-", "c", false), ("b", "b", true), ("d", "e", false)]);
    }
}
