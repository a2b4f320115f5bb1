//! The page: the answer is HTML, the table is data for the script.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use maud::{Markup, PreEscaped, html};
use trainmon_report::html::{Behaviour, list, page, with_code};

use super::place::{Line, Link, Place, Role, Stacks, SuspectFacts};
use super::rows::CollectedRows;
use crate::answer::{CaptureAnswer, CaptureVerdict};
use crate::deviation::{Deviation, What};
use crate::first::{Finding, Kind};
use crate::location::is_foreign;
use crate::{messages, text};

/// The placeholder for the rows, which are too many to be part of a text.
const ROWS: &str = "<!--rows-->";
/// Operators after the finding that are visible.
const NEAR: usize = 10;
/// Operators after those that are collapsed: a difference may spread to all of a large model.
const MOST_FAR: usize = 200;

pub(super) fn write(
    (rows, place): (&mut CollectedRows, Option<&Place>),
    answer: &CaptureAnswer,
    (target, goldens): (&Path, &[PathBuf]),
    to: &mut BufWriter<File>,
) -> io::Result<()> {
    let sentence = messages::sentence(answer);
    let has_rows = rows.kept() > 0;
    let content = html! {
        (head(answer, &sentence, target, goldens))
        @if let Some(place) = place { (place_html(place, answer)) }
        @if let Some(svg) = rows.distribution.svg() {
            section {
                h2 { "Size of differences" }
                "\n"
                p class="muted" {
                    "Each bar counts the values whose difference, relative to their size, is between this decade and the next. \
                     Each level has its own scale. " q { "other" } ": differences without a size, such as a shape, NaN on one \
                     side, or no counterpart."
                }
                "\n"
                // Only numbers and constant texts.
                div class="scroll" { (PreEscaped(svg)) }
            }
            "\n"
        }
        @if has_rows {
            // The page's script creates the table.
            section id="values" {
                h2 { "All values" }
                "\n"
                (left_out(rows))
                noscript { p { "This table requires JavaScript; the CSV files have the same rows." } }
            }
            "\n"
        } @else {
            section {
                h2 { "All values" }
                p { (if rows.left_out().is_some() { "Every value passes." } else { "There is no table of values." }) }
            }
            "\n"
        }
    };
    let data = html! {
        @if has_rows {
            "\n"
            @let kind = if rows.is_packed() { "application/gzip" } else { "application/json" };
            script type=(kind) id="data" { "\n" (PreEscaped(ROWS)) "\n" }
        }
    };
    let page = page("compare", &sentence, Behaviour::COMPARE, &content, &data).into_string();
    match page.split_once(ROWS) {
        None => to.write_all(page.as_bytes()),
        Some((before, behind)) => {
            to.write_all(before.as_bytes())?;
            rows.write(to)?;
            to.write_all(behind.as_bytes())
        }
    }
}

fn left_out(rows: &CollectedRows) -> Markup {
    html! {
        @if let Some(text) = rows.left_out() {
            p class="left-out" id="left-out" { (text) " The format csv has all rows." }
        }
    }
}

fn head(answer: &CaptureAnswer, sentence: &str, target: &Path, goldens: &[PathBuf]) -> Markup {
    let (class, badge) = match &answer.verdict {
        CaptureVerdict::Same => ("fine", "same"),
        CaptureVerdict::Rounding { .. } => ("fine", "rounding"),
        CaptureVerdict::Rewritten { .. } => ("fine", "code differs"),
        CaptureVerdict::OneSided { .. } => ("warning", "calls differ"),
        CaptureVerdict::CannotTell { .. } => ("warning", "cannot tell"),
        CaptureVerdict::Parts { .. } => ("error", "divergence"),
    };
    html! {
        header class=(class) {
            p class="badge" { (badge) }
            h1 { (with_code(sentence)) }
            "\n"
            (list(&messages::details(answer)))
            p class="muted" {
                "Target " code { (target.display()) } ", baseline "
                @for (index, path) in goldens.iter().enumerate() {
                    @if index > 0 { ", " }
                    code { (path.display()) }
                }
                ". " (answer.compared) " operators compared"
                // The table continues after the divergence, the search does not.
                @if matches!(answer.verdict, CaptureVerdict::Parts { .. }) { " up to the divergence" }
                "."
            }
        }
        "\n"
        (cards(answer))
    }
}

