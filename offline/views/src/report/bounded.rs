//! Limits a report to its maximum size.

use std::collections::BTreeSet;

use super::document::{Moved, Report};
use super::{markdown, order};

/// The largest report: it must fit into a ticket, a chat message and a language model's input.
pub const MOST_BYTES: usize = 256 * 1000;

/// Longer names and messages are shortened in the middle, because both ends of a tensor's name matter.
const MOST_TEXT: usize = 160;
/// The initial lengths of lists, halved until everything fits.
const LENGTHS: Lengths = Lengths { moved: 200, alerts: 200, curves: 96, ranks: 128, sentences: 40 };

#[derive(Clone, Copy, Debug)]
struct Lengths {
    moved: usize,
    alerts: usize,
    curves: usize,
    ranks: usize,
    sentences: usize,
}

impl Lengths {
    fn halved(self) -> Self {
        let Self { moved, alerts, curves, ranks, sentences } = self;
        let half = |length: usize| (length / 2).max(1);
        Self {
            moved: half(moved),
            alerts: half(alerts),
            curves: half(curves),
            ranks: half(ranks),
            sentences: half(sentences),
        }
    }
}

/// The report as JSON and as Markdown, each within [`MOST_BYTES`]. Omitted entries are counted in it. `finish` writes
/// the sentences that depend on these counts.
///
/// # Errors
/// The report cannot be serialized as JSON.
pub(super) fn fit(mut report: Report, finish: impl Fn(&mut Report)) -> Result<Report, serde_json::Error> {
    shorten(&mut report);
    let mut lengths = LENGTHS;
    loop {
        cut(&mut report, lengths);
        finish(&mut report);
        let is_small = json(&report)?.len() <= MOST_BYTES && markdown::markdown(&report).len() <= MOST_BYTES;
        // Lists of one entry each take a few kilobytes: they always fit.
        if is_small || lengths.moved == 1 {
            return Ok(report);
        }
        lengths = lengths.halved();
    }
}

/// The JSON text of a report file.
pub(super) fn json(report: &Report) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

fn cut(report: &mut Report, lengths: Lengths) {
    let Lengths { moved, alerts, curves, ranks, sentences } = lengths;
    report.left_out.moved += keep_moved(&mut report.moved, moved);
    report.left_out.sentences += truncate(&mut report.stands_out, sentences);
    report.left_out.alerts += truncate(&mut report.alerts, alerts);
    report.left_out.curves += truncate(&mut report.curves, curves);
    report.left_out.ranks += truncate(&mut report.ranks, ranks);
    report.left_out.sentences += truncate(&mut report.warnings, sentences)
        + truncate(&mut report.not_measured, sentences)
        + truncate(&mut report.read, sentences);
}

fn truncate<T>(list: &mut Vec<T>, most: usize) -> u64 {
    let beyond = list.len().saturating_sub(most);
    list.truncate(most);
    beyond as u64
}

/// Keeps the first departure of each rank, then the earliest half, then the farthest of the rest.
fn keep_moved(moved: &mut Vec<Moved>, most: usize) -> u64 {
    let before = moved.len();
    if before > most {
        let mut ranks = BTreeSet::new();
        let (mut kept, mut others): (Vec<Moved>, Vec<Moved>) = moved.drain(..).partition(|one| ranks.insert(one.rank));
        kept.truncate(most);
        let room = most - kept.len();
        let mut rest = others.split_off(room.div_ceil(2).min(others.len()));
        rest.sort_by(|a, b| b.deviations.total_cmp(&a.deviations));
        rest.truncate(room / 2);
        kept.append(&mut others);
        kept.append(&mut rest);
        order::sort(&mut kept);
        *moved = kept;
    }
    (before - moved.len()) as u64
}

fn shorten(report: &mut Report) {
    let mut shortened = 0;
    let mut short = |text: &mut String| {
        if let Some(shorter) = shortened_text(text) {
            *text = shorter;
            shortened += 1;
        }
    };
    short(&mut report.run);
    for moved in &mut report.moved {
        short(&mut moved.signal);
        moved.tensor.as_mut().into_iter().chain(&mut moved.layer).chain(&mut moved.statistic).for_each(&mut short);
    }
    for alert in &mut report.alerts {
        short(&mut alert.series);
        alert.layer.as_mut().into_iter().chain(&mut alert.moved_first).for_each(&mut short);
    }
    report.curves.iter_mut().for_each(|curve| short(&mut curve.name));
    let messages = report.alerts.iter_mut().map(|alert| &mut alert.message);
    let sentences = messages.chain(report.stands_out.iter_mut().map(|one| &mut one.words));
    sentences.chain(&mut report.warnings).chain(&mut report.not_measured).chain(&mut report.read).for_each(|text| {
        // A sentence with a path is longer than a name.
        if text.len() > 4 * MOST_TEXT {
            short(text);
        }
    });
    report.left_out.shortened = shortened;
}

/// Both ends of a text that is too long.
fn shortened_text(text: &str) -> Option<String> {
    if text.len() <= MOST_TEXT {
        return None;
    }
    let half = MOST_TEXT / 2 - 2;
    let (mut head, mut tail) = (half, text.len() - half);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    Some(format!("{}…{}", &text[..head], &text[tail..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_both_ends_and_whole_characters() {
        let name = format!("start{}.weight", "ü".repeat(200));
        let short = shortened_text(&name).unwrap();
        assert!(short.len() <= MOST_TEXT && short.starts_with("start") && short.ends_with(".weight"), "{short}");
        assert_eq!(shortened_text("a.weight"), None);
    }
}
