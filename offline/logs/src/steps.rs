//! Collects the steps of a log row by row.

use std::collections::HashMap;

use crate::format::LogFormat;
use crate::log::{LogColumns, LogStep};

use crate::raw::RawRow;
use crate::roles::{Roles, since_1970, whole};

/// Whether two values are equal; NaN equals NaN.
fn is_same(one: f64, other: f64) -> bool {
    one == other || (one.is_nan() && other.is_nan())
}

/// The steps collected so far, and counts of the ignored rows.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) taken: Vec<LogStep>,
    places: HashMap<u64, usize>,
    highest: Option<u64>,
    pub(crate) without_step: u64,
    first_without_step: u64,
    /// Steps that are negative or have a fraction.
    unusable: u64,
    /// Rows after a later step that repeat a value differently.
    again: u64,
    again_range: Option<(u64, u64)>,
    /// How often the steps went back.
    turns: u64,
    /// The step of the previous row.
    previous: Option<u64>,
    /// Whether the steps went back and no step has repeated since.
    has_turned: bool,
    /// Rows of the newest step that repeat a value differently.
    beside: u64,
}

impl Steps {
    pub(crate) fn add(&mut self, row: &RawRow, number: u64, roles: Roles, others: &[Option<u32>]) {
        let is_value = |(column, _): &(u32, f64)| Some(*column) != roles.step && Some(*column) != roles.time;
        if !row.cells.iter().any(is_value) {
            return;
        }
        let cell =
            |wanted: Option<u32>| row.cells.iter().find(|(column, _)| Some(*column) == wanted).map(|(_, value)| *value);
        let step = match (roles.step, row.step) {
            (Some(column), _) => cell(Some(column)).map(whole),
            (None, Some(step)) => Some(u64::try_from(step).ok()),
            (None, None) => Some(Some(number)),
        };
        let step = match step {
            None => {
                self.first_without_step = if self.without_step == 0 { row.place } else { self.first_without_step };
                self.without_step += 1;
                return;
            }
            Some(None) => {
                self.unusable += 1;
                return;
            }
            Some(Some(step)) => step,
        };
        let place = *self.places.entry(step).or_insert_with(|| {
            self.taken.push(LogStep { step, ..LogStep::default() });
            self.taken.len() - 1
        });
        let taken = &mut self.taken[place];
        let is_new = taken.others.is_empty();
        let time = cell(roles.time).or(row.time).and_then(since_1970);
        taken.time = taken.time.or(time);
        let mut is_again = false;
        for &(column, value) in &row.cells {
            let slot = match Some(column) {
                of if of == roles.step || of == roles.time => continue,
                of if of == roles.loss => &mut taken.loss,
                of if of == roles.grad_norm => &mut taken.grad_norm,
                of if of == roles.learning_rate => &mut taken.learning_rate,
                _ => {
                    let Some(number) = others[column as usize] else { continue };
                    match taken.others.iter().find(|(other, _)| !is_new && *other == number) {
                        Some((_, before)) => is_again |= !is_same(*before, value),
                        None => taken.others.push((number, value)),
                    }
                    continue;
                }
            };
            is_again |= !is_same(*slot.get_or_insert(value), value);
        }
        self.note(step, is_again);
    }

    fn note(&mut self, step: u64, is_again: bool) {
        let previous = self.previous.replace(step);
        let is_back = previous != Some(step) && self.highest.is_some_and(|highest| step <= highest);
        self.has_turned |= previous.is_some_and(|previous| step < previous);
        if is_again && is_back {
            self.again += 1;
            let (first, last) = self.again_range.unwrap_or((step, step));
            self.turns += u64::from(std::mem::take(&mut self.has_turned));
            self.again_range = Some((first.min(step), step.max(last)));
        } else if is_again {
            self.beside += 1;
        }
        self.highest = self.highest.max(Some(step));
    }

    /// Reports the ignored rows.
    pub(crate) fn say(
        &self,
        format: LogFormat,
        columns: &LogColumns,
        warnings: &mut Vec<String>,
        remarks: &mut Vec<String>,
    ) {
        let row = |count: u64| format!("{count} {}", if count == 1 { format.row() } else { format.rows() });
        let column = columns.step.as_ref().map_or("", |step| step.name.as_str());
        if let Some((first, last)) = self.again_range {
            let times = if self.turns > 1 { format!(" (in {} places)", self.turns) } else { String::new() };
            warnings.push(format!(
                "steps {first} to {last} occur again{times}, as in a resumed run: kept the first value of each step, ignored {}",
                row(self.again)
            ));
            if self.again as usize > self.taken.len() {
                warnings.push(format!(
                    "most steps occur again: if `{column}` restarts in every epoch, number the rows with `--step row`"
                ));
            }
        }
        if self.beside > 0 {
            remarks.push(format!("ignored {} with a second value for a step", row(self.beside)));
        }
        if self.without_step > 0 {
            let first = self.first_without_step;
            remarks.push(format!("ignored {} without a step, first {} {first}", row(self.without_step), format.row()));
        }
        if self.unusable > 0 {
            warnings.push(format!("ignored {} whose step is not a non-negative integer", row(self.unusable)));
        }
    }
}
