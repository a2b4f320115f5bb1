//! The answer of a comparison as text and as JSON.

use serde_json::{Value, json};
use trainmon_report::{counted, first_of, quoted};

use super::answer::{CaptureAnswer, CaptureVerdict};
use super::deviation::{Deviation, What};
use super::first::{Divergence, Finding, Kind, OneSidedCall, Rewritten, Suspect, Walked};
use super::location::{Location, argument};
use super::name::{Direction, OperatorName};
use super::text::{of, share};

/// The number of names that a line lists.
const NAMES_SHOWN: usize = 6;

/// The headline: one line without the facts that [`details`] adds.
pub(crate) fn sentence(answer: &CaptureAnswer) -> String {
    match &answer.verdict {
        CaptureVerdict::Same if answer.finer > 0 => {
            format!("No divergence: {} in every captured value; dtypes differ", agree(answer.compared))
        }
        CaptureVerdict::Same if answer.parts > 0 => {
            format!("No divergence: {} in every comparable value", agree(answer.compared))
        }
        CaptureVerdict::Same => format!("No divergence: {} in every captured value", agree(answer.compared)),
        CaptureVerdict::Rounding { step, rank, operator, largest } if *largest == 0.0 => format!(
            "No divergence beyond rounding: only sums that cancel differ, first in `{operator}` (step {step}, rank {rank})"
        ),
        CaptureVerdict::Rounding { step, rank, operator, largest } => format!(
            "No divergence beyond rounding: values differ by at most {}, first in `{operator}` (step {step}, rank {rank})",
            of(*largest, "their size")
        ),
        CaptureVerdict::CannotTell { why, .. } => format!("Cannot tell: {why}"),
        CaptureVerdict::Rewritten { step, ranks, rewritten, .. } => format!(
            "No divergence beyond rounding, but the code differs from `{}` to `{}` (step {step}, {})",
            rewritten.finding.operator,
            rewritten.until,
            on(ranks)
        ),
        CaptureVerdict::OneSided { step, ranks, finding, rounding } => format!(
            "No divergence{}, but the calls differ: only the {} has `{}` (step {step}, {})",
            if rounding.0 > 0 { " beyond rounding" } else { "" },
            if finding.kind == Kind::TargetOnly { "target" } else { "baseline" },
            finding.operator,
            on(ranks)
        ),
        CaptureVerdict::Parts { step, ranks, finding } => first_divergence(*step, ranks, finding),
    }
}

fn agree(operators: usize) -> String {
    counted(operators as u64, "operator agrees", "operators agree")
}

fn on(ranks: &[u64]) -> String {
    let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, names.join(", "))
}

/// The place and the size of the first divergence.
fn first_divergence(step: u64, ranks: &[u64], finding: &Finding) -> String {
    let Location { module, seen_in, .. } = &finding.location;
    let module = module.as_ref().map(|module| format!(" in `{module}`")).unwrap_or_default();
    let update = finding.parameter.as_ref().map(|name| format!(" in the update of `{name}`")).unwrap_or_default();
    let lead = finding.suspects.first().map(|lead| leading(lead, &finding.operator)).unwrap_or_default();
    let seen_in = seen_in.as_ref().map(|module| format!("in `{module}` ")).unwrap_or_default();
    let what = match finding.kind {
        Kind::TargetOnly => format!("only the target makes this call, then {seen_in}{lead}"),
        Kind::GoldenOnly => format!("only the baseline makes this call, then {seen_in}{lead}"),
        _ => lead,
    };
    format!("First divergence: step {step}, {}, `{}`{module}{update}: {what}", on(ranks), finding.operator)
}

/// The value that differs, by how much, and against what.
fn leading(suspect: &Suspect, operator: &str) -> String {
    let Suspect { name, deviation, words, section, .. } = suspect;
    let own = name.strip_prefix(operator).filter(|place| place.starts_with('.'));
    let name = &own.map_or_else(|| name.clone(), |place| argument(operator, *section, place));
    match (deviation.what, words) {
        (What::Numbers, _) if deviation.relative.is_finite() => {
            let share = share(deviation.relative);
            let size = if share.ends_with("times") { " its size" } else { "" };
            format!("`{name}` differs by {share}{size}")
        }
        (What::Presence, Some([target, golden])) => format!("`{name}` is {target} (baseline: {golden})"),
        (What::Numbers | What::NotFinite | What::Digest, _) | (_, None) => {
            format!("`{name}` differs in {}", deviation.what.word())
        }
        (What::Argument, Some([target, golden])) => {
            format!("argument `{name}` is {target} (baseline: {golden})")
        }
        (what, Some([target, golden])) => format!("{} of `{name}` is {target} (baseline: {golden})", what.word()),
    }
}

