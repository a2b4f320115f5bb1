//! Numbers for tensors, statistics and shapes, so that rows of different runs can be matched without comparing texts.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexSet;
use serde::Serialize;
use trainmon_run_files::sizes_of;

/// The identity of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TensorKey {
    /// The kind: `grad_reduced`, `actv`.
    pub kind: String,
    /// The tensor: `layers.0.fc1.weight`.
    pub name: String,
    /// The virtual-pipeline stage (model chunk).
    pub vpp_stage: u32,
    /// The micro-batch, or the number of the call, if the file contains it.
    pub micro_step: Option<u32>,
}

/// The identity of a row as numbers.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) kind: u16,
    pub(super) micro_step: Option<u32>,
    /// Its chunk and name, shared by all kinds.
    pub(super) bearer: u32,
}

/// The rows of a bearer, by kind and micro-batch.
type InBearer = HashMap<(u16, Option<u32>), u32>;

/// The numbers of all names, shared by the compared runs.
#[derive(Debug, Default)]
pub struct Names {
    kinds: Texts,
    statistics: Texts,
    shapes: Texts,
    /// The number of elements and the longest dimension of each shape.
    sizes: Vec<Option<(f64, f64)>>,
    bearers: HashMap<Arc<str>, Vec<(u32, u32)>>,
    named_bearers: Vec<(u32, Arc<str>)>,
    in_bearer: Vec<InBearer>,
    pub(super) tensors: Vec<Tensor>,
    columns: IndexSet<Arc<[u16]>>,
}

/// Texts by number.
#[derive(Debug, Default)]
struct Texts(IndexSet<Box<str>>);

impl Texts {
    fn number(&mut self, text: &str) -> u16 {
        let number = self.0.get_index_of(text).unwrap_or_else(|| self.0.insert_full(text.into()).0);
        // Beyond 65,535 shapes or kinds, the rest shares the last number and is no longer distinguished.
        u16::try_from(number).unwrap_or(u16::MAX)
    }

    fn text(&self, number: u16) -> &str {
        self.0.get_index(usize::from(number)).map_or("", |text| text)
    }
}

impl Names {
    /// The number of a kind.
    pub fn kind(&mut self, name: &str) -> u16 {
        self.kinds.number(name)
    }

    pub(super) fn kind_name(&self, kind: u16) -> &str {
        self.kinds.text(kind)
    }

    /// The name of a statistic.
    pub fn statistic_name(&self, statistic: u16) -> &str {
        self.statistics.text(statistic)
    }

    pub(super) fn shape_text(&self, shape: u16) -> &str {
        self.shapes.text(shape)
    }

    /// The number of a table's columns: its statistics in order.
    pub(super) fn columns<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> u16 {
        let found: Arc<[u16]> = names.map(|name| self.statistics.number(name)).collect();
        u16::try_from(self.columns.insert_full(found).0).unwrap_or(u16::MAX)
    }

    /// The statistics of a table, in the order of its columns.
    pub fn columns_of(&self, columns: u16) -> Arc<[u16]> {
        self.columns.get_index(usize::from(columns)).map_or_else(|| Arc::from([]), Arc::clone)
    }

    /// The number of a shape in the notation of the files: `[3, 4]`.
    pub(super) fn shape(&mut self, text: &str) -> u16 {
        let number = self.shapes.number(text);
        if usize::from(number) == self.sizes.len() {
            self.sizes.push(size_of(text));
        }
        number
    }

    /// The number of dimensions of a shape.
    pub(super) fn dimensions(&self, shape: u16) -> usize {
        let sizes = self.shape_text(shape).trim_matches(['[', ']', '(', ')']);
        sizes.split(',').filter(|size| !size.trim().is_empty()).count()
    }

    /// The number of elements and the longest dimension.
    pub(super) fn size(&self, shape: Option<u16>) -> Option<(f64, f64)> {
        self.sizes.get(usize::from(shape?)).copied().flatten()
    }

    /// The number of a name in a chunk.
    pub(super) fn bearer(&mut self, vpp_stage: u32, name: &str) -> u32 {
        let known = self.bearers.get(name).and_then(|stages| stages.iter().find(|(stage, _)| *stage == vpp_stage));
        if let Some(&(_, bearer)) = known {
            return bearer;
        }
        let bearer = u32::try_from(self.named_bearers.len()).unwrap_or(u32::MAX);
        let name: Arc<str> = name.into();
        self.named_bearers.push((vpp_stage, Arc::clone(&name)));
        self.in_bearer.push(InBearer::new());
        self.bearers.entry(name).or_default().push((vpp_stage, bearer));
        bearer
    }

    /// Whether a name is known.
    pub(super) fn has_bearer(&self, vpp_stage: u32, name: &str) -> bool {
        self.bearers.get(name).is_some_and(|stages| stages.iter().any(|(stage, _)| *stage == vpp_stage))
    }

    pub(super) fn bearer_name(&self, bearer: u32) -> &str {
        self.named_bearers.get(bearer as usize).map_or("", |(_, name)| name)
    }

    pub(super) fn bearer_stage(&self, bearer: u32) -> u32 {
        self.named_bearers.get(bearer as usize).map_or(0, |(stage, _)| *stage)
    }

    /// The number of a row's identity.
    pub fn tensor(&mut self, kind: u16, vpp_stage: u32, name: &str, micro_step: Option<u32>) -> u32 {
        let bearer = self.bearer(vpp_stage, name);
        let tensors = &mut self.tensors;
        let make = || {
            tensors.push(Tensor { kind, micro_step, bearer });
            u32::try_from(tensors.len() - 1).unwrap_or(u32::MAX)
        };
        self.in_bearer.get_mut(bearer as usize).map_or(0, |known| *known.entry((kind, micro_step)).or_insert_with(make))
    }

    pub(super) fn key(&self, tensor: u32) -> TensorKey {
        let Tensor { kind, micro_step, bearer } = self.tensors[tensor as usize];
        let (kind, name) = (self.kind_name(kind).to_owned(), self.bearer_name(bearer).to_owned());
        TensorKey { kind, name, vpp_stage: self.bearer_stage(bearer), micro_step }
    }
}

/// The number of elements and the longest dimension of `[3, 4]`; both are 1 for a scalar.
fn size_of(text: &str) -> Option<(f64, f64)> {
    let sizes: Vec<f64> = sizes_of(text)?.into_iter().map(|size| size as f64).collect();
    Some((sizes.iter().product(), sizes.iter().copied().fold(1.0, f64::max)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_tells_its_elements_and_longest_dimension() {
        assert_eq!(size_of("[3, 4]"), Some((12.0, 4.0)));
        assert_eq!(size_of("[]"), Some((1.0, 1.0)));
        assert_eq!(size_of("nan"), None);
    }

    #[test]
    fn one_tensor_has_one_number_whatever_the_run() {
        let mut names = Names::default();
        let (grad, moment) = (names.kind("grad_reduced"), names.kind("exp_avg"));
        let first = names.tensor(grad, 0, "fc.weight", None);
        assert_ne!(first, names.tensor(grad, 1, "fc.weight", None));
        assert_ne!(first, names.tensor(moment, 0, "fc.weight", None));
        assert_ne!(first, names.tensor(grad, 0, "fc.weight", Some(0)));
        assert_eq!(first, names.tensor(grad, 0, "fc.weight", None));
        assert_eq!(names.key(first).name, "fc.weight");
    }
}
