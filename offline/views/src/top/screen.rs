//! The screen: run, curves, worst tensors, alerts and counters.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use trainmon_core::{Alert, AlertPhase, AlertSeverity};
use trainmon_history::{CurveDocument, LedgerDocument, RunDocument, TensorState, curves};

use super::keys::HELP;
use super::spark;
use super::state::{Mode, State};

/// The curves that come first, with their names on the screen.
const FIRST: [(&str, &str); 7] = [
    (curves::LOSS, "loss"),
    (curves::GRAD_NORM, "grad norm"),
    (curves::STEP_SECONDS, "step s"),
    (curves::LEARNING_RATE, "lr"),
    (curves::UPDATE_RATIO_MAX, "update ratio"),
    (curves::UPDATE_NORM, "update norm"),
    (curves::COLLECT_SECONDS, "overhead s"),
];
const CURVE_NAME: usize = 14;
const NUMBER: usize = 10;
const KIND: usize = 14;
const DEVIATIONS: usize = 10;
const STEP: usize = 7;
/// The deviations from which on a tensor is marked.
const STANDS_OUT: f64 = 8.0;

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let area = frame.area();
    let Some(run) = state.run.take() else {
        draw_waiting(frame, state, area);
        return;
    };
    let curves = curves_of(&run);
    let height = usize::from(area.height);
    let shown_curves = curves.len().min((height / 6).max(3)) as u16;
    let alerts = (run.overview.alerts.len().max(1) as u16).min((area.height / 5).max(2));
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(shown_curves + 2),
        Constraint::Min(4),
        Constraint::Length(alerts + 2),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .split(area);
    frame.render_widget(Paragraph::new(header(&run, state)), rows[0]);
    draw_curves(frame, &run, &curves, state, rows[1]);
    let summary = Line::from(counts(run.status.ledger.as_ref(), &run));
    draw_alerts(frame, &run, state, rows[3]);
    frame.render_widget(Paragraph::new(summary), rows[4]);
    state.run = Some(run);
    draw_tensors(frame, state, rows[2]);
    frame.render_widget(Paragraph::new(footer(state)), rows[5]);
    if state.mode == Mode::Help {
        draw_help(frame, area);
    }
}

/// The height of a frame without a terminal: that of its content.
pub(super) fn plain_height(state: &State, most: u16) -> u16 {
    let (curves, alerts) =
        state.run.as_ref().map_or((0, 0), |run| (curves_of(run).len(), run.overview.alerts.len().clamp(1, 8)));
    let frames = 3 * 2 + 1 + 2 + 1;
    let height = frames + curves + alerts + state.tensors().len().max(1);
    u16::try_from(height).unwrap_or(most).clamp(24.min(most), most)
}

fn draw_waiting(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let text = state
        .read_error
        .as_ref()
        .map_or_else(|| "reading…".to_owned(), |why| format!("no response yet: {}", clean(why)));
    frame.render_widget(Paragraph::new(vec![Line::from("trainmon"), Line::from(text), Line::from("q quits")]), area);
}

fn header<'a>(run: &RunDocument, state: &State) -> Line<'a> {
    let status = &run.status;
    let step = status.step.map_or_else(|| "no steps yet".to_owned(), |step| format!("step {step}"));
    let steps = match run.overview.steps.state.width {
        0 | 1 => String::new(),
        width => format!("  {width} steps per point"),
    };
    let place = if status.host.is_empty() { String::new() } else { format!("  {}", clean(&status.host)) };
    let since = status.seconds_since_last_step.map_or_else(String::new, |s| format!("  last step {s:.0} s ago"));
    let mut spans = vec![
        Span::styled(clean(&status.run), Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("  rank {} of {}  {step}{since}{place}{steps}", status.rank, status.world_size)),
    ];
    if let Some(read_error) = &state.read_error {
        let text = format!("  NO RESPONSE for {} s: {}", state.age_seconds, clean(read_error));
        spans.push(Span::styled(text, alarm(state)));
    }
    Line::from(spans)
}

/// The curves that have values: the first ones first, then the script's own.
fn curves_of(run: &RunDocument) -> Vec<(String, usize)> {
    let all = &run.overview.curves;
    let place = |name: &str| all.iter().position(|curve| curve.name == name);
    let first = FIRST.iter().filter_map(|(name, word)| Some(((*word).to_owned(), place(name)?)));
    let is_own = |curve: &&CurveDocument| curve.name.starts_with("scalar/") && !curves::is_label(&curve.name);
    let own = all.iter().filter(is_own).filter_map(|curve| Some((clean(&curve.name[7..]), place(&curve.name)?)));
    first.chain(own).collect()
}

