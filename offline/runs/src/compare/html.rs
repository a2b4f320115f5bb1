//! The comparison as one HTML file: no network, no scripts, light or dark by the reader's system setting.

use maud::{Markup, PreEscaped, html};
use trainmon_report::html::{self, Behaviour, list, with_code};

use trainmon_baseline::{Divergence, short};

use super::answer::place_in_words;
use super::chart::svg;
use super::comparison::{RankComparison, RunComparison, in_a_cell};
use super::replay::Curve;
use super::verdict::Level;

/// The largest number of rows in a table; the CSV file has all.
const ROWS: usize = 100;
/// The largest number of tables, one per step and kind.
const GROUPS: usize = 40;

/// The complete file.
pub(super) fn page(comparison: &RunComparison) -> String {
    let RunComparison { target, golden, verdict, parted, ranks, notes, warnings, curves, .. } = comparison;
    let class = match verdict.level {
        Level::Fine => "fine",
        Level::Warning => "warning",
        Level::Error => "error",
    };
    let golden: Vec<String> = golden.iter().map(|path| path.display().to_string()).collect();
    let content = html! {
        header class=(class) {
            h1 { (with_code(&verdict.sentence)) }
            "\n"
            p { "Target: " code { (target.display()) } br; "Baseline: " code { (golden.join(", ")) } }
            "\n"
            (list(&verdict.reasons))
            @if let Some(next) = &verdict.next { p { strong { "Next:" } " " (with_code(next)) } "\n" }
        }
        "\n"
        (charts(curves))
        (series(parted))
        (ranks_table(ranks))
        @if !notes.is_empty() { h2 { "Notes" } "\n" (list(notes)) }
        @if !warnings.is_empty() { h2 { "Omitted" } "\n" (list(warnings)) }
    };
    html::page("compare-runs", &verdict.sentence, Behaviour::NONE, &content, &html! {}).into_string()
}

fn charts(curves: &[Curve]) -> Markup {
    let parts = curves.iter().any(|curve| curve.divergence.is_some());
    let key = [("target", "target"), ("golden", "baseline"), ("apart", "relative difference, logarithmic")];
    html! {
        @if !curves.is_empty() {
            h2 { (if parts { "Leading tensors" } else { "Series closest to their tolerance" }) }
            "\n"
            p class="key" {
                @for (class, text) in key { span { i class=(class) {} (text) } }
            }
            "\n"
            div class="charts" {
                "\n"
                @for curve in curves {
                    figure {
                        figcaption {
                            @if let Some(rank) = curve.rank { "rank " (rank) ": " }
                            (curve.statistic) " of " (place_in_words(&curve.tensor))
                        }
                        // Only numbers and constant texts.
                        (PreEscaped(svg(curve)))
                    }
                    "\n"
                }
            }
            "\n"
        }
    }
}

/// The diverging series by step and kind: those of the first step and the leading kind are open.
fn series(divergences: &[Divergence]) -> Markup {
    let mut groups: Vec<(u64, &str, Vec<&Divergence>)> = Vec::new();
    for divergence in divergences {
        let (step, kind) = (divergence.step, &*divergence.tensor.kind);
        match groups.iter_mut().find(|(of_step, of_kind, _)| (*of_step, *of_kind) == (step, kind)) {
            Some((.., group)) => group.push(divergence),
            None => groups.push((step, kind, vec![divergence])),
        }
    }
    html! {
        @if !divergences.is_empty() {
            h2 { "All diverging series, at their first step" }
            "\n"
            @for (at, (step, kind, group)) in groups.iter().enumerate().take(GROUPS) {
                details open[at == 0] {
                    summary { "step " (step) ": " (kind) ", " (group.len()) " series" }
                    "\n"
                    (group_table(group))
                }
                "\n"
            }
            @if groups.len() > GROUPS { p { (groups.len() - GROUPS) " more groups are in the CSV file." } "\n" }
        }
    }
}

fn group_table(group: &[&Divergence]) -> Markup {
    let number = |value: f64| html! { td class="number" { (short(value)) } };
    let why =
        |divergence: &Divergence| divergence.note.clone().unwrap_or_else(|| divergence.bound_source.words().to_owned());
    // A common reason is stated once.
    let first = group.first().map(|divergence| why(divergence)).unwrap_or_default();
    let is_one_reason = group.iter().all(|divergence| why(divergence) == first);
    let ranks: Vec<Option<u32>> = group.iter().map(|divergence| divergence.rank).collect();
    let is_one_rank = ranks.iter().all(|rank| *rank == ranks[0]);
    html! {
        @if is_one_reason { p class="muted" { "Tolerance: " (first) "." } "\n" }
        div class="scroll" {
            table {
                tr {
                    @if !is_one_rank { th class="number" { "rank" } }
                    @for title in ["tensor", "statistic"] { th { (title) } }
                    @for title in ["target", "baseline", "difference", "tolerance"] { th class="number" { (title) } }
                    @if !is_one_reason { th { "source of the tolerance" } }
                }
                "\n"
                @for divergence in group.iter().take(ROWS) {
                    tr {
                        @if !is_one_rank { td class="number" { (in_a_cell(divergence.rank)) } }
                        td { (place_in_words(&divergence.tensor)) }
                        td { (divergence.statistic) }
                        @for value in [divergence.target, divergence.golden, divergence.difference, divergence.bound] {
                            (number(value))
                        }
                        @if !is_one_reason { td { (why(divergence)) } }
                    }
                    "\n"
                }
            }
        }
        "\n"
        @if group.len() > ROWS { p { (group.len() - ROWS) " more rows are in the CSV file." } "\n" }
    }
}

fn ranks_table(ranks: &[RankComparison]) -> Markup {
    html! {
        h2 { "Compared ranks" }
        "\n"
        table {
            tr {
                th class="number" { "rank" }
                th { "steps" }
                @for title in ["values", "equal"] { th class="number" { (title) } }
                th { "median difference, first to last step" }
            }
            "\n"
            @for rank in ranks {
                tr {
                    td class="number" { (in_a_cell(rank.rank)) }
                    td {
                        @match rank.steps.range {
                            None => "none",
                            Some((first, last)) => { (first) " to " (last) },
                        }
                    }
                    td class="number" { (rank.values) }
                    td class="number" { (rank.equal) }
                    td { @if let Some(noise) = rank.noise { (short(noise.first)) " to " (short(noise.last)) } }
                }
                "\n"
            }
        }
        "\n"
    }
}