/// Why this place is the first divergence, and the tolerance that the leading value exceeds.
fn explanation(finding: &Finding) -> Option<String> {
    let why = match finding.kind {
        Kind::Operator if finding.input > 0.0 => {
            format!("Its inputs differ by at most {}", of(finding.input, "their size"))
        }
        // A value that a script saved by name has no inputs.
        Kind::Operator if finding.operator.rsplit('.').next() == Some("debug") => {
            "It is the first saved value that differs".to_owned()
        }
        Kind::Operator => "All its inputs agree".to_owned(),
        Kind::Argument => "The arguments of the call differ".to_owned(),
        Kind::Parameter => "The parameter differs, although nothing before it does".to_owned(),
        Kind::Data => "The input data differ before any operator".to_owned(),
        Kind::Between => format!(
            "Everything captured before it agrees: the code in between was not captured{}",
            if finding.is_of_all_operators { "" } else { " (level `mix` captures more)" }
        ),
        Kind::TargetOnly | Kind::GoldenOnly => String::new(),
    };
    let lead = finding.suspects.first()?;
    let has_tolerance = lead.deviation.what == What::Numbers && lead.deviation.relative.is_finite();
    let tolerance = if lead.bound > 0.0 { of(lead.bound, "its size") } else { "none".to_owned() };
    match (why.is_empty(), has_tolerance) {
        (true, false) => None,
        (true, true) => Some(format!("Tolerance: {tolerance}.")),
        (false, false) => Some(format!("{why}.")),
        (false, true) => Some(format!("{why} (tolerance: {tolerance}).")),
    }
}

/// The facts below the headline, a line each.
pub(crate) fn details(answer: &CaptureAnswer) -> Vec<String> {
    let mut lines = Vec::new();
    let ranks: &[u64] = match &answer.verdict {
        CaptureVerdict::Parts { ranks, .. }
        | CaptureVerdict::OneSided { ranks, .. }
        | CaptureVerdict::Rewritten { ranks, .. } => ranks,
        _ => &[],
    };
    match &answer.verdict {
        CaptureVerdict::CannotTell { capture, .. } => lines.push(format!("Capture {capture}.")),
        CaptureVerdict::OneSided { rounding, .. } if rounding.0 > 0 => {
            lines.push(format!("Values differ by at most {}.", of(rounding.1, "their size")));
        }
        CaptureVerdict::Rewritten { rewritten, places, .. } => {
            lines.push(format!("The results {}.", agreement(rewritten.apart)));
            if *places > 1 {
                let more = counted(*places as u64 - 1, "more place differs", "more places differ");
                lines.push(format!("{more} in the same way."));
            }
        }
        _ => {}
    }
    if let Some(divergence) = &answer.divergence {
        let walked = divergence.walked.iter().find(|(rank, _)| ranks.contains(rank)).map(|(_, walked)| walked);
        if let CaptureVerdict::Parts { finding, .. } = &answer.verdict {
            lines.extend(of_finding(finding, walked));
        }
        if let (CaptureVerdict::Rewritten { .. }, Some(walked)) = (&answer.verdict, walked) {
            lines.extend(calls_besides(walked));
        }
        lines.extend(other_ranks(divergence, ranks));
        if let (CaptureVerdict::OneSided { .. }, Some(walked)) = (&answer.verdict, walked)
            && walked.one_sided.len() > 1
        {
            let calls = walked.one_sided.iter().map(|call| quoted(&call.operator));
            lines.push(format!("Calls on one side only: {}.", first_of(calls, NAMES_SHOWN)));
        }
    }
    lines.extend(unsure(answer));
    lines.extend(not_compared(answer));
    lines
}

/// The lines about the first divergence.
fn of_finding(finding: &Finding, walked: Option<&Walked>) -> Vec<String> {
    let mut lines: Vec<String> = explanation(finding).into_iter().collect();
    lines.extend(finding.location.source.as_ref().map(|source| format!("Source: {source}.")));
    lines.extend(finding.looks_like.as_ref().map(|looks| format!("Pattern: {looks}.")));
    if let Some(walked) = walked {
        lines.extend(calls_near(finding, &walked.one_sided));
        lines.extend(walked.rewritten.iter().map(otherwise).take(NAMES_SHOWN));
        let spread = walked.spread.iter().map(quoted);
        lines.extend(
            (!walked.spread.is_empty())
                .then(|| format!("The difference spreads to {}.", first_of(spread, NAMES_SHOWN))),
        );
    }
    if let Some(other) = &finding.permuted {
        lines.push(format!("The baseline has the target's data at `{other}`, and vice versa: the order differs."));
    }
    let may_be_permuted = (finding.kind == Kind::Operator && finding.input == 0.0) || finding.permuted.is_some();
    match &finding.untold_mask {
        Some(mask) => lines.push(format!(
            "`{mask}` is a bool tensor: its statistics show only whether any element is true, so another mask would not show. \
             `trainmon.capture` counts the true elements."
        )),
        // The pattern may have said so already.
        None if may_be_permuted && finding.has_no_digests && finding.looks_like.is_none() => {
            lines.push(PERMUTATION.to_owned());
        }
        None => {}
    }
    lines
}

