//! Writes records as lines with the `csv` crate, which quotes cells where necessary and refuses rows of unequal length.

use std::fmt::Display;
use std::io::Write;

use trainmon_core::config::Dialect;
use trainmon_core::{
    CallsColumn, Kind, Reading, Record, Scalar, Statistic, Step, StepCalls, TensorInfo, TensorStats, cell_of,
};

use crate::columns::Columns;
use crate::kinds::scope_of;
use crate::number::{push_float, round_decimals};

/// How numbers and names are written.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The layout.
    pub dialect: Dialect,
    /// Decimals to which numbers are rounded, if any.
    pub ndigits: Option<u32>,
    /// Whether the model is split into chunks; if not, V2 writes -1.
    pub has_chunks: bool,
}

/// Lines of one file.
pub struct Lines {
    csv: csv::Writer<Vec<u8>>,
    cell: Vec<u8>,
    style: Style,
}

impl Lines {
    /// Starts without lines.
    pub fn new(style: Style) -> Self {
        let csv = csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(Vec::new());
        Self { csv, cell: Vec::new(), style }
    }

    /// The complete lines written so far.
    ///
    /// # Errors
    /// A cell cannot be written.
    pub fn into_bytes(self) -> Result<Vec<u8>, csv::Error> {
        self.csv.into_inner().map_err(|error| csv::Error::from(std::io::Error::from(error.error().kind())))
    }

    /// Adds one record.
    ///
    /// # Errors
    /// A cell cannot be written.
    pub fn push(
        &mut self,
        columns: &Columns,
        step: Step,
        info: &TensorInfo,
        record: &Record,
    ) -> Result<(), csv::Error> {
        self.start(columns, step, info, record)?;
        let reading = record.reading.as_ref();
        for column in 0..columns.values.len() {
            let value = reading.and_then(|reading| reading.values().get(column).copied()).unwrap_or(f64::NAN);
            // A script's numbers are written unrounded, like the loss.
            if record.kind == Kind::Scalar { self.exact(value)? } else { self.number(value)? }
        }
        if columns.values.is_empty() {
            self.statistics(columns, reading.and_then(Reading::tensor))?;
        }
        self.shape_and_dtype(columns, reading)?;
        self.csv.write_record(None::<&[u8]>)
    }

    /// Adds all calls of a collective operation in this step, or of one of its arguments.
    ///
    /// # Errors
    /// A cell cannot be written.
    pub fn push_calls(
        &mut self,
        columns: &Columns,
        step: Step,
        info: &TensorInfo,
        calls: &StepCalls<'_>,
    ) -> Result<(), csv::Error> {
        let record = calls.record();
        self.start(columns, step, info, &record)?;
        let reading = record.reading.as_ref();
        for column in 0..columns.values.len() {
            let value = reading.and_then(|reading| reading.values().get(column).copied());
            self.number(value.unwrap_or(f64::NAN))?;
        }
        for &column in columns.calls {
            let number = calls.number(column);
            if column == CallsColumn::Calls { self.count(number as u64)? } else { self.number(number)? }
        }
        if let (true, Some(stats)) = (columns.values.is_empty(), reading.and_then(Reading::tensor)) {
            for &op in &columns.ops {
                match op {
                    Statistic::Min | Statistic::Max | Statistic::Nans | Statistic::Infs | Statistic::Count => {
                        self.statistic(stats, op)?;
                    }
                    _ if calls.count() == 1 => self.statistic(stats, op)?,
                    _ => self.number(calls.statistic(op))?,
                }
            }
        }
        if columns.shape {
            self.known(calls.shape())?;
        }
        if columns.dtype {
            self.known(calls.dtype())?;
        }
        self.csv.write_record(None::<&[u8]>)
    }

    fn known(&mut self, value: Option<impl Display>) -> Result<(), csv::Error> {
        match value {
            Some(value) => self.display(value),
            None => self.missing(),
        }
    }

