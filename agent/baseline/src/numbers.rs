//! Formatting of numbers in messages.

/// Formats a number with at most six significant digits: `0.332148`, `1.5e-7`.
pub fn short(value: f64) -> String {
    trainmon_core::short(value, 6)
}
