//! The rows of tables as points, step by step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use csv::StringRecord;
use trainmon_core::Step;
use trainmon_exporters::tensorboard::{
    EventWriter, Histogram, Point, UPDATE_RATIO_HISTOGRAM, UPDATE_RATIO_LEFT_OUT, Value, is_number_column, tensor_tag,
};

use super::facts::StepTimes;
use super::table::{Row, Table};
use super::{ConvertError, ConvertedRun};

/// The file into which msprobe's V1 also writes its collectives, in rows longer than the header.
const MIXED_PREFIX: &str = "other";
const UPDATE_RATIO: &str = "update_ratio";

/// How often progress is told, in rows.
const TELL_EVERY: u64 = 4096;

/// Converts the tables of one prefix: of one kind in V1, of several in V2.
pub(super) struct KindPoints<'a> {
    prefix: &'a str,
    out: &'a Path,
    writers: BTreeMap<String, EventWriter>,
}

/// What a row shows.
struct RowPoints {
    step: u64,
    kind: String,
    /// Tags and values.
    points: Vec<(String, f64)>,
}

/// The points of one step, by kind.
struct StepPoints {
    step: u64,
    by_kind: BTreeMap<String, Vec<(String, f64)>>,
}

/// Where a table has what.
struct Layout {
    vpp_stage: usize,
    step: usize,
    name: usize,
    /// V2: which of the file's kinds a row is of.
    scope: Option<usize>,
    micro_step: Option<usize>,
    shape: Option<usize>,
    dtype: Option<usize>,
    /// Columns of numbers, with their names.
    values: Vec<(usize, String)>,
}

impl<'a> KindPoints<'a> {
    /// For event files below `out`.
    pub(super) fn new(prefix: &'a str, out: &'a Path) -> Self {
        Self { prefix, out, writers: BTreeMap::new() }
    }

