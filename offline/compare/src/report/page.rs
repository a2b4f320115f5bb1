//! The page: what is said of the answer stands in it as HTML, the table is data for its script.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::place::{Line, Link, Place, Role, Stacks, SuspectFacts};
use super::rows::CollectedRows;
use crate::answer::{Answer, Verdict};
use crate::deviation::{Deviation, What};
use crate::first::{Finding, Kind};
use crate::{text, words};
use trainmon_report::html::{self, escaped};

const SCRIPT: &str = include_str!("assets/page.js");
const TABLE: &str = include_str!("assets/table.html");
/// Operators behind the finding that are in sight.
const NEAR: usize = 10;

pub(super) fn write(
    (rows, place): (&mut CollectedRows, Option<&Place>),
    answer: &Answer,
    (target, goldens): (&Path, &[PathBuf]),
    to: &mut BufWriter<File>,
) -> io::Result<()> {
    let sentence = words::sentence(answer);
    to.write_all(html::head("compare", &sentence, "").as_bytes())?;
    to.write_all(head(answer, &escaped(&sentence), target, goldens).as_bytes())?;
    if let Some(place) = place {
        to.write_all(place_html(place, answer).as_bytes())?;
    }
    if let Some(svg) = rows.distribution.svg() {
        write!(
            to,
            "<section><h2>How far values are apart</h2>\n<p class=\"soft\">Each bar counts the values whose difference is from \
             this part of their size up to the next; every level has a scale of its own. <q>other</q>: differences that are no \
             question of size, like a shape, NaN on one side, or no counterpart.</p>\n<div class=\"scroll\">{svg}</div></section>\n"
        )?;
    }
    if rows.kept() == 0 {
        let none = if rows.left_out().is_some() { "Every value passes." } else { "There is no table of values." };
        write!(to, "<section><h2>All values</h2><p>{none}</p></section>\n</main></body></html>\n")?;
        return Ok(());
    }
    let left_out = rows.left_out().map_or_else(String::new, |text| {
        format!("<p class=\"left-out\" id=\"left-out\">{} With --format csv all are written.</p>", escaped(&text))
    });
    to.write_all(TABLE.replace("<!--left-out-->", &left_out).as_bytes())?;
    to.write_all(b"</main>\n<script type=\"application/json\" id=\"data\">\n")?;
    rows.write(to)?;
    write!(to, "\n</script>\n<script>\n{SCRIPT}</script>\n</body></html>\n")
}

fn head(answer: &Answer, sentence: &str, target: &Path, goldens: &[PathBuf]) -> String {
    let (class, badge) = match &answer.verdict {
        Verdict::Same => ("fine", "same"),
        Verdict::Rounding { .. } => ("fine", "rounding"),
        Verdict::OneSided { .. } => ("warning", "calls differ"),
        Verdict::CannotTell { .. } => ("warning", "cannot tell"),
        Verdict::Parts { .. } => ("error", "they part"),
    };
    let mut text = format!("<header class=\"{class}\"><p class=\"badge\">{badge}</p><h1>{sentence}</h1>\n");
    text += &html::list(&words::details(answer));
    let golden: Vec<String> =
        goldens.iter().map(|path| format!("<code>{}</code>", escaped(&path.display().to_string()))).collect();
    // Writing into a String does not fail.
    _ = writeln!(
        text,
        "<p class=\"soft\">Target <code>{}</code>, golden {}. {} operators compared{}.</p></header>",
        escaped(&target.display().to_string()),
        golden.join(", "),
        answer.compared,
        // The table goes on behind it, the search does not.
        if matches!(answer.verdict, Verdict::Parts { .. }) { " up to there" } else { "" }
    );
    text + &cards(answer)
}

