//! The comparison as one HTML page: every tensor, the worst first, with search and filter. It loads nothing.

use maud::{Markup, html};
use trainmon_report::html::{Behaviour, list, page};

use super::comparison::{Comparison, OtherValue, Side, TensorRow, TensorVerdict};
use super::report::{word, worst_first};

const COLUMNS: [&str; 9] =
    ["tensor", "verdict", "dtype", "shape", "l2", "l2 / norm", "cosine", "max abs", "elements that differ"];

/// The whole page.
pub(super) fn html(comparison: &Comparison) -> String {
    let Comparison { target, golden, tensors, target_only, golden_only, values: _, other_values } = comparison;
    let sentence = sentence(comparison);
    let class = if comparison.is_same() { "fine" } else { "error" };
    let content = html! {
        header class=(class) {
            h1 { (sentence) }
            "\n"
            (checkpoint("target", target))
            (checkpoint("golden", golden))
        }
        "\n"
        @for (word, names) in [("target", target_only), ("golden", golden_only)] {
            @if !names.is_empty() {
                section {
                    h2 { "Only in the " (word) ": " (names.len()) }
                    ul { @for name in names { li { code { (name) } } } }
                }
                "\n"
            }
        }
        @if !other_values.is_empty() {
            section {
                h2 { "Non-tensor values that differ: " (other_values.len()) }
                ul {
                    @for OtherValue { name, target, golden } in other_values {
                        li { code { (name) } ": " (target) " against " (golden) }
                    }
                }
            }
            "\n"
        }
        section {
            h2 { "Tensors in both" }
            "\n"
            p id="filters" {
                label { "search " input id="search" type="search"; }
                " "
                label {
                    "verdict "
                    select id="verdict" {
                        option value="" { "all" }
                        @for verdict in ["shape", "different", "rounding", "identical"] { option { (verdict) } }
                    }
                }
                " "
                output id="count" {}
            }
            "\n"
            div class="scroll" {
                table id="tensors" {
                    thead { tr { @for column in COLUMNS { th scope="col" { (column) } } } }
                    tbody { "\n" @for one in worst_first(tensors.iter()) { (row(one)) } }
                }
            }
        }
        "\n"
    };
    page("compare-checkpoint", &sentence, Behaviour::CHECKPOINT, &content, &html! {}).into_string()
}

fn sentence(comparison: &Comparison) -> String {
    let count = |verdict| comparison.count(verdict);
    let one_sided = comparison.target_only.len() + comparison.golden_only.len();
    format!(
        "{} of {} tensors differ: {} in value, {} in shape; {} within rounding, {} identical; {one_sided} on one side only",
        count(TensorVerdict::Different) + count(TensorVerdict::Shape),
        comparison.tensors.len(),
        count(TensorVerdict::Different),
        count(TensorVerdict::Shape),
        count(TensorVerdict::Rounding),
        count(TensorVerdict::Identical)
    )
}

fn checkpoint(word: &str, side: &Side) -> Markup {
    let unreadable = side.unreadable.iter().map(|(name, reason)| format!("not read: {name}: {reason}"));
    let notes: Vec<String> = side.notes.iter().cloned().chain(unreadable).collect();
    html! {
        p {
            (word) ": " code { (side.path.display()) } ", " (side.layout.words()) ", " (side.tensors) " tensors"
        }
        "\n"
        (list(&notes))
    }
}

fn row(row: &TensorRow) -> Markup {
    let both = |values: [String; 2]| match values {
        [one, other] if one == other => one,
        [one, other] => format!("{one} / {other}"),
    };
    let shape = both([0, 1].map(|side: usize| format!("{:?}", row.shape[side])));
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3e}"));
    let distance = row.distance.as_ref();
    let cells = [
        both(row.dtype.clone()),
        shape,
        number(distance.map(|distance| distance.l2)),
        number(distance.and_then(|distance| distance.relative_l2)),
        distance.and_then(|distance| distance.cos).map_or_else(|| "-".to_owned(), |cos| format!("{cos:.9}")),
        number(distance.map(|distance| distance.max_abs)),
        distance.map_or_else(|| "-".to_owned(), |distance| format!("{} of {}", distance.differing, row.numel[0])),
    ];
    let level = match row.verdict {
        TensorVerdict::Identical => "pass",
        TensorVerdict::Rounding => "warning",
        TensorVerdict::Different | TensorVerdict::Shape => "error",
    };
    html! {
        tr {
            td { code { (row.name) } }
            td class=(format!("level {level}")) { (word(row.verdict)) }
            @for cell in cells { td { (cell) } }
        }
        "\n"
    }
}
