//! The comparison as one HTML file: no network, no scripts, light or dark as the reader's system is.

use super::answer::{Level, place_in_words};
use super::chart::svg;
use super::found::Parting;
use super::numbers::short;
use super::replay::Curve;
use super::{RankComparison, RunComparison};
use trainmon_report::html::{escaped, head, list};

/// Rows of a table; the CSV file has all.
const ROWS: usize = 200;

/// The charts', beside what all pages have.
const STYLE: &str = "\
:root { --target: #c2410c; --golden: #2563eb; --apart: #6d28d9; }
@media (prefers-color-scheme: dark) { :root { --target: #fb923c; --golden: #7aa7ff; --apart: #b79cff; } }
td.number, th.number { text-align: right; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .8rem; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
figcaption { font-size: 13px; margin-bottom: .3rem; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; } svg polyline { fill: none; stroke-width: 1.5; }
svg polyline.target { stroke: var(--target); stroke-dasharray: 5 3; } svg polyline.golden { stroke: var(--golden); }
svg polyline.apart { stroke: var(--apart); } svg circle.target { fill: var(--target); } svg circle.golden { fill: var(--golden); }
svg circle.apart { fill: var(--apart); } svg line.parting { stroke: var(--error); } svg text.parting { fill: var(--error); }
svg line.bound { stroke: var(--soft); stroke-dasharray: 2 3; }
.key span { margin-right: 1.2rem; } .key i { display: inline-block; width: 1.4rem; height: 0; border-top: 2px solid; margin-right: .4rem;
  vertical-align: middle; }
";

/// The whole file.
pub(super) fn page(comparison: &RunComparison) -> String {
    let RunComparison { target, golden, verdict, parted, ranks, notes, warnings, curves, .. } = comparison;
    let class = match verdict.level {
        Level::Fine => "fine",
        Level::Warning => "warning",
        Level::Error => "error",
    };
    let golden: Vec<String> = golden.iter().map(|path| path.display().to_string()).collect();
    let (sentence, target, golden) =
        (escaped(&verdict.sentence), escaped(&target.display().to_string()), escaped(&golden.join(", ")));
    let mut page = head("compare-runs", &verdict.sentence, STYLE);
    page.extend(["<header class=\"", class, "\"><h1>", &sentence, "</h1>\n<p>Target: <code>", &target]);
    page.extend(["</code><br>Golden: <code>", &golden, "</code></p>\n"]);
    page += &list(&verdict.reasons);
    if let Some(next) = &verdict.next {
        page.extend(["<p><strong>Next:</strong> ", &escaped(next), "</p>\n"]);
    }
    page += "</header>\n";
    page += &charts(curves);
    page += &partings(parted);
    page += &ranks_table(ranks);
    if !notes.is_empty() {
        page.extend(["<h2>Notes</h2>\n", &list(notes)]);
    }
    if !warnings.is_empty() {
        page.extend(["<h2>Left out</h2>\n", &list(warnings)]);
    }
    page + "</main></body></html>\n"
}

fn charts(curves: &[Curve]) -> String {
    if curves.is_empty() {
        return String::new();
    }
    let parts = curves.iter().any(|curve| curve.parting.is_some());
    let title = if parts { "The leading tensors" } else { "The series closest to their bounds" };
    let key: String = [("target", "target"), ("golden", "golden"), ("apart", "relative difference, logarithmic")]
        .map(|(class, text)| format!("<span><i style=\"color:var(--{class})\"></i>{text}</span>"))
        .concat();
    let figure = |curve: &Curve| {
        let place = escaped(&place_in_words(&curve.tensor));
        let caption = format!("rank {}: {} of {place}", curve.rank, escaped(&curve.statistic));
        format!("<figure><figcaption>{caption}</figcaption>{}</figure>\n", svg(curve))
    };
    let figures: String = curves.iter().map(figure).collect();
    format!("<h2>{title}</h2>\n<p class=\"key\">{key}</p>\n<div class=\"charts\">\n{figures}</div>\n")
}

fn partings(partings: &[Parting]) -> String {
    if partings.is_empty() {
        return String::new();
    }
    let row = |parting: &Parting| {
        let Parting { rank, step, tensor, statistic, target, golden, difference, bound, bound_source, note, .. } =
            parting;
        let text = |text: &str| format!("<td>{}</td>", escaped(text));
        let number = |value: f64| format!("<td class=\"number\">{}</td>", short(value));
        let source = note.as_deref().unwrap_or(bound_source.words());
        let cells = [
            format!("<td class=\"number\">{step}</td><td class=\"number\">{rank}</td>"),
            text(&place_in_words(tensor)),
            text(statistic),
            [*target, *golden, *difference, *bound].map(number).concat(),
            text(source),
        ];
        format!("<tr>{}</tr>\n", cells.concat())
    };
    let rows: String = partings.iter().take(ROWS).map(row).collect();
    let more = match partings.len().saturating_sub(ROWS) {
        0 => String::new(),
        more => format!("<p>{more} more are in the CSV file.</p>\n"),
    };
    let head = "<tr><th class=\"number\">step</th><th class=\"number\">rank</th><th>tensor</th><th>statistic</th>\
                <th class=\"number\">target</th><th class=\"number\">golden</th><th class=\"number\">difference</th>\
                <th class=\"number\">bound</th><th>where the bound comes from</th></tr>";
    format!(
        "<h2>Every series that parts, at its first step</h2>\n<div class=\"scroll\"><table>{head}\n{rows}</table></div>\n{more}"
    )
}

fn ranks_table(ranks: &[RankComparison]) -> String {
    let row = |rank: &RankComparison| {
        let steps = rank.steps.range.map_or("none".to_owned(), |(first, last)| format!("{first} to {last}"));
        let noise =
            rank.noise.map_or(String::new(), |noise| format!("{} to {}", short(noise.first), short(noise.last)));
        let RankComparison { rank, values, equal, .. } = rank;
        format!(
            "<tr><td class=\"number\">{rank}</td><td>{steps}</td><td class=\"number\">{values}</td>\
             <td class=\"number\">{equal}</td><td>{noise}</td></tr>\n"
        )
    };
    let rows: String = ranks.iter().map(row).collect();
    format!(
        "<h2>What was compared</h2>\n<table><tr><th class=\"number\">rank</th><th>steps</th><th class=\"number\">values</th>\
         <th class=\"number\">equal</th><th>median difference, first to last step</th></tr>\n{rows}</table>\n"
    )
}
