//! Numbers for people.

/// Six significant digits at most: `0.332148`, `1.5e-7`.
pub fn short(value: f64) -> String {
    trainmon_core::short(value, 6)
}