fn cards(answer: &CaptureAnswer) -> Markup {
    let card = |title: &'static str, text: &dyn ToString| (title, text.to_string());
    let cards = match &answer.verdict {
        CaptureVerdict::Same | CaptureVerdict::CannotTell { .. } => return html! {},
        CaptureVerdict::Rounding { step, rank, operator, largest } => vec![
            card("Step", step),
            card("Rank", rank),
            card("First difference", operator),
            card("Largest difference", &text::of(*largest, "a value's size")),
        ],
        CaptureVerdict::Rewritten { step, ranks, rewritten, places } => vec![
            card("Step", step),
            card("Ranks", &ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            card("From", &rewritten.finding.operator),
            card("To", &rewritten.until),
            card("Difference of the results", &text::of(rewritten.apart, "their size")),
            card("Places", places),
        ],
        CaptureVerdict::OneSided { step, ranks, finding, .. } | CaptureVerdict::Parts { step, ranks, finding } => {
            let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
            let rank = if ranks.len() == 1 { "Rank" } else { "Ranks" };
            let mut cards =
                vec![card("Step", step), card(rank, &names.join(", ")), card("Operator", &finding.operator)];
            cards.push(card("Kind", &kind(finding)));
            match finding.kind {
                Kind::Operator if finding.input > 0.0 => {
                    cards.push(("Inputs", format!("differ by at most {}", text::share(finding.input))));
                }
                Kind::Operator => cards.push(card("Inputs", &"all agree")),
                _ => {}
            }
            cards
        }
    };
    html! {
        dl class="cards" { @for (title, text) in cards { div { dt { (title) } dd { (text) } } } }
        "\n"
    }
}

fn kind(finding: &Finding) -> &'static str {
    match finding.kind {
        Kind::Operator => "other outputs from the same inputs",
        Kind::Argument => "another argument",
        Kind::Parameter => "a parameter differs",
        Kind::Data => "the input data differ",
        Kind::Between => "changed between two captured operators",
        Kind::TargetOnly => "only the target makes this call",
        Kind::GoldenOnly => "only the baseline makes this call",
    }
}

fn place_html(place: &Place, answer: &CaptureAnswer) -> Markup {
    let behind = place.chain.iter().position(|link| link.role == Role::After);
    let near = behind.map_or(place.chain.len(), |first| (first + NEAR).min(place.chain.len()));
    let (near, far) = place.chain.split_at(near);
    html! {
        @if !place.suspects.is_empty() {
            section {
                h2 { "Differing values" }
                "\n"
                div class="suspects" { @for one in &place.suspects { (suspect(one, &place.at)) } }
                @if place.more_suspects > 0 {
                    p class="muted" { (place.more_suspects) " more values differ; the table has them." }
                }
            }
            "\n"
        }
        section {
            h2 { "Chain" }
            "\n"
            @if !place.modules.is_empty() {
                p class="modules" {
                    span class="muted" { "inside" } " "
                    @for (index, module) in place.modules.iter().enumerate() {
                        @if index > 0 { " " span class="muted" { "›" } " " }
                        code { (module) }
                    }
                }
                "\n"
            }
            (links(near, &place.at))
            @if !far.is_empty() {
                details {
                    summary { (far.len()) " more operators that differ" }
                    "\n"
                    (links(&far[..far.len().min(MOST_FAR)], &place.at))
                    @if far.len() > MOST_FAR {
                        p class="muted" { (far.len() - MOST_FAR) " more are in the table." }
                    }
                }
                "\n"
            }
            (received(answer))
        }
        "\n"
        @if let Some(both) = &place.stacks { (stacks(both)) }
    }
}

fn suspect(suspect: &SuspectFacts, at: &(String, u64)) -> Markup {
    let SuspectFacts { name, deviation, bound, source, values } = suspect;
    let bound = match *bound {
        0.0 => "0".to_owned(),
        bound if bound.is_finite() => text::share(bound),
        _ => "none".to_owned(),
    };
    html! {
        article {
            h3 { a href=(rows_of(name, at)) { (name) } }
            p {
                "differs in " (deviation.what.word()) ": " strong { (size(*deviation)) } ", tolerance " (bound) " "
                span class="muted" { "(" (source) ")" }
            }
            @if !values.is_empty() {
                table {
                    thead { tr { th {} th { "target" } th { "baseline" } } }
                    tbody {
                        @for (label, one, other) in values {
                            tr class=[(one != other).then_some("differs")] { th { (label) } td { (one) } td { (other) } }
                        }
                    }
                }
            }
        }
        "\n"
    }
}

fn links(chain: &[Link], at: &(String, u64)) -> Markup {
    html! {
        div class="scroll" {
            table class="chain" {
                thead {
                    tr {
                        @for title in ["", "operator", "difference of inputs", "difference of outputs"] {
                            th { (title) }
                        }
                    }
                }
                tbody { "\n" @for one in chain { (link(one, at)) } }
            }
        }
        "\n"
    }
}

