//! The text that Megatron-LM prints, among other log lines:
//!
//! ```text
//!     [2026-11-20 16:05:09] iteration      100/  500000 | consumed samples: 51200 | lm loss: 2.345678E+00 | grad norm: 0.853 |
//!     validation loss at iteration 1000 | lm loss value: 2.3E+00 | lm loss PPL: 9.9E+00 |
//! ```

use crate::raw::{RawLog, RawRow, number, unix_seconds};
use trainmon_report::counted;

const ITERATION: &str = "iteration";
const VALIDATION: &str = "validation loss at iteration ";

/// Reads the text; `None` without such a line.
pub(crate) fn read(text: &[u8]) -> Option<RawLog> {
    let mut raw = RawLog::default();
    let (mut lines, mut torn) = (0_u64, 0_u64);
    for (place, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = String::from_utf8_lossy(line);
        lines += u64::from(!line.trim().is_empty());
        let (step, fields, prefix) = if let Some((step, fields)) = validation(&line) {
            (step, fields, "validation ")
        } else if let Some((step, fields)) = training(&line) {
            (step, fields, "")
        } else {
            continue;
        };
        let mut row = RawRow { place, step: Some(step), time: time(&line), cells: Vec::new() };
        // Each field ends with a bar: the last field without one may be an incomplete number.
        let whole = fields.rsplit_once('|').map_or("", |(whole, _)| whole);
        torn += u64::from(!fields.trim_end().ends_with('|'));
        for field in whole.split('|').filter(|field| !field.trim().is_empty()) {
            let Some((name, value)) = field.rsplit_once(':') else { continue };
            let column = raw.column(&format!("{prefix}{}", name.trim()));
            match number(value) {
                Some(value) => row.cells.push((column, value)),
                None => raw.unread(column, value.trim(), place),
            }
        }
        raw.rows.push(row);
    }
    if raw.rows.iter().all(|row| row.cells.is_empty()) {
        return None;
    }
    let others = lines - raw.rows.len() as u64;
    if others > 0 {
        raw.remarks.push(format!("ignored {}", counted(others, "other line", "other lines")));
    }
    if torn > 0 {
        raw.notes.push(format!("{}: ignored the last number", counted(torn, "truncated line", "truncated lines")));
    }
    if raw.rows.iter().any(|row| row.time.is_some()) {
        raw.remarks.push("times have no zone and are read as UTC".to_owned());
    }
    Some(raw)
}

/// The iteration and the fields after it: `iteration      100/  500000 | …`.
fn training(line: &str) -> Option<(i64, &str)> {
    for (place, _) in line.match_indices(ITERATION) {
        let rest = &line[place + ITERATION.len()..];
        let Some((numbers, fields)) = rest.split_once('|') else { continue };
        let Some((step, all)) = numbers.split_once('/') else { continue };
        if let (Ok(step), Ok(_)) = (step.trim().parse(), all.trim().parse::<u64>()) {
            return Some((step, fields));
        }
    }
    None
}

/// The same for a validation line: `validation loss at iteration 1000 on test set | …`.
fn validation(line: &str) -> Option<(i64, &str)> {
    let (_, rest) = line.split_once(VALIDATION)?;
    let (head, fields) = rest.split_once('|')?;
    let step = head.split_whitespace().next()?.parse().ok()?;
    Some((step, fields))
}

/// The time in brackets before the iteration, in seconds since 1970.
fn time(line: &str) -> Option<f64> {
    // torchrun adds its own prefix in brackets: `[default7]:`.
    line.match_indices('[').find_map(|(at, _)| {
        let (text, _) = line[at + 1..].split_once(']')?;
        unix_seconds(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_training_are_found_among_others() {
        let text =
            b"using world size: 8\n[default3]: [2026-11-20 16:05:09] iteration      10/     500 | consumed samples:  5120 | \
                     lm loss: 2.345678E+00 | loss scale: 1.0 | grad norm: nan |\n\
                     validation loss at iteration 10 | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 |\n\
                     iteration 11/ 500 | lm loss: 2.3E+00 | grad norm: 0.8";
        let raw = read(text).unwrap();
        let names = [
            "consumed samples",
            "lm loss",
            "loss scale",
            "grad norm",
            "validation lm loss value",
            "validation lm loss PPL",
        ];
        assert_eq!(raw.names, names);
        let steps: Vec<_> = raw.rows.iter().map(|row| (row.step, row.time, row.cells.len())).collect();
        assert_eq!(steps, [(Some(10), Some(1_795_190_709.0), 4), (Some(10), None, 2), (Some(11), None, 1)]);
        assert_eq!(raw.notes, ["1 truncated line: ignored the last number"]);
        assert!(read(b"iteration over, 3/4 | nothing").is_none());
    }
}
