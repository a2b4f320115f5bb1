//! The statistics of a tensor out of those of its parts.

use trainmon_core::{Scalar, Shape, TensorStats, combine_norms, largest};

/// Puts the parts of one tensor together; `parts` are disjoint and come with their numbers of elements, where known.
///
/// Exact: `min`, `max`, `abs_max` and every count. `norm`, `mean` and `std` to the last digits: they are put together in
/// float64 out of float64. Without numbers of elements `mean`, `std` and shares are NaN. What is none of these (checksums,
/// the value of a number) is not to be had of parts.
pub(super) fn put_together(parts: &[(TensorStats, Option<u64>)], shape: Shape) -> Option<TensorStats> {
    let ((first, _), others) = parts.split_first()?;
    let mut whole = TensorStats { shape, crc32: 0, xor64: 0, ..*first };
    for (part, _) in others {
        whole.min = extreme(whole.min, part.min, f64::min);
        whole.max = extreme(whole.max, part.max, f64::max);
        whole.abs_max = largest(whole.abs_max, part.abs_max);
        whole.norm = combine_norms(whole.norm, part.norm);
        whole.nans += part.nans;
        whole.infs += part.infs;
    }
    if others.is_empty() {
        return Some(whole);
    }
    let counts: Option<Vec<u64>> = parts.iter().map(|(_, elements)| *elements).collect();
    let Some(counts) = counts.filter(|counts| counts.iter().sum::<u64>() > 0) else {
        return Some(TensorStats { mean: f64::NAN, std: f64::NAN, ..whole });
    };
    let total: u64 = counts.iter().sum();
    let weighted = |of: &dyn Fn(&TensorStats) -> f64| -> f64 {
        parts.iter().zip(&counts).map(|((part, _), &count)| of(part) * count as f64).sum()
    };
    whole.mean = weighted(&|part| part.mean) / total as f64;
    let mean = whole.mean;
    let within: f64 = parts
        .iter()
        .zip(&counts)
        // One element has no deviation of its own.
        .map(|((part, _), &count)| if count > 1 { part.std * part.std * (count - 1) as f64 } else { 0.0 })
        .sum();
    let between = weighted(&|part| (part.mean - mean) * (part.mean - mean));
    whole.std = if total > 1 { ((within + between) / (total - 1) as f64).sqrt() } else { f64::NAN };
    // Shares are kept as parts of what a reading takes for its number of elements.
    let zeros = weighted(&|part| if part.count == 0 { 0.0 } else { part.zeros as f64 / part.count as f64 });
    (whole.zeros, whole.count) = (zeros.round() as u64, total);
    Some(whole)
}

/// NaN if either is.
fn extreme(a: Scalar, b: Scalar, of: fn(f64, f64) -> f64) -> Scalar {
    let (one, other) = (a.as_f64(), b.as_f64());
    if one.is_nan() || other.is_nan() {
        return Scalar::Float(f64::NAN);
    }
    // In its own arithmetic: the one that is taken.
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
            let (found, expected) = (put_together(&parts, shape).unwrap(), of(&values).0);
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
        let found = put_together(&[(one, None), (other, Some(2))], shape).unwrap();
        assert!(found.mean.is_nan() && found.std.is_nan());
        assert_eq!((found.min, found.max), (Scalar::Float(1.0), Scalar::Float(5.0)));
        one.max = Scalar::Float(f64::NAN);
        assert!(put_together(&[(other, None), (one, None)], shape).unwrap().max.as_f64().is_nan());
        assert!(put_together(&[], shape).is_none());
    }
}
