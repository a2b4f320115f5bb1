//! The limits of rounding error, in one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::name::OperatorName;

/// The thresholds, with their defaults; `configs/compare.toml` has them as a file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// The error of a sum of n terms in another order, as a multiple of √n units of round-off.
    pub rounding_factor: f64,
    /// The factor by which an operator may amplify the difference of its inputs.
    pub growth: f64,
    /// The same for a module, which has several operators.
    pub module_growth: f64,
    /// The largest difference that may count as rounding. (Half the digits of float32.)
    pub ceiling: f64,
    /// The tolerance of a value as a multiple of the variation between baselines.
    pub spread_factor: f64,
    /// Operators that are not compared, by name without call number. Unwritten memory is never compared.
    pub ignore: Vec<String>,
    /// Tolerances of single operators, by name without call number: a relative difference.
    pub operators: BTreeMap<String, f64>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            rounding_factor: 8.0,
            growth: 32.0,
            module_growth: 1024.0,
            ceiling: 3e-4,
            spread_factor: 3.0,
            ignore: Vec::new(),
            operators: BTreeMap::new(),
        }
    }
}

/// An error of a thresholds file.
#[derive(Debug, thiserror::Error)]
pub enum ThresholdsError {
    /// The file cannot be read.
    #[error("cannot read the thresholds `{}`", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file is not TOML, or has unknown keys.
    #[error("the thresholds `{}` are malformed", path.display())]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    /// A number is out of range.
    #[error("the thresholds `{}`: `{key}`: expected a number of at least {least}, found {found}", path.display())]
    OutOfRange { path: PathBuf, key: String, least: f64, found: f64 },
}

impl Thresholds {
    /// Reads a file; missing keys keep their defaults.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML with these keys, or a number is out of range.
    pub fn read(path: &Path) -> Result<Self, ThresholdsError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ThresholdsError::Read { path: path.into(), source })?;
        let syntax = |source| ThresholdsError::Syntax { path: path.into(), source: Box::new(source) };
        let read: Self = toml::from_str(&text).map_err(syntax)?;
        let numbers = [
            ("rounding_factor", 1.0, read.rounding_factor),
            ("growth", 1.0, read.growth),
            ("module_growth", 1.0, read.module_growth),
            ("ceiling", 0.0, read.ceiling),
            ("spread_factor", 1.0, read.spread_factor),
        ];
        let operators = read.operators.iter().map(|(name, &bound)| (format!("operators.{name}"), 0.0, bound));
        let numbers = numbers.into_iter().map(|(key, least, found)| (key.to_owned(), least, found));
        match numbers.chain(operators).find(|(_, least, found)| !found.is_finite() || found < least) {
            Some((key, least, found)) => Err(ThresholdsError::OutOfRange { path: path.into(), key, least, found }),
            None => Ok(read),
        }
    }

    /// Whether an operator's values are not compared.
    pub fn ignores(&self, name: OperatorName<'_>) -> bool {
        name.gives_unwritten_memory() || self.ignore.iter().any(|ignored| ignored == name.callee)
    }

    /// The tolerance set for an operator.
    pub fn of_operator(&self, name: OperatorName<'_>) -> Option<f64> {
        self.operators.get(name.callee).copied()
    }
}