    /// Converts one table and gives back how many rows were left out.
    pub(super) fn convert(
        &mut self,
        table: &mut Table,
        times: &StepTimes,
        converted: &mut ConvertedRun,
        tell: &mut dyn FnMut(u64),
    ) -> Result<u64, ConvertError> {
        let layout = Layout::of(table)?;
        let written = table.unix_seconds;
        let mut pending: Option<StepPoints> = None;
        let (mut rows, mut left_out) = (0, 0);
        let mut cells = StringRecord::new();
        loop {
            rows += 1;
            if rows % TELL_EVERY == 0 {
                tell(table.bytes_read());
            }
            let Some(row) = table.next(&mut cells)? else { break };
            let RowPoints { step, kind, points } = match self.points(&layout, &row) {
                Ok(found) => found,
                Err(error) if self.prefix == MIXED_PREFIX && is_of_collective(&error) => {
                    left_out += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if pending.as_ref().is_some_and(|pending| pending.step != step) {
                self.write(pending.take(), times, written, converted)?;
            }
            let pending = pending.get_or_insert_with(|| StepPoints { step, by_kind: BTreeMap::new() });
            pending.by_kind.entry(kind).or_default().extend(points);
        }
        self.write(pending, times, written, converted)?;
        Ok(left_out)
    }

    /// Counts what was written.
    pub(super) fn finish(self, converted: &mut ConvertedRun) {
        for (kind, writer) in self.writers {
            converted.tags += writer.tags();
            converted.kinds.push(kind);
        }
    }

    fn points(&self, layout: &Layout, row: &Row<'_>) -> Result<RowPoints, ConvertError> {
        row.check_length()?;
        let step = row.integer(layout.step)?;
        // -1 is V2's word for a model that is not split, an empty cell that of its collectives.
        let vpp_stage = match row.text(layout.vpp_stage) {
            "" | "-1" => 0,
            _ => row.integer(layout.vpp_stage)?,
        };
        let scope = layout.scope.map(|place| row.text(place));
        let kind = kind_of(self.prefix, scope);
        let mut name = row.text(layout.name);
        if let (Some(scope), "optimizer") = (scope, self.prefix) {
            name = name.strip_suffix(scope).and_then(|name| name.strip_suffix('.')).unwrap_or(name);
        }
        let micro_step = layout.micro_step.map(|place| row.integer(place)).transpose()?;
        // V1 has a row for a hook that was given no tensor.
        let is_empty = layout.dtype.is_some_and(|place| row.text(place) == "nan");
        let has_dimensions = layout.shape.is_none_or(|place| row.text(place) != "[]");
        let mut points = Vec::with_capacity(layout.values.len());
        for (place, column) in &layout.values {
            let value = row.number(*place)?;
            let is_absent = is_empty || (column == "id" && has_dimensions && value.is_nan());
            if !is_absent {
                points.push((tensor_tag(vpp_stage, name, micro_step, column), value));
            }
        }
        Ok(RowPoints { step, kind, points })
    }

    fn write(
        &mut self,
        points: Option<StepPoints>,
        times: &StepTimes,
        written: f64,
        converted: &mut ConvertedRun,
    ) -> Result<(), ConvertError> {
        let Some(StepPoints { step, by_kind }) = points else { return Ok(()) };
        let time = times.of(step).unwrap_or(written);
        for (kind, values) in by_kind {
            let mut points: Vec<Point<'_>> =
                values.iter().map(|(tag, value)| Point { tag, value: Value::Scalar(*value) }).collect();
            if kind == UPDATE_RATIO {
                points.extend(distribution(&values));
            }
            converted.values += points.len() as u64;
            converted.saw(step);
            let directory: PathBuf = self.out.join(&kind);
            let writer = self.writers.entry(kind).or_insert_with(|| EventWriter::new(directory));
            writer.append(time, Step(step), &points)?;
        }
        Ok(())
    }
}

impl Layout {
    fn of(table: &Table) -> Result<Self, ConvertError> {
        let is_v2 = table.place_of("module_name").is_some();
        let (vpp_stage, step) = (table.place("vpp_stage")?, table.place("step")?);
        let name = table.place(if is_v2 { "module_name" } else { "name" })?;
        let scope = if is_v2 { Some(table.place("scope")?) } else { None };
        let [micro_step, shape, dtype] = ["micro_step", "shape", "dtype"].map(|column| table.place_of(column));
        let others = [Some(vpp_stage), Some(step), Some(name), scope, micro_step, shape, dtype];
        let is_value = |(place, column): &(usize, &str)| !others.contains(&Some(*place)) && is_number_column(column);
        let values = table.header().iter().enumerate().filter(is_value);
        let values = values.map(|(place, column)| (place, column.to_owned())).collect();
        Ok(Self { vpp_stage, step, name, scope, micro_step, shape, dtype, values })
    }
}

/// The kind a row is of: what a file of it is called in V1.
fn kind_of(prefix: &str, scope: Option<&str>) -> String {
    let kind = match (prefix, scope) {
        (MIXED_PREFIX, None) => "mg_direction",
        ("module", Some("forward")) => "actv",
        ("module", Some("backward")) => "actv_grad",
        ("weight_grad", Some("unreduced")) => "grad_unreduced",
        ("weight_grad", Some("reduced")) => "grad_reduced",
        ("param" | "optimizer", Some(scope)) if is_directory_name(scope) => scope,
        (prefix, _) => prefix,
    };
    kind.to_owned()
}

/// Whether a row is wrong as msprobe's rows of collectives are: too long, their first cell the operation.
fn is_of_collective(error: &ConvertError) -> bool {
    match error {
        ConvertError::RowLength { .. } => true,
        ConvertError::Cell { column, .. } => column == "vpp_stage",
        _ => false,
    }
}

/// Scopes come out of the file and become directories.
fn is_directory_name(scope: &str) -> bool {
    !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn distribution(values: &[(String, f64)]) -> Vec<Point<'static>> {
    let (histogram, left_out) = Histogram::of_ratios(values.iter().map(|(_, ratio)| *ratio));
    let histogram =
        histogram.map(|histogram| Point { tag: UPDATE_RATIO_HISTOGRAM, value: Value::Histogram(histogram) });
    let left_out = Point { tag: UPDATE_RATIO_LEFT_OUT, value: Value::Scalar(left_out as f64) };
    histogram.into_iter().chain([left_out]).collect()
}
