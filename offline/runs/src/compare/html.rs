//! The comparison as one HTML file: no network, no scripts, light or dark as the reader's system is.

use maud::{Markup, PreEscaped, html};
use trainmon_report::html::{self, list};

use trainmon_baseline::{Divergence, short};

use super::answer::place_in_words;
use super::chart::svg;
use super::comparison::{RankComparison, RunComparison};
use super::replay::Curve;
use super::verdict::Level;

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
    let content = html! {
        header class=(class) {
            h1 { (verdict.sentence) }
            "\n"
            p { "Target: " code { (target.display()) } br; "Golden: " code { (golden.join(", ")) } }
            "\n"
            (list(&verdict.reasons))
            @if let Some(next) = &verdict.next { p { strong { "Next:" } " " (next) } "\n" }
        }
        "\n"
        (charts(curves))
        (series(parted))
        (ranks_table(ranks))
        @if !notes.is_empty() { h2 { "Notes" } "\n" (list(notes)) }
        @if !warnings.is_empty() { h2 { "Left out" } "\n" (list(warnings)) }
    };
    html::page("compare-runs", &verdict.sentence, STYLE, &content, &html! {}).into_string()
}

fn charts(curves: &[Curve]) -> Markup {
    let parts = curves.iter().any(|curve| curve.divergence.is_some());
    let key = [("target", "target"), ("golden", "golden"), ("apart", "relative difference, logarithmic")];
    html! {
        @if !curves.is_empty() {
            h2 { (if parts { "The leading tensors" } else { "The series closest to their bounds" }) }
            "\n"
            p class="key" {
                @for (class, text) in key { span { i style=(format!("color:var(--{class})")) {} (text) } }
            }
            "\n"
            div class="charts" {
                "\n"
                @for curve in curves {
                    figure {
                        figcaption { "rank " (curve.rank) ": " (curve.statistic) " of " (place_in_words(&curve.tensor)) }
                        // Lines between numbers, and words of ours.
                        (PreEscaped(svg(curve)))
                    }
                    "\n"
                }
            }
            "\n"
        }
    }
}

fn series(divergences: &[Divergence]) -> Markup {
    let number = |value: f64| html! { td class="number" { (short(value)) } };
    html! {
        @if !divergences.is_empty() {
            h2 { "Every series that parts, at its first step" }
            "\n"
            div class="scroll" {
                table {
                    tr {
                        @for title in ["step", "rank"] { th class="number" { (title) } }
                        @for title in ["tensor", "statistic"] { th { (title) } }
                        @for title in ["target", "golden", "difference", "bound"] { th class="number" { (title) } }
                        th { "where the bound comes from" }
                    }
                    "\n"
                    @for divergence in divergences.iter().take(ROWS) {
                        tr {
                            td class="number" { (divergence.step) }
                            td class="number" { (divergence.rank) }
                            td { (place_in_words(&divergence.tensor)) }
                            td { (divergence.statistic) }
                            @for value in [divergence.target, divergence.golden, divergence.difference, divergence.bound] {
                                (number(value))
                            }
                            td { (divergence.note.as_deref().unwrap_or(divergence.bound_source.words())) }
                        }
                        "\n"
                    }
                }
            }
            "\n"
            @if divergences.len() > ROWS { p { (divergences.len() - ROWS) " more are in the CSV file." } "\n" }
        }
    }
}

fn ranks_table(ranks: &[RankComparison]) -> Markup {
    html! {
        h2 { "What was compared" }
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
                    td class="number" { (rank.rank) }
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
