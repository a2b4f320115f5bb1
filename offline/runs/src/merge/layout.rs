//! `layout.json`: the part of each parameter in a rank's rows.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use trainmon_core::{Content, Kind, Shape};

/// The file name in a rank's directory.
pub(super) const LAYOUT_FILE: &str = "layout.json";
/// The supported version of the format.
const FORMAT: u32 = 1;

/// Why a layout is not available.
#[derive(Debug)]
pub(super) enum NoLayout {
    /// The file does not exist.
    Missing,
    /// The file cannot be read.
    Read(io::Error),
    /// The file is malformed.
    Malformed(String),
}

/// The content of the file.
#[derive(Debug, Deserialize)]
struct LayoutFile {
    format: u32,
    world_size: u32,
    /// The ranks of each group, as lists of `[first, count, distance]`.
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

/// The index of a group and the number of the rank's elements.
#[derive(Clone, Copy, Debug, Deserialize)]
struct PartEntry(usize, Option<u64>);

/// The elements of a parameter in a rank's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Part {
    /// The lowest of the ranks with the same elements; it identifies the part.
    pub(super) first_rank: u32,
    /// The number of elements; `None` if only the rows show it.
    pub(super) elements: Option<u64>,
}

/// A parameter of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parameter {
    vpp_stage: u32,
    /// The name on this rank.
    local: Box<str>,
    /// The name in the whole model, if it differs.
    whole: Option<Box<str>>,
    /// The shape over all ranks.
    pub(super) shape: Shape,
}

impl Parameter {
    /// The name in the whole model.
    pub(super) fn name(&self) -> &str {
        self.whole.as_deref().unwrap_or(&self.local)
    }

    fn key(&self) -> (u32, &str) {
        (self.vpp_stage, &self.local)
    }
}

/// The parts that a rank has of each parameter, for one content, in the order of the parameters.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Held {
    /// The index of the group with the same elements, or [`NO_GROUP`].
    groups: Box<[u32]>,
    /// The number of elements, or [`NOT_TOLD`].
    elements: Box<[u64]>,
}

/// The group of an unknown part.
const NO_GROUP: u32 = u32::MAX;
/// The size of a part that only its rows show.
const NOT_TOLD: u64 = u64::MAX;

/// The common contents of several ranks' layouts, stored once: most ranks have parameters of the same names and sizes.
#[derive(Debug, Default)]
pub(super) struct SharedLayouts {
    parameters: HashSet<Arc<[Parameter]>>,
    held: HashSet<Arc<Held>>,
}

impl SharedLayouts {
    fn parameters(&mut self, of: Vec<Parameter>) -> Arc<[Parameter]> {
        if let Some(known) = self.parameters.get(&of[..]) {
            return Arc::clone(known);
        }
        let new: Arc<[Parameter]> = of.into();
        self.parameters.insert(Arc::clone(&new));
        new
    }

    fn held(&mut self, of: Held) -> Arc<Held> {
        if let Some(known) = self.held.get(&of) {
            return Arc::clone(known);
        }
        let new = Arc::new(of);
        self.held.insert(Arc::clone(&new));
        new
    }
}

/// All parameters of a rank.
#[derive(Clone, Debug)]
pub(super) struct RankLayout {
    pub(super) world_size: u32,
    /// By model chunk and local name.
    parameters: Arc<[Parameter]>,
    /// By [`Content`].
    held: [Arc<Held>; 3],
    /// The lowest rank of each group.
    first_ranks: Box<[u32]>,
}

/// Compares the parts of the rows, however the files number the groups.
impl PartialEq for RankLayout {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |content| (0..self.parameters.len()).all(|at| self.part(at, content) == other.part(at, content));
        self.world_size == other.world_size
            && self.parameters == other.parameters
            && [Content::Values, Content::Gradient, Content::Moments].into_iter().all(is_same)
    }
}

impl RankLayout {
    /// Reads the file of a rank's directory.
    pub(super) fn read(directory: &Path, shared: &mut SharedLayouts) -> Result<Self, NoLayout> {
        let text = match std::fs::read(directory.join(LAYOUT_FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NoLayout::Missing),
            Err(error) => return Err(NoLayout::Read(error)),
        };
        let file: LayoutFile = serde_json::from_slice(&text).map_err(|error| NoLayout::Malformed(error.to_string()))?;
        if file.format != FORMAT {
            return Err(NoLayout::Malformed(format!("it has format {}, this version reads {FORMAT}", file.format)));
        }
        Self::of(file, shared).map_err(NoLayout::Malformed)
    }

