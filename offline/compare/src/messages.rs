//! An answer in words and as JSON.

use serde_json::{Value, json};
use trainmon_report::first_of;

use super::answer::{Answer, Verdict};
use super::deviation::{Deviation, What};
use super::first::{Divergence, Finding, Kind, OneSidedCall, Rewritten, Suspect, Walked};
use super::location::{Location, argument};
use super::name::{Direction, OperatorName};
use super::text::{of, share};

/// Names that a line has.
const NAMES_SHOWN: usize = 6;

/// The verdict in a sentence.
pub(crate) fn sentence(answer: &Answer) -> String {
    match &answer.verdict {
        Verdict::Same if answer.finer > 0 => {
            format!("No divergence: {} agree in all that was captured but dtypes.", operators(answer))
        }
        Verdict::Same if answer.parts > 0 => {
            format!("No divergence: {} agree in all that can be compared.", operators(answer))
        }
        Verdict::Same => format!("No divergence: {} agree in all that was captured.", operators(answer)),
        Verdict::Rounding { step, rank, operator, largest } if *largest == 0.0 => format!(
            "No divergence beyond rounding: all that differs is what is left of sums that cancel, in {operator} (step {step}, rank \
             {rank}) first."
        ),
        Verdict::Rounding { step, rank, operator, largest } => format!(
            "No divergence beyond rounding: the first rounding difference is in {operator} (step {step}, rank {rank}), the largest \
             of all is {}.",
            of(*largest, "a value's size")
        ),
        Verdict::CannotTell { why, capture } => format!("Cannot tell: {why}. Capture {capture}."),
        Verdict::Rewritten { step, ranks, rewritten, places } => format!(
            "No divergence beyond rounding, but code differs: from {} to {} (step {step}, {}) it is computed otherwise, and the results \
             agree{}{}.",
            rewritten.finding.operator,
            rewritten.until,
            on(ranks),
            if rewritten.apart > 0.0 {
                format!(" but for {}", of(rewritten.apart, "their size"))
            } else {
                " in all that was captured".to_owned()
            },
            if *places > 1 { format!("; so do those of {} further places", places - 1) } else { String::new() }
        ),
        Verdict::OneSided { step, ranks, finding, rounding } => format!(
            "No value differs{}, but the calls do: only the {} has {} (step {step}, {}).",
            if rounding.0 > 0 {
                format!(" by more than rounding (at most {} of its size)", share(rounding.1))
            } else {
                String::new()
            },
            if finding.kind == Kind::TargetOnly { "target" } else { "golden" },
            finding.operator,
            on(ranks)
        ),
        Verdict::Parts { step, ranks, finding } => {
            let Location { module, source, .. } = &finding.location;
            let module = module.as_ref().map(|module| format!(", {module}")).unwrap_or_default();
            let source = source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
            let update =
                finding.parameter.as_ref().map(|name| format!(", in the update of {name}")).unwrap_or_default();
            format!(
                "They diverge in step {step}, {}{module}, at {}{source}{update}: {}.",
                on(ranks),
                finding.operator,
                reason(finding)
            )
        }
    }
}

fn operators(answer: &Answer) -> String {
    let count = answer.compared;
    format!("{count} operator{}", if count == 1 { "" } else { "s" })
}

fn on(ranks: &[u64]) -> String {
    let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, names.join(", "))
}

fn reason(finding: &Finding) -> String {
    let lead = finding.suspects.first().map(|lead| leading(lead, &finding.operator)).unwrap_or_default();
    let seen_in = finding.location.seen_in.as_ref().map(|module| format!("in {module} ")).unwrap_or_default();
    match finding.kind {
        Kind::Operator if finding.input > 0.0 => {
            format!("its inputs differ by no more than {}, yet {lead}", of(finding.input, "their size"))
        }
        // A value that a script saved by name: nothing goes into it.
        Kind::Operator if finding.operator.rsplit('.').next() == Some("debug") => {
            format!("of what was saved it is the first to differ: {lead}")
        }
        Kind::Operator => format!("all that goes into it agrees, but {lead}"),
        Kind::Argument => format!("it is called otherwise: {lead}"),
        Kind::Parameter => format!("a parameter differs, though nothing before it does: {lead}"),
        Kind::Data => format!("they differ from the very input: {lead}"),
        Kind::Between => format!(
            "{lead}, though what was captured before it agrees: what ran in between was not captured{}",
            if finding.is_of_all_operators { "" } else { " (level mix shows more)" }
        ),
        Kind::TargetOnly => format!("only the target makes this call, and then {seen_in}{lead}"),
        Kind::GoldenOnly => format!("only the golden makes this call, and then {seen_in}{lead}"),
    }
}

