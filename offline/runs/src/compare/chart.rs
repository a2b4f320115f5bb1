//! A curve as an inline SVG: both runs' values above, their relative difference on a logarithmic scale below.

use trainmon_baseline::short;

use super::replay::{Curve, Point};
use maud::html;

const WIDTH: f64 = 640.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 12.0;
const VALUES: Panel = Panel { top: 14.0, height: 130.0 };
const DIFFERENCES: Panel = Panel { top: 172.0, height: 100.0 };
const HEIGHT: f64 = 300.0;
/// The largest number of decades on a logarithmic axis.
const MOST_DECADES: i32 = 16;
/// The characters of a bar chart, the lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Clone, Copy)]
struct Panel {
    top: f64,
    height: f64,
}

/// Maps steps to the width.
struct Across {
    first: f64,
    last: f64,
}

impl Across {
    fn of(points: &[Point]) -> Self {
        let step = |point: Option<&Point>| point.map_or(0.0, |point| point.step as f64);
        Self { first: step(points.first()), last: step(points.last()) }
    }

    fn at(&self, step: f64) -> f64 {
        let span = (self.last - self.first).max(1.0);
        LEFT + (step - self.first) / span * (WIDTH - LEFT - RIGHT)
    }
}

impl Panel {
    /// A share of the height, from below.
    fn at(self, share: f64) -> f64 {
        self.top + self.height * (1.0 - share)
    }
}

/// Draws a curve. Its colours are those of the classes `target`, `golden`, `apart`, `axis`, `grid`, `parting` and `bound`.
pub(super) fn svg(curve: &Curve) -> String {
    let across = Across::of(&curve.points);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"values of both runs and their relative difference\">"
    );
    values(&mut svg, curve, &across);
    differences(&mut svg, curve, &across);
    steps_axis(&mut svg, &across);
    let titles = [(VALUES.top - 3.0, &*curve.statistic), (DIFFERENCES.top - 6.0, "relative difference")];
    for (y, title) in titles {
        push(
            &mut svg,
            format_args!("<text class=\"axis\" x=\"{LEFT}\" y=\"{y:.1}\">{}</text>", html! { (title) }.into_string()),
        );
    }
    if let Some(divergence) = &curve.divergence {
        let x = across.at(divergence.step as f64);
        let bottom = DIFFERENCES.top + DIFFERENCES.height;
        push(
            &mut svg,
            format_args!(
                "<line class=\"parting\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\"/>",
                VALUES.top
            ),
        );
        let anchor = if x > WIDTH - 90.0 { "end" } else { "start" };
        let offset = if anchor == "end" { -4.0 } else { 4.0 };
        push(
            &mut svg,
            format_args!(
                "<text class=\"parting\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">step {}</text>",
                x + offset,
                VALUES.top - 3.0,
                divergence.step
            ),
        );
    }
    svg.push_str("</svg>");
    svg
}

fn values(svg: &mut String, curve: &Curve, across: &Across) {
    let finite =
        || curve.points.iter().flat_map(|point| [point.target, point.golden]).filter(|value| value.is_finite());
    let (mut least, mut most) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    if least > most {
        (least, most) = (0.0, 1.0);
    }
    if most - least <= f64::EPSILON * most.abs() {
        (least, most) = (least - 0.5 * least.abs().max(1e-12), most + 0.5 * most.abs().max(1e-12));
    }
    let y = |value: f64| VALUES.at((value - least) / (most - least));
    for tick in ticks(least, most) {
        grid_line(svg, y(tick), &short(tick));
    }
    line(svg, "golden", curve.points.iter().map(|point| (across.at(point.step as f64), point.golden, y(point.golden))));
    line(svg, "target", curve.points.iter().map(|point| (across.at(point.step as f64), point.target, y(point.target))));
}

fn differences(svg: &mut String, curve: &Curve, across: &Across) {
    let positive = || {
        let bound = curve.divergence.as_ref().map(|divergence| divergence.bound);
        let all = curve.points.iter().map(|point| curve.difference(point)).chain(bound);
        all.filter(|difference| difference.is_finite() && *difference > 0.0)
    };
    let decade = |value: f64| value.log10();
    let most = positive().map(decade).fold(f64::NEG_INFINITY, f64::max).ceil();
    let most = if most.is_finite() { most as i32 } else { 0 };
    let least = positive().map(decade).fold(f64::INFINITY, f64::min).floor();
    let least = if least.is_finite() { (least as i32).max(most - MOST_DECADES) } else { most - 1 }.min(most - 1);
    let y = |value: f64| DIFFERENCES.at(((decade(value) - f64::from(least)) / f64::from(most - least)).clamp(0.0, 1.0));
    let every = (most - least).div_euclid(5).max(1);
    for exponent in (least..=most).filter(|exponent| (most - exponent) % every == 0) {
        grid_line(svg, y(10f64.powi(exponent)), &format!("1e{exponent}"));
    }
    if let Some(divergence) = curve.divergence.as_ref().filter(|divergence| divergence.bound > 0.0) {
        let (y, right) = (y(divergence.bound), WIDTH - RIGHT);
        push(svg, format_args!("<line class=\"bound\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"));
    }
    let points = curve.points.iter().map(|point| {
        let difference = curve.difference(point);
        let shown = if difference > 0.0 { difference } else { f64::NAN };
        (across.at(point.step as f64), shown, y(difference))
    });
    line(svg, "apart", points);
}