    fn of(file: LayoutFile, shared: &mut SharedLayouts) -> Result<Self, String> {
        let LayoutFile { world_size, groups, parameters: mut entries, format: _ } = file;
        let first_of = |(place, runs): (usize, &Vec<[u32; 3]>)| {
            runs.first().map(|run| run[0]).ok_or_else(|| format!("group {place} is empty"))
        };
        let first_ranks: Box<[u32]> = groups.iter().enumerate().map(first_of).collect::<Result<_, _>>()?;
        entries.sort_by(|one, other| (one.vpp_stage, &one.name).cmp(&(other.vpp_stage, &other.name)));
        // Of a repeated name, the last entry counts.
        entries.reverse();
        entries.dedup_by(|later, first| (later.vpp_stage, &later.name) == (first.vpp_stage, &first.name));
        entries.reverse();
        let mut held = |part: fn(&ParameterEntry) -> Option<PartEntry>| -> Result<Arc<Held>, String> {
            let group = |entry| match part(entry) {
                Some(PartEntry(group, _)) if group >= groups.len() => {
                    Err(format!("group {group} does not exist: there are {}", groups.len()))
                }
                Some(PartEntry(group, _)) => Ok(group as u32),
                None => Ok(NO_GROUP),
            };
            let elements = |entry| part(entry).and_then(|PartEntry(_, elements)| elements).unwrap_or(NOT_TOLD);
            let groups = entries.iter().map(group).collect::<Result<_, _>>()?;
            Ok(shared.held(Held { groups, elements: entries.iter().map(elements).collect() }))
        };
        let held = [held(|entry| entry.values)?, held(|entry| entry.gradient)?, held(|entry| entry.moments)?];
        let parameter = |entry: ParameterEntry| {
            let shape = Shape::new(&entry.shape).map_err(|error| format!("`{}`: {error}", entry.name))?;
            let whole = entry.whole_name.map(String::into_boxed_str);
            Ok(Parameter { vpp_stage: entry.vpp_stage, local: entry.name.into(), whole, shape })
        };
        let parameters = entries.into_iter().map(parameter).collect::<Result<Vec<_>, String>>()?;
        Ok(Self { world_size, parameters: shared.parameters(parameters), held, first_ranks })
    }

    /// The index of the parameter that a row belongs to. The state of an unknown optimizer has the state's name after it, which
    /// is returned.
    pub(super) fn find<'a>(&self, kind: Kind, vpp_stage: u32, name: &'a str) -> Option<(usize, &'a str)> {
        let place = |name: &str| self.parameters.binary_search_by(|one| one.key().cmp(&(vpp_stage, name))).ok();
        if let Some(found) = place(name) {
            return Some((found, ""));
        }
        let (parameter, state) = name.rsplit_once('.').filter(|_| kind == Kind::OptimizerState)?;
        Some((place(parameter)?, &name[name.len() - state.len() - 1..]))
    }

    /// Whether the part of any parameter is unknown.
    fn has_unknown(&self) -> bool {
        self.held.iter().any(|held| held.groups.contains(&NO_GROUP))
    }

    /// Whether nothing is known of a parameter's gradient: the norm of all rows is then unknown.
    pub(super) fn has_unknown_gradient(&self, whole: &HashSet<Box<str>>) -> bool {
        let gradients = &self.held[Content::Gradient as usize].groups;
        let unknown = self.parameters.iter().zip(gradients).filter(|(_, group)| **group == NO_GROUP);
        unknown.into_iter().any(|(parameter, _)| !whole.contains(parameter.name()))
    }

    /// The parameter at an index.
    pub(super) fn parameter(&self, place: usize) -> Option<&Parameter> {
        self.parameters.get(place)
    }

    /// The rank's part of the parameter at an index; `None` if it is unknown.
    pub(super) fn part(&self, place: usize, content: Content) -> Option<Part> {
        let held = &self.held[content as usize];
        let first_rank = *self.first_ranks.get(*held.groups.get(place)? as usize)?;
        let elements = held.elements.get(place).copied().filter(|&elements| elements != NOT_TOLD);
        Some(Part { first_rank, elements })
    }
}

