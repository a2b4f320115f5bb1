//! Converts a row's cells to the reading that was written.

use trainmon_core::{Dtype, Kind, Reading, Scalar, Shape, Statistic, StatisticSet, TensorStats, Values};

use crate::error::RunError;
use crate::rows::{MonitorRow, RowLayout};
use crate::table::Row;

/// The assumed number of elements for shares of elements if the file does not contain the number.
pub const UNKNOWN_ELEMENTS: u64 = 1 << 30;

/// The number columns of one file, by their meaning.
#[derive(Debug)]
pub struct NumberColumns {
    statistics: Vec<(usize, Statistic)>,
    /// Columns named in [`Kind::value_columns`].
    named: Vec<(usize, String)>,
    /// Whether rows contain the number of elements.
    has_elements: bool,
}

impl NumberColumns {
    /// The columns of a table.
    pub fn of(layout: &RowLayout) -> Self {
        let statistic = |(place, name): &(usize, String)| Some((*place, Statistic::from_name(name)?));
        let statistics: Vec<_> = layout.values.iter().filter_map(statistic).collect();
        let has_elements = layout.has_shape() || statistics.iter().any(|(_, of)| *of == Statistic::Count);
        Self { statistics, named: layout.values.clone(), has_elements }
    }

    /// The statistics that the file has columns for, in their order.
    pub fn ops(&self) -> Vec<Statistic> {
        self.statistics.iter().map(|&(_, statistic)| statistic).collect()
    }

    /// The statistics that allow a summary over several tensors.
    pub fn measured(&self) -> StatisticSet {
        let own: StatisticSet = self.statistics.iter().map(|&(_, statistic)| statistic).collect();
        let has_extremes = own.contains(Statistic::Min) && own.contains(Statistic::Max);
        let with_abs_max = if has_extremes { own.with(Statistic::AbsMax) } else { own };
        // Without numbers of elements, neither means nor shares can be combined.
        let needs_elements = |statistic: &Statistic| matches!(statistic, Statistic::Mean | Statistic::Zeros);
        with_abs_max.iter().filter(|statistic| self.has_elements || !needs_elements(statistic)).collect()
    }

    /// The reading in a row.
    ///
    /// # Errors
    /// A cell is not a number.
    pub fn reading(&self, kind: Kind, of: &MonitorRow<'_>, row: &Row<'_>) -> Result<Option<Reading>, RunError> {
        if of.is_empty {
            return Ok(None);
        }
        let dtype = of.dtype.and_then(Dtype::from_torch_name).unwrap_or(Dtype::F32);
        let plain = kind.value_columns();
        if plain.is_empty() {
            return Ok(Some(self.stats(dtype, of, row)?.into()));
        }
        let mut numbers = [f64::NAN; Values::MOST];
        for (number, column) in numbers.iter_mut().zip(plain) {
            if let Some((place, _)) = self.named.iter().find(|(_, name)| name == column) {
                *number = row.number(*place)?;
            }
        }
        Ok(Some(Values::with_dtype(dtype, &numbers[..plain.len().min(Values::MOST)]).into()))
    }

    fn stats(&self, dtype: Dtype, of: &MonitorRow<'_>, row: &Row<'_>) -> Result<TensorStats, RunError> {
        let shape = of.shape.and_then(parse_shape);
        // Statistics without a column stay NaN: they must not look like a measured zero.
        let mut stats = TensorStats { norm: f64::NAN, ..TensorStats::empty(dtype, Shape::default()) };
        let (mut zeros, mut count) = (0.0, shape.map(|shape| shape.elements() as u64));
        for &(place, statistic) in &self.statistics {
            if matches!(statistic, Statistic::Crc32 | Statistic::Xor64 | Statistic::Id) {
                continue;
            }
            let value = row.number(place)?;
            match statistic {
                Statistic::Min => stats.min = Scalar::Float(value),
                Statistic::Max => stats.max = Scalar::Float(value),
                Statistic::Mean => stats.mean = value,
                Statistic::Norm => stats.norm = value,
                Statistic::AbsMax => stats.abs_max = value,
                Statistic::Std => stats.std = value,
                // A value that is not a count becomes the nearest count: a negative one becomes zero.
                Statistic::Nans => stats.nans = value as u64,
                Statistic::Infs => stats.infs = value as u64,
                Statistic::Zeros => zeros = value,
                Statistic::Count => count = Some(value as u64),
                Statistic::Crc32 | Statistic::Xor64 | Statistic::Id => {}
            }
        }
        if stats.abs_max.is_nan()
            && !self.has(Statistic::AbsMax)
            && self.has(Statistic::Min)
            && self.has(Statistic::Max)
        {
            let (min, max) = (stats.min.as_f64().abs(), stats.max.as_f64().abs());
            stats.abs_max = if min.is_nan() || max.is_nan() { f64::NAN } else { min.max(max) };
        }
        stats.count = count.unwrap_or(UNKNOWN_ELEMENTS);
        stats.shape = shape.or_else(|| Shape::new(&[i64::try_from(stats.count).ok()?]).ok()).unwrap_or_default();
        stats.zeros = (zeros * stats.count as f64).round() as u64;
        Ok(stats)
    }

    fn has(&self, statistic: Statistic) -> bool {
        self.statistics.iter().any(|&(_, of)| of == statistic)
    }
}

/// The sizes in `[3, 4]`, with any number of dimensions; `None` if it is not a shape.
pub fn sizes_of(text: &str) -> Option<Vec<i64>> {
    match text.strip_prefix('[')?.strip_suffix(']')?.trim() {
        "" => Some(Vec::new()),
        inside => inside.split(',').map(|size| size.trim().parse().ok()).collect(),
    }
}

/// The shape in `[3, 4]`; `None` if it is not a shape.
fn parse_shape(text: &str) -> Option<Shape> {
    Shape::new(&sizes_of(text)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_as_it_is_printed() {
        for text in ["[]", "[3]", "[3, 4]", "[0, 2]"] {
            assert_eq!(parse_shape(text).map(|shape| shape.to_string()).as_deref(), Some(text));
        }
        for text in ["", "nan", "[a]", "(3,)", "[1, 1, 1, 1, 1, 1, 1, 1, 1]"] {
            assert_eq!(parse_shape(text), None, "{text}");
        }
    }
}