fn leading(suspect: &Suspect, operator: &str) -> String {
    let Suspect { name, deviation, bound, words, section } = suspect;
    let own = name.strip_prefix(operator).filter(|place| place.starts_with('.'));
    let name = &own.map_or_else(|| name.clone(), |place| argument(operator, *section, place));
    match (deviation.what, words) {
        (What::Numbers, _) if deviation.relative.is_finite() => {
            let allowed =
                if *bound > 0.0 { format!("at most {} expected", share(*bound)) } else { "none expected".to_owned() };
            format!("{name} differs by {} ({allowed})", of(deviation.relative, "its size"))
        }
        (What::Presence, Some([target, golden])) => {
            format!("{name} is {target} in the target and {golden} in the golden")
        }
        (What::Numbers | What::NotFinite | What::Digest, _) | (_, None) => {
            format!("{name} differs in {}", deviation.what.word())
        }
        (What::Argument, Some([target, golden])) => format!("the argument {name} is {target}, not {golden}"),
        (what, Some([target, golden])) => format!("the {} of {name} is {target}, not {golden}", what.word()),
    }
}

/// What else is to be said, a line each.
pub(crate) fn details(answer: &Answer) -> Vec<String> {
    let mut lines = Vec::new();
    let ranks: &[u64] = match &answer.verdict {
        Verdict::Parts { ranks, .. } | Verdict::OneSided { ranks, .. } | Verdict::Rewritten { ranks, .. } => ranks,
        _ => &[],
    };
    if let Some(divergence) = &answer.divergence {
        let walked = divergence.walked.iter().find(|(rank, _)| ranks.contains(rank)).map(|(_, walked)| walked);
        if let Verdict::Parts { finding, .. } = &answer.verdict {
            lines.extend(finding.looks_like.as_ref().map(|looks| format!("What it looks like: {looks}.")));
            if let Some(walked) = walked {
                lines.extend(calls_near(finding, &walked.one_sided));
                lines.extend(walked.rewritten.iter().map(otherwise).take(NAMES_SHOWN));
                lines.extend(
                    (!walked.spread.is_empty())
                        .then(|| format!("It spreads to {}.", first_of(walked.spread.iter(), NAMES_SHOWN))),
                );
            }
            if let Some(other) = &finding.permuted {
                lines.push(format!(
                    "What the target has here, the golden has at {other}, and the other way round: they come in another order."
                ));
            }
            let may_be_permuted =
                (finding.kind == Kind::Operator && finding.input == 0.0) || finding.permuted.is_some();
            match &finding.untold_mask {
                Some(mask) => lines.push(format!(
                    "{mask} is a tensor of bools: its statistics tell whether any is true and not how many, so another mask would not \
                     show. A capture by `trainmon.capture` counts them."
                )),
                // What it looks like may be that already.
                None if may_be_permuted && finding.has_no_digests && finding.looks_like.is_none() => {
                    lines.push(PERMUTATION.to_owned());
                }
                None => {}
            }
        }
        if let (Verdict::Rewritten { .. }, Some(walked)) = (&answer.verdict, walked) {
            lines.extend(calls_besides(walked));
        }
        lines.extend(other_ranks(divergence, ranks));
        if let (Verdict::OneSided { .. }, Some(walked)) = (&answer.verdict, walked)
            && walked.one_sided.len() > 1
        {
            let calls = walked.one_sided.iter().map(|call| &call.operator);
            lines.push(format!("Calls of one side alone: {}.", first_of(calls, NAMES_SHOWN)));
        }
    }
    lines.extend(unsure(answer));
    for (side, only) in [("target", &answer.target_only), ("golden", &answer.golden_only)] {
        if !only.is_empty() {
            lines.push(format!("Not compared, the {side} alone has them: {}.", only.join(", ")));
        }
    }
    if answer.unseen > 0 && answer.unseen < answer.compared {
        lines.push(format!("{} operators have neither statistics nor checksums: they were not judged.", answer.unseen));
    }
    if answer.unjudged > 0 {
        lines.push(format!(
            "One side has parameters fused, so of {} operators of the update arguments alone were judged: the next step's parameters show \
             what they did.",
            answer.unjudged
        ));
    }
    if answer.parts > 0 {
        lines.push(format!(
            "{} values are a rank's part on one side and the whole on the other, as where one side shards its parameters: they were not \
             compared.",
            answer.parts
        ));
    }
    if answer.finer > 0 {
        lines.push(format!(
            "The target has {} values in a finer dtype than the golden; their numbers agree.",
            answer.finer
        ));
    }
    if answer.unread > 0 {
        lines.push(format!(
            "Tensors that cannot be read: {}; of these values statistics alone were compared, their rows say why.",
            answer.unread
        ));
    }
    lines
}

/// What statistics cannot show.
const PERMUTATION: &str = "Statistics do not show a permutation: if the operator is in order, what goes into it may have its rows in \
                           another order. Checksums (summary_mode: md5) would show it.";