/// Parameters that only one rank has, by their names in the whole model. Such a rank has all of each, even if its layout does
/// not show it: for example, stages of a pipeline that do not know of each other.
pub(super) fn held_by_one<'l>(layouts: impl Iterator<Item = &'l RankLayout> + Clone) -> HashSet<Box<str>> {
    let world_size = layouts.clone().next().map_or(0, |layout| layout.world_size);
    // A rank without files may have the same.
    if layouts.clone().count() != world_size as usize || !layouts.clone().any(RankLayout::has_unknown) {
        return HashSet::new();
    }
    let mut ranks_with: HashMap<&str, u32> = HashMap::new();
    for layout in layouts {
        let names: HashSet<&str> = layout.parameters.iter().map(Parameter::name).collect();
        for name in names {
            *ranks_with.entry(name).or_default() += 1;
        }
    }
    ranks_with.into_iter().filter(|(_, ranks)| *ranks == 1).map(|(name, _)| name.into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(directory: &Path) -> Result<RankLayout, NoLayout> {
        RankLayout::read(directory, &mut SharedLayouts::default())
    }

    #[test]
    fn a_part_is_known_by_the_lowest_rank_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"format": 1, "framework": "fsdp2", "rank": 3, "world_size": 4, "groups": [[[1, 2, 2]], [[3, 1, 1]]],
            "parameters": [{"name": "layers.0.w", "vpp_stage": 1, "whole_name": "layers.4.w", "shape": [4, 2],
                            "values": [0, 4], "gradient": [1, null], "moments": null}]}"#;
        std::fs::write(folder.path().join(LAYOUT_FILE), text).unwrap();
        let layout = read(folder.path()).unwrap();
        let (place, rest) = layout.find(Kind::ParamOrigin, 1, "layers.0.w").unwrap();
        let found = layout.parameter(place).unwrap();
        assert_eq!((found.name(), rest, found.shape.elements()), ("layers.4.w", "", 8));
        assert_eq!(layout.part(place, Content::Values), Some(Part { first_rank: 1, elements: Some(4) }));
        assert_eq!(layout.part(place, Content::Gradient), Some(Part { first_rank: 3, elements: None }));
        assert_eq!(layout.part(place, Content::Moments), None);
        assert!(layout.find(Kind::ParamOrigin, 0, "layers.0.w").is_none());
        let state = layout.find(Kind::OptimizerState, 1, "layers.0.w.momentum_8bit").unwrap();
        assert_eq!(state.1, ".momentum_8bit");
    }

    /// A file of rank `rank` of four that have a quarter of `b` each, and copies of `a`.
    fn quarter(rank: u32, order: [&str; 2]) -> String {
        let entry = |name: &str| {
            let (group, elements) = if name == "a" { (order[0] != "a", 8) } else { (order[0] != "b", 2) };
            let part = format!("[{}, {elements}]", u32::from(group));
            format!(r#"{{"name": "{name}", "shape": [8], "values": {part}, "gradient": {part}, "moments": {part}}}"#)
        };
        let group = |name: &str| if name == "a" { "[[0, 4, 1]]".to_owned() } else { format!("[[{rank}, 1, 1]]") };
        let (groups, entries) = (order.map(group).join(", "), order.map(entry).join(", "));
        format!(r#"{{"format": 1, "rank": {rank}, "world_size": 4, "groups": [{groups}], "parameters": [{entries}]}}"#)
    }

    #[test]
    fn what_ranks_have_in_common_is_kept_once_and_the_order_of_a_file_means_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut shared = SharedLayouts::default();
        let mut layout = |rank, order| {
            std::fs::write(folder.path().join(LAYOUT_FILE), quarter(rank, order)).unwrap();
            RankLayout::read(folder.path(), &mut shared).unwrap()
        };
        let ranks: Vec<RankLayout> = (0..4).map(|rank| layout(rank, ["a", "b"])).collect();
        let turned = layout(3, ["b", "a"]);
        assert_eq!(ranks[3], turned);
        assert_ne!(ranks[2], turned, "another quarter");
        assert_eq!(turned.part(1, Content::Moments), Some(Part { first_rank: 3, elements: Some(2) }));
        assert!(ranks.iter().all(|one| Arc::ptr_eq(&one.parameters, &turned.parameters)));
        // Two ways of numbering the groups.
        assert_eq!((shared.parameters.len(), shared.held.len()), (1, 2));
    }

    #[test]
    fn what_is_no_layout_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read(folder.path()), Err(NoLayout::Missing)));
        for (text, word) in [
            ("{", "EOF"),
            (r#"{"format": 2, "world_size": 1, "groups": [], "parameters": []}"#, "format 2"),
            (
                r#"{"format": 1, "world_size": 1, "groups": [], "parameters": [{"name": "w", "shape": [1], "values": [3, 1],
                    "gradient": null, "moments": null}]}"#,
                "group 3 does not exist",
            ),
        ] {
            std::fs::write(folder.path().join(LAYOUT_FILE), text).unwrap();
            let Err(NoLayout::Malformed(why)) = read(folder.path()) else { panic!("{text}") };
            assert!(why.contains(word), "{why}");
        }
    }
}