fn draw_curves(frame: &mut Frame<'_>, run: &RunDocument, curves: &[(String, usize)], state: &State, area: Rect) {
    let title = match (run.overview.steps.first.first(), run.overview.steps.last.last()) {
        (Some(first), Some(last)) => format!(" curves, steps {first} to {last} "),
        _ => " curves ".to_owned(),
    };
    let block = Block::bordered().title(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let width = usize::from(inside.width).saturating_sub(CURVE_NAME + NUMBER + 2);
    let line = |(name, place): &(String, usize)| {
        let curve = &run.overview.curves[*place];
        let mut values = if curve.high.is_empty() { curve.last.clone() } else { curve.high.clone() };
        for &bin in &curve.broken {
            if let Some(value) = values.get_mut(bin) {
                *value = Some(f64::NAN);
            }
        }
        let newest = curve.last.iter().rev().flatten().next();
        let newest = newest.map_or_else(|| "–".to_owned(), |value| number(*value));
        let spark = spark::line(&values, width);
        let mut spans = vec![Span::raw(format!("{:CURVE_NAME$} {newest:>NUMBER$} ", shortened(name, CURVE_NAME)))];
        // Non-finite values are highlighted.
        for piece in spark.split_inclusive(spark::NOT_FINITE) {
            let (line, cross) = match piece.strip_suffix(spark::NOT_FINITE) {
                Some(line) => (line, true),
                None => (piece, false),
            };
            spans.push(Span::styled(line.to_owned(), colour(state, Color::Cyan)));
            if cross {
                spans.push(Span::styled(spark::NOT_FINITE.to_string(), alarm(state)));
            }
        }
        Line::from(spans)
    };
    let lines: Vec<Line<'_>> = curves.iter().take(usize::from(inside.height)).map(line).collect();
    let lines = if lines.is_empty() {
        vec![Line::from("no curves: no loss was logged and no gradient norm was measured")]
    } else {
        lines
    };
    frame.render_widget(Paragraph::new(lines), inside);
}

fn draw_tensors(frame: &mut Frame<'_>, state: &mut State, area: Rect) {
    let filter = if state.filter.is_empty() { String::new() } else { format!(", filter {}", clean(&state.filter)) };
    let title = format!(" worst tensors, by {}{filter} ", state.sort.word());
    let block = Block::bordered().title(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let rows = usize::from(inside.height).saturating_sub(1);
    state.scroll(rows);
    let columns = Columns::within(usize::from(inside.width));
    let head = columns.line(["tensor", "kind", "value", "usually", "deviations", "step"]);
    let mut lines = vec![Line::from(Span::styled(head, Style::new().add_modifier(Modifier::BOLD)))];
    let tensors = state.tensors();
    for (place, tensor) in tensors.iter().enumerate().skip(state.first).take(rows) {
        let text = tensor_line(tensor, columns);
        let mut style = if tensor.deviations.abs() >= STANDS_OUT || !tensor.value.is_finite() {
            alarm(state)
        } else {
            Style::new()
        };
        if place == state.selected && !state.is_plain {
            style = style.add_modifier(Modifier::REVERSED);
        }
        lines.push(Line::from(Span::styled(text, style)));
    }
    if tensors.is_empty() {
        let why = if state.filter.is_empty() { "no worst tensors" } else { "no worst tensor matches the filter" };
        lines.push(Line::from(why));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The widths of the table's columns.
#[derive(Clone, Copy)]
struct Columns {
    name: usize,
    /// A narrow terminal omits the usual value: the deviations say enough.
    has_usual: bool,
}

impl Columns {
    fn within(width: usize) -> Self {
        let has_usual = width >= 100;
        let others = (KIND + 1) + (NUMBER + 1) * (1 + usize::from(has_usual)) + (DEVIATIONS + 1) + (STEP + 1);
        Self { name: width.saturating_sub(others).max(8), has_usual }
    }

    fn line(self, [name, kind, value, usual, deviations, step]: [&str; 6]) -> String {
        let usual = if self.has_usual { format!(" {usual:>NUMBER$}") } else { String::new() };
        format!(
            "{:width$} {:KIND$} {value:>NUMBER$}{usual} {deviations:>DEVIATIONS$} {step:>STEP$}",
            shortened(name, self.name),
            shortened(kind, KIND),
            width = self.name
        )
    }
}

fn tensor_line(tensor: &TensorState, columns: Columns) -> String {
    let TensorState { kind, name, step, value, usual, deviations, .. } = tensor;
    let usual = usual.map_or_else(|| "–".to_owned(), number);
    let deviations = format!("{deviations:+.1}");
    columns.line([&clean(name), &clean(kind), &number(*value), &usual, &deviations, &step.to_string()])
}

fn draw_alerts(frame: &mut Frame<'_>, run: &RunDocument, state: &State, area: Rect) {
    let begun = run.overview.alerts_begun;
    let block = Block::bordered().title(format!(" alerts: {begun} "));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let line = |(alert, is_over): (&Alert, bool)| {
        let phase = if is_over { "over" } else { alert.severity.name() };
        let text = format!("step {:>STEP$}  {phase:8}  {}", alert.step.0, clean(&alert.message));
        let is_bad = !is_over && alert.severity > AlertSeverity::Info;
        Line::from(Span::styled(text, if is_bad { alarm(state) } else { Style::new() }))
    };
    let mut lines: Vec<Line<'_>> =
        by_urgency(&run.overview.alerts).into_iter().take(usize::from(inside.height)).map(line).collect();
    if lines.is_empty() {
        lines.push(Line::from("none"));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The alerts as they began, and whether each has ended: ongoing ones first, then the newest first.
fn by_urgency(alerts: &[Alert]) -> Vec<(&Alert, bool)> {
    let mut told: Vec<(&Alert, bool)> = Vec::new();
    for alert in alerts {
        if alert.phase == AlertPhase::Begins {
            told.push((alert, false));
            continue;
        }
        let begun = told.iter_mut().rev().find(|(one, is_over)| {
            !is_over && one.rule == alert.rule && one.rank == alert.rank && one.series == alert.series
        });
        match begun {
            Some((_, is_over)) => *is_over = true,
            // The alert began before the oldest that is kept.
            None => told.push((alert, true)),
        }
    }
    told.reverse();
    told.sort_by_key(|(_, is_over)| *is_over);
    told
}

/// The ledger as one line.
fn counts(ledger: Option<&LedgerDocument>, run: &RunDocument) -> String {
    let cost = run.status.cost.filter(|cost| cost.step_seconds > 0.0).map_or_else(String::new, |cost| {
        let own = cost.measure_seconds + cost.launch_seconds + cost.offer_seconds;
        format!("  overhead {:.2} % of step time", 100.0 * own / cost.step_seconds)
    });
    let Some(LedgerDocument { observed, not_sampled, accepted, dropped, sinks, .. }) = ledger else {
        return format!("records: the run has no counters{cost}");
    };
    let lost: u64 = sinks.iter().map(|sink| sink.lost).sum();
    let lost = if sinks.is_empty() { String::new() } else { format!("  lost in outputs {lost}") };
    format!("records: seen {observed}  not sampled {not_sampled}  taken {accepted}  dropped {dropped}{lost}{cost}")
}

fn footer<'a>(state: &State) -> Line<'a> {
    if state.is_plain {
        return Line::default();
    }
    if state.mode == Mode::Filter {
        return Line::from(format!("/{}▏ Enter applies, Esc clears", clean(&state.filter)));
    }
    Line::from("q quit  ↑↓ jk move  s sort  / filter  ? help")
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (64.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let lines: Vec<Line<'_>> = HELP.iter().map(|(keys, what)| Line::from(format!("{keys:16} {what}"))).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}

fn colour(state: &State, colour: Color) -> Style {
    if state.has_colours { Style::new().fg(colour) } else { Style::new() }
}

/// The style of highlighted text: red, or bold without colours.
fn alarm(state: &State) -> Style {
    if state.has_colours { Style::new().fg(Color::Red) } else { Style::new().add_modifier(Modifier::BOLD) }
}

/// A number in at most ten characters.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if (1e-3..1e6).contains(&magnitude) {
        let decimals = (4.0 - magnitude.log10().floor()).clamp(0.0, 6.0) as usize;
        return format!("{value:.decimals$}");
    }
    format!("{value:.3e}")
}

/// Removes control characters: names come from files and the network and must not move the cursor.
fn clean(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// Keeps both ends of a long name.
fn shortened(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width || width < 3 {
        return text.chars().take(width.max(1)).collect();
    }
    let (head, tail) = (width / 3, width - 1 - width / 3);
    let characters: Vec<char> = text.chars().collect();
    characters[..head].iter().chain(&['…']).chain(&characters[count - tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_both_ends_and_a_short_one_is_itself() {
        assert_eq!(shortened("blocks.0.attn.qkv.weight", 12), "bloc….weight");
        assert_eq!(shortened("head", 12), "head");
        assert_eq!(clean("a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
    }

    #[test]
    fn numbers_stay_short() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1.0000"),
            (12_345.6, "12346"),
            (1e-9, "1.000e-9"),
            (f64::NAN, "NaN"),
            (0.0123, "0.012300"),
        ] {
            assert_eq!(number(value), expected);
        }
    }
}
