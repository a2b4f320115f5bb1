//! By operators: pairs operators and values of different frameworks.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;
use trainmon_capture_files::{Framework, Operator, Section, Value};

use super::exact::{Side, pair_by_places};
use super::family::{COLLECTIVES, common_callee, common_parameter};
use super::mapping::{MappingError, read_yaml};
use super::pair::{How, Pair};
use crate::input::Capture;
use crate::name::{Direction, OperatorName};

/// Operators of `MindSpore` and their counterparts in torch. Between captures of one framework, the first is the target's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct ApiMapping {
    entries: Vec<ApiEntry>,
}

/// One operator. Missing lists leave the values in place. In lists of other lengths, values at the same position pair, and
/// values that a list omits have no counterpart.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiEntry {
    /// Like `Functional.abs` or `Mint.abs`.
    ms_api: String,
    /// Like `Torch.abs`.
    pt_api: String,
    /// Indices of arguments.
    #[serde(default)]
    ms_args: Vec<u32>,
    /// Their counterparts.
    #[serde(default)]
    pt_args: Vec<u32>,
    /// Indices of results.
    #[serde(default)]
    ms_outputs: Vec<u32>,
    /// Their counterparts.
    #[serde(default)]
    pt_outputs: Vec<u32>,
    /// Names of parameters.
    #[serde(default)]
    ms_parameters: Vec<String>,
    /// Their counterparts.
    #[serde(default)]
    pt_parameters: Vec<String>,
    /// Names of parameters with gradients; by default, those of the parameters.
    #[serde(default)]
    ms_parameters_grad: Vec<String>,
    /// Their counterparts.
    #[serde(default)]
    pt_parameters_grad: Vec<String>,
}

impl ApiMapping {
    /// Reads a YAML list of operators.
    ///
    /// # Errors
    /// See [`MappingError`].
    pub fn read(path: &Path) -> Result<Self, MappingError> {
        read_yaml(path, "- {ms_api: Functional.abs, pt_api: Torch.abs, ms_args: [0], pt_args: [0]}")
    }

    /// The entry for a callee of the target, and whether its `pt` half belongs to the target.
    fn entry(&self, callee: &str, is_reversed: bool) -> Option<&ApiEntry> {
        self.entries.iter().find(|entry| *(if is_reversed { &entry.pt_api } else { &entry.ms_api }) == callee)
    }
}

/// Pairs operators by their name in torch and the number of earlier calls, and values by the lists of the mapping or by their
/// places. Lists of arguments also apply to the results of a backward, lists of results to its inputs.
pub(crate) fn by_api(target: &Capture, golden: &Capture, mapping: &ApiMapping) -> Vec<Pair> {
    let matched = matched(target, golden, mapping);
    let how = |index: usize| if matched.is_mapped(index) { How::Mapping } else { How::Family };
    let ours = Side { capture: target, keys: &matched.target_keys, place: &|index, value| matched.place(index, value) };
    let theirs = Side {
        capture: golden,
        keys: &matched.golden_keys,
        place: &|_, value| Some(common_place(value, golden.document.framework)),
    };
    pair_by_places(&ours, &theirs, how)
}

/// The keys of two captures' operators.
struct Matched<'m> {
    target: &'m Capture,
    golden: Framework,
    is_reversed: bool,
    /// For each operator of the target: its mapping entry, and whether the user wrote it.
    entries: Vec<Option<(Cow<'m, ApiEntry>, bool)>>,
    target_keys: Vec<String>,
    golden_keys: Vec<String>,
}

fn matched<'m>(target: &'m Capture, golden: &'m Capture, mapping: &'m ApiMapping) -> Matched<'m> {
    let frameworks = [target, golden].map(|capture| capture.document.framework);
    let is_reversed = frameworks[0] == Framework::PyTorch && frameworks[1] != Framework::PyTorch;
    let of_both = frameworks.contains(&Framework::MindSpore) && frameworks.contains(&Framework::PyTorch);
    let entry = |operator: &Operator| {
        let callee = OperatorName::parse(&operator.name)?.callee;
        let written = mapping.entry(callee, is_reversed).map(|entry| (Cow::Borrowed(entry), true));
        written.or_else(|| Some((Cow::Owned(ApiEntry::collective(callee, is_reversed).filter(|_| of_both)?), false)))
    };
    let entries: Vec<Option<(Cow<'_, ApiEntry>, bool)>> = target.document.operators.iter().map(entry).collect();
    let callee = |index: usize, name: OperatorName<'_>| match &entries[index] {
        // The name from the mapping is already in the baseline's framework.
        Some((entry, _)) => {
            let renamed = if is_reversed { &entry.ms_api } else { &entry.pt_api };
            common_callee(renamed, frameworks[1], frameworks[0]).into_owned()
        }
        None => common_callee(name.callee, frameworks[0], frameworks[1]).into_owned(),
    };
    let of_target = Calls::of(target, callee);
    let of_golden = Calls::of(golden, |_, name| common_callee(name.callee, frameworks[1], frameworks[0]).into_owned());
    let one_family = if frameworks[0] == frameworks[1] { HashSet::new() } else { of_target.of_one_family(&of_golden) };
    let (target_keys, golden_keys) = (of_target.keys(&one_family), of_golden.keys(&one_family));
    Matched { target, golden: frameworks[1], is_reversed, entries, target_keys, golden_keys }
}

