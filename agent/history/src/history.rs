//! The history of a run, step by step.

use std::collections::VecDeque;
use std::sync::Arc;

use indexmap::IndexMap;
use trainmon_core::{Alert, AlertPhase};

use crate::axis::Axis;
use crate::curve::Curve;
use crate::curves;
use crate::rows::{Cell, RowId, Rows};

/// The limits of a [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of bins of the curves.
    pub steps: usize,
    /// The number of curves for the script's own numbers; further ones are counted and not kept. The built-in curves do
    /// not count.
    pub curves: usize,
    /// The number of columns of the heat maps.
    pub columns: usize,
    /// The number of rows of the heat maps over all kinds; further ones are counted and not kept.
    pub rows: usize,
    /// The number of newest alerts.
    pub alerts: usize,
}

impl Default for Limits {
    /// A screen is about 2,000 pixels wide: 200 columns can be distinguished. 8,192 rows fit a model of 1,000 tensors
    /// with eight kinds of measurements.
    fn default() -> Self {
        Self { steps: 2048, curves: 128, columns: 192, rows: 8192, alerts: 256 }
    }
}

/// A curve, for [`History::record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CurveId(usize);

/// The history of a run: curves, rows of heat maps, alerts.
///
/// [`History::step`] opens steps in order; after that, values may arrive in any order. When an axis is full, its
/// neighbours are merged: a curve keeps the smallest, largest and newest value, a row the largest.
///
/// Memory with the limits of [`Limits::default`]: 19 MB for the rows (8192 x 192 columns x 12 B), 9 MB for the curves
/// (138 x 2048 bins x 32 B), plus names and alerts. It is allocated as rows and curves are added: 148 parameters with
/// six kinds of measurements take 2 MB.
#[derive(Debug)]
pub struct History {
    pub(crate) limits: Limits,
    /// The axis of the curves.
    pub(crate) steps: Axis,
    /// The axis of the rows: the steps in which tensors were measured.
    pub(crate) columns: Axis,
    pub(crate) curves: IndexMap<Arc<str>, Curve>,
    scalar_curves: usize,
    pub(crate) curves_left_out: u64,
    pub(crate) rows: Rows,
    /// The alerts with their numbers, from 0.
    pub(crate) alerts: VecDeque<(u64, Alert)>,
    /// The number of alerts so far.
    pub(crate) alerts_seen: u64,
    /// The number of these that begin.
    pub(crate) alerts_begun: u64,
}

impl History {
    /// An empty history.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            steps: Axis::new(limits.steps),
            columns: Axis::new(limits.columns),
            curves: IndexMap::new(),
            scalar_curves: 0,
            curves_left_out: 0,
            rows: Rows::new(limits.rows),
            alerts: VecDeque::new(),
            alerts_seen: 0,
            alerts_begun: 0,
        }
    }

    /// Opens a step that ended at `time` (Unix seconds; 0 if unknown). If tensors were `measured` in it, the heat maps
    /// get a column for it.
    ///
    /// A step that is not after the newest means that the run was resumed before it: later steps are removed. If bins
    /// hold several steps, a bin that began before it stays unchanged.
    ///
    /// Cost: two bins; in a step that merges, a pass over all rows and curves.
    pub fn step(&mut self, step: u64, time: f64, measured: bool) {
        let change = self.steps.push(step, time);
        self.curves.values_mut().for_each(|curve| curve.follow(change));
        if measured {
            let change = self.columns.push(step, time);
            self.rows.follow(change);
        } else if change.truncated_to.is_some() {
            // No tensor is measured in this step: earlier measurements of it and of later steps are removed
            // nevertheless.
            let change = self.columns.go_back(step);
            self.rows.follow(change);
        }
        if change.truncated_to.is_some() {
            self.rows.resume(step);
        }
    }

    /// The axis of the curves.
    pub fn steps(&self) -> &Axis {
        &self.steps
    }

    /// The axis of the heat maps.
    pub fn columns(&self) -> &Axis {
        &self.columns
    }

    /// The curve with that name, created if necessary; look it up once and keep the id. `None` above the limit, which
    /// is counted: the built-in curves ([`curves::BUILT_IN`]) always fit.
    pub fn curve(&mut self, name: &str) -> Option<CurveId> {
        if let Some(index) = self.curves.get_index_of(name) {
            return Some(CurveId(index));
        }
        let is_built_in = curves::BUILT_IN.contains(&name);
        if !is_built_in && self.scalar_curves >= self.limits.curves {
            self.curves_left_out += 1;
            return None;
        }
        self.scalar_curves += usize::from(!is_built_in);
        let (index, _) = self.curves.insert_full(name.into(), Curve::default());
        Some(CurveId(index))
    }

    /// Adds a value to a curve. Returns false if the step is not on the axis.
    pub fn record(&mut self, curve: CurveId, step: u64, value: f64) -> bool {
        let Some(bin) = self.steps.bin_of(step) else { return false };
        let Some((_, curve)) = self.curves.get_index_mut(curve.0) else { return false };
        curve.add(bin, value);
        true
    }

    /// The row of a tensor, created if necessary; look it up once and keep the id. `None` for a kind without rows
    /// ([`statistics_of`](crate::statistics_of)) and above the limit, which is counted.
    pub fn row(&mut self, kind: &str, name: &str) -> Option<RowId> {
        self.rows.row(kind, name, self.columns.capacity())
    }

    /// Adds a tensor's values. Within a column the larger value is kept, with NaN as the largest. Returns false if the
    /// step has no column.
    ///
    /// Cost: a comparison per statistic, a logarithm and its mean (`benches/history.rs`).
    pub fn set(&mut self, row: RowId, step: u64, cell: Cell) -> bool {
        let Some(column) = self.columns.bin_of(step) else { return false };
        self.rows.set(row, step, column, cell);
        true
    }

    /// Adds an alert. If there is no space, removes the oldest alert that has ended, or else the oldest.
    ///
    /// Cost: without space, a comparison of rules and series for each pair of alerts.
    pub fn alert(&mut self, alert: Alert) {
        if self.alerts.len() >= self.limits.alerts {
            let leaves = self.oldest_over(&alert).unwrap_or(0);
            self.alerts.remove(leaves);
        }
        let number = self.alerts_seen;
        self.alerts_seen += 1;
        self.alerts_begun += u64::from(alert.phase == AlertPhase::Begins);
        self.alerts.push_back((number, alert));
    }

    /// The oldest alert that does not affect the current state: one that has ended, possibly with `newest`, or the end
    /// of an alert that was removed.
    fn oldest_over(&self, newest: &Alert) -> Option<usize> {
        let ends_it = |begin: &Alert, end: &Alert| {
            end.phase == AlertPhase::Ends
                && (end.rule, end.rank) == (begin.rule, begin.rank)
                && end.series == begin.series
        };
        self.alerts.iter().enumerate().position(|(index, (_, alert))| match alert.phase {
            // The begin of this alert was removed, or precedes it and was found first.
            AlertPhase::Ends => true,
            AlertPhase::Begins => {
                let mut later = self.alerts.iter().skip(index + 1).map(|(_, later)| later).chain([newest]);
                later.any(|later| ends_it(alert, later))
            }
        })
    }
}
