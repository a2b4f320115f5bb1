//! Floats in JSON: finite ones as numbers, the others as the strings `"NaN"`, `"Infinity"` and `"-Infinity"`, because
//! JSON has no such numbers.
//!
//! For `#[serde(with = "…")]`; deserializing requires a self-describing format.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Finite(f64),
    Other(Special),
}

#[derive(Serialize, Deserialize)]
enum Special {
    NaN,
    Infinity,
    #[serde(rename = "-Infinity")]
    NegativeInfinity,
}

impl From<f64> for Written {
    fn from(value: f64) -> Self {
        if value.is_nan() {
            Self::Other(Special::NaN)
        } else if value == f64::INFINITY {
            Self::Other(Special::Infinity)
        } else if value == f64::NEG_INFINITY {
            Self::Other(Special::NegativeInfinity)
        } else {
            Self::Finite(value)
        }
    }
}

impl From<Written> for f64 {
    fn from(written: Written) -> Self {
        match written {
            Written::Finite(value) => value,
            Written::Other(Special::NaN) => Self::NAN,
            Written::Other(Special::Infinity) => Self::INFINITY,
            Written::Other(Special::NegativeInfinity) => Self::NEG_INFINITY,
        }
    }
}

/// Writes one number.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Written::from(*value).serialize(serializer)
}

/// Reads one number.
///
/// # Errors
/// The value is neither a number nor one of the three strings.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Written::deserialize(deserializer).map(f64::from)
}

/// A number that may be absent.
pub mod optional {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Written};

    /// Writes the number, or nothing.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Written::from).serialize(serializer)
    }

    /// Reads the number.
    ///
    /// # Errors
    /// The value is neither a number nor one of the three strings.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Written>::deserialize(deserializer)?.map(f64::from))
    }
}

/// A list of numbers.
pub mod list {
    use super::{Deserialize, Deserializer, Serializer, Written};

    /// Writes the numbers.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<'a, S: Serializer>(
        values: impl IntoIterator<Item = &'a f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.into_iter().map(|value| Written::from(*value)))
    }

    /// Reads the numbers.
    ///
    /// # Errors
    /// An entry is neither a number nor one of the three strings.
    pub fn deserialize<'de, D: Deserializer<'de>, T: FromIterator<f64>>(deserializer: D) -> Result<T, D::Error> {
        Ok(Vec::<Written>::deserialize(deserializer)?.into_iter().map(f64::from).collect())
    }
}
