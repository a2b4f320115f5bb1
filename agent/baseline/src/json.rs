//! Numbers in JSON that may not be finite.

use serde::Serializer;

/// Writes a number, or the text that CSV files use for one that JSON cannot represent: `NaN`, `inf`, `-inf`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
pub(super) fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.collect_str(value) }
}