/// A line through the points with finite values; a single one is a dot.
fn line(svg: &mut String, class: &str, points: impl Iterator<Item = (f64, f64, f64)>) {
    let points: Vec<_> = points.collect();
    for run in points.chunk_by(|one, other| one.1.is_finite() && other.1.is_finite()) {
        match run {
            [(x, value, y)] if value.is_finite() => {
                push(svg, format_args!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.6\"/>"));
            }
            [_] | [] => {}
            run => {
                let path: Vec<String> = run.iter().map(|(x, _, y)| format!("{x:.1},{y:.1}")).collect();
                push(svg, format_args!("<polyline class=\"{class}\" points=\"{}\"/>", path.join(" ")));
            }
        }
    }
}

fn grid_line(svg: &mut String, y: f64, label: &str) {
    let right = WIDTH - RIGHT;
    push(svg, format_args!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"));
    push(
        svg,
        format_args!(
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            y + 3.5
        ),
    );
}

fn steps_axis(svg: &mut String, across: &Across) {
    let y = DIFFERENCES.top + DIFFERENCES.height + 16.0;
    for tick in ticks(across.first, across.last).into_iter().filter(|tick| tick.fract() == 0.0) {
        push(
            svg,
            format_args!(
                "<text class=\"axis\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{tick}</text>",
                across.at(tick)
            ),
        );
    }
}

/// About five round numbers in a range.
fn ticks(least: f64, most: f64) -> Vec<f64> {
    let raw = (most - least) / 5.0;
    if !(raw.is_finite() && raw > 0.0) {
        return vec![least];
    }
    let decade = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade).into_iter().find(|&step| step >= raw).unwrap_or(raw);
    let first = (least / step).ceil();
    (0..).map(|number| (first + f64::from(number)) * step).take_while(|&tick| tick <= most).take(12).collect()
}

fn push(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.push_str(&text.to_string());
}

/// The difference over the steps as a line of bars, on a logarithmic scale.
pub(super) fn sparkline(curve: &Curve, width: usize) -> String {
    let differences: Vec<f64> = curve.points.iter().map(|point| curve.difference(point)).collect();
    let per_bar = differences.len().div_ceil(width.max(1)).max(1);
    let most_of = |part: &[f64]| {
        part.iter().copied().fold(0.0, |most: f64, next| if next.is_nan() { f64::INFINITY } else { most.max(next) })
    };
    let bars: Vec<f64> = differences.chunks(per_bar).map(most_of).collect();
    let positive = || bars.iter().filter(|bar| **bar > 0.0 && bar.is_finite()).map(|bar| bar.log10());
    let (least, most) = (positive().fold(f64::INFINITY, f64::min), positive().fold(f64::NEG_INFINITY, f64::max));
    let sign = |bar: &f64| {
        if *bar <= 0.0 {
            return ' ';
        }
        let share = if bar.is_finite() { (bar.log10() - least) / (most - least).max(1e-9) } else { 1.0 };
        let place = (share.clamp(0.0, 1.0) * (BARS.len() - 1) as f64).round() as usize;
        BARS[place.min(BARS.len() - 1)]
    };
    bars.iter().map(sign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainmon_baseline::TensorKey;

    fn curve(values: &[(f64, f64)]) -> Curve {
        let tensor = TensorKey { kind: "actv".to_owned(), name: "fc".to_owned(), vpp_stage: 0, micro_step: None };
        let numbered = values.iter().zip(0..);
        let points = numbered.map(|(&(target, golden), step)| Point { step, target, golden }).collect();
        Curve { rank: Some(0), tensor, statistic: "norm".to_owned(), divergence: None, points }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(3.0, 3.0), [3.0]);
        assert!(ticks(0.13, 0.91).iter().all(|tick| (0.13..=0.91).contains(tick)));
    }

    #[test]
    fn nan_breaks_a_line_and_ends_nothing() {
        let svg = svg(&curve(&[(1.0, 1.0), (2.0, 2.0), (f64::NAN, 3.0), (4.0, 4.0), (5.0, 5.5)]));
        assert_eq!(svg.matches("class=\"target\"").count(), 2);
        assert_eq!(svg.matches("class=\"golden\"").count(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_sparkline_shows_where_the_difference_jumps() {
        let values: Vec<(f64, f64)> = (0..20).map(|step| (1.0 + if step < 10 { 1e-8 } else { 1e-2 }, 1.0)).collect();
        assert_eq!(sparkline(&curve(&values), 20), "▁▁▁▁▁▁▁▁▁▁██████████");
        assert_eq!(sparkline(&curve(&[(1.0, 1.0); 3]), 20), "   ");
    }
}
