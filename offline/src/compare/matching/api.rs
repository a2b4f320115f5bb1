//! By operators: which of one framework is which of another, and which of their values.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use trainmon_dump::capture::{Framework, Operator, Section, Value};

use super::exact::{Side, pair_by_places};
use super::family::{common_callee, common_parameter};
use super::mapping::{MappingError, text_of};
use super::{How, Pair};
use crate::compare::input::Capture;
use crate::compare::name::{Direction, OperatorName};

/// Operators of `MindSpore` and their counterparts in torch. Between captures of one framework the first is the target's.
#[derive(Clone, Debug, Default)]
pub struct ApiMapping {
    entries: Vec<ApiEntry>,
}

/// One operator. Lists that are left out leave the values where they are; in lists of other lengths what stands at the same
/// place belongs together, and what a list does not name has no counterpart.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiEntry {
    /// Like `Functional.abs` or `Mint.abs`.
    pub ms_api: String,
    /// Like `Torch.abs`.
    pub pt_api: String,
    /// Indices of arguments.
    #[serde(default)]
    pub ms_args: Vec<u32>,
    /// Their counterparts.
    #[serde(default)]
    pub pt_args: Vec<u32>,
    /// Indices of results.
    #[serde(default)]
    pub ms_outputs: Vec<u32>,
    /// Their counterparts.
    #[serde(default)]
    pub pt_outputs: Vec<u32>,
    /// Names of parameters.
    #[serde(default)]
    pub ms_parameters: Vec<String>,
    /// Their counterparts.
    #[serde(default)]
    pub pt_parameters: Vec<String>,
    /// Names of parameters with gradients; without them those of the parameters.
    #[serde(default)]
    pub ms_parameters_grad: Vec<String>,
    /// Their counterparts.
    #[serde(default)]
    pub pt_parameters_grad: Vec<String>,
}

impl ApiMapping {
    /// Reads a YAML list of operators.
    ///
    /// # Errors
    /// See [`MappingError`].
    pub fn read(path: &Path) -> Result<Self, MappingError> {
        let parsed: Result<Vec<ApiEntry>, _> = serde_saphyr::from_str(&text_of(path)?);
        let form = "- {ms_api: Functional.abs, pt_api: Torch.abs, ms_args: [0], pt_args: [0]}";
        let entries =
            parsed.map_err(|source| MappingError::Syntax { path: path.into(), form, source: Box::new(source) })?;
        Ok(Self::of(entries))
    }

    /// Out of entries.
    pub fn of(entries: Vec<ApiEntry>) -> Self {
        Self { entries }
    }

    /// The entry for a callee of the target, and whether its `pt` half is the target's.
    fn entry(&self, callee: &str, is_reversed: bool) -> Option<&ApiEntry> {
        self.entries.iter().find(|entry| *(if is_reversed { &entry.pt_api } else { &entry.ms_api }) == callee)
    }
}

/// Pairs operators by what they are called in torch, and by how often they ran before; values by the lists of the mapping, or
/// by their places. Lists of arguments also hold for what a backward gives out, lists of results for what goes into it.
pub fn by_api(target: &Capture, golden: &Capture, mapping: &ApiMapping) -> Vec<Pair> {
    let is_reversed =
        target.document.framework == Framework::PyTorch && golden.document.framework != Framework::PyTorch;
    let entries: Vec<Option<&ApiEntry>> = target
        .document
        .operators
        .iter()
        .map(|operator| mapping.entry(OperatorName::parse(&operator.name)?.callee, is_reversed))
        .collect();
    let renamed = |index: usize| entries[index].map(|entry| if is_reversed { &*entry.ms_api } else { &*entry.pt_api });
    let target_keys = counted(target, golden.document.framework, renamed);
    let golden_keys = counted(golden, golden.document.framework, |_| None);
    let how = |index: usize| if entries[index].is_some() { How::Mapping } else { How::Family };
    let ours = Side {
        capture: target,
        keys: &target_keys,
        place: &|index, value| match entries[index] {
            Some(entry) => {
                entry.place(&target.document.operators[index], value, is_reversed, golden.document.framework)
            }
            None => Some(common_place(value, target.document.framework)),
        },
    };
    let theirs = Side {
        capture: golden,
        keys: &golden_keys,
        place: &|_, value| Some(common_place(value, golden.document.framework)),
    };
    pair_by_places(&ours, &theirs, how)
}

