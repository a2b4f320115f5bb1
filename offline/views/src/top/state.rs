//! The state of the screen and the user's choices.

use std::time::{Duration, Instant};

use trainmon_history::{RunDocument, TensorState};

use super::error::TopError;
use super::source::SourceUpdate;

/// The sort order of the table of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// The farthest from its usual level first.
    Deviation,
    /// The largest first.
    Value,
    /// By name.
    Name,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Deviation => Self::Value,
            Self::Value => Self::Name,
            Self::Name => Self::Deviation,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Deviation => "deviation",
            Self::Value => "value",
            Self::Name => "name",
        }
    }
}

/// The input mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Keys control the table of tensors.
    Table,
    /// Keys edit the filter.
    Filter,
    /// Any key closes the help.
    Help,
    /// The program ends.
    Leaving,
}

/// The state of the screen.
pub(super) struct State {
    pub(super) run: Option<Box<RunDocument>>,
    /// Why the run cannot be read now.
    pub(super) read_error: Option<String>,
    /// The time of the last successful read.
    read_at: Option<Instant>,
    /// The displayed age of the data.
    pub(super) age_seconds: u64,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// The first visible row of the table, and the selected row.
    pub(super) first: usize,
    pub(super) selected: usize,
    pub(super) has_colours: bool,
    /// Whether a single frame is drawn, without keys.
    pub(super) is_plain: bool,
}

impl State {
    pub(super) fn new(has_colours: bool) -> Self {
        Self {
            run: None,
            read_error: None,
            read_at: None,
            age_seconds: 0,
            sort: Sort::Deviation,
            filter: String::new(),
            mode: Mode::Table,
            first: 0,
            selected: 0,
            has_colours,
            is_plain: false,
        }
    }

    /// Applies an update.
    ///
    /// # Errors
    /// The run can never be read.
    pub(super) fn apply(&mut self, update: SourceUpdate) -> Result<(), TopError> {
        match update {
            SourceUpdate::Run(run) => {
                self.run = Some(run);
                (self.read_error, self.read_at, self.age_seconds) = (None, Some(Instant::now()), 0);
            }
            SourceUpdate::Unreadable(why) => self.read_error = Some(why),
            SourceUpdate::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Updates the age of the data; returns whether the displayed number changed.
    pub(super) fn tick(&mut self) -> bool {
        let age = self.read_at.map_or(Duration::ZERO, |read_at| read_at.elapsed()).as_secs();
        std::mem::replace(&mut self.age_seconds, age) != age
    }

    /// The worst tensors that pass the filter, sorted.
    pub(super) fn tensors(&self) -> Vec<&TensorState> {
        let Some(run) = &self.run else { return Vec::new() };
        let filter = self.filter.to_lowercase();
        let is_shown = |tensor: &&TensorState| {
            filter.is_empty() || tensor.name.to_lowercase().contains(&filter) || tensor.kind.contains(&filter)
        };
        let mut tensors: Vec<&TensorState> = run.overview.tables.worst.iter().filter(is_shown).collect();
        match self.sort {
            // Already in this order.
            Sort::Deviation => {}
            Sort::Value => tensors.sort_by(|a, b| b.value.total_cmp(&a.value)),
            Sort::Name => tensors.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.kind.cmp(&b.kind))),
        }
        tensors
    }

    /// Moves the selection.
    pub(super) fn select(&mut self, by: isize) {
        let last = self.tensors().len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    pub(super) fn sort_next(&mut self) {
        self.sort = self.sort.next();
        (self.first, self.selected) = (0, 0);
    }

    /// Keeps the selected row visible in a table of `rows` rows.
    pub(super) fn scroll(&mut self, rows: usize) {
        self.select(0);
        self.first = self.first.min(self.selected);
        if rows > 0 && self.selected >= self.first + rows {
            self.first = self.selected + 1 - rows;
        }
    }
}
