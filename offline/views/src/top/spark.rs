//! Draws a curve in one line of text.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A non-finite value.
pub(super) const NOT_FINITE: char = '×';
/// Values that span at least this ratio are drawn by their logarithms.
const LOGARITHMIC_FROM: f64 = 50.0;

/// Draws the curve with `width` characters, oldest first. Each shows the largest of its bins, so that no spike is lost.
/// If there are fewer bins than characters, each bin gets one character.
pub(super) fn line(values: &[Option<f64>], width: usize) -> String {
    let places = resampled(values, width);
    let finite = || places.iter().flatten().copied().filter(|value| value.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let is_logarithmic = low > 0.0 && high / low > LOGARITHMIC_FROM;
    let level = |value: f64| if is_logarithmic { value.ln() } else { value };
    let span = level(high) - level(low);
    let character = |place: &Option<f64>| match place {
        None => ' ',
        Some(value) if !value.is_finite() => NOT_FINITE,
        // All values are equal.
        Some(_) if span.is_nan() || span <= 0.0 => BLOCKS[2],
        Some(value) => {
            let share = (level(*value) - level(low)) / span;
            BLOCKS[((share * BLOCKS.len() as f64) as usize).min(BLOCKS.len() - 1)]
        }
    };
    places.iter().map(character).collect()
}

fn resampled(values: &[Option<f64>], width: usize) -> Vec<Option<f64>> {
    if values.len() <= width {
        return values.to_vec();
    }
    let largest = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
    let place = |index: usize| {
        let (first, end) = (index * values.len() / width, (index + 1) * values.len() / width);
        values[first..end].iter().flatten().copied().reduce(largest)
    };
    (0..width).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64], width: usize) -> String {
        line(&values.iter().map(|&value| Some(value)).collect::<Vec<_>>(), width)
    }

    #[test]
    fn a_curve_rises_over_eight_levels() {
        assert_eq!(of(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8), "▁▂▃▄▅▆▇█");
        assert_eq!(of(&[1.0, 1.0], 8), "▃▃");
        assert_eq!(of(&[], 8), "");
    }

    #[test]
    fn no_spike_and_no_nan_is_lost_where_bins_share_a_character() {
        let mut values = vec![1.0; 1000];
        values[517] = 9.0;
        assert_eq!(of(&values, 10), "▁▁▁▁▁█▁▁▁▁");
        values[517] = f64::NAN;
        assert_eq!(of(&values, 10), "▃▃▃▃▃×▃▃▃▃");
        assert_eq!(line(&[None, Some(1.0), None], 3), " ▃ ");
    }

    #[test]
    fn orders_of_magnitude_are_told_apart() {
        assert_eq!(of(&[1e-3, 1e-1, 1e1], 3), "▁▅█");
    }
}