    /// Writes the columns that identify a row.
    fn start(&mut self, columns: &Columns, step: Step, info: &TensorInfo, record: &Record) -> Result<(), csv::Error> {
        match self.style.dialect {
            Dialect::V1 => {
                self.display(info.vpp_stage)?;
                self.text(&info.name)?;
                self.display(step)?;
                if columns.micro_step {
                    self.display(record.micro_step)?;
                }
            }
            Dialect::V2 => {
                self.display(if self.style.has_chunks { i64::from(info.vpp_stage) } else { -1 })?;
                self.display(step)?;
                self.v2_name_and_scope(info, record.kind)?;
                if columns.micro_step {
                    self.display(record.micro_step.0 + 1)?;
                }
            }
        }
        Ok(())
    }

    fn v2_name_and_scope(&mut self, info: &TensorInfo, kind: Kind) -> Result<(), csv::Error> {
        let scope = scope_of(kind);
        if kind.is_moment() {
            self.display(format_args!("{}.{scope}", cell_of(&info.name)))?;
        } else {
            self.text(&info.name)?;
        }
        self.display(scope)
    }

    fn statistics(&mut self, columns: &Columns, reading: Option<&TensorStats>) -> Result<(), csv::Error> {
        for &op in &columns.ops {
            match reading {
                Some(reading) => self.statistic(reading, op)?,
                None => self.missing()?,
            }
        }
        Ok(())
    }

    fn shape_and_dtype(&mut self, columns: &Columns, reading: Option<&Reading>) -> Result<(), csv::Error> {
        if columns.shape {
            match reading {
                Some(reading) => self.display(reading.shape())?,
                None => self.missing()?,
            }
        }
        if columns.dtype {
            match reading {
                Some(reading) => self.display(reading.dtype())?,
                None => self.missing()?,
            }
        }
        Ok(())
    }

    fn statistic(&mut self, reading: &TensorStats, op: Statistic) -> Result<(), csv::Error> {
        match op {
            Statistic::Min => self.scalar(reading.min),
            Statistic::Max => self.scalar(reading.max),
            Statistic::Id => match reading.id() {
                Some(value) => self.scalar(value),
                None => self.missing(),
            },
            Statistic::Crc32 => self.display(format_args!("{:08x}", reading.crc32)),
            Statistic::Xor64 => self.display(format_args!("{:#018x}", reading.xor64)),
            Statistic::Nans => self.count(reading.nans),
            Statistic::Infs => self.count(reading.infs),
            Statistic::Count => self.count(reading.count),
            Statistic::Mean | Statistic::Norm | Statistic::AbsMax | Statistic::Std | Statistic::Zeros => {
                self.number(reading.value(op))
            }
        }
    }

    fn scalar(&mut self, value: Scalar) -> Result<(), csv::Error> {
        match (self.style.dialect, value) {
            (Dialect::V2, value) => self.number(value.as_f64()),
            (Dialect::V1, Scalar::Float(value)) => self.number(value),
            (Dialect::V1, Scalar::Int(value)) => self.display(value),
            (Dialect::V1, Scalar::UInt(value)) => self.display(value),
            (Dialect::V1, Scalar::Bool(value)) => self.display(if value { "True" } else { "False" }),
        }
    }

    /// V1 prints counts as integers, V2 as floats.
    fn count(&mut self, count: u64) -> Result<(), csv::Error> {
        match self.style.dialect {
            Dialect::V1 => self.display(count),
            Dialect::V2 => self.number(count as f64),
        }
    }

    fn number(&mut self, value: f64) -> Result<(), csv::Error> {
        self.exact(self.style.ndigits.map_or(value, |ndigits| round_decimals(value, ndigits)))
    }

    fn exact(&mut self, value: f64) -> Result<(), csv::Error> {
        self.cell.clear();
        push_float(&mut self.cell, value);
        self.csv.write_field(&self.cell)
    }

    fn display(&mut self, value: impl Display) -> Result<(), csv::Error> {
        self.cell.clear();
        write!(self.cell, "{value}")?;
        self.csv.write_field(&self.cell)
    }

    /// Writes a name without interpreting its first character.
    fn text(&mut self, text: &str) -> Result<(), csv::Error> {
        self.csv.write_field(cell_of(text).as_bytes())
    }

    fn missing(&mut self) -> Result<(), csv::Error> {
        self.csv.write_field("nan")
    }
}
