//! Converts a history to its documents.

use std::sync::Arc;

use indexmap::IndexSet;
use trainmon_core::{Alert, layer_of};

use crate::axis::Axis;
use crate::curve::Curve;
use crate::curves;
use crate::document::{
    AxisDocument, AxisState, Cursor, CurveDocument, HeatMap, KindDocument, Overview, Tables, Tail, TensorState, VERSION,
};
use crate::history::History;
use crate::level::far_deviations;
use crate::rows::{Row, statistics_of};

/// The number of rows in the table of the worst tensors: a screenful.
const MAX_WORST: usize = 40;
/// The number of rows in the table of the update ratios.
const MAX_RATIOS: usize = 10;
/// The kind whose largest values have their own table.
const UPDATE_RATIO: &str = "update_ratio";

impl History {
    /// Everything except the heat maps. Cost: a pass over all curves and rows (`benches/history.rs`).
    pub fn overview(&self) -> Overview {
        Overview {
            version: VERSION,
            cursor: self.cursor(),
            steps: axis_document(&self.steps, 0),
            curves: self.curves_from(0),
            curves_left_out: self.curves_left_out,
            tables: self.tables(),
            alerts: self.alerts_from(0),
            alerts_seen: self.alerts_seen,
            alerts_begun: self.alerts_begun,
        }
    }

    /// The changes since a reader's cursor; `None` if bins have changed their places since: read [`History::overview`]
    /// again.
    pub fn since(&self, cursor: Cursor) -> Option<Tail> {
        let axis = &self.steps;
        if cursor.generation != axis.generation() || cursor.bins > axis.bins().len() || cursor.alerts > self.alerts_seen
        {
            return None;
        }
        Some(Tail {
            version: VERSION,
            cursor: self.cursor(),
            steps: axis_document(axis, cursor.bins),
            curves: self.curves_from(cursor.bins),
            tables: self.tables(),
            alerts: self.alerts_from(cursor.alerts),
            alerts_seen: self.alerts_seen,
            alerts_begun: self.alerts_begun,
        })
    }

    /// One statistic of one kind, from a column on: 0 for all columns. `None` for a kind without rows, or a statistic
    /// that its rows do not have.
    ///
    /// Cost: a pass over its values and names (`benches/history.rs`).
    pub fn heat_map(&self, kind: &str, statistic: &str, from: usize) -> Option<HeatMap> {
        let statistic_index = statistics_of(kind).iter().position(|&name| name == statistic)?;
        let kind_index = self.rows.kinds().iter().position(|name| **name == *kind)?;
        let rows = || self.rows.all().iter().filter(|row| usize::from(row.kind) == kind_index);
        let columns = axis_document(&self.columns, from);
        let end = self.columns.bins().len();
        let mut values = Vec::with_capacity(rows().count() * columns.first.len());
        rows().for_each(|row| values.extend(row.values(statistic_index, columns.from, end)));
        // In the order of their first rows.
        let mut layers = IndexSet::new();
        let is_whole = columns.from == 0;
        let layer_of = if is_whole {
            rows().map(|row| layers.insert_full(layer_of(&row.name)).0 as u32).collect()
        } else {
            Vec::new()
        };
        Some(HeatMap {
            version: VERSION,
            kind: kind.to_owned(),
            statistic: statistic.to_owned(),
            names: if is_whole { rows().map(|row| row.name.to_string()).collect() } else { Vec::new() },
            layers: layers.into_iter().map(str::to_owned).collect(),
            layer_of,
            rows: rows().count(),
            columns,
            values,
        })
    }

    fn cursor(&self) -> Cursor {
        Cursor {
            generation: self.steps.generation(),
            // The last bin may still change.
            bins: self.steps.bins().len().saturating_sub(1),
            alerts: self.alerts_seen,
        }
    }

    /// The kept alerts from a number on.
    fn alerts_from(&self, first: u64) -> Vec<Alert> {
        self.alerts.iter().filter(|(number, _)| *number >= first).map(|(_, alert)| alert.clone()).collect()
    }

