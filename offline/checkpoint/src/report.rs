//! The output of a comparison: text, JSON, CSV and msprobe's JSON.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::comparison::{Comparison, OtherValue, Side, TensorRow, TensorVerdict};
use super::error::CheckpointError;
use trainmon_core::cell_of;
use trainmon_report::{comparison_as_json, first_of};

/// The number of tensors in the text, the worst first; files contain all.
const SHOWN: usize = 20;
/// The number of names in the text.
const NAMES_SHOWN: usize = 20;

/// The comparison as text, with the written files.
pub fn in_words(comparison: &Comparison, written: &[PathBuf]) -> String {
    let written = written.iter().map(|path| format!("written: {}\n", path.display()));
    std::iter::once(text(comparison)).chain(written).collect()
}

/// The comparison or the error as JSON.
pub fn as_json(compared: &Result<(Comparison, Vec<PathBuf>), CheckpointError>) -> Value {
    let envelope =
        |answer, files: Result<&[PathBuf], &CheckpointError>| comparison_as_json("checkpoints", answer, files);
    match compared {
        Ok((comparison, written)) => envelope(json(comparison), Ok(written)),
        Err(error) => envelope(json!({"same": null}), Err(error)),
    }
}

fn text(comparison: &Comparison) -> String {
    let Comparison { target, golden, tensors, target_only, golden_only, values: _, other_values } = comparison;
    let mut out = String::new();
    for (word, side) in [("target", target), ("golden", golden)] {
        let Side { path, layout, tensors, notes, unreadable } = side;
        line(&mut out, &format!("{word}: {} ({}, {tensors} tensors)", path.display(), layout.words()));
        for note in notes {
            line(&mut out, &format!("   note: {note}"));
        }
        for (name, reason) in unreadable.iter().take(NAMES_SHOWN) {
            line(&mut out, &format!("   cannot read {name}: {reason}"));
        }
    }
    for (word, names) in [("target", target_only), ("golden", golden_only)] {
        if !names.is_empty() {
            line(&mut out, &format!("only in the {word} ({}): {}", names.len(), first_of(names.iter(), NAMES_SHOWN)));
        }
    }
    for OtherValue { name, target, golden } in other_values.iter().take(NAMES_SHOWN) {
        line(&mut out, &format!("value {name}: {target} (baseline {golden})"));
    }
    if other_values.len() > NAMES_SHOWN {
        line(&mut out, &format!("… and {} more values", other_values.len() - NAMES_SHOWN));
    }
    let differing = worst_first(tensors.iter().filter(|row| row.verdict > TensorVerdict::Identical));
    if !differing.is_empty() {
        line(&mut out, &table(&differing));
    }
    let count = |verdict| comparison.count(verdict);
    line(
        &mut out,
        &format!(
            "{} in both: {} identical, {} within rounding, {} different, {} with different shapes; {} only in the target, {} only in the baseline{}",
            tensors.len(),
            count(TensorVerdict::Identical),
            count(TensorVerdict::Rounding),
            count(TensorVerdict::Different),
            count(TensorVerdict::Shape),
            target_only.len(),
            golden_only.len(),
            match other_values.len() {
                0 => String::new(),
                1 => "; 1 non-tensor value differs".to_owned(),
                count => format!("; {count} non-tensor values differ"),
            },
        ),
    );
    // Names come from files: control characters must not reach the terminal.
    out.chars().map(|c| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// Sorts by verdict, then by distance; a distance from zeros is the largest.
pub(super) fn worst_first<'r>(rows: impl Iterator<Item = &'r TensorRow>) -> Vec<&'r TensorRow> {
    let badness =
        |row: &TensorRow| row.distance.as_ref().map_or(0.0, |distance| distance.relative_l2.unwrap_or(f64::INFINITY));
    let mut rows: Vec<&TensorRow> = rows.collect();
    rows.sort_by(|a, b| b.verdict.cmp(&a.verdict).then(badness(b).total_cmp(&badness(a))));
    rows
}