/// The lines about everything that was not compared.
fn not_compared(answer: &CaptureAnswer) -> Vec<String> {
    let mut lines = Vec::new();
    for (side, only) in [("target", &answer.target_only), ("baseline", &answer.golden_only)] {
        if !only.is_empty() {
            lines.push(format!("Not compared, only in the {side}: {}.", only.join(", ")));
        }
    }
    let of = |count: usize, one: &str, several: &str| counted(count as u64, one, several);
    if answer.unseen > 0 && answer.unseen < answer.compared {
        let operators = of(answer.unseen, "operator was", "operators were");
        lines.push(format!("{operators} not compared: neither statistics nor checksums were captured."));
    }
    if answer.unjudged > 0 {
        let operators = of(answer.unjudged, "update operator", "update operators");
        lines.push(format!(
            "One side has fused parameters, so only the arguments of {operators} were compared. The parameters of the next step show \
             the effect."
        ));
    }
    if answer.parts > 0 {
        let values = of(answer.parts, "value was", "values were");
        lines.push(format!(
            "{values} not compared: one side has a rank's part, the other the whole (sharded parameters)."
        ));
    }
    if answer.finer > 0 {
        let values = of(answer.finer, "value has", "values have");
        lines.push(format!("{values} a finer dtype in the target than in the baseline; the numbers agree."));
    }
    if answer.unread > 0 {
        let tensors = of(answer.unread, "tensor", "tensors");
        lines.push(format!(
            "{tensors} cannot be read: only the statistics were compared. The rows of the tables have the reason."
        ));
    }
    lines
}

/// The limit of statistics.
const PERMUTATION: &str = "Statistics do not show a permutation. If the operator is right, its input may have its rows in another \
                           order. Checksums (`summary_mode: md5`) would show it.";

/// Calls that one side lacks shortly before the divergence; if the source of the difference was not captured, also those shortly
/// after it.
fn calls_near(finding: &Finding, calls: &[OneSidedCall]) -> Vec<String> {
    const NEAR: usize = 24;
    let line = |where_to: &str, is_near: &dyn Fn(&OneSidedCall) -> bool| {
        let near: Vec<String> =
            calls.iter().filter(|call| call.operator != finding.operator && is_near(call)).map(one_sided).collect();
        (!near.is_empty()).then(|| {
            format!("Calls without a counterpart shortly {where_to} it: {}.", first_of(near.iter(), NAMES_SHOWN))
        })
    };
    let before = line("before", &|call| call.place < finding.place && call.place + NEAR > finding.place);
    let is_unrecorded = matches!(finding.kind, Kind::Data | Kind::Between);
    let after = line("after", &|call| is_unrecorded && call.place > finding.place && call.place < finding.place + NEAR);
    before.into_iter().chain(after).collect()
}

/// Forward calls that one side lacks and that belong to no rewritten code. Their backward calls are omitted.
fn calls_besides(walked: &Walked) -> Option<String> {
    let is_besides = |call: &&OneSidedCall| {
        let is_forward = OperatorName::parse(&call.operator).is_none_or(|name| name.direction == Direction::Forward);
        is_forward && !walked.rewritten.iter().any(|part| part.places.contains(&call.place))
    };
    let besides: Vec<String> = walked.one_sided.iter().filter(is_besides).map(one_sided).collect();
    (!besides.is_empty()).then(|| format!("Other calls on one side only: {}.", first_of(besides.iter(), NAMES_SHOWN)))
}

fn one_sided(call: &OneSidedCall) -> String {
    format!("`{}` (only in the {})", call.operator, if call.is_target { "target" } else { "baseline" })
}

/// A piece of rewritten code.
fn otherwise(part: &Rewritten) -> String {
    let Rewritten { finding, until, apart, places: _ } = part;
    format!("The code differs from `{}` to `{until}`; the results {}.", finding.operator, agreement(*apart))
}

/// The agreement of results of rewritten code, as a verb phrase.
fn agreement(apart: f64) -> String {
    if apart > 0.0 { format!("agree within {}", of(apart, "their size")) } else { "agree".to_owned() }
}