fn cards(answer: &Answer) -> String {
    let card = |title: &str, text: &str| format!("<div><dt>{title}</dt><dd>{}</dd></div>", escaped(text));
    let cards = match &answer.verdict {
        Verdict::Same | Verdict::CannotTell { .. } => return String::new(),
        Verdict::Rounding { step, rank, operator, largest } => [
            card("Step", &step.to_string()),
            card("Rank", &rank.to_string()),
            card("First rounding in", operator),
            card("Largest of all", &text::of(*largest, "a value's size")),
        ]
        .concat(),
        Verdict::OneSided { step, ranks, finding } | Verdict::Parts { step, ranks, finding } => {
            let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
            let inputs = match finding.kind {
                Kind::Operator if finding.input > 0.0 => format!("differ by {} at most", text::share(finding.input)),
                Kind::Operator => "all agree".to_owned(),
                _ => String::new(),
            };
            let inputs = if inputs.is_empty() { inputs } else { card("What goes in", &inputs) };
            [
                card("Step", &step.to_string()),
                card(if ranks.len() == 1 { "Rank" } else { "Ranks" }, &names.join(", ")),
                card("Operator", &finding.operator),
                card("Kind", kind(finding)),
                inputs,
            ]
            .concat()
        }
    };
    format!("<dl class=\"cards\">{cards}</dl>\n")
}

fn kind(finding: &Finding) -> &'static str {
    match finding.kind {
        Kind::Operator => "computes something else from the same",
        Kind::Argument => "called with another argument",
        Kind::Parameter => "a parameter differs",
        Kind::Data => "the input data differs",
        Kind::Between => "changed between two captured operators",
        Kind::TargetOnly => "a call of the target alone",
        Kind::GoldenOnly => "a call of the golden alone",
    }
}

fn place_html(place: &Place, answer: &Answer) -> String {
    let mut html = String::new();
    if !place.suspects.is_empty() {
        html += "<section><h2>What differs there</h2>\n<div class=\"suspects\">";
        html.extend(place.suspects.iter().map(|one| suspect(one, &place.at)));
        html += "</div>";
        if place.more_suspects > 0 {
            _ = write!(html, "<p class=\"soft\">{} more values differ; the table has them.</p>", place.more_suspects);
        }
        html += "</section>\n";
    }
    html += "<section><h2>The chain</h2>\n";
    if !place.modules.is_empty() {
        let modules: Vec<String> =
            place.modules.iter().map(|module| format!("<code>{}</code>", escaped(module))).collect();
        _ = writeln!(
            html,
            "<p class=\"modules\"><span class=\"soft\">inside</span> {}</p>",
            modules.join(" <span class=\"soft\">›</span> ")
        );
    }
    let near =
        place.chain.iter().position(|link| link.role == Role::After).map_or(place.chain.len(), |first| first + NEAR);
    let (near, far) = place.chain.split_at(near.min(place.chain.len()));
    html += &links(near, &place.at);
    if !far.is_empty() {
        _ = write!(
            html,
            "<details><summary>{} more that it spreads to</summary>\n{}</details>\n",
            far.len(),
            links(far, &place.at)
        );
    }
    html += &received(answer);
    html += "</section>\n";
    html + &place.stacks.as_ref().map_or_else(String::new, stacks)
}

fn suspect(suspect: &SuspectFacts, at: &(String, u64)) -> String {
    let SuspectFacts { name, deviation, bound, source, values } = suspect;
    let mut rows = String::new();
    for (label, one, other) in values {
        let class = if one == other { "" } else { " class=\"differs\"" };
        _ = write!(rows, "<tr{class}><th>{label}</th><td>{}</td><td>{}</td></tr>", escaped(one), escaped(other));
    }
    let values = if rows.is_empty() {
        rows
    } else {
        format!("<table><thead><tr><th></th><th>target</th><th>golden</th></tr></thead><tbody>{rows}</tbody></table>")
    };
    let bound = match *bound {
        0.0 => "0".to_owned(),
        bound if bound.is_finite() => text::share(bound),
        _ => "none".to_owned(),
    };
    format!(
        "<article><h3><a href=\"{}\">{}</a></h3><p>differs in {}: <strong>{}</strong>, bound {bound} <span class=\"soft\">({})\
         </span></p>{values}</article>\n",
        rows_of(name, at),
        escaped(name),
        deviation.what.word(),
        size(*deviation),
        escaped(source)
    )
}

fn links(chain: &[Link], at: &(String, u64)) -> String {
    let head = "<tr><th></th><th>operator</th><th>what goes in differs by</th><th>what comes out differs by</th></tr>";
    let rows: String = chain.iter().map(|one| link(one, at)).collect();
    format!("<div class=\"scroll\"><table class=\"chain\"><thead>{head}</thead><tbody>\n{rows}</tbody></table></div>\n")
}

