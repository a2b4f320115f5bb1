//! Pairs the values of target and baseline.

mod aligned;
mod api;
mod exact;
mod exchanged;
mod family;
mod fused;
mod layer;
mod listed;
mod mapping;
mod pair;
mod sequence;
mod unlike;
mod wrapped;

pub(crate) use aligned::Alignment;
pub use api::ApiMapping;
pub use exact::exact;
pub(crate) use fused::fuse;
pub use layer::{LayerMapping, by_layer, nodes_by_layer};
pub use mapping::{Mapping, MappingError, by_cell, by_data};
pub use pair::{How, Pair};

use crate::input::Capture;
use crate::joined::Layout;
use api::by_api;
use exchanged::{exchange, exchanged};
use sequence::align;

/// The way in which values pair.
#[derive(Clone, Debug, Default)]
pub enum Matching {
    /// By name and, if the numbers of calls differ, by their sequence; in compatibility mode: [`exact`].
    #[default]
    Name,
    /// By sequence, even if msprobe would pair by name alone.
    Sequence,
    /// By a mapping of full names: [`by_data`].
    Data(Mapping),
    /// By a mapping of module names: [`by_cell`].
    Cell(Mapping),
    /// By a mapping of modules, including their operators: [`by_layer`].
    Layer(LayerMapping),
    /// By a mapping of operators between frameworks: `by_api`.
    Api(ApiMapping),
}

impl Matching {
    /// Pairs the values of two captures. `is_compat`: as msprobe does, including its errors.
    pub fn pairs(&self, target: &Capture, golden: &Capture, is_compat: bool) -> Vec<Pair> {
        let mut pairs = self.unfused_pairs(target, golden, is_compat);
        if !is_compat {
            exchange(&mut pairs, &exchanged(target, golden, &self.plain_alignment(target, golden)));
        }
        if target.joined.is_empty() && golden.joined.is_empty() {
            return pairs;
        }
        for pair in &mut pairs {
            let (Some(one), Some(other)) = (pair.target, pair.golden) else { continue };
            let joined = target.joined.operator(&target.at(one).operator.name);
            let joined = joined.or_else(|| golden.joined.operator(&golden.at(other).operator.name));
            pair.how = match joined.map(|joined| joined.layout) {
                None => pair.how,
                Some(Layout::PLAIN | Layout::Unknown) => How::Fused,
                Some(Layout::Groups(_)) => How::FusedInGroups,
            };
        }
        pairs
    }

    fn unfused_pairs(&self, target: &Capture, golden: &Capture, is_compat: bool) -> Vec<Pair> {
        match self {
            Self::Data(mapping) => by_data(target, golden, mapping, !is_compat),
            Self::Cell(mapping) => by_cell(target, golden, mapping, !is_compat),
            // msprobe accepts a layer mapping without using it.
            Self::Layer(_) | Self::Name if is_compat => exact(target, golden),
            Self::Layer(mapping) => by_layer(target, golden, mapping),
            Self::Api(mapping) => by_api(target, golden, mapping),
            Self::Name if target.document.framework != golden.document.framework => {
                by_api(target, golden, &ApiMapping::default())
            }
            Self::Name | Self::Sequence => align(target, golden).pairs(target, golden),
        }
    }

    /// Aligns the operators of two captures in execution order. The values of aligned operators are those that [`Self::pairs`]
    /// pairs.
    pub fn align(&self, target: &Capture, golden: &Capture) -> Alignment {
        let mut aligned = self.plain_alignment(target, golden);
        let exchanged = exchanged(target, golden, &aligned);
        aligned.exchange(target, golden, &exchanged);
        aligned
    }

    fn plain_alignment(&self, target: &Capture, golden: &Capture) -> Alignment {
        let is_of_two_frameworks = target.document.framework != golden.document.framework;
        match self {
            Self::Sequence => align(target, golden).operators.into(),
            Self::Name if !is_of_two_frameworks => align(target, golden).operators.into(),
            _ => aligned::by_pairs(target, golden, &self.unfused_pairs(target, golden, false)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use trainmon_capture_files::{Construct, Stacks, parse_document};

    use super::*;
    use crate::item::Address;

    /// A capture of operators with one input each, and their modules.
    pub(crate) fn capture(operators: &[&str], parents: &[(&str, Option<&str>)]) -> Capture {
        let tensor = serde_json::json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0,
            "Min": 0.0, "Mean": 0.5, "Norm": 1.0, "requires_grad": false});
        let entry = serde_json::json!({"input_args": [tensor]});
        let data: Vec<String> = operators.iter().map(|name| format!("\"{name}\": {entry}")).collect();
        let text = format!("{{\"task\": \"statistics\", \"data\": {{{}}}}}", data.join(","));
        let construct: serde_json::Map<String, serde_json::Value> =
            parents.iter().map(|(child, parent)| ((*child).to_owned(), (*parent).into())).collect();
        let construct = serde_json::to_vec(&construct).unwrap();
        let path = std::path::Path::new("dump.json");
        Capture {
            path: path.to_path_buf(),
            document: parse_document(text.as_bytes(), path).unwrap(),
            stacks: Stacks::default(),
            construct: Construct::parse(&construct, path).unwrap(),
            has_stacks: false,
            tensors: None,
            meter: std::sync::Arc::default(),
            joined: crate::joined::Joined::default(),
        }
    }

    /// The pairs as operator names.
    pub(crate) fn names<'c>(
        target: &'c Capture,
        golden: &'c Capture,
        pairs: &[Pair],
    ) -> Vec<(Option<&'c str>, Option<&'c str>, How)> {
        let name = |capture: &'c Capture, address: Option<Address>| address.map(|at| &*capture.at(at).operator.name);
        pairs.iter().map(|pair| (name(target, pair.target), name(golden, pair.golden), pair.how)).collect()
    }
}