fn table(rows: &[&TensorRow]) -> String {
    let width = rows.iter().take(SHOWN).map(|row| row.name.len()).max().unwrap_or(0).max(6);
    let columns = ["l2", "l2/norm", "cos", "max abs"].map(|column| format!("{column:>10}")).join("  ");
    let mut lines = vec![format!("{:<width$}  verdict    {columns}  at", "tensor")];
    for row in rows.iter().take(SHOWN) {
        let rest = match &row.distance {
            None => format!("{:?} and {:?}", row.shape[0], row.shape[1]),
            Some(distance) => format!(
                "{:>10.3e}  {:>10}  {:>10}  {:>10.3e}  {:?}",
                distance.l2,
                distance.relative_l2.map_or("-".to_owned(), |value| format!("{value:.3e}")),
                distance.cos.map_or("-".to_owned(), |value| format!("{value:.6}")),
                distance.max_abs,
                distance.max_abs_at,
            ),
        };
        lines.push(format!("{:<width$}  {:<9}  {rest}", row.name, word(row.verdict)));
    }
    if rows.len() > SHOWN {
        lines.push(format!("… and {} more", rows.len() - SHOWN));
    }
    lines.join("\n")
}

pub(super) fn word(verdict: TensorVerdict) -> &'static str {
    match verdict {
        TensorVerdict::Identical => "identical",
        TensorVerdict::Rounding => "rounding",
        TensorVerdict::Different => "different",
        TensorVerdict::Shape => "shape",
    }
}

/// The complete comparison as JSON.
pub(super) fn json(comparison: &Comparison) -> Value {
    let count = |verdict| comparison.count(verdict);
    json!({
        "same": comparison.is_same(),
        "summary": {
            "common": comparison.tensors.len(), "identical": count(TensorVerdict::Identical),
            "rounding": count(TensorVerdict::Rounding), "different": count(TensorVerdict::Different), "shape": count(TensorVerdict::Shape),
            "target_only": comparison.target_only.len(), "golden_only": comparison.golden_only.len(),
            "values": comparison.values, "other_values": comparison.other_values.len(),
        },
        "target": comparison.target, "golden": comparison.golden, "tensors": comparison.tensors,
        "target_only": comparison.target_only, "golden_only": comparison.golden_only,
        "other_values": comparison.other_values,
    })
}

/// The comparison as CSV: one row per tensor, including those on one side only.
pub(super) fn csv(comparison: &Comparison) -> Result<Vec<u8>, csv::Error> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record([
        "name",
        "verdict",
        "dtype_target",
        "dtype_golden",
        "shape_target",
        "shape_golden",
        "numel",
        "l2",
        "relative_l2",
        "cos",
        "max_abs",
        "max_abs_at",
        "differing",
        "beyond_rounding",
        "non_finite_target",
        "non_finite_golden",
    ])?;
    for row in &comparison.tensors {
        let mut cells = vec![cell_of(&row.name).into_owned(), word(row.verdict).to_owned()];
        cells.extend(row.dtype.iter().cloned());
        cells.extend(row.shape.iter().map(|shape| format!("{shape:?}")));
        cells.push(row.numel[0].to_string());
        match &row.distance {
            None => cells.extend(std::iter::repeat_n(String::new(), 9)),
            Some(distance) => {
                let optional = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
                cells.extend([
                    distance.l2.to_string(),
                    optional(distance.relative_l2),
                    optional(distance.cos),
                    distance.max_abs.to_string(),
                    format!("{:?}", distance.max_abs_at),
                    distance.differing.to_string(),
                    distance.beyond_rounding.to_string(),
                    distance.non_finite[0].to_string(),
                    distance.non_finite[1].to_string(),
                ]);
            }
        }
        out.write_record(&cells)?;
    }
    for (word, names) in [("target_only", &comparison.target_only), ("golden_only", &comparison.golden_only)] {
        for name in names {
            let name = cell_of(name);
            let mut cells = vec![&*name, word];
            cells.resize(16, "");
            out.write_record(&cells)?;
        }
    }
    out.into_inner().map_err(|error| csv::Error::from(error.into_error()))
}

/// msprobe's `ckpt_similarity.json`: names in both, sorted, with numbers computed in float32.
pub(super) fn msprobe(comparison: &Comparison) -> Value {
    let single = |value: f64| json!(f64::from(value as f32));
    let rows = comparison.tensors.iter().map(|row| {
        let value = match &row.distance {
            None => json!({"l2": null, "cos": null, "numel": row.numel, "shape": row.shape}),
            Some(distance) => {
                let cos = distance.cos.map_or(Value::Null, single);
                json!({"l2": single(distance.l2), "cos": cos, "numel": row.numel[0], "shape": row.shape[0]})
            }
        };
        (row.name.clone(), value)
    });
    Value::Object(rows.collect::<Map<_, _>>())
}