impl Matched<'_> {
    fn is_mapped(&self, index: usize) -> bool {
        self.entries[index].as_ref().is_some_and(|(_, is_written)| *is_written)
    }

    fn place<'v>(&self, index: usize, value: &'v Value) -> Option<Cow<'v, str>> {
        match &self.entries[index] {
            Some((entry, _)) => {
                entry.place(&self.target.document.operators[index], value, self.is_reversed, self.golden)
            }
            None => Some(common_place(value, self.target.document.framework)),
        }
    }
}

/// A capture's calls in the common spelling of both frameworks.
struct Calls<'c> {
    capture: &'c Capture,
    /// `None` for names of another form.
    callees: Vec<Option<String>>,
}

impl<'c> Calls<'c> {
    fn of(capture: &'c Capture, callee: impl Fn(usize, OperatorName<'_>) -> String) -> Self {
        let operators = capture.document.operators.iter().enumerate();
        let spelled = |(index, operator): (usize, &Operator)| Some(callee(index, OperatorName::parse(&operator.name)?));
        Self { capture, callees: operators.map(spelled).collect() }
    }

    /// Functions that only one framework calls as methods of tensors, equally often in total: their calls count together.
    fn of_one_family(&self, other: &Self) -> HashSet<String> {
        let (ours, theirs) = (self.numbers(), other.numbers());
        let none = [0, 0];
        let differs = |function: &&&str| {
            let (one, other) = (ours.get(**function).unwrap_or(&none), theirs.get(**function).unwrap_or(&none));
            one != other && one.iter().sum::<usize>() == other.iter().sum::<usize>()
        };
        ours.keys().filter(differs).map(|function| (*function).to_owned()).collect()
    }

    /// By function: the numbers of forward calls as a method and as a function.
    fn numbers(&self) -> HashMap<&str, [usize; 2]> {
        let mut numbers: HashMap<&str, [usize; 2]> = HashMap::new();
        for (operator, callee) in self.capture.document.operators.iter().zip(&self.callees) {
            let Some(callee) = callee.as_deref().filter(|_| operator.name.ends_with(".forward")) else { continue };
            match callee.split_once('.') {
                Some(("Tensor", function)) => numbers.entry(function).or_default()[0] += 1,
                Some(("Torch", function)) => numbers.entry(function).or_default()[1] += 1,
                _ => {}
            }
        }
        numbers
    }

    /// Callees with the numbers of their calls.
    fn keys(&self, one_family: &HashSet<String>) -> Vec<String> {
        let mut counts: HashMap<(&str, Direction), u32> = HashMap::new();
        let mut keys = Vec::with_capacity(self.callees.len());
        for (operator, callee) in self.capture.document.operators.iter().zip(&self.callees) {
            let (Some(name), Some(callee)) = (OperatorName::parse(&operator.name), callee.as_deref()) else {
                keys.push(operator.name.to_string());
                continue;
            };
            if !name.is_operator {
                keys.push(format!("{callee}.{:?}.{}", name.direction, name.call));
                continue;
            }
            let is_one = |rest: &&str| one_family.contains(*rest);
            let function = callee.strip_prefix("Tensor.").or_else(|| callee.strip_prefix("Torch."));
            let callee = function.filter(is_one).unwrap_or(callee);
            let count = counts.entry((callee, name.direction)).or_insert(0);
            *count += 1;
            keys.push(format!("{callee}.{}.{:?}", *count - 1, name.direction));
        }
        keys
    }
}

impl ApiEntry {
    /// The entry for a collective that takes its result tensor on one side only.
    fn collective(callee: &str, is_reversed: bool) -> Option<Self> {
        let is_meant = |(ms, pt, ..): &&(&str, &str, u32, u32)| *(if is_reversed { pt } else { ms }) == callee;
        let (ms_api, pt_api, ms, pt) = COLLECTIVES.iter().find(is_meant)?;
        let (ms_api, pt_api) = ((*ms_api).to_owned(), (*pt_api).to_owned());
        Some(Self { ms_api, pt_api, ms_args: vec![*ms], pt_args: vec![*pt], ..Self::default() })
    }

    /// The place of a target's value in the baseline; `None` if it has no counterpart.
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

/// A place in torch's spelling: `MindSpore` names parameters of the same layers differently.
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
    use trainmon_capture_files::{Construct, Stacks, parse_document};

    use super::*;
    use crate::deviation::{What, deviation};
    use crate::matching::Matching;

