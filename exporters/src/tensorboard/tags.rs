//! Tags and their limit.

use std::collections::{HashMap, HashSet};

use trainmon_core::{Kind, TensorId};

/// The tag of a tensor's statistic, spelt like msprobe's conversion of its CSV files:
/// `vp0:blocks.0.attn.qkv.weight/norm`, `vp0:fc1.input:micro1/norm`. It does not contain the kind, which is the name of
/// the run.
///
/// `micro_step` is set if the CSV file has that column, with the number in it.
pub fn tensor_tag(vpp_stage: u32, name: &str, micro_step: Option<u32>, column: &str) -> String {
    match micro_step {
        Some(micro_step) => format!("vp{vpp_stage}:{name}:micro{micro_step}/{column}"),
        None => format!("vp{vpp_stage}:{name}/{column}"),
    }
}

/// The key of one record's tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TagKey {
    pub(super) kind: Kind,
    pub(super) tensor: TensorId,
    /// As shown in the tag.
    pub(super) micro_step: Option<u32>,
}

/// The tags in use. TensorBoard lists every tag of a run before it draws any, so their number is limited.
#[derive(Debug)]
pub(super) struct TagTable {
    max: usize,
    used: usize,
    known: HashMap<TagKey, Vec<(&'static str, String)>>,
    left_out: HashSet<(TagKey, &'static str)>,
}

impl TagTable {
    pub(super) fn new(max: usize) -> Self {
        Self { max, used: 0, known: HashMap::new(), left_out: HashSet::new() }
    }

    /// Creates the tags of these columns. Returns `false`, without creating any, if the limit does not allow all of
    /// them.
    pub(super) fn admit(&mut self, key: TagKey, columns: &[&'static str], vpp_stage: u32, name: &str) -> bool {
        let known = self.known.get(&key).map_or(&[][..], Vec::as_slice);
        let is_new = |column: &&&'static str| !known.iter().any(|(old, _)| old == *column);
        let new: Vec<&'static str> = columns.iter().filter(is_new).copied().collect();
        if new.is_empty() {
            return true;
        }
        if self.used + new.len() > self.max {
            self.left_out.extend(new.into_iter().map(|column| (key, column)));
            return false;
        }
        self.used += new.len();
        let tag = |column| match key.kind {
            Kind::Scalar => name.to_owned(),
            _ => tensor_tag(vpp_stage, name, key.micro_step, column),
        };
        let made = new.into_iter().map(|column| (column, tag(column)));
        self.known.entry(key).or_default().extend(made);
        true
    }

    /// The tag of an admitted column.
    pub(super) fn tag(&self, key: TagKey, column: &str) -> Option<&str> {
        let known = self.known.get(&key)?;
        known.iter().find(|(old, _)| *old == column).map(|(_, tag)| tag.as_str())
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// The number of different tags beyond the limit.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tensor: u32) -> TagKey {
        TagKey { kind: Kind::GradReduced, tensor: TensorId(tensor), micro_step: None }
    }

    #[test]
    fn tags_are_spelt_as_msprobes_conversion_spells_them() {
        assert_eq!(tensor_tag(0, "linear.weight", None, "norm"), "vp0:linear.weight/norm");
        assert_eq!(tensor_tag(1, "linear.input", Some(0), "min"), "vp1:linear.input:micro0/min");
    }

    #[test]
    fn a_tensor_has_room_for_all_its_tags_or_for_none() {
        let mut totals = TagTable::new(5);
        assert!(totals.admit(key(0), &["min", "max"], 0, "a"));
        assert!(totals.admit(key(1), &["min", "max"], 0, "b"));
        for _step in 0..3 {
            assert!(totals.admit(key(0), &["min", "max"], 0, "a"), "known tags stay");
            assert!(!totals.admit(key(2), &["min", "max"], 0, "c"));
            assert_eq!((totals.tag(key(2), "min"), totals.left_out()), (None, 2), "each is counted once");
        }
        assert!(totals.admit(key(1), &["min", "norm"], 0, "b"), "one is left");
        assert_eq!(totals.tag(key(1), "norm"), Some("vp0:b/norm"));
        assert_eq!(totals.tag(key(1), "max"), Some("vp0:b/max"));
    }
}
