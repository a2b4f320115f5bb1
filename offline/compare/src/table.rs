//! The table behind an answer: msprobe's columns without its errors, and the basis of each result.

use std::borrow::Cow;

use trainmon_capture_files::Task;

use super::compat::{self, Cell, Mode};
use super::deviation::{Deviation, What};
use super::evaluation::Sides;
use super::evidence::{Evidence, Side};
use super::first::Excuse;
use super::input::Capture;
use super::item::{Address, Item};
use super::judge::{Bound, BoundSource, Judge};
use super::matching::{How, Pair};
use super::name::OperatorName;
use super::text::{of, share};
use trainmon_distance::Distance;

/// The result of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// No difference beyond rounding.
    Pass,
    /// A difference that its inputs explain, or a value that is not comparable.
    Warning,
    /// A difference that its inputs do not explain.
    Error,
}

impl Level {
    /// The word in tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The row of a value.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// msprobe's cells up to `Requires_grad Consistent`, then the stack and the file names, if any.
    pub shared: compat::Row,
    /// How it was matched; `None` if it was not.
    pub how: Option<How>,
    /// The result.
    pub level: Level,
    /// All reasons, as texts.
    pub notes: Vec<String>,
    /// The difference.
    pub deviation: Deviation,
    /// The tolerance.
    pub bound: Option<Bound>,
}

/// A rank's table: the target's values in order, then those of the baseline only.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The rows.
    pub(crate) rows: Vec<Row>,
}

/// Columns after msprobe's own.
const OWN: [&str; 5] = ["Match", "Difference", "Deviation", "Bound", "Bound Source"];

/// Columns after those if every element was compared: the relative L2 norm of the difference, and its size in units in the last
/// place (median, 99th percentile, maximum).
const ELEMENTWISE: [&str; 4] = ["Relative L2", "ULP p50", "ULP p99", "ULP max"];

impl Row {
    /// Passes its cells to `see` in the order of the columns.
    pub(crate) fn visit(&self, see: &mut dyn FnMut(&Cell)) {
        let shared = &self.shared;
        shared.measurements().for_each(&mut *see);
        see(&Cell::Bool(shared.is_requires_grad_consistent));
        see(&Cell::Word(self.level.word()));
        if self.notes.is_empty() {
            see(&Cell::Word("[]"));
        } else {
            let notes: Vec<String> = self.notes.iter().map(|note| format!("{}: {note}", self.level.word())).collect();
            see(&Cell::Text(serde_json::json!(notes).to_string().into()));
        }
        shared.stack.iter().chain(&shared.data_names).for_each(&mut *see);
        let number =
            |value: f64| if value == 0.0 { Cell::Word("0") } else { Cell::Text(format!("{value:.3e}").into()) };
        see(&Cell::Word(self.how.map_or("none", How::word)));
        see(&Cell::Word(self.deviation.what.word()));
        see(&number(self.deviation.relative));
        see(&self.bound.map_or(Cell::NONE, |bound| number(bound.bound)));
        see(&self.bound.map_or(Cell::NONE, |bound| match bound.source.words() {
            Cow::Borrowed(word) => Cell::Word(word),
            Cow::Owned(text) => Cell::Text(text.into()),
        }));
        if shared.data_names.is_some() {
            let distance = shared.distance.as_deref();
            see(&distance.map_or(Cell::NONE, |distance| number(distance.relative())));
            for quantile in [0.5, 0.99, 1.0] {
                let ulps = |distance: &Distance| Cell::Text(format!("{}", distance.ulp_quantile(quantile)).into());
                see(&distance.map_or(Cell::NONE, ulps));
            }
        }
    }
}

/// The mode of a comparison: the most that both captures have; `None` if they have nothing in common.
pub fn mode(target: &Capture, golden: &Capture) -> Option<Mode> {
    let (one, other) = (&target.document, &golden.document);
    if one.task == Task::Tensor && other.task == Task::Tensor {
        Some(Mode::Tensor)
    } else if one.has_statistics() && other.has_statistics() && !(one.has_digests() && other.has_digests()) {
        Some(Mode::Statistics)
    } else if one.has_digests() && other.has_digests() {
        Some(Mode::Digest)
    } else if one.task == Task::Structure && other.task == Task::Structure && !one.operators.is_empty() {
        // Each row has the module an operator ran in.
        Some(Mode::Statistics)
    } else {
        None
    }
}

