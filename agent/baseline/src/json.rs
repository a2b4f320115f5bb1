//! Numbers in JSON that may be none.

use serde::Serializer;

/// As a number; as the text CSV files have for one that JSON cannot say: `NaN`, `inf`, `-inf`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
pub(super) fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.collect_str(value) }
}
