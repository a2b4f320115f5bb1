//! The picture: up to four curves, with marks at the steps in which alerts began.

use std::fmt::Display;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    BitMapBackend, Cartesian2d, Color, Cross, DrawingArea, DrawingBackend, IntoDrawingArea, IntoFont, IntoLogRange,
    PathElement, RGBColor, SVGBackend, TextStyle, TriangleMarker, WHITE,
};

use super::error::PlotError;
use super::font::{FAMILY, register};
use super::panels::{Panel, alert_steps, label, panels};
use crate::rank_history::RankHistory;

const SIZE: (u32, u32) = (1200, 800);
const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
const FAINT: RGBColor = RGBColor(0xd9, 0xdd, 0xe2);
const CURVE: RGBColor = RGBColor(0x1f, 0x6f, 0xb2);
const ALERT: RGBColor = RGBColor(0xc2, 0x3b, 0x22);
/// More marks would cover the curves.
const MOST_MARKS: usize = 64;

/// Draws the curves as SVG.
pub(super) fn svg(history: &RankHistory) -> Result<String, PlotError> {
    let mut text = String::new();
    draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area(), history)?;
    Ok(text)
}

/// Draws the curves as PNG.
pub(super) fn png(history: &RankHistory) -> Result<Vec<u8>, PlotError> {
    let (width, height) = SIZE;
    let mut pixels = vec![0xff; 3 * width as usize * height as usize];
    draw(&BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area(), history)?;
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

fn failed(why: impl Display) -> PlotError {
    PlotError::Draw { why: why.to_string() }
}

fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, history: &RankHistory) -> Result<(), PlotError> {
    if !register() {
        return Err(failed("the built-in font is damaged"));
    }
    area.fill(&WHITE).map_err(failed)?;
    let overview = history.overview();
    let steps = history.range.map_or_else(String::new, |(first, last)| format!(", steps {first} to {last}"));
    let title = format!("{}, rank {}{steps}", history.run.run, history.run.rank);
    let (head, body) = area.split_vertically(48);
    head.draw_text(&title, &text(24), (16, 14)).map_err(failed)?;
    let marks = alert_steps(&overview);
    if !marks.is_empty() {
        let alerts =
            if marks.len() == 1 { "alert in 1 step".to_owned() } else { format!("alerts in {} steps", marks.len()) };
        head.draw(&TriangleMarker::new((980, 26), 7, ALERT.filled())).map_err(failed)?;
        head.draw_text(&alerts, &text(18), (994, 17)).map_err(failed)?;
    }
    let panels = panels(&overview);
    let grid = match panels.len() {
        0 => {
            body.draw_text("nothing to draw: the run has no loss, gradient norm or step time", &text(20), (16, 24))
                .map_err(failed)?;
            (1, 1)
        }
        1 => (1, 1),
        2 => (2, 1),
        _ => (2, 2),
    };
    let (first, last) = history.range.unwrap_or((0, 0));
    let range = (first as f64, (last as f64).max(first as f64 + 1.0));
    for (panel, place) in panels.iter().zip(body.split_evenly(grid)) {
        draw_panel(&place, panel, range, &marks)?;
    }
    area.present().map_err(failed)
}

fn text(size: i32) -> TextStyle<'static> {
    (FAMILY, size).into_font().color(&INK)
}

fn draw_panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    panel: &Panel,
    (first, last): (f64, f64),
    marks: &[u64],
) -> Result<(), PlotError> {
    let (low, high) = panel.range;
    let title = if panel.is_logarithmic { format!("{} (log scale)", panel.title) } else { panel.title.clone() };
    let mut builder = ChartBuilder::on(area);
    builder.caption(title, text(20)).margin(12).x_label_area_size(34).y_label_area_size(78);
    if panel.is_logarithmic {
        let mut chart = builder.build_cartesian_2d(first..last, (low..high).log_scale()).map_err(failed)?;
        fill(&mut chart, panel, marks)
    } else {
        let mut chart = builder.build_cartesian_2d(first..last, low..high).map_err(failed)?;
        fill(&mut chart, panel, marks)
    }
}

type Plane<Y> = Cartesian2d<RangedCoordf64, Y>;

fn fill<B: DrawingBackend, Y>(
    chart: &mut ChartContext<'_, B, Plane<Y>>,
    panel: &Panel,
    marks: &[u64],
) -> Result<(), PlotError>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let (low, high) = panel.range;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(text(15))
        .x_labels(7)
        .y_labels(6)
        .x_label_formatter(&|step| format!("{step:.0}"))
        .y_label_formatter(&|value| label(*value))
        .draw()
        .map_err(failed)?;
    for &(step, low, high) in &panel.band {
        chart
            .draw_series([PathElement::new([(step, low), (step, high)], CURVE.mix(0.45).stroke_width(2))])
            .map_err(failed)?;
    }
    for step in marks.iter().take(MOST_MARKS).map(|&step| step as f64) {
        chart.draw_series([PathElement::new([(step, low), (step, high)], ALERT.mix(0.5))]).map_err(failed)?;
        chart.draw_series([TriangleMarker::new((step, low), 7, ALERT.filled())]).map_err(failed)?;
    }
    for line in &panel.lines {
        match &line[..] {
            // A single point makes no line.
            [only] => {
                chart.draw_series([plotters::element::Circle::new(*only, 2, CURVE.filled())]).map_err(failed)?;
            }
            // Drawn segment by segment: one thick line through many points gets long spikes at its corners.
            line => {
                let pieces = line.windows(2).map(|piece| PathElement::new(piece.to_vec(), CURVE.stroke_width(2)));
                chart.draw_series(pieces).map_err(failed)?;
            }
        }
    }
    let crosses = panel.non_finite.iter().map(|&step| Cross::new((step, high), 5, ALERT.stroke_width(2)));
    chart.draw_series(crosses).map_err(failed)?;
    Ok(())
}
