//! The distances between the steps of a log.

/// The distances between the steps of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spacing {
    /// The usual distance.
    pub(crate) usual: u64,
    /// The number of larger distances.
    pub(crate) gaps: usize,
    /// The steps on both sides of the largest distance.
    pub(crate) largest: Option<(u64, u64)>,
}

impl Spacing {
    /// Measures steps in ascending order; `None` for fewer than three. Cost: a sort of the distances.
    pub(crate) fn of(steps: &[u64]) -> Option<Self> {
        let mut distances: Vec<u64> = steps.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let middle = distances.len() / 2;
        if distances.len() < 2 {
            return None;
        }
        let usual = *distances.select_nth_unstable(middle).1;
        let gaps: Vec<&[u64]> = steps.windows(2).filter(|pair| pair[1] - pair[0] > usual).collect();
        let largest = gaps.iter().max_by_key(|pair| pair[1] - pair[0]).map(|pair| (pair[0], pair[1]));
        Some(Self { usual, gaps: gaps.len(), largest })
    }

    /// Remarks about the distances, one sentence each.
    pub(crate) fn in_words(&self) -> Vec<String> {
        let Self { usual, gaps, largest } = *self;
        let mut words = Vec::new();
        if usual > 1 {
            words.push(format!(
                "logged every {usual} steps: a rule counts logged values, so 64 samples are {} steps",
                64_u64.saturating_mul(usual)
            ));
        }
        match (gaps, largest) {
            (1, Some((before, after))) => words.push(format!("no value between steps {before} and {after}")),
            (2.., Some((before, after))) => {
                words.push(format!("{gaps} gaps in the steps, the largest between steps {before} and {after}"));
            }
            _ => {}
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_counted_and_the_largest_named() {
        let spacing = Spacing::of(&[10, 20, 30, 50, 60, 160, 170]).unwrap();
        assert_eq!(spacing, Spacing { usual: 10, gaps: 2, largest: Some((60, 160)) });
        assert_eq!(Spacing::of(&[1, 2, 3, 4]).unwrap().in_words(), [""; 0]);
        assert_eq!(Spacing::of(&[1, 2]), None);
    }
}