    fn read(framework: &str, data: &Value) -> Capture {
        let text = json!({"task": "statistics", "framework": framework, "data": data}).to_string();
        Capture {
            path: "dump.json".into(),
            document: parse_document(text.as_bytes(), Path::new("dump.json")).unwrap(),
            stacks: Stacks::default(),
            construct: Construct::default(),
            has_stacks: false,
            tensors: None,
            meter: std::sync::Arc::default(),
            joined: crate::joined::Joined::default(),
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
        serde_saphyr::from_str(entries).unwrap()
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

    /// Calls of these names in both frameworks, each with its own value, as rows of the counterparts they were given.
    fn paired(mindspore: &[&str], torch: &[&str]) -> Vec<(String, Option<String>)> {
        let of = |framework: &str, dtype: &str, names: &[&str]| {
            let entry = |name: &&str| ((*name).to_owned(), json!({"input_args": [tensor(dtype, 1.0)], "output": []}));
            read(framework, &Value::Object(names.iter().map(entry).collect()))
        };
        let (target, golden) = (of("mindspore", "Float32", mindspore), of("pytorch", "torch.float32", torch));
        let name =
            |capture: &Capture, at: Option<crate::item::Address>| at.map(|at| capture.at(at).operator.name.to_string());
        let pairs = Matching::Name.pairs(&target, &golden, false);
        pairs.iter().filter_map(|pair| Some((name(&target, pair.target)?, name(&golden, pair.golden)))).collect()
    }

    /// What a transformer and a convolutional net call in both frameworks.
    #[test]
    fn operators_of_other_names_in_other_families_pair() {
        let calls = [
            ("Functional.matmul.0.forward", "Torch.matmul.0.forward"),
            ("Mint.matmul.0.forward", "Tensor.matmul.0.forward"),
            ("Functional.dense.0.forward", "Functional.linear.0.forward"),
            ("MintFunctional.linear.0.forward", "Functional.linear.1.forward"),
            ("Functional.softmax.0.forward", "Torch.softmax.0.forward"),
            ("MintFunctional.silu.0.forward", "Functional.silu.0.forward"),
            ("Functional.transpose.0.forward", "Torch.permute.0.forward"),
            ("Functional.swapaxes.0.forward", "Torch.transpose.0.forward"),
            ("Functional.concat.0.forward", "Torch.cat.0.forward"),
            ("Tensor.broadcast_to.0.forward", "Tensor.expand.0.forward"),
            ("Tensor.astype.0.forward", "Tensor.to.0.forward"),
            ("Mint.sub.0.forward", "Tensor.__sub__.0.forward"),
            ("Primitive.attention.BatchMatMul.0.forward", "Torch.bmm.0.forward"),
            ("Functional.reshape.0.forward", "Tensor.view.0.forward"),
            ("Primitive.cast.Cast.0.forward", "Tensor.to.1.forward"),
            ("Primitive.conv.Conv2D.0.forward", "Functional.conv2d.0.forward"),
            ("MintDistributed.all_reduce.0.forward", "Distributed.all_reduce.0.forward"),
            ("Cell.0.fc.Dense.forward.0", "Module.0.fc.Linear.forward.0"),
            ("Cell.net.SequentialCell.backward.0", "Module.net.Sequential.backward.0"),
        ];
        let (mindspore, torch): (Vec<&str>, Vec<&str>) = calls.iter().copied().unzip();
        let expected: Vec<(String, Option<String>)> =
            calls.iter().map(|(one, other)| ((*one).to_owned(), Some((*other).to_owned()))).collect();
        assert_eq!(paired(&mindspore, &torch), expected);
    }

    /// One name, and another meaning; and a function whose calls differ in number from the other side's methods.
    #[test]
    fn what_is_not_the_same_stays_alone() {
        let mindspore =
            ["Functional.gather.0.forward", "Jit.step.0.forward", "Primitive.x.Mine.0.forward", "Mint.mul.0.forward"];
        let torch = ["Torch.gather.0.forward", "Torch.step.0.forward", "Tensor.mul.0.forward", "Tensor.mul.1.forward"];
        for (name, twin) in paired(&mindspore, &torch) {
            assert_eq!(twin, None, "{name}");
        }
    }

    /// torch's collective is given the tensor for its result first.
    #[test]
    fn collectives_pair_by_what_is_sent() {
        let value = |value| tensor("torch.float32", value);
        let name = "Distributed.all_gather_into_tensor.0.forward";
        let target = read("mindspore", &json!({name: {"input_args": [tensor("Float32", 1.0)], "output": []}}));
        let golden = read("pytorch", &json!({name: {"input_args": [value(0.0), value(1.0)], "output": []}}));
        let pairs = Matching::Name.pairs(&target, &golden, false);
        let [one, other] = pairs[..] else { panic!("{pairs:?}") };
        assert_eq!(golden.at(one.golden.unwrap()).name(), format!("{name}.input.1"));
        assert_eq!((other.target, golden.at(other.golden.unwrap()).name()), (None, format!("{name}.input.0")));
    }

    #[test]
    fn a_value_that_a_list_leaves_out_has_no_counterpart() {
        let entries = "- {ms_api: Mint.sub, pt_api: Torch.rsub, ms_args: [0], pt_args: [1]}";
        let mapping: ApiMapping = serde_saphyr::from_str(entries).unwrap();
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
