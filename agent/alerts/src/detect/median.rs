//! The median, for rules that hold a value against its window.

/// The middle one, or of an even number the mean of the two. Zero of none.
pub(super) fn median_of(values: &mut [f64]) -> f64 {
    let (middle, is_odd) = (values.len() / 2, values.len() % 2 == 1);
    if values.is_empty() {
        return 0.0;
    }
    let (lower, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let below = lower.iter().copied().max_by(f64::total_cmp).filter(|_| !is_odd);
    below.map_or(upper, |below| f64::midpoint(below, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median_of(&mut []), 0.0);
        assert_eq!(median_of(&mut [3.0]), 3.0);
        assert_eq!(median_of(&mut [3.0, 1.0]), 2.0);
        assert_eq!(median_of(&mut [9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median_of(&mut [4.0, 1.0, 9.0, 5.0]), 4.5);
    }
}
