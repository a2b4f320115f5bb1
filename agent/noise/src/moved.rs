//! What an optimizer makes of rounding: an adaptive one divides a gradient by its own size, so that one that is rounding alone moves a
//! parameter by a full update. Two runs may then differ by what updates moved the parameter, and by no more.

/// Max, min, mean and norm of a tensor.
pub type Numbers = [f64; 4];

/// An update whose gradient is only rounding can go one way in one run and the other way in the other run: the difference grows by up
/// to twice the update with each step.
const SIDES: f64 = 2.0;

/// So many elements of any gradient may be so close to zero that rounding decides their sign, at most.
const ELEMENTS_NEAR_ZERO: f64 = 8.0;

/// If a gradient's relative difference is d, this many times d is the share of its elements that may be that close to zero. One more
/// element is always allowed.
const SHARE_NEAR_ZERO: f64 = 64.0;

/// Quotients of one tensor are at most so many times that of its largest numerator and denominator: at an optimizer's first step
/// all are alike, later moments of different length part them.
pub const SPREAD_OF_QUOTIENTS: f64 = 8.0;

/// A parameter in two runs, and how far updates moved it so far.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    numbers: [Numbers; 2],
    /// Whether an update moved one side, and left the other as it was to the last bit: it was lost, and that is no rounding.
    is_lost: bool,
    /// By how much updates moved it at most, of all steps so far; of max, min and mean.
    by: f64,
}

impl Moved {
    /// A parameter as two runs have it when they are first looked at.
    pub fn begin(numbers: [Numbers; 2]) -> Self {
        Self { numbers, is_lost: false, by: 0.0 }
    }

    /// Takes in what both runs have later: behind an update, or as the next step begins.
    pub fn step(&mut self, numbers: [Numbers; 2]) {
        let [one, other] = [0, 1].map(|side| self.numbers[side].map(f64::to_bits) == numbers[side].map(f64::to_bits));
        self.is_lost |= one != other;
        let pairs = self.numbers.iter().zip(&numbers).flat_map(|(old, new)| old.iter().zip(new).take(3));
        self.by += pairs.map(|(old, new)| (old - new).abs()).fold(0.0, f64::max);
        self.numbers = numbers;
    }

    /// How far an element may be apart whose gradient is rounding alone: by what updates moved it on both sides. 0 where an update was
    /// lost on one side.
    pub fn reach(&self) -> f64 {
        if self.is_lost { 0.0 } else { SIDES * self.by }
    }

    /// Whether updates whose gradient is only rounding account for the difference of max, min and mean.
    pub fn explains(&self) -> bool {
        self.reach() > 0.0 && (0..3).all(|at| self.apart(at) <= self.reach())
    }

    /// Whether the relative difference of the gradients, `gradient`, accounts for the difference of a parameter of `count` elements.
    pub fn follows(&self, gradient: f64, count: f64) -> bool {
        // Two sides are never further apart than what moved them.
        let most = (SPREAD_OF_QUOTIENTS * gradient).min(SIDES) * self.by;
        self.reach() > 0.0 && (0..3).all(|at| self.apart(at) <= most) && self.apart(3) <= most * count.sqrt()
    }

    /// The most by which one element of a parameter of `count` elements may differ, if it alone makes the means differ. Updates on both
    /// sides limit it.
    pub fn single_element(&self, count: f64) -> f64 {
        (count * self.apart(2)).min(self.reach())
    }

    /// Whether few of many elements of a parameter of `count` elements, moved by an update in the other direction, make its mean so.
    /// `gradient`: by how much of its size its gradients were apart at most, where that is known.
    pub fn is_few_elements(&self, count: f64, gradient: Option<f64>) -> bool {
        let near_zero = gradient.map_or(ELEMENTS_NEAR_ZERO, |apart| 1.0 + SHARE_NEAR_ZERO * apart * count);
        let few = near_zero.min(ELEMENTS_NEAR_ZERO) * self.reach();
        self.reach() > 0.0
            && count >= ELEMENTS_NEAR_ZERO * ELEMENTS_NEAR_ZERO
            && self.apart(2) <= few / count
            && self.apart(3) <= few / count.sqrt()
            && (0..2).all(|at| self.apart(at) <= self.by / count.sqrt())
    }

    fn apart(&self, at: usize) -> f64 {
        (self.numbers[0][at] - self.numbers[1][at]).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Numbers = [0.1, -0.1, 0.0, 0.5];

    #[test]
    fn a_parameter_may_be_apart_by_what_updates_moved_it_on_both_sides() {
        let mut moved = Moved::begin([START; 2]);
        assert!(!moved.explains(), "nothing has moved it yet");
        moved.step([[0.101, -0.101, 0.001, 0.5], [0.0995, -0.0995, -0.0005, 0.5]]);
        assert!(moved.explains());
        assert_eq!(moved.reach(), 2.0 * (0.101 - 0.1));
        moved.step([[0.2, -0.101, 0.001, 0.5], [0.0995, -0.0995, -0.0005, 0.5]]);
        assert!(!moved.explains(), "one side was left as it was to the last bit: its update was lost");
    }

    #[test]
    fn what_is_further_apart_than_updates_moved_it_is_no_rounding() {
        let mut moved = Moved::begin([START, [0.15, -0.1, 0.0, 0.5]]);
        moved.step([[0.101, -0.101, 0.001, 0.5], [0.151, -0.101, 0.001, 0.5]]);
        assert!(!moved.explains());
    }
}
