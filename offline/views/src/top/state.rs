//! What the screen shows, and what the user has chosen.

use std::time::{Duration, Instant};

use trainmon_history::{RunDocument, TensorState};

use super::error::TopError;
use super::source::SourceUpdate;

/// What the table of tensors is sorted by.
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

/// What keys are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The table of tensors.
    Table,
    /// The text of the filter.
    Filter,
    /// Any key ends the help.
    Help,
    /// Nothing any more.
    Leaving,
}

/// All of it.
pub(super) struct State {
    pub(super) run: Option<Box<RunDocument>>,
    /// Why the run is not read now.
    pub(super) trouble: Option<String>,
    /// When the run was last read.
    learnt: Option<Instant>,
    /// What the screen says of that.
    pub(super) age_seconds: u64,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// The first row of the table that is shown, and the one that is marked.
    pub(super) first: usize,
    pub(super) selected: usize,
    pub(super) has_colours: bool,
    /// Without keys: one frame.
    pub(super) is_plain: bool,
}

impl State {
    pub(super) fn new(has_colours: bool) -> Self {
        Self {
            run: None,
            trouble: None,
            learnt: None,
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

    /// Takes news in.
    ///
    /// # Errors
    /// The run will never be read.
    pub(super) fn learn(&mut self, news: SourceUpdate) -> Result<(), TopError> {
        match news {
            SourceUpdate::Run(run) => {
                self.run = Some(run);
                (self.trouble, self.learnt, self.age_seconds) = (None, Some(Instant::now()), 0);
            }
            SourceUpdate::Trouble(why) => self.trouble = Some(why),
            SourceUpdate::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Counts the seconds since the run was read; whether the screen has to say another number.
    pub(super) fn tick(&mut self) -> bool {
        let age = self.learnt.map_or(Duration::ZERO, |learnt| learnt.elapsed()).as_secs();
        std::mem::replace(&mut self.age_seconds, age) != age
    }

    /// The tensors that stand out, those that the filter lets through, sorted.
    pub(super) fn tensors(&self) -> Vec<&TensorState> {
        let Some(run) = &self.run else { return Vec::new() };
        let filter = self.filter.to_lowercase();
        let is_shown = |tensor: &&TensorState| {
            filter.is_empty() || tensor.name.to_lowercase().contains(&filter) || tensor.kind.contains(&filter)
        };
        let mut tensors: Vec<&TensorState> = run.overview.tables.worst.iter().filter(is_shown).collect();
        match self.sort {
            // As they come.
            Sort::Deviation => {}
            Sort::Value => tensors.sort_by(|a, b| b.value.total_cmp(&a.value)),
            Sort::Name => tensors.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.kind.cmp(&b.kind))),
        }
        tensors
    }

    /// Marks another row.
    pub(super) fn select(&mut self, by: isize) {
        let last = self.tensors().len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    pub(super) fn sort_next(&mut self) {
        self.sort = self.sort.next();
        (self.first, self.selected) = (0, 0);
    }

    /// Keeps the marked row on a table of so many rows.
    pub(super) fn scroll(&mut self, rows: usize) {
        self.select(0);
        self.first = self.first.min(self.selected);
        if rows > 0 && self.selected >= self.first + rows {
            self.first = self.selected + 1 - rows;
        }
    }
}
