//! Lists of numbers in JSON: `null` for missing values, and texts for numbers that JSON cannot represent.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trainmon_core::number;

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Number(#[serde(with = "number::optional")] Option<f64>);

pub(crate) fn serialize<S: Serializer>(values: &[Option<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|&value| Number(value)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Option<f64>>, D::Error> {
    let numbers = Vec::<Number>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|Number(value)| value).collect())
}

/// Float32s as the base64 of their little-endian bytes.
pub(crate) mod base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        let (values, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(D::Error::custom(format!("{} bytes are not a whole number of float32 values", bytes.len())));
        }
        Ok(values.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
    }
}
