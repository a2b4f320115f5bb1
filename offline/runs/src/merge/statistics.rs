//! Computes the statistics of a tensor from those of its parts.

use trainmon_core::{Scalar, Shape, TensorStats, combine_norms, largest};

/// The merged statistics of a tensor's disjoint parts.
///
/// `min`, `max`, `abs_max` and all counts are exact. `norm`, `mean` and `std` are exact except for the last digits: they are
/// computed in float64 from float64. Without the numbers of elements, `mean`, `std` and shares are NaN. Other values
/// (checksums, single numbers) do not follow from the parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Together {
    whole: TensorStats,
    parts: u32,
    /// The number of elements so far; `None` after a part of unknown size.
    elements: Option<u64>,
    /// The sum of the elements, and the sum of their squared distances from the mean.
    sum: f64,
    squares: f64,
    /// Shares of zeros times elements.
    zeros: f64,
}

impl Together {
    /// Starts with the first part and its number of elements, if known.
    pub(super) fn of(part: &TensorStats, elements: Option<u64>, shape: Shape) -> Self {
        let whole = TensorStats { shape, crc32: 0, xor64: 0, ..*part };
        let mut first = Self { whole, parts: 1, elements: Some(0), sum: 0.0, squares: 0.0, zeros: 0.0 };
        first.count(part, elements);
        first
    }

    /// Adds a part.
    pub(super) fn add(&mut self, part: &TensorStats, elements: Option<u64>) {
        let whole = &mut self.whole;
        whole.min = extreme(whole.min, part.min, f64::min);
        whole.max = extreme(whole.max, part.max, f64::max);
        whole.abs_max = largest(whole.abs_max, part.abs_max);
        whole.norm = combine_norms(whole.norm, part.norm);
        whole.nans += part.nans;
        whole.infs += part.infs;
        self.parts += 1;
        self.count(part, elements);
    }

    fn count(&mut self, part: &TensorStats, elements: Option<u64>) {
        let (Some(before), Some(count)) = (self.elements, elements) else {
            self.elements = None;
            return;
        };
        self.elements = Some(before + count);
        if count == 0 {
            return;
        }
        let (old, new) = (before as f64, count as f64);
        // One element has no deviation.
        self.squares += if count > 1 { part.std * part.std * (new - 1.0) } else { 0.0 };
        if before > 0 {
            let apart = part.mean - self.sum / old;
            self.squares += apart * apart * (old * new / (old + new));
        }
        self.sum += part.mean * new;
        // Shares refer to the number of elements in a reading.
        self.zeros += if part.count == 0 { 0.0 } else { part.zeros as f64 / part.count as f64 * new };
    }

    /// The statistics of the whole tensor.
    pub(super) fn stats(&self) -> TensorStats {
        let mut whole = self.whole;
        if self.parts == 1 {
            return whole;
        }
        let Some(total) = self.elements.filter(|&total| total > 0) else {
            return TensorStats { mean: f64::NAN, std: f64::NAN, ..whole };
        };
        whole.mean = self.sum / total as f64;
        // Elements that are not finite have no distance from their mean.
        let has_deviation = total > 1 && whole.mean.is_finite();
        whole.std = if has_deviation { (self.squares / (total - 1) as f64).sqrt() } else { f64::NAN };
        (whole.zeros, whole.count) = (self.zeros.round() as u64, total);
        whole
    }
}

/// The extreme of two numbers; NaN if either is.
fn extreme(a: Scalar, b: Scalar, of: fn(f64, f64) -> f64) -> Scalar {
    let (one, other) = (a.as_f64(), b.as_f64());
    if one.is_nan() || other.is_nan() {
        return Scalar::Float(f64::NAN);
    }
    // The result keeps the arithmetic of its source.
    if of(one, other).total_cmp(&one).is_eq() { a } else { b }
}

#[cfg(test)]
mod tests {
    use trainmon_core::Dtype;

    use super::*;

    fn of(values: &[f64]) -> (TensorStats, Option<u64>) {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let fold = |start: f64, of: fn(f64, f64) -> f64| values.iter().copied().fold(start, of);
        let stats = TensorStats {
            min: Scalar::Float(fold(f64::INFINITY, f64::min)),
            max: Scalar::Float(fold(f64::NEG_INFINITY, f64::max)),
            abs_max: values.iter().map(|value| value.abs()).fold(0.0, f64::max),
            norm: values.iter().map(|value| value * value).sum::<f64>().sqrt(),
            mean,
            std: (squares / (count - 1.0)).sqrt(),
            zeros: values.iter().filter(|value| **value == 0.0).count() as u64,
            count: values.len() as u64,
            ..TensorStats::empty(Dtype::F32, Shape::new(&[values.len() as i64]).unwrap())
        };
        (stats, Some(values.len() as u64))
    }

    fn put_together(parts: &[(TensorStats, Option<u64>)], shape: Shape) -> TensorStats {
        let ((first, elements), others) = parts.split_first().unwrap();
        let mut together = Together::of(first, *elements, shape);
        for (part, elements) in others {
            together.add(part, *elements);
        }
        together.stats()
    }

    #[test]
    fn parts_give_what_the_whole_gives() {
        let values: Vec<f64> = (0..97).map(|at| f64::from((at * 37) % 23 - 11) * 0.25).collect();
        let shape = Shape::new(&[97]).unwrap();
        for cuts in [&[40][..], &[1], &[96], &[10, 11, 60]] {
            let mut parts = Vec::new();
            let mut rest = &values[..];
            let mut before = 0;
            for cut in cuts {
                let (part, others) = rest.split_at(cut - before);
                parts.push(of(part));
                (rest, before) = (others, *cut);
            }
            parts.push(of(rest));
            let (found, expected) = (put_together(&parts, shape), of(&values).0);
            assert_eq!((found.min, found.max, found.abs_max), (expected.min, expected.max, expected.abs_max));
            assert_eq!((found.count, found.zeros), (expected.count, expected.zeros));
            for (one, other) in [(found.norm, expected.norm), (found.mean, expected.mean), (found.std, expected.std)] {
                assert!((one - other).abs() <= 1e-14 * other.abs().max(1e-3), "{one} {other} cut at {cuts:?}");
            }
        }
    }

    #[test]
    fn without_numbers_of_elements_there_is_no_mean_and_nan_stays() {
        let (mut one, _) = of(&[1.0, 2.0]);
        let (other, _) = of(&[3.0, 5.0]);
        let shape = Shape::new(&[4]).unwrap();
        let found = put_together(&[(one, None), (other, Some(2))], shape);
        assert!(found.mean.is_nan() && found.std.is_nan());
        assert_eq!((found.min, found.max), (Scalar::Float(1.0), Scalar::Float(5.0)));
        one.max = Scalar::Float(f64::NAN);
        assert!(put_together(&[(other, None), (one, None)], shape).max.as_f64().is_nan());
    }

    #[test]
    fn parts_without_elements_and_parts_that_are_not_finite_count_as_they_do_in_the_whole() {
        let shape = Shape::new(&[4]).unwrap();
        let empty = (TensorStats { mean: f64::NAN, ..TensorStats::empty(Dtype::F32, Shape::default()) }, Some(0));
        let found = put_together(&[of(&[1.0, 2.0]), empty, of(&[3.0, 5.0])], shape);
        assert!((found.mean - 2.75).abs() < 1e-15 && found.std.is_finite());
        let found = put_together(&[of(&[1.0, 2.0]), of(&[f64::INFINITY]), of(&[3.0])], shape);
        assert!(found.mean.is_infinite() && found.std.is_nan());
    }
}