/// Calls that one side lacks, if they ran shortly before the runs diverge; where nobody recorded what the difference comes of, also
/// those shortly behind.
fn calls_near(finding: &Finding, calls: &[OneSidedCall]) -> Vec<String> {
    const NEAR: usize = 24;
    let line = |where_to: &str, is_near: &dyn Fn(&OneSidedCall) -> bool| {
        let near: Vec<String> =
            calls.iter().filter(|call| call.operator != finding.operator && is_near(call)).map(one_sided).collect();
        (!near.is_empty()).then(|| {
            format!("Calls without counterpart shortly {where_to} it: {}.", first_of(near.iter(), NAMES_SHOWN))
        })
    };
    let before = line("before", &|call| call.place < finding.place && call.place + NEAR > finding.place);
    let is_unrecorded = matches!(finding.kind, Kind::Data | Kind::Between);
    let behind =
        line("behind", &|call| is_unrecorded && call.place > finding.place && call.place < finding.place + NEAR);
    before.into_iter().chain(behind).collect()
}

/// Calls that one side lacks and that are in no part that is computed otherwise. Their backward is not named besides.
fn calls_besides(walked: &Walked) -> Option<String> {
    let is_besides = |call: &&OneSidedCall| {
        let is_forward = OperatorName::parse(&call.operator).is_none_or(|name| name.direction == Direction::Forward);
        is_forward && !walked.rewritten.iter().any(|part| part.places.contains(&call.place))
    };
    let besides: Vec<String> = walked.one_sided.iter().filter(is_besides).map(one_sided).collect();
    (!besides.is_empty())
        .then(|| format!("Besides, calls of one side alone: {}.", first_of(besides.iter(), NAMES_SHOWN)))
}

fn one_sided(call: &OneSidedCall) -> String {
    format!("{} (only in the {})", call.operator, if call.is_target { "target" } else { "golden" })
}

/// A part that is computed otherwise.
fn otherwise(part: &Rewritten) -> String {
    let Rewritten { finding, until, apart, places: _ } = part;
    format!(
        "Computed otherwise from {} to {until}; the results agree{}.",
        finding.operator,
        if *apart > 0.0 { format!(" but for {}", of(*apart, "their size")) } else { String::new() }
    )
}

/// What became of the other ranks.
fn other_ranks(divergence: &Divergence, ranks: &[u64]) -> Vec<String> {
    let mut lines: Vec<String> = divergence
        .received
        .iter()
        .map(|(rank, operator, givers)| format!("Rank {rank} gets it in {operator} from {}.", on(givers)))
        .collect();
    let others =
        divergence.origins.iter().filter(|(rank, finding)| !ranks.contains(rank) && !finding.suspects.is_empty());
    lines.extend(others.map(|(rank, finding)| {
        // Gradients are averaged over ranks where a capture does not look.
        if finding.kind == Kind::Between {
            format!(
                "Rank {rank} differs from {} on, possibly through an average over ranks that was not captured.",
                finding.operator
            )
        } else {
            format!("Rank {rank} diverges by itself too, at {}.", finding.operator)
        }
    }));
    lines
}

/// What a further golden run would tell.
fn unsure(answer: &Answer) -> Option<String> {
    let tensors = &answer.unsure;
    (!tensors.is_empty()).then(|| {
        format!(
            "Put down to rounding, since an adaptive optimizer makes a full update of a gradient that is rounding alone: {}. A second \
             golden run settles it: capture the golden run once more on the target's machine, and give it as a third path.",
            first_of(tensors.iter(), NAMES_SHOWN)
        )
    })
}

/// The answer for programs.
pub(crate) fn as_json(answer: &Answer) -> Value {
    let mut json = json!({
        "verdict": word(&answer.verdict), "sentence": sentence(answer), "details": details(answer),
        "operators_compared": answer.compared, "operators_unseen": answer.unseen,
        "values_unread": answer.unread, "values_in_finer_dtype": answer.finer,
        "values_not_comparable": answer.parts,
        "target_only": answer.target_only, "golden_only": answer.golden_only,
    });
    let more = match &answer.verdict {
        Verdict::Same | Verdict::CannotTell { .. } => json!({}),
        Verdict::Rounding { step, rank, operator, largest } => {
            json!({"step": step, "ranks": [rank], "operator": operator, "largest": largest})
        }
        Verdict::Rewritten { step, ranks, rewritten, places } => json!({
            "step": step, "ranks": ranks, "operator": rewritten.finding.operator, "kind": kind(rewritten.finding.kind),
            "until": rewritten.until, "largest": number(rewritten.apart), "places": places,
        }),
        Verdict::OneSided { step, ranks, finding, .. } | Verdict::Parts { step, ranks, finding } => json!({
            "step": step, "ranks": ranks, "operator": finding.operator, "module": finding.location.module,
            "source": finding.location.source, "parameter": finding.parameter,
            "looks_like": finding.looks_like, "seen_in": finding.location.seen_in, "kind": kind(finding.kind),
            "input_deviation": number(finding.input),
            "suspects": finding.suspects.iter().map(suspect).collect::<Vec<_>>(),
        }),
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

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Same => "same",
        Verdict::Rounding { .. } => "rounding",
        Verdict::Rewritten { .. } => "rewritten",
        Verdict::OneSided { .. } => "one_sided",
        Verdict::Parts { .. } => "parts",
        Verdict::CannotTell { .. } => "cannot_tell",
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

/// JSON has no infinity: what is no question of size has no number.
fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}