fn link(link: &Link, at: &(String, u64)) -> String {
    let (class, label) = match link.role {
        Role::Before => ("before", "before"),
        Role::At => ("at", "here"),
        Role::After => ("after", "then"),
    };
    let bar = |deviation: Deviation| {
        // A decade a step, from the round-off of double precision to 1; what is no question of size fills the bar.
        let share = if deviation.relative == 0.0 {
            0.0
        } else if deviation.relative.is_finite() {
            ((deviation.relative.log10() + 17.0) / 17.0).clamp(0.03, 1.0)
        } else {
            1.0
        };
        format!("<td class=\"bar\"><i style=\"width:{:.0}%\"></i><span>{}</span></td>", share * 100.0, size(deviation))
    };
    format!(
        "<tr class=\"{class}\"><th scope=\"row\">{label}</th><td><a href=\"{}\">{}</a></td>{}{}</tr>\n",
        rows_of(&link.operator, at),
        escaped(&link.operator),
        bar(link.input),
        bar(link.output)
    )
}

fn received(answer: &Answer) -> String {
    let Some(divergence) = answer.divergence.as_ref().filter(|divergence| !divergence.received.is_empty()) else {
        return String::new();
    };
    let lines = divergence.received.iter().map(|(rank, operator, givers)| {
        let givers: Vec<String> = givers.iter().map(ToString::to_string).collect();
        format!(
            "<li>rank {rank} gets it in <code>{}</code> from rank{} {}</li>",
            escaped(operator),
            if givers.len() == 1 { "" } else { "s" },
            givers.join(", ")
        )
    });
    format!("<h3>Across ranks</h3><ul class=\"received\">{}</ul>\n", lines.collect::<String>())
}

fn stacks(stacks: &Stacks) -> String {
    let cell = |frame: &Option<String>, is_same: bool| match frame {
        None => "<td class=\"nothing\"></td>".to_owned(),
        Some(frame) if is_same => format!("<td>{}</td>", escaped(frame)),
        Some(frame) => format!("<td class=\"differs\"><mark>{}</mark></td>", escaped(frame)),
    };
    let rows = stacks
        .lines
        .iter()
        .map(|(one, other, is_same)| format!("<tr>{}{}</tr>\n", cell(one, *is_same), cell(other, *is_same)));
    let table = format!(
        "<p class=\"soft\">The stacks of <code>{}</code>, innermost frame first.</p>\n\
         <div class=\"scroll\"><table class=\"stacks\"><thead><tr><th>target</th><th>golden</th></tr></thead><tbody>\n{}</tbody></table>\
         </div>",
        escaped(&stacks.operator),
        rows.collect::<String>()
    );
    let differ = stacks.lines.iter().filter(|(.., is_same)| !is_same).count();
    let has = |side: fn(&Line) -> bool| stacks.lines.iter().any(side);
    let said = match differ {
        0 => format!("<details><summary>The same stack on both sides</summary>{table}</details>"),
        _ if !has(|(one, ..)| one.is_some()) => format!("<p>The golden alone has a stack.</p>{table}"),
        _ if !has(|(_, other, _)| other.is_some()) => format!("<p>The target alone has a stack.</p>{table}"),
        1 => format!("<p>The stacks differ in a line.</p>{table}"),
        _ => format!("<p>The stacks differ in {differ} lines.</p>{table}"),
    };
    format!("<section><h2>Where it is called</h2>\n{said}</section>\n")
}

fn size(deviation: Deviation) -> String {
    match deviation.what {
        What::Nothing => "nothing".to_owned(),
        _ if deviation.relative == 0.0 => "nothing seen".to_owned(),
        _ if deviation.relative.is_finite() => text::share(deviation.relative),
        What::Presence => "one side alone".to_owned(),
        what => what.word().to_owned(),
    }
}

/// The fragment that shows a name's rows of one step and rank.
fn rows_of(name: &str, (step, rank): &(String, u64)) -> String {
    format!("#q={}&amp;step={}&amp;rank={rank}", percent(name), percent(step))
}

/// A value of a fragment: letters, digits and dots stay, the rest is written as bytes.
fn percent(text: &str) -> String {
    let mut percent = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') {
            percent.push(char::from(byte));
        } else {
            // Writing into a String does not fail.
            _ = write!(percent, "%{byte:02X}");
        }
    }
    percent
}
