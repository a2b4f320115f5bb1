//! `layout.json`: which part of each parameter a rank's rows are of.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use serde::Deserialize;
use trainmon_core::{Kind, Shape};

/// Its name, in a rank's directory.
pub(super) const LAYOUT_FILE: &str = "layout.json";
/// The version of its form that is read.
const FORMAT: u32 = 1;

/// Why there is no layout.
#[derive(Debug)]
pub(super) enum NoLayout {
    /// There is no file.
    Missing,
    /// It cannot be read.
    Read(io::Error),
    /// It is not what it should be.
    Malformed(String),
}

/// The file.
#[derive(Debug, Deserialize)]
struct LayoutFile {
    format: u32,
    world_size: u32,
    /// Each a list of `[first, count, distance]`.
    groups: Vec<Vec<[u32; 3]>>,
    parameters: Vec<ParameterEntry>,
}

#[derive(Debug, Deserialize)]
struct ParameterEntry {
    name: String,
    shape: Vec<i64>,
    #[serde(default)]
    vpp_stage: u32,
    #[serde(default)]
    whole_name: Option<String>,
    values: Option<PartEntry>,
    gradient: Option<PartEntry>,
    moments: Option<PartEntry>,
}

/// A group's place and how many elements the rank has.
#[derive(Clone, Copy, Debug, Deserialize)]
struct PartEntry(usize, Option<u64>);

/// What is measured of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Values,
    Gradient,
    Moments,
}

impl Content {
    /// What rows of a kind are of; `None` for what is no parameter's, or a rank's own (gradients before aggregation).
    pub(super) fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::GradReduced | Kind::MgDirection => Some(Self::Gradient),
            Kind::ParamOrigin | Kind::ParamUpdated | Kind::Update | Kind::UpdateRatio => Some(Self::Values),
            kind if kind.is_moment() => Some(Self::Moments),
            _ => None,
        }
    }
}

/// Which elements of a parameter a rank's rows are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Part {
    /// The lowest of the ranks whose rows are of the same elements: it stands for them all.
    pub(super) first_rank: u32,
    /// How many; `None` where only the rows tell.
    pub(super) elements: Option<u64>,
}

/// A parameter as a rank knows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaidOut {
    /// What it is called in the whole model.
    pub(super) name: String,
    /// Over all ranks.
    pub(super) shape: Shape,
    parts: [Option<Part>; 3],
}

impl LaidOut {
    /// The rank's part of this; `None` where it is not known.
    pub(super) fn part(&self, content: Content) -> Option<Part> {
        self.parts[content as usize]
    }
}

/// Every parameter of a rank, by model chunk and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RankLayout {
    pub(super) world_size: u32,
    parameters: HashMap<(u32, String), LaidOut>,
}

impl RankLayout {
    /// Reads the file of a rank's directory.
    pub(super) fn read(directory: &Path) -> Result<Self, NoLayout> {
        let text = match std::fs::read(directory.join(LAYOUT_FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NoLayout::Missing),
            Err(error) => return Err(NoLayout::Read(error)),
        };
        let file: LayoutFile = serde_json::from_slice(&text).map_err(|error| NoLayout::Malformed(error.to_string()))?;
        if file.format != FORMAT {
            return Err(NoLayout::Malformed(format!("it has format {}, this version reads {FORMAT}", file.format)));
        }
        Self::of(file).map_err(NoLayout::Malformed)
    }

    fn of(file: LayoutFile) -> Result<Self, String> {
        let LayoutFile { world_size, groups, parameters, format: _ } = file;
        let part = |entry: Option<PartEntry>| -> Result<Option<Part>, String> {
            let Some(PartEntry(group, elements)) = entry else { return Ok(None) };
            let runs =
                groups.get(group).ok_or_else(|| format!("there is no group {group}: it has {}", groups.len()))?;
            let first_rank = runs.first().map(|run| run[0]).ok_or_else(|| format!("group {group} is empty"))?;
            Ok(Some(Part { first_rank, elements }))
        };
        let mut found = HashMap::with_capacity(parameters.len());
        for entry in parameters {
            let shape = Shape::new(&entry.shape).map_err(|error| format!("`{}`: {error}", entry.name))?;
            let parts = [part(entry.values)?, part(entry.gradient)?, part(entry.moments)?];
            let name = entry.whole_name.unwrap_or_else(|| entry.name.clone());
            found.insert((entry.vpp_stage, entry.name), LaidOut { name, shape, parts });
        }
        Ok(Self { world_size, parameters: found })
    }

    /// The parameter that a row's name is of. State of an unknown optimizer has the state's name behind it, which is given
    /// back.
    pub(super) fn find<'a>(&'a self, kind: Kind, vpp_stage: u32, name: &'a str) -> Option<(&'a LaidOut, &'a str)> {
        if let Some(found) = self.parameters.get(&(vpp_stage, name.to_owned())) {
            return Some((found, ""));
        }
        let (parameter, state) = name.rsplit_once('.').filter(|_| kind == Kind::OptimizerState)?;
        let found = self.parameters.get(&(vpp_stage, parameter.to_owned()))?;
        Some((found, &name[name.len() - state.len() - 1..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_known_by_the_lowest_rank_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"format": 1, "framework": "fsdp2", "rank": 3, "world_size": 4, "groups": [[[1, 2, 2]], [[3, 1, 1]]],
            "parameters": [{"name": "layers.0.w", "vpp_stage": 1, "whole_name": "layers.4.w", "shape": [4, 2],
                            "values": [0, 4], "gradient": [1, null], "moments": null}]}"#;
        std::fs::write(folder.path().join(LAYOUT_FILE), text).unwrap();
        let layout = RankLayout::read(folder.path()).unwrap();
        let (found, rest) = layout.find(Kind::ParamOrigin, 1, "layers.0.w").unwrap();
        assert_eq!((found.name.as_str(), rest, found.shape.elements()), ("layers.4.w", "", 8));
        assert_eq!(found.part(Content::Values), Some(Part { first_rank: 1, elements: Some(4) }));
        assert_eq!(found.part(Content::Gradient), Some(Part { first_rank: 3, elements: None }));
        assert_eq!(found.part(Content::Moments), None);
        assert!(layout.find(Kind::ParamOrigin, 0, "layers.0.w").is_none());
        let state = layout.find(Kind::OptimizerState, 1, "layers.0.w.momentum_8bit").unwrap();
        assert_eq!(state.1, ".momentum_8bit");
    }

    #[test]
    fn what_is_no_layout_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(RankLayout::read(folder.path()), Err(NoLayout::Missing)));
        for (text, word) in [
            ("{", "EOF"),
            (r#"{"format": 2, "world_size": 1, "groups": [], "parameters": []}"#, "format 2"),
            (
                r#"{"format": 1, "world_size": 1, "groups": [], "parameters": [{"name": "w", "shape": [1], "values": [3, 1],
                    "gradient": null, "moments": null}]}"#,
                "no group 3",
            ),
        ] {
            std::fs::write(folder.path().join(LAYOUT_FILE), text).unwrap();
            let Err(NoLayout::Malformed(why)) = RankLayout::read(folder.path()) else { panic!("{text}") };
            assert!(why.contains(word), "{why}");
        }
    }
}
