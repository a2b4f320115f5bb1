//! The effect of an optimizer on rounding error. An adaptive optimizer divides a gradient by its own size, so a gradient that
//! is only rounding moves a parameter by a full update. Two runs may then differ by the applied updates, and by no more.

/// Max, min, mean and norm of a tensor.
pub type Numbers = [f64; 4];

/// The growth of the difference per update: an update whose gradient is only rounding can have opposite signs in two runs.
const SIDES: f64 = 2.0;

/// The number of elements of any gradient that may be so close to zero that rounding decides their sign.
const ELEMENTS_NEAR_ZERO: f64 = 8.0;

/// The share of elements that may be that close to zero, as a multiple of the gradient's relative difference. One more element
/// is always allowed.
const SHARE_NEAR_ZERO: f64 = 64.0;

/// The largest quotient of elements of a tensor, relative to that of its largest numerator and denominator. In an optimizer's
/// first step all quotients are alike; later, moments of different length separate them.
pub const SPREAD_OF_QUOTIENTS: f64 = 8.0;

/// A parameter in two runs, and how far updates moved it so far.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    numbers: [Numbers; 2],
    /// Whether an update moved one side and left the other bitwise unchanged: a lost update is not rounding.
    is_lost: bool,
    /// The distance that updates moved max, min and mean at most, over all steps so far.
    by: f64,
}

impl Moved {
    /// Starts with the values that two runs have at the first look.
    pub fn begin(numbers: [Numbers; 2]) -> Self {
        Self { numbers, is_lost: false, by: 0.0 }
    }

    /// Adds the later values of both runs: after an update, or at the start of the next step.
    pub fn step(&mut self, numbers: [Numbers; 2]) {
        let [one, other] = [0, 1].map(|side| self.numbers[side].map(f64::to_bits) == numbers[side].map(f64::to_bits));
        self.is_lost |= one != other;
        let pairs = self.numbers.iter().zip(&numbers).flat_map(|(old, new)| old.iter().zip(new).take(3));
        self.by += pairs.map(|(old, new)| (old - new).abs()).fold(0.0, f64::max);
        self.numbers = numbers;
    }

    /// The possible difference of an element whose gradient is only rounding: the updates of both sides. 0 if an update was
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
        // The sides never differ by more than their updates.
        let most = (SPREAD_OF_QUOTIENTS * gradient).min(SIDES) * self.by;
        self.reach() > 0.0 && (0..3).all(|at| self.apart(at) <= most) && self.apart(3) <= most * count.sqrt()
    }

    /// The most by which one element of a parameter of `count` elements may differ, if it alone makes the means differ. Updates on both
    /// sides limit it.
    pub fn single_element(&self, count: f64) -> f64 {
        (count * self.apart(2)).min(self.reach())
    }

    /// Whether a few of the `count` elements of a parameter, moved by an update in the opposite direction, account for the
    /// difference of its mean. `gradient` is the largest relative difference of its gradients, if known.
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