/// The difference on the other ranks.
fn other_ranks(divergence: &Divergence, ranks: &[u64]) -> Vec<String> {
    let mut lines: Vec<String> = divergence
        .received
        .iter()
        .map(|(rank, operator, givers)| {
            format!("Rank {rank} received the difference in `{operator}` from {}.", on(givers))
        })
        .collect();
    let others =
        divergence.origins.iter().filter(|(rank, finding)| !ranks.contains(rank) && !finding.suspects.is_empty());
    lines.extend(others.map(|(rank, finding)| {
        // Gradients are averaged over ranks where nothing is captured.
        if finding.kind == Kind::Between {
            format!(
                "Rank {rank} differs from `{}` on, possibly because of an average over ranks that was not captured.",
                finding.operator
            )
        } else {
            format!("Rank {rank} also diverges on its own, at `{}`.", finding.operator)
        }
    }));
    lines
}

/// The tensors that only another baseline can decide.
fn unsure(answer: &CaptureAnswer) -> Option<String> {
    let tensors = &answer.unsure;
    (!tensors.is_empty()).then(|| {
        format!(
            "Attributed to rounding: {}. An adaptive optimizer makes a full update of a gradient that is only rounding error. To \
             decide, capture the baseline again on the target's machine and pass it as a third path.",
            first_of(tensors.iter().map(quoted), NAMES_SHOWN)
        )
    })
}

/// The answer as JSON.
pub(crate) fn as_json(answer: &CaptureAnswer) -> Value {
    let mut json = json!({
        "verdict": word(&answer.verdict), "sentence": sentence(answer), "details": details(answer),
        "operators_compared": answer.compared, "operators_unseen": answer.unseen,
        "values_unread": answer.unread, "values_in_finer_dtype": answer.finer,
        "values_not_comparable": answer.parts,
        "target_only": answer.target_only, "golden_only": answer.golden_only,
    });
    let more = match &answer.verdict {
        CaptureVerdict::Same | CaptureVerdict::CannotTell { .. } => json!({}),
        CaptureVerdict::Rounding { step, rank, operator, largest } => {
            json!({"step": step, "ranks": [rank], "operator": operator, "largest": largest})
        }
        CaptureVerdict::Rewritten { step, ranks, rewritten, places } => json!({
            "step": step, "ranks": ranks, "operator": rewritten.finding.operator, "kind": kind(rewritten.finding.kind),
            "until": rewritten.until, "largest": number(rewritten.apart), "places": places,
        }),
        CaptureVerdict::OneSided { step, ranks, finding, .. } | CaptureVerdict::Parts { step, ranks, finding } => {
            json!({
                "step": step, "ranks": ranks, "operator": finding.operator, "module": finding.location.module,
                "source": finding.location.source, "parameter": finding.parameter,
                "looks_like": finding.looks_like, "seen_in": finding.location.seen_in, "kind": kind(finding.kind),
                "input_deviation": number(finding.input),
                "suspects": finding.suspects.iter().map(suspect).collect::<Vec<_>>(),
            })
        }
    };
    if let (Some(json), Value::Object(more)) = (json.as_object_mut(), more) {
        json.extend(more);
        if let Some(divergence) = &answer.divergence {
            let spread =
                divergence.walked.iter().map(|(rank, walked)| json!({"rank": rank, "operators": walked.spread}));
            json.insert("spread".to_owned(), spread.collect());
            let received = divergence
                .received
                .iter()
                .map(|(rank, operator, from)| json!({"rank": rank, "operator": operator, "from": from}));
            json.insert("received".to_owned(), received.collect());
            let also =
                divergence.origins.iter().map(|(rank, finding)| json!({"rank": rank, "operator": finding.operator}));
            json.insert("origins".to_owned(), also.collect());
        }
    }
    json
}

fn word(verdict: &CaptureVerdict) -> &'static str {
    match verdict {
        CaptureVerdict::Same => "same",
        CaptureVerdict::Rounding { .. } => "rounding",
        CaptureVerdict::Rewritten { .. } => "rewritten",
        CaptureVerdict::OneSided { .. } => "one_sided",
        CaptureVerdict::Parts { .. } => "parts",
        CaptureVerdict::CannotTell { .. } => "cannot_tell",
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Operator => "operator",
        Kind::Argument => "argument",
        Kind::Parameter => "parameter",
        Kind::Data => "data",
        Kind::Between => "between",
        Kind::TargetOnly => "target_only",
        Kind::GoldenOnly => "golden_only",
    }
}

fn suspect(suspect: &Suspect) -> Value {
    let Deviation { what, relative } = suspect.deviation;
    let words = suspect.words.as_ref();
    json!({
        "name": suspect.name, "differs_in": what.word(), "deviation": number(relative), "bound": number(suspect.bound),
        "target": words.map(|[target, _]| target), "golden": words.map(|[_, golden]| golden),
    })
}

/// A number, or null for infinity, which JSON lacks.
fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}
