//! The comparison as one page for a browser: every tensor, the worst first, to be searched and filtered. It loads nothing.

use std::fmt::Write as _;

use super::comparison::{Comparison, Side, TensorRow, Verdict};
use super::report::{word, worst_first};
use trainmon_report::html::{escaped, head, list};

/// Rows stay in the document; the script hides those that are not asked for.
const SCRIPT: &str = include_str!("page.js");

const COLUMNS: [&str; 9] =
    ["tensor", "verdict", "dtype", "shape", "l2", "l2 / |b|", "cosine", "max abs", "elements that differ"];

/// The whole page.
pub(super) fn html(comparison: &Comparison) -> String {
    let Comparison { a, b, tensors, only_in_a, only_in_b } = comparison;
    let sentence = sentence(comparison);
    let class = if comparison.is_same() { "fine" } else { "error" };
    let mut html = head("compare-checkpoint", &sentence, "");
    // Writing into a String does not fail.
    _ = writeln!(html, "<header class=\"{class}\"><h1>{}</h1>", escaped(&sentence));
    for (letter, side) in [("a", a), ("b", b)] {
        html += &checkpoint(letter, side);
    }
    html += "</header>\n";
    for (letter, names) in [("a", only_in_a), ("b", only_in_b)] {
        if !names.is_empty() {
            let names: Vec<String> =
                names.iter().map(|name| format!("<li><code>{}</code></li>", escaped(name))).collect();
            _ = writeln!(
                html,
                "<section><h2>Only in {letter}: {}</h2><ul>{}</ul></section>",
                names.len(),
                names.concat()
            );
        }
    }
    html += "<section><h2>Tensors both have</h2>\n<p id=\"filters\"><label>search <input id=\"search\" type=\"search\"></label> \
             <label>verdict <select id=\"verdict\"><option value=\"\">all</option><option>shape</option>\
             <option>different</option><option>rounding</option><option>identical</option></select></label> \
             <output id=\"count\"></output></p>\n<div class=\"scroll\"><table id=\"tensors\"><thead><tr>";
    html.extend(COLUMNS.iter().map(|column| format!("<th scope=\"col\">{column}</th>")));
    html += "</tr></thead><tbody>\n";
    html.extend(worst_first(tensors.iter()).into_iter().map(row));
    _ = write!(html, "</tbody></table></div></section>\n</main>\n<script>\n{SCRIPT}</script>\n</body></html>\n");
    html
}

fn sentence(comparison: &Comparison) -> String {
    let count = |verdict| comparison.count(verdict);
    let one_sided = comparison.only_in_a.len() + comparison.only_in_b.len();
    format!(
        "{} of {} tensors differ: {} in value, {} in shape; {} within rounding, {} identical; {one_sided} on one side only",
        count(Verdict::Different) + count(Verdict::Shape),
        comparison.tensors.len(),
        count(Verdict::Different),
        count(Verdict::Shape),
        count(Verdict::Rounding),
        count(Verdict::Identical)
    )
}

fn checkpoint(letter: &str, side: &Side) -> String {
    let path = escaped(&side.path.display().to_string());
    let unreadable = side.unreadable.iter().map(|(name, reason)| format!("not read: {name}: {reason}"));
    let notes: Vec<String> = side.notes.iter().cloned().chain(unreadable).collect();
    let (layout, tensors, notes) = (side.layout.words(), side.tensors, list(&notes));
    format!("<p>{letter}: <code>{path}</code>, {layout}, {tensors} tensors</p>\n{notes}")
}

fn row(row: &TensorRow) -> String {
    let both = |values: [String; 2]| match values {
        [one, other] if one == other => one,
        [one, other] => format!("{one} / {other}"),
    };
    let shape = both([0, 1].map(|side: usize| format!("{:?}", row.shape[side])));
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3e}"));
    let distance = row.distance.as_ref();
    let cells = [
        row.name.clone(),
        word(row.verdict).to_owned(),
        both(row.dtype.clone()),
        shape,
        number(distance.map(|distance| distance.l2)),
        number(distance.and_then(|distance| distance.relative_l2)),
        distance.and_then(|distance| distance.cos).map_or_else(|| "-".to_owned(), |cos| format!("{cos:.9}")),
        number(distance.map(|distance| distance.max_abs)),
        distance.map_or_else(|| "-".to_owned(), |distance| format!("{} of {}", distance.differing, row.numel[0])),
    ];
    let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
    let level = match row.verdict {
        Verdict::Identical => "pass",
        Verdict::Rounding => "warning",
        Verdict::Different | Verdict::Shape => "error",
    };
    let [name, verdict, rest @ ..] = &cells[..] else { return String::new() };
    format!(
        "<tr><td><code>{name}</code></td><td class=\"level {level}\">{verdict}</td><td>{}</td></tr>\n",
        rest.join("</td><td>")
    )
}