fn link(link: &Link, at: &(String, u64)) -> Markup {
    let (class, label) = match link.role {
        Role::Before => ("before", "before"),
        Role::At => ("at", "here"),
        Role::After => ("after", "then"),
    };
    let width = |deviation: Deviation| {
        // A decade per step, from the round-off of double precision to 1; a difference without a size fills the bar.
        let share = if deviation.relative == 0.0 {
            0.0
        } else if deviation.relative.is_finite() {
            ((deviation.relative.log10() + 17.0) / 17.0).clamp(0.03, 1.0)
        } else {
            1.0
        };
        format!("width:{:.0}%", share * 100.0)
    };
    html! {
        tr class=(class) {
            th scope="row" { (label) }
            td { a href=(rows_of(&link.operator, at)) { (link.operator) } }
            @for deviation in [link.input, link.output] {
                td class="bar" { i style=(width(deviation)) {} span { (size(deviation)) } }
            }
        }
        "\n"
    }
}

fn received(answer: &CaptureAnswer) -> Markup {
    let received = answer.divergence.as_ref().map_or(&[][..], |divergence| &divergence.received);
    let ranks = |givers: &[u64]| givers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    html! {
        @if !received.is_empty() {
            h3 { "Across ranks" }
            ul class="received" {
                @for (rank, operator, givers) in received {
                    li {
                        "rank " (rank) " received it in " code { (operator) } " from rank"
                        @if givers.len() != 1 { "s" }
                        " " (ranks(givers))
                    }
                }
            }
            "\n"
        }
    }
}

fn stacks(stacks: &Stacks) -> Markup {
    let cell = |frame: &Option<String>, is_same: bool| {
        html! {
            @match frame {
                None => td class="nothing" {},
                Some(frame) if is_same => td { (frame) },
                Some(frame) => td class="differs" { mark { (frame) } },
            }
        }
    };
    let table = html! {
        p class="muted" { "The stacks of " code { (stacks.operator) } ", innermost frame first." }
        "\n"
        div class="scroll" {
            table class="stacks" {
                thead { tr { th { "target" } th { "baseline" } } }
                tbody {
                    "\n"
                    @for lines in stacks.lines.chunk_by(|one, next| is_folded(one) && is_folded(next)) {
                        @match lines {
                            [(one, other, is_same)] => { tr { (cell(one, *is_same)) (cell(other, *is_same)) } }
                            _ => {
                                tr class="folded" {
                                    td colspan="2" {
                                        details {
                                            summary { (lines.len()) " frames of torch and other packages, the same on both sides" }
                                            @for (frame, ..) in lines { p { (frame.as_deref().unwrap_or_default()) } }
                                        }
                                    }
                                }
                            }
                        }
                        "\n"
                    }
                }
            }
        }
    };
    let differ = stacks.lines.iter().filter(|(.., is_same)| !is_same).count();
    let has = |side: fn(&Line) -> bool| stacks.lines.iter().any(side);
    let said = match differ {
        _ if !has(|(one, ..)| one.is_some()) => "Only the baseline has a stack.".to_owned(),
        _ if !has(|(_, other, _)| other.is_some()) => "Only the target has a stack.".to_owned(),
        1 => "The stacks differ in 1 line.".to_owned(),
        _ => format!("The stacks differ in {differ} lines."),
    };
    html! {
        section {
            h2 { "Call site" }
            "\n"
            @if differ == 0 {
                details { summary { "The same stack on both sides" } (table) }
            } @else {
                p { (said) }
                (table)
            }
        }
        "\n"
    }
}

/// Whether a frame is a package's and the same on both sides: consecutive ones take one line.
fn is_folded((one, other, is_same): &Line) -> bool {
    let is_foreign = |frame: &Option<String>| frame.as_deref().is_some_and(is_foreign);
    *is_same && is_foreign(one) && is_foreign(other)
}

fn size(deviation: Deviation) -> String {
    match deviation.what {
        What::Nothing => "none".to_owned(),
        _ if deviation.relative == 0.0 => "none visible".to_owned(),
        _ if deviation.relative.is_finite() => text::share(deviation.relative),
        What::Presence => "one side only".to_owned(),
        what => what.word().to_owned(),
    }
}

/// The URL fragment that shows the rows of a name in one step and rank.
fn rows_of(name: &str, (step, rank): &(String, u64)) -> String {
    format!("#q={}&step={}&rank={rank}", percent(name), percent(step))
}

/// A value of a URL fragment: letters, digits and dots stay, other characters are percent-encoded.
fn percent(text: &str) -> String {
    let mut percent = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') {
            percent.push(char::from(byte));
        } else {
            // Writing into a String cannot fail.
            _ = write!(percent, "%{byte:02X}");
        }
    }
    percent
}