    fn curves_from(&self, from: usize) -> Vec<CurveDocument> {
        let end = self.steps.bins().len();
        let from = from.min(end);
        let is_merged = self.steps.width() > 1;
        let document = |(name, curve): (&Arc<str>, &Curve)| CurveDocument {
            name: name.to_string(),
            last: curve.last(from, end),
            low: if is_merged { curve.low(from, end) } else { Vec::new() },
            high: if is_merged { curve.high(from, end) } else { Vec::new() },
            broken: if is_merged { curve.broken(from, end) } else { Vec::new() },
        };
        self.curves.iter().map(document).collect()
    }

    fn tables(&self) -> Tables {
        let rows = self.rows.all();
        let mut counts = vec![0; self.rows.kinds().len()];
        for row in rows {
            counts[usize::from(row.kind)] += 1;
        }
        let kind = |(name, &rows): (&Arc<str>, &usize)| KindDocument {
            name: name.to_string(),
            statistics: statistics_of(name).iter().map(|&name| name.to_owned()).collect(),
            rows,
        };
        let distance = |row: &Row| {
            let (_, value) = row.level.newest()?;
            let deviations = row.level.deviations().abs();
            Some(if value.is_finite() { deviations } else { f32::INFINITY }).filter(|&distance| distance > 0.0)
        };
        let ratio = |row: &Row| {
            let is_ratio = *self.rows.kinds()[usize::from(row.kind)] == *UPDATE_RATIO;
            let (_, value) = row.level.newest().filter(|_| is_ratio)?;
            Some(if value.is_nan() { f32::INFINITY } else { value })
        };
        Tables {
            kinds: self.rows.kinds().iter().zip(&counts).map(kind).collect(),
            rows_left_out: self.rows.left_out(),
            columns: axis_state(&self.columns),
            worst: self.largest(MAX_WORST, distance),
            update_ratios: self.largest(MAX_RATIOS, ratio),
            far_deviations: self.far_deviations(),
            labels: self.labels(),
        }
    }

    /// The threshold for all rows over all measured steps.
    fn far_deviations(&self) -> f64 {
        let steps = self.columns.bins().len() as f64 * self.columns.width() as f64;
        far_deviations(self.rows.all().len() as f64 * steps)
    }

    fn labels(&self) -> Vec<String> {
        let names = self.curves.keys().map(|name| &**name);
        names.filter(|name| curves::is_label(name)).map(str::to_owned).collect()
    }

    /// The rows with the largest scores, largest first; equal ones in the order of their creation.
    fn largest(&self, most: usize, score: impl Fn(&Row) -> Option<f32>) -> Vec<TensorState> {
        let scored = self.rows.all().iter().enumerate().filter_map(|(index, row)| Some((score(row)?, index)));
        let mut scored: Vec<(f32, usize)> = scored.collect();
        let order = |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if scored.len() > most {
            scored.select_nth_unstable_by(most, order);
            scored.truncate(most);
        }
        scored.sort_unstable_by(order);
        scored.iter().filter_map(|&(_, index)| self.tensor_state(&self.rows.all()[index])).collect()
    }

    fn tensor_state(&self, row: &Row) -> Option<TensorState> {
        let (step, value) = row.level.newest()?;
        Some(TensorState {
            kind: self.rows.kinds()[usize::from(row.kind)].to_string(),
            name: row.name.to_string(),
            layer: layer_of(&row.name).to_owned(),
            step,
            value: f64::from(value),
            usual: row.level.usual(),
            deviations: f64::from(row.level.deviations()),
        })
    }
}

fn axis_state(axis: &Axis) -> AxisState {
    AxisState { generation: axis.generation(), width: axis.width(), bins: axis.bins().len() }
}

fn axis_document(axis: &Axis, from: usize) -> AxisDocument {
    let from = from.min(axis.bins().len());
    let bins = &axis.bins()[from..];
    AxisDocument {
        state: axis_state(axis),
        from,
        first: bins.iter().map(|bin| bin.first).collect(),
        last: bins.iter().map(|bin| bin.last).collect(),
        time: bins.iter().map(|bin| bin.time).collect(),
    }
}