/// Callees in torch's spelling with the number of calls before.
fn counted<'m>(capture: &Capture, golden: Framework, renamed: impl Fn(usize) -> Option<&'m str>) -> Vec<String> {
    let mut counts: HashMap<(String, Direction), u32> = HashMap::new();
    let key = |(index, operator): (usize, &Operator)| {
        let Some(name) = OperatorName::parse(&operator.name) else { return operator.name.to_string() };
        // A name out of the mapping is already in the golden's framework.
        let callee = match renamed(index) {
            Some(renamed) => common_callee(renamed, golden).into_owned(),
            None => common_callee(name.callee, capture.document.framework).into_owned(),
        };
        if !name.is_operator {
            return format!("{callee}.{:?}.{}", name.direction, name.call);
        }
        let count = counts.entry((callee.clone(), name.direction)).or_insert(0);
        *count += 1;
        format!("{callee}.{}.{:?}", *count - 1, name.direction)
    };
    capture.document.operators.iter().enumerate().map(key).collect()
}

impl ApiEntry {
    /// Where a value of the target is in the golden; `None` where it has no counterpart.
    fn place<'v>(
        &self,
        operator: &Operator,
        value: &'v Value,
        is_reversed: bool,
        golden: Framework,
    ) -> Option<Cow<'v, str>> {
        let is_forward = OperatorName::parse(&operator.name).is_none_or(|name| name.direction == Direction::Forward);
        let turned = |ms, pt| if is_reversed { (pt, ms) } else { (ms, pt) };
        let (from, to): (&Vec<u32>, &Vec<u32>) = match (value.section, is_forward) {
            (Section::Input, true) | (Section::Output, false) => turned(&self.ms_args, &self.pt_args),
            (Section::Output, true) | (Section::Input, false) => turned(&self.ms_outputs, &self.pt_outputs),
            (Section::Parameter, _) => {
                let (from, to) = if is_reversed {
                    (&self.pt_parameters, &self.ms_parameters)
                } else {
                    (&self.ms_parameters, &self.pt_parameters)
                };
                return named(value, ".parameters.", from, to, golden);
            }
            (Section::ParameterGradient, _) => {
                let (ms, pt) = match (self.ms_parameters_grad.is_empty(), self.pt_parameters_grad.is_empty()) {
                    (false, false) => (&self.ms_parameters_grad, &self.pt_parameters_grad),
                    _ => (&self.ms_parameters, &self.pt_parameters),
                };
                let (from, to) = if is_reversed { (pt, ms) } else { (ms, pt) };
                return named(value, ".", from, to, golden);
            }
            (Section::Saved, _) => return Some(Cow::Borrowed(&value.place)),
        };
        numbered(&value.place, from, to)
    }
}

/// `.input.1.0` with `[0, 1]` and `[2, 3]`: `.input.3.0`.
fn numbered<'v>(place: &'v str, from: &[u32], to: &[u32]) -> Option<Cow<'v, str>> {
    let mut parts = place.splitn(4, '.');
    let (_, part, index, rest) = (parts.next(), parts.next(), parts.next(), parts.next());
    let index = index.and_then(|index| index.parse::<u32>().ok());
    let (Some(part), Some(index)) = (part, index.filter(|_| !from.is_empty())) else {
        return Some(Cow::Borrowed(place));
    };
    let to = from.iter().position(|&one| one == index).and_then(|at| to.get(at))?;
    Some(Cow::Owned(format!(".{part}.{to}{}", rest.map(|rest| format!(".{rest}")).unwrap_or_default())))
}

fn named<'v>(
    value: &'v Value,
    prefix: &str,
    from: &[String],
    to: &[String],
    golden: Framework,
) -> Option<Cow<'v, str>> {
    let place = &*value.place;
    let Some(name) = place.strip_prefix(prefix).filter(|_| !from.is_empty()) else { return Some(Cow::Borrowed(place)) };
    let to = from.iter().position(|one| one == name).and_then(|at| to.get(at))?;
    Some(Cow::Owned(format!("{prefix}{}", common_parameter(to, golden).unwrap_or(to))))
}

