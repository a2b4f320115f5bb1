//! Chooses the column of each role: named columns first, then guesses.

use trainmon_report::{first_of, quoted};

use crate::columns::{ColumnNames, Guess, Role, guess};
use crate::detect::Found;
use crate::error::LogError;
use crate::format::LogFormat;
use crate::log::{LogColumns, PickedColumn};
use crate::raw::{RawLog, RawRow};
use crate::roles::{Roles, since_1970, whole};

/// The number of names listed in a sentence.
const SHOWN: usize = 8;

/// Remarks and warnings about guessed columns.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    pub(crate) warnings: Vec<String>,
    pub(crate) remarks: Vec<String>,
}

/// Chooses the column of each role.
pub(crate) struct Picker<'a> {
    pub(crate) found: &'a Found,
    pub(crate) raw: &'a RawLog,
    pub(crate) counts: &'a [u64],
}

impl Picker<'_> {
    pub(crate) fn pick(&self, names: &ColumnNames, said: &mut Doubts) -> Result<(Roles, LogColumns), LogError> {
        let (mut roles, mut columns) = (Roles::default(), LogColumns::default());
        let has_own_step = self.raw.rows.iter().any(|row| row.step.is_some());
        match names.step.as_deref() {
            Some(ColumnNames::ROW) if self.raw.find(ColumnNames::ROW).is_none() => roles.step = None,
            Some(name) => {
                let column = self.named(name)?;
                self.check_steps(column)?;
                (roles.step, columns.step) = (Some(column), Some(self.picked(column, false)));
            }
            None if has_own_step => columns.step = Some(self.own_step()),
            None => {
                if let Some(Guess { column, doubt }) = guess(Role::Step, &self.raw.names, self.counts, &[]) {
                    match self.check_steps(column) {
                        Ok(()) => {
                            (roles.step, columns.step) = (Some(column), Some(self.picked(column, true)));
                            said.remarks.extend(doubt);
                        }
                        Err(error) => said.warnings.push(format!("numbering the rows instead: {error}")),
                    }
                }
            }
        }
        let mut taken: Vec<u32> = roles.step.into_iter().collect();
        let named =
            [(Role::Loss, &names.loss), (Role::GradNorm, &names.grad_norm), (Role::LearningRate, &names.learning_rate)];
        for (_, name) in &named {
            taken.extend(name.as_deref().map(|name| self.named(name)).transpose()?);
        }
        for (role, name) in named {
            let (column, is_guessed) = match name {
                Some(name) => (self.named(name)?, false),
                None => match guess(role, &self.raw.names, self.counts, &taken) {
                    Some(Guess { column, doubt }) => {
                        said.warnings.extend(doubt);
                        (column, true)
                    }
                    None => continue,
                },
            };
            taken.push(column);
            let (place, picked) = match role {
                Role::Loss => (&mut roles.loss, &mut columns.loss),
                Role::GradNorm => (&mut roles.grad_norm, &mut columns.grad_norm),
                Role::LearningRate | Role::Step | Role::Time => (&mut roles.learning_rate, &mut columns.learning_rate),
            };
            (*place, *picked) = (Some(column), Some(self.picked(column, is_guessed)));
        }
        while let Some(Guess { column, .. }) = guess(Role::Time, &self.raw.names, self.counts, &taken) {
            if self.has_times(column) {
                roles.time = Some(column);
                break;
            }
            taken.push(column);
        }
        Ok((roles, columns))
    }

    fn picked(&self, column: u32, is_guessed: bool) -> PickedColumn {
        let (name, values) = (self.raw.names[column as usize].clone(), self.counts[column as usize]);
        // The format defines these names.
        PickedColumn { name, is_guessed: is_guessed && self.found.format != LogFormat::TrainerState, values }
    }

    /// The step that the format stores with each number.
    fn own_step(&self) -> PickedColumn {
        let name = match self.found.format {
            LogFormat::Megatron => "iteration",
            _ => "step",
        };
        PickedColumn { name: name.to_owned(), is_guessed: false, values: self.raw.rows.len() as u64 }
    }

    /// The column of that name, ignoring case.
    fn named(&self, name: &str) -> Result<u32, LogError> {
        let in_any_case = || {
            let mut all = (0..).zip(&self.raw.names).filter(|(_, other)| other.eq_ignore_ascii_case(name));
            all.next().map(|(column, _)| column).filter(|_| all.next().is_none())
        };
        let column = self.raw.find(name).or_else(in_any_case);
        let path = || self.found.file.clone();
        match column {
            Some(column) if self.counts[column as usize] > 0 => Ok(column),
            Some(column) => {
                let first = self.raw.unread.get(&column).and_then(|cells| cells.first.clone());
                let found = first.map_or_else(
                    || "the column is empty".to_owned(),
                    |(text, place)| format!("the first cell is `{text}` in {} {place}", self.found.format.row()),
                );
                Err(LogError::NoNumbersIn { path: path(), name: name.to_owned(), found })
            }
            None => Err(LogError::NoSuchColumn {
                path: path(),
                name: name.to_owned(),
                found: self.listed(),
                hint: self.similar(name),
            }),
        }
    }

    /// The columns with numbers, for a sentence.
    fn listed(&self) -> String {
        let numbers = self.raw.names.iter().zip(self.counts).filter(|(_, count)| **count > 0);
        let names: Vec<String> = numbers.map(|(name, _)| quoted(name)).collect();
        if names.is_empty() { "no column with numbers".to_owned() } else { first_of(names.into_iter(), SHOWN) }
    }

    fn similar(&self, name: &str) -> String {
        let distance = |other: &&String| strsim::damerau_levenshtein(&name.to_lowercase(), &other.to_lowercase());
        let nearest = self.raw.names.iter().min_by_key(distance).filter(|other| distance(other) <= name.len() / 2);
        nearest.map_or_else(|| "use one of these names".to_owned(), |other| format!("did you mean `{other}`?"))
    }

    /// Whether a column holds times since 1970 and not since the run's start.
    fn has_times(&self, column: u32) -> bool {
        let mut cells = self.raw.rows.iter().flat_map(|row| &row.cells).filter(|(of, _)| *of == column);
        cells.all(|(_, value)| since_1970(*value).is_some())
    }

    fn check_steps(&self, column: u32) -> Result<(), LogError> {
        let cells = self.raw.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
        let is_wrong = |(_, (of, value)): &(&RawRow, &(u32, f64))| *of == column && whole(*value).is_none();
        match cells.filter(|(_, (of, _))| *of == column).find(is_wrong) {
            None => Ok(()),
            Some((row, (_, value))) => Err(LogError::NotSteps {
                path: self.found.file.clone(),
                name: self.raw.names[column as usize].clone(),
                found: format!("{value} in {} {}", self.found.format.row(), row.place),
            }),
        }
    }

    pub(crate) fn no_numbers(&self, without_step: u64, columns: &LogColumns) -> LogError {
        let hint = match &columns.step {
            Some(PickedColumn { name, .. }) if without_step > 0 => {
                format!(
                    "no row has a step in `{name}`: name another column with `--step`, or count the rows with `--step row`"
                )
            }
            _ => match self.raw.unread.iter().find_map(|(column, cells)| Some((column, cells.first.as_ref()?))) {
                Some((column, (text, place))) => format!(
                    "column `{}` has `{text}` instead of a number in {} {place}",
                    self.raw.names[*column as usize],
                    self.found.format.row()
                ),
                None => "try again after the training has logged its first step".to_owned(),
            },
        };
        LogError::NoNumbers { path: self.found.file.clone(), hint }
    }
}