/// Builds the table from matched values.
pub(crate) fn table(
    sides: Sides<'_>,
    pairs: &[Pair],
    mode: Mode,
    (judge, evidence): (Judge<'_>, &Evidence<'_>),
) -> Table {
    let (target, golden) = (sides.target, sides.golden);
    let shared = compat::table(sides, pairs, mode, false);
    let of_target = pairs.iter().filter(|pair| pair.target.is_some());
    let mut rows: Vec<Row> = Vec::with_capacity(pairs.len());
    for (shared, pair) in shared.rows.into_iter().zip(of_target) {
        rows.push(match pair.golden {
            Some(_) => Row {
                shared,
                how: Some(pair.how),
                level: Level::Pass,
                notes: Vec::new(),
                deviation: Deviation::NONE,
                bound: None,
            },
            None => one_sided(shared, "no value of this name in the baseline"),
        });
    }
    judge_rows(&mut rows, sides, pairs, (judge, evidence));
    for (row, address) in rows.iter_mut().zip(pairs.iter().filter_map(|pair| pair.target)) {
        note_origin(row, Side::Target, address, target.at(address), evidence);
    }
    let mut of_target = rows.into_iter();
    let in_order = pairs.iter().filter_map(|pair| match (pair.target, pair.golden) {
        (Some(_), _) => of_target.next(),
        (None, golden_only) => golden_only.map(|address| {
            let mut row = golden_row(golden, address, mode, target.has_stacks);
            note_origin(&mut row, Side::Golden, address, golden.at(address), evidence);
            row
        }),
    });
    let rows = in_order.collect();
    Table { rows }
}

/// The columns of a mode.
pub(crate) fn headers(mode: Mode, has_stacks: bool) -> Vec<&'static str> {
    let mut headers = compat::headers(mode, has_stacks);
    headers.extend(OWN);
    headers.extend((mode == Mode::Tensor).then_some(ELEMENTWISE).into_iter().flatten());
    headers
}

fn one_sided(shared: compat::Row, note: &str) -> Row {
    let deviation = Deviation::of(What::Presence);
    Row { shared, how: None, level: Level::Warning, notes: vec![note.to_owned()], deviation, bound: None }
}

/// The row of a value that only the baseline has: its half of the row is filled.
fn golden_row(golden: &Capture, address: Address, mode: Mode, has_stacks: bool) -> Row {
    one_sided(compat::Row::of_golden(golden, address, mode, has_stacks), "only the baseline has this value")
}

/// Sets the results, operator by operator: outputs by the differences of the inputs.
fn judge_rows(rows: &mut [Row], sides: Sides<'_>, pairs: &[Pair], (judge, evidence): (Judge<'_>, &Evidence<'_>)) {
    let addresses: Vec<Pair> = pairs.iter().copied().filter(|pair| pair.target.is_some()).collect();
    let mut from = 0;
    for group in addresses.chunk_by(|one, next| one.target.map(|at| at.operator) == next.target.map(|at| at.operator)) {
        let rows = &mut rows[from..from + group.len()];
        from += group.len();
        let Some(operator) = group.first().and_then(|pair| pair.target).map(|at| at.operator) else { continue };
        let operator = &sides.target.document.operators[operator as usize];
        let name = OperatorName::parse(&operator.name);
        if name.is_some_and(|name| judge.thresholds.ignores(name)) {
            continue;
        }
        let mut input = name.map_or(0.0, |name| evidence.accounted(name));
        for (row, pair) in rows.iter_mut().zip(group) {
            let (Some(one), Some(other)) = (pair.target, pair.golden) else { continue };
            let (item, twin) = sides.items(one, other);
            let is_unwritten = sides.is_unwritten(one, other);
            row.deviation = sides.deviation(one, other);
            row.notes.extend(is_unwritten.then(|| "unwritten memory".to_owned()));
            row.notes.extend(row.shared.trouble.as_ref().map(|trouble| {
                row.level = Level::Warning;
                format!("only statistics were compared: {trouble}")
            }));
            if item.value.section.is_input() {
                input = input.max(row.deviation.relative);
                let spread = judge.spread(twin.operator, &twin.value.place);
                let judged = evidence.judged(one);
                let bound = judged.map_or_else(|| usual_input(&row.deviation, spread), |judged| judged.bound);
                match judged.and_then(|judged| judged.excuse) {
                    Some(excuse) => excuse_row(row, bound, excuse),
                    None => judge_input(row, bound, judge.thresholds.ceiling),
                }
            }
        }
        for (row, pair) in rows.iter_mut().zip(group) {
            let (Some(one), Some(other)) = (pair.target, pair.golden) else { continue };
            let (item, twin) = sides.items(one, other);
            if item.value.section.is_input() {
                continue;
            }
            let judged = evidence.judged(one);
            let usual = || judge.bound(operator, input).or_spread(judge.spread(twin.operator, &twin.value.place));
            let bound = judged.map_or_else(usual, |judged| judged.bound);
            match judged.and_then(|judged| judged.excuse) {
                Some(excuse) => excuse_row(row, bound, excuse),
                None => judge_output(row, bound, judge.thresholds.ceiling),
            }
            if row.level == Level::Pass && row.deviation.is_some() && evidence.is_affected(&operator.name) {
                row.level = Level::Warning;
                row.notes.push(format!("{} after the divergence", describe(&row.deviation, "output")));
            }
        }
    }
}

