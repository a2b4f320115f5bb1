//! The distribution of differences as an inline SVG: a row per level, a bin per decade.

use std::fmt::Write as _;

use crate::deviation::Deviation;
use crate::table::Level;

/// The decade of the first bin: below the round-off of double precision.
const FIRST: i32 = -17;
/// No difference, decades from 10⁻¹⁷ to beyond 1, differences without a size.
const BINS: usize = 21;
/// The width of a bin.
const STEP: f64 = 42.0;
const LEFT: f64 = 70.0;
const HEIGHT: f64 = 62.0;

/// Counts by level and bin.
#[derive(Clone, Debug, Default)]
pub(super) struct Distribution {
    /// Error, warning, pass, unmatched.
    counts: [[u64; BINS]; 4],
}

const LEVELS: [&str; 4] = ["error", "warning", "pass", "unmatched"];

impl Distribution {
    pub(super) fn add(&mut self, level: Level, is_unmatched: bool, deviation: Deviation) {
        let row = match level {
            _ if is_unmatched => 3,
            Level::Error => 0,
            Level::Warning => 1,
            Level::Pass => 2,
        };
        self.counts[row][bin(deviation.relative)] += 1;
    }

    /// The drawing; `None` without counts.
    pub(super) fn svg(&self) -> Option<String> {
        let rows: Vec<usize> = (0..4).filter(|&row| self.counts[row].iter().any(|&count| count > 0)).collect();
        if rows.is_empty() {
            return None;
        }
        // Empty decades at either end are omitted, for narrow screens.
        let is_used = |bin: &usize| self.counts.iter().any(|counts| counts[*bin] > 0);
        let apart = (1..BINS).find(is_used).zip((1..BINS).rfind(is_used)).map(|(first, last)| first..=last);
        let shown: Vec<usize> = Some(0).filter(is_used).into_iter().chain(apart.into_iter().flatten()).collect();
        let width = LEFT + shown.len() as f64 * STEP;
        let height = rows.len() as f64 * HEIGHT + 34.0;
        let mut svg = format!(
            "<svg class=\"distribution\" width=\"{width}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"values by the size of their difference and by level\">"
        );
        for (line, &row) in rows.iter().enumerate() {
            let base = (line + 1) as f64 * HEIGHT;
            let largest = self.counts[row].iter().copied().max().unwrap_or(1).max(1) as f64;
            // Writing into a String cannot fail.
            _ = write!(
                svg,
                "<text x=\"0\" y=\"{}\">{}</text><line class=\"grid\" x1=\"{LEFT}\" x2=\"{width}\" y1=\"{base}\" y2=\"{base}\"/>",
                base - 4.0,
                LEVELS[row]
            );
            for (at, &bin) in shown.iter().enumerate().filter(|(_, bin)| self.counts[row][**bin] > 0) {
                let count = self.counts[row][bin];
                let (bar, x) = ((count as f64 / largest * (HEIGHT - 22.0)).max(1.5), LEFT + at as f64 * STEP);
                _ = write!(
                    svg,
                    "<g><title>{}: {count} {}</title><rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{bar:.1}\"/>\
                     <text class=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                    label(bin),
                    LEVELS[row],
                    LEVELS[row],
                    x + 2.0,
                    base - bar,
                    STEP - 4.0,
                    x + STEP / 2.0,
                    base - bar - 4.0,
                    short(count)
                );
            }
        }
        for (at, &bin) in shown.iter().enumerate() {
            let x = LEFT + (at as f64 + 0.5) * STEP;
            _ = write!(
                svg,
                "<text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                rows.len() as f64 * HEIGHT + 16.0,
                label(bin)
            );
        }
        Some(svg + "</svg>")
    }
}

fn bin(relative: f64) -> usize {
    if relative == 0.0 {
        0
    } else if relative.is_finite() {
        let decade = relative.log10().floor() as i32 - FIRST;
        1 + decade.clamp(0, BINS as i32 - 3) as usize
    } else {
        BINS - 1
    }
}

/// The lower end of a bin.
fn label(bin: usize) -> String {
    match bin {
        0 => "0".to_owned(),
        1 => format!("&lt;1e{}", FIRST + 1),
        _ if bin == BINS - 1 => "other".to_owned(),
        _ if bin == BINS - 2 => format!("&ge;1e{}", FIRST + bin as i32 - 1),
        _ => format!("1e{}", FIRST + bin as i32 - 1),
    }
}

fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_that_nobody_is_apart_by_take_no_room_at_either_end() {
        let mut distribution = Distribution::default();
        assert_eq!(distribution.svg(), None);
        for relative in [0.0, 2e-7, 3e-5] {
            distribution.add(Level::Pass, false, Deviation { what: crate::deviation::What::Numbers, relative });
        }
        let svg = distribution.svg().unwrap();
        // None, then 1e-7 to 1e-5.
        assert!(svg.contains(&format!("viewBox=\"0 0 {} ", LEFT + 4.0 * STEP)), "{svg}");
        assert!(svg.contains("1e-6") && !svg.contains("1e-8") && !svg.contains("1e-4"), "{svg}");
    }

    #[test]
    fn a_deviation_is_counted_in_its_decade() {
        let labels = [0.0, 1e-30, 1.5e-16, 2e-3, 0.5, 3.0, 1e9, f64::INFINITY].map(|relative| label(bin(relative)));
        assert_eq!(labels, ["0", "&lt;1e-16", "1e-16", "1e-3", "1e-1", "1e0", "&ge;1e1", "other"]);
    }
}