/// A place in torch's spelling: parameters of the same layers have other names in `MindSpore`.
fn common_place(value: &Value, framework: Framework) -> Cow<'_, str> {
    let prefix = match value.section {
        Section::Parameter => ".parameters.",
        Section::ParameterGradient => ".",
        _ => return Cow::Borrowed(&value.place),
    };
    let name = value.place.strip_prefix(prefix).and_then(|name| common_parameter(name, framework));
    name.map_or(Cow::Borrowed(&*value.place), |name| Cow::Owned(format!("{prefix}{name}")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};
    use trainmon_dump::capture::{Construct, Stacks, parse_document};

    use super::*;
    use crate::compare::deviation::{What, deviation};
    use crate::compare::matching::Matching;

    fn read(framework: &str, data: &Value) -> Capture {
        let text = json!({"task": "statistics", "framework": framework, "data": data}).to_string();
        Capture {
            path: "dump.json".into(),
            document: parse_document(text.as_bytes(), Path::new("dump.json")).unwrap(),
            stacks: Stacks::default(),
            construct: Construct::default(),
            has_stacks: false,
            tensors: None,
            tensor_bytes: std::sync::atomic::AtomicU64::new(0),
            joined: crate::compare::Joined::default(),
        }
    }

    fn tensor(dtype: &str, value: f64) -> Value {
        json!({"type": "Tensor", "dtype": dtype, "shape": [2], "Max": value, "Min": value, "Mean": value, "Norm": value})
    }

    fn mindspore() -> Capture {
        let value = |value| tensor("Float32", value);
        read(
            "mindspore",
            &json!({
                "MintFunctional.relu.0.forward": {"input_args": [value(1.0)], "output": [value(1.0)]},
                "Mint.sub.3.forward": {"input_args": [value(2.0), value(3.0)], "output": [value(5.0)]},
                "Cell.norm.LayerNorm.forward.0": {"input_args": [value(1.0)], "parameters": {"gamma": value(7.0)},
                    "output": []},
                "Cell.norm.LayerNorm.parameters_grad.0": {"gamma": [value(8.0)]},
                "Mint.sub.3.backward": {"input": [value(5.0)], "output": [value(2.0), value(3.0)]},
            }),
        )
    }

    fn torch() -> Capture {
        let value = |value| tensor("torch.float32", value);
        read(
            "pytorch",
            &json!({
                "Functional.relu.0.forward": {"input_args": [value(1.0)], "output": [value(1.0)]},
                "Torch.rsub.0.forward": {"input_args": [value(3.0), value(2.0)], "output": [value(5.0)]},
                "Module.norm.LayerNorm.forward.0": {"input_args": [value(1.0)], "parameters": {"weight": value(7.0)},
                    "output": []},
                "Module.norm.LayerNorm.parameters_grad.0": {"weight": [value(8.0)]},
                "Torch.rsub.0.backward": {"input": [value(5.0)], "output": [value(3.0), value(2.0)]},
            }),
        )
    }

    fn rsub() -> ApiMapping {
        let entries = "- {ms_api: Mint.sub, pt_api: Torch.rsub, ms_args: [0, 1], pt_args: [1, 0]}";
        ApiMapping::of(serde_saphyr::from_str(entries).unwrap())
    }

    #[test]
    fn captures_of_two_frameworks_match_in_every_value_both_ways() {
        let (mindspore, torch) = (mindspore(), torch());
        for (target, golden) in [(&mindspore, &torch), (&torch, &mindspore)] {
            let pairs = by_api(target, golden, &rsub());
            assert_eq!(pairs.len(), target.addresses().count());
            for pair in pairs {
                let (one, other) = (target.at(pair.target.unwrap()), golden.at(pair.golden.expect("a counterpart")));
                let deviation = deviation(one, other);
                assert_eq!(deviation.what, What::Nothing, "{} {}", one.name(), other.name());
            }
        }
    }

    /// The search holds values against those of the same place, which would be the wrong ones.
    #[test]
    fn the_search_leaves_out_operators_whose_values_move() {
        let (target, golden) = (mindspore(), torch());
        assert_eq!(Matching::Api(rsub()).align(&target, &golden), [(Some(0), Some(0))]);
        let entries = "- {ms_api: Mint.sub, pt_api: Torch.rsub}";
        let stays = Matching::Api(ApiMapping::of(serde_saphyr::from_str(entries).unwrap()));
        let parameters_alone_move = [(Some(0), Some(0)), (Some(1), Some(1)), (Some(4), Some(4))];
        assert_eq!(stays.align(&target, &golden), parameters_alone_move);
    }

    #[test]
    fn a_value_that_a_list_leaves_out_has_no_counterpart() {
        let entries = "- {ms_api: Mint.sub, pt_api: Torch.rsub, ms_args: [0], pt_args: [1]}";
        let mapping = ApiMapping::of(serde_saphyr::from_str(entries).unwrap());
        let (target, golden) = (mindspore(), torch());
        let pairs = by_api(&target, &golden, &mapping);
        let name = |capture: &Capture, at| capture.at(at).name();
        let alone: Vec<String> = pairs
            .iter()
            .filter_map(|pair| match (pair.target, pair.golden) {
                (Some(at), None) => Some(name(&target, at)),
                (None, Some(at)) => Some(name(&golden, at)),
                _ => None,
            })
            .collect();
        assert_eq!(
            alone,
            [
                "Mint.sub.3.forward.input.1",
                "Mint.sub.3.backward.output.1",
                "Torch.rsub.0.forward.input.0",
                "Torch.rsub.0.backward.output.0",
            ]
        );
    }
}