/// Marks values that the answer names as errors: also inputs of an operator and one-sided calls.
fn note_origin(row: &mut Row, side: Side, address: Address, item: Item<'_>, evidence: &Evidence<'_>) {
    if evidence.is_origin(side, address, item) {
        let stated = evidence.stated_bound(item).zip(row.bound);
        row.bound = stated.map(|(bound, usual)| Bound { bound, ..usual }).or(row.bound);
        row.level = Level::Error;
        row.notes.push("first divergence".to_owned());
    }
}

/// The tolerance of an input that the search does not mention.
fn usual_input(deviation: &Deviation, spread: f64) -> Bound {
    match deviation.what {
        What::Argument => Bound { bound: 1e-6, source: BoundSource::Exact },
        _ => Bound { bound: 0.0, source: BoundSource::Rounding }.or_spread(spread),
    }
}

/// Marks a difference that the search excuses as a warning, with its reason.
fn excuse_row(row: &mut Row, bound: Bound, excuse: Excuse) {
    row.bound = Some(bound);
    row.level = Level::Warning;
    row.notes.push(excuse.words().to_owned());
}

/// An input may have differed before, up to the ceiling.
fn judge_input(row: &mut Row, bound: Bound, ceiling: f64) {
    let is_argument = row.deviation.what == What::Argument;
    let bound = if is_argument { bound } else { Bound { bound: bound.bound.max(ceiling), ..bound } };
    row.bound = Some(bound);
    if row.deviation.relative <= bound.bound {
        note_unseen(row);
        return;
    }
    row.level = if row.deviation.what == What::Argument { Level::Error } else { Level::Warning };
    row.notes.push(describe(&row.deviation, "input"));
}

fn judge_output(row: &mut Row, bound: Bound, ceiling: f64) {
    row.bound = Some(bound);
    if row.deviation.relative > bound.bound {
        row.level = Level::Error;
        row.notes.push(format!(
            "{}, tolerance {} ({})",
            describe(&row.deviation, "output"),
            share(bound.bound),
            bound.source.words()
        ));
    } else if row.deviation.relative > ceiling {
        row.level = Level::Warning;
        row.notes.push(format!("{}, as its inputs do", describe(&row.deviation, "output")));
    } else {
        note_unseen(row);
    }
}

/// Adds the notes of a value within its tolerance.
fn note_unseen(row: &mut Row) {
    let note = match row.deviation.what {
        What::Unseen if matches!(row.how, Some(How::Fused | How::FusedInGroups)) => {
            "joined from parts, whose statistics and checksums do not show the whole's"
        }
        What::Part => "a rank's part on one side, the whole on the other: not compared",
        What::Unseen => "not compared: neither statistics nor a checksum",
        // No loss of precision: the answer counts these values.
        What::Dtype => {
            row.notes.push("in a finer dtype than in the baseline".to_owned());
            return;
        }
        _ => return,
    };
    row.level = row.level.max(Level::Warning);
    row.notes.push(note.to_owned());
}

fn describe(deviation: &Deviation, side: &str) -> String {
    match deviation.what {
        What::Numbers => format!("differs by {}", of(deviation.relative, "its size")),
        What::Argument if deviation.relative.is_finite() => {
            format!("argument differs by {}", of(deviation.relative, "its size"))
        }
        What::Presence => "is of another kind than in the baseline".to_owned(),
        what => format!("{side} differs in {}", what.word()),
    }
}
