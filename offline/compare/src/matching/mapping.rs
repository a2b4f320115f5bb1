//! By files that map names of the target to names of the baseline.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::exact::{keys, pair};
use super::pair::{How, Pair};
use crate::input::Capture;
use crate::name::OperatorName;

/// An error of a mapping file.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum MappingError {
    /// The file cannot be read.
    #[error("cannot read the mapping `{}`", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file is not YAML of the expected form.
    #[error("the mapping `{}` is not YAML of the form `{form}`", path.display())]
    Syntax { path: PathBuf, form: &'static str, source: Box<serde_saphyr::Error> },
}

impl MappingError {
    /// The next step for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "check the path; it is relative to the current directory",
            Self::Syntax { .. } => "docs/compare-matching.md has an example of each kind of mapping",
        }
    }
}

/// Reads a YAML file; `form` shows an entry for the error message.
pub(super) fn read_yaml<T: DeserializeOwned>(path: &Path, form: &'static str) -> Result<T, MappingError> {
    let text = std::fs::read_to_string(path).map_err(|source| MappingError::Read { path: path.into(), source })?;
    let syntax = |source| MappingError::Syntax { path: path.into(), form, source: Box::new(source) };
    serde_saphyr::from_str(&text).map_err(syntax)
}

/// Names of the target and their names in the baseline, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    entries: Vec<(String, String)>,
    of: HashMap<String, usize>,
}

impl Mapping {
    /// Reads YAML lines of the form `name in the target: name in the baseline`.
    ///
    /// # Errors
    /// See [`MappingError`].
    pub fn read(path: &Path) -> Result<Self, MappingError> {
        let of: HashMap<String, String> = read_yaml(path, "name in the target: name in the golden")?;
        let mut entries: Vec<(String, String)> = of.into_iter().collect();
        // The longest name first: a mapping of `layer.10` does not apply to `layer.1`.
        entries.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        Ok(Self::of(entries))
    }

    /// Creates a mapping from pairs of names.
    pub fn of(entries: Vec<(String, String)>) -> Self {
        let of = entries.iter().enumerate().map(|(index, (from, _))| (from.clone(), index)).collect();
        Self { entries, of }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.of.get(name).and_then(|&index| self.entries.get(index)).map(|(_, to)| to.as_str())
    }

    /// `name` with the first matching entry replaced.
    fn within(&self, name: &str) -> Option<String> {
        self.entries.iter().find(|(from, _)| name.contains(from.as_str())).map(|(from, to)| name.replacen(from, to, 1))
    }
}

/// Pairs full names of values by a data mapping; unmapped values pair by their own name.
///
/// `counts_backwards`: whether the target's backward calls are renumbered, as the baseline's are. msprobe only renumbers the
/// baseline's, and pairs wrong calls because of it.
pub fn by_data(target: &Capture, golden: &Capture, mapping: &Mapping, counts_backwards: bool) -> Vec<Pair> {
    // Mapped names pair as they are; all others follow their operator.
    let mut pairs = pair(target, &keys(target, counts_backwards), golden, &keys(golden, true), |_| How::Name);
    let names: HashMap<String, usize> = pairs
        .iter()
        .enumerate()
        .filter_map(|(index, pair)| pair.golden.map(|address| (golden.at(address).name(), index)))
        .collect();
    let wanted: Vec<(usize, usize)> = pairs
        .iter()
        .enumerate()
        .filter_map(|(index, pair)| {
            let mapped = mapping.get(&target.at(pair.target?).name())?;
            Some((index, *names.get(mapped)?))
        })
        .collect();
    let originals = pairs.clone();
    for &(index, found) in &wanted {
        let address = originals[found].golden;
        if pairs[found].golden == address {
            pairs[found].golden = None;
        }
        pairs[index] = Pair { golden: address, how: How::Mapping, ..pairs[index] };
    }
    pairs.retain(|pair| pair.target.is_some() || pair.golden.is_some());
    pairs
}

/// Pairs by names of modules (`path.Class: path.Class`), wherever they occur in a name.
pub fn by_cell(target: &Capture, golden: &Capture, mapping: &Mapping, counts_backwards: bool) -> Vec<Pair> {
    let mut target_keys = keys(target, counts_backwards);
    let mut is_mapped = vec![false; target_keys.len()];
    for (key, is_mapped) in target_keys.iter_mut().zip(&mut is_mapped) {
        if let Some(mapped) = renamed(key, mapping) {
            *is_mapped = mapped != *key;
            *key = mapped;
        }
    }
    let how = |operator: usize| if is_mapped[operator] { How::Mapping } else { How::Name };
    pair(target, &target_keys, golden, &keys(golden, true), how)
}

/// A module's name in the baseline: `Cell` is `Module` there.
fn renamed(key: &str, mapping: &Mapping) -> Option<String> {
    let name = OperatorName::parse(key)?;
    if !matches!(name.family(), "Cell" | "Module") {
        return None;
    }
    let (_, callee) = name.callee.split_once('.')?;
    let mapped = mapping.get(callee).map(str::to_owned).or_else(|| mapping.within(callee));
    let rest = &key[name.callee.len()..];
    Some(format!("Module.{}{rest}", mapped.as_deref().unwrap_or(callee)))
}
