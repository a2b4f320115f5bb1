//! By module: a file maps modules of the target to those of the baseline; operators follow the module in which they ran.

use std::collections::HashMap;
use std::path::Path;

use trainmon_capture_files::Framework;

use super::exact::{keys, pair};
use super::family::common_callee;
use super::mapping::{MappingError, read_yaml};
use super::pair::{How, Pair};
use crate::input::Capture;
use crate::item::Address;
use crate::name::{Direction, OperatorName};

/// The root of the model; older files spell it `Cell`.
const ROOTS: [&str; 2] = ["TopLayer", "Cell"];
/// The class whose layers have the numbers of their pipeline stage; both sides count them from 0.
const STAGE: &str = "ParallelTransformer";

/// The baseline's names of a module class's children.
#[derive(Clone, Debug, Default)]
pub struct LayerMapping {
    /// By class, longest path first.
    rules: HashMap<String, Vec<Rule>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    from: Vec<String>,
    to: Vec<String>,
}

impl LayerMapping {
    /// Reads YAML of the form `{class: {path in the target: path in the baseline}}`, with paths relative to a module of that
    /// class; the class of the whole model is `TopLayer`.
    ///
    /// # Errors
    /// See [`MappingError`].
    pub fn read(path: &Path) -> Result<Self, MappingError> {
        let classes = read_yaml(path, "class of a module: {path in the target: path in the golden}")?;
        Ok(Self::of(classes))
    }

    /// Creates a mapping from classes and their paths.
    pub fn of(classes: HashMap<String, HashMap<String, String>>) -> Self {
        let rules = classes.into_iter().map(|(class, paths)| {
            let mut rules: Vec<Rule> =
                paths.iter().map(|(from, to)| Rule { from: segments(from), to: segments(to) }).collect();
            rules.retain(|rule| !rule.from.is_empty());
            rules.sort_by(|one, other| other.from.len().cmp(&one.from.len()).then_with(|| one.from.cmp(&other.from)));
            (class, rules)
        });
        Self { rules: rules.collect() }
    }

    fn rule(&self, class: Option<&str>, is_root: bool, rest: &[&str]) -> Option<&Rule> {
        let roots = ROOTS.into_iter().filter(|_| is_root);
        let mut rules = class.into_iter().chain(roots).filter_map(|class| self.rules.get(class)).flatten();
        rules.find(|rule| rest.len() >= rule.from.len() && rule.from.iter().zip(rest).all(|(one, other)| one == other))
    }
}

/// The segments of a path, without a `(` and the text after it.
fn segments(path: &str) -> Vec<String> {
    let path = path.split('(').next().unwrap_or("").trim();
    path.split('.').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

/// Pairs modules with the same path after mapping, whatever their classes; an operator pairs with the operator of the same name
/// and number in the module. A backward follows its forward. Operators that no `construct.json` contains pair by name.
pub fn by_layer(target: &Capture, golden: &Capture, mapping: &LayerMapping) -> Vec<Pair> {
    let [one, other] = [target, golden].map(|capture| capture.document.framework);
    let (ours, theirs) = (Scopes::of(target, other, Some(mapping)), Scopes::of(golden, one, None));
    let is_mapped = ours.is_mapped;
    let how = |operator: usize| if is_mapped[operator] { How::Mapping } else { How::Name };
    pair(target, &ours.keys, golden, &theirs.keys, how)
}

/// Pairs the nodes of two call trees as [`by_layer`] pairs operators, also nodes without captured values: names of the baseline by
/// names of the target.
pub fn nodes_by_layer(target: &Capture, golden: &Capture, mapping: &LayerMapping) -> HashMap<Box<str>, Box<str>> {
    let (target, golden) = (target.tree(), golden.tree());
    let name = |capture: &Capture, address: Address| capture.at(address).operator.name.clone();
    let pairs = by_layer(&target, &golden, mapping);
    let both = pairs.iter().filter_map(|pair| Some((name(&target, pair.target?), name(&golden, pair.golden?))));
    both.collect()
}

/// A capture's operators with keys for their place in the model.
struct Scopes {
    keys: Vec<String>,
    is_mapped: Vec<bool>,
}

impl Scopes {
    fn of(capture: &Capture, other: Framework, mapping: Option<&LayerMapping>) -> Self {
        let modules = Modules::of(capture, mapping);
        let mut keys = keys(capture, true);
        let mut is_mapped = vec![false; keys.len()];
        let mut counts: HashMap<(String, String, Direction), u32> = HashMap::new();
        let mut forwards: HashMap<(&str, u32), u32> = HashMap::new();
        for ((operator, key), is_mapped) in capture.document.operators.iter().zip(&mut keys).zip(&mut is_mapped) {
            let Some(name) = OperatorName::parse(&operator.name) else { continue };
            if let Some((path, _)) = module(name) {
                let mapped = modules.mapped(path);
                *is_mapped = mapped != path;
                *key = format!("Module {mapped}.{:?}.{}", name.direction, name.call);
                continue;
            }
            let forward = format!("{}.{}.forward", name.callee, name.call);
            let Some(parent) = capture.parent(&forward) else { continue };
            let scope = match parent.name.as_deref().and_then(OperatorName::parse) {
                Some(parent) => {
                    let path = module(parent).map_or("", |(path, _)| path);
                    let mapped = modules.mapped(path);
                    *is_mapped = mapped != path;
                    format!("{mapped}#{}", parent.call)
                }
                None => String::new(),
            };
            let callee = common_callee(name.callee, capture.document.framework, other);
            let counted = |counts: &mut HashMap<_, _>| {
                let count = counts.entry((scope.clone(), callee.to_string(), name.direction)).or_insert(0);
                *count += 1;
                *count - 1
            };
            let call = match (name.direction, forwards.get(&(name.callee, name.call))) {
                (Direction::Forward, _) => {
                    let call = counted(&mut counts);
                    forwards.insert((name.callee, name.call), call);
                    call
                }
                (_, Some(&call)) => call,
                (_, None) => counted(&mut counts),
            };
            *key = format!("{scope} {callee}.{call}.{:?}", name.direction);
        }
        Self { keys, is_mapped }
    }
}

/// The modules of a capture: their classes and their names in the baseline.
struct Modules<'c> {
    classes: HashMap<&'c str, &'c str>,
    /// The smallest layer number below each [`STAGE`].
    first_layers: HashMap<&'c str, u32>,
    mapping: Option<&'c LayerMapping>,
}

impl<'c> Modules<'c> {
    fn of(capture: &'c Capture, mapping: Option<&'c LayerMapping>) -> Self {
        let mut classes = HashMap::new();
        for operator in &capture.document.operators {
            // Modules that were not captured themselves appear as parents.
            let above = capture.construct.parent(&operator.name).and_then(|parent| parent.name.as_deref());
            for name in std::iter::once(&*operator.name).chain(above) {
                classes.extend(OperatorName::parse(name).and_then(module));
            }
        }
        let mut first_layers = HashMap::new();
        for path in classes.keys() {
            if let Some((stage, number)) = layer(path).filter(|(stage, _)| classes.get(stage) == Some(&STAGE)) {
                let first = first_layers.entry(stage).or_insert(number);
                *first = number.min(*first);
            }
        }
        Self { classes, first_layers, mapping }
    }

    /// A module's path in the baseline.
    fn mapped(&self, path: &str) -> String {
        let segments: Vec<&str> = path.split('.').filter(|segment| !segment.is_empty()).collect();
        let mut mapped: Vec<String> = Vec::with_capacity(segments.len());
        let (mut at, mut length) = (0, 0);
        while at < segments.len() {
            let inside = &path[..length];
            let class = self.classes.get(inside).copied();
            let rule = self.mapping.and_then(|mapping| mapping.rule(class, at == 0, &segments[at..]));
            let taken = rule.map_or(1, |rule| rule.from.len());
            let until = segments[..at + taken].join(".").len();
            match rule {
                Some(rule) => mapped.extend(rule.to.iter().cloned()),
                None => mapped.push(self.counted_anew(&path[..until], segments[at])),
            }
            (at, length) = (at + taken, until);
        }
        mapped.join(".")
    }

    fn counted_anew(&self, path: &str, segment: &str) -> String {
        let first = layer(path).filter(|(stage, number)| path.len() == stage.len() + number.to_string().len() + 8);
        match first.and_then(|(stage, number)| Some(number - self.first_layers.get(stage)?)) {
            Some(number) => number.to_string(),
            None => segment.to_owned(),
        }
    }
}

/// `encoder` and 10 of `encoder.layers.10.mlp`.
fn layer(path: &str) -> Option<(&str, u32)> {
    let (stage, rest) = path.split_once(".layers.")?;
    Some((stage, rest.split('.').next()?.parse().ok()?))
}

/// A module's path and class; `None` for operators.
fn module(name: OperatorName<'_>) -> Option<(&str, &str)> {
    if name.is_operator || !matches!(name.family(), "Module" | "Cell") {
        return None;
    }
    let (_, rest) = name.callee.split_once('.')?;
    Some(rest.rsplit_once('.').unwrap_or(("", rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::tests::{capture, names};

    fn mapping(text: &str) -> LayerMapping {
        LayerMapping::of(serde_saphyr::from_str(text).unwrap())
    }

    #[test]
    fn a_rule_holds_below_its_class_and_the_longest_first() {
        let target = capture(
            &[
                "Cell.net.a.Attention.forward.0",
                "Cell.net.a.q.Dense.forward.0",
                "Cell.net.a.q.inner.Dense.forward.0",
                "Cell.net.b.q.Dense.forward.0",
            ],
            &[],
        );
        let golden = capture(
            &[
                "Module.module.a.SelfAttention.forward.0",
                "Module.module.a.query.Linear.forward.0",
                "Module.module.a.deep.Linear.forward.0",
                "Module.module.b.q.Linear.forward.0",
            ],
            &[],
        );
        let mapping = mapping("TopLayer: {net: module}\nAttention: {q: query, q.inner: deep(Linear)}\n");
        let paired = names(&target, &golden, &by_layer(&target, &golden, &mapping));
        let expected: Vec<(Option<&str>, Option<&str>, How)> = target
            .document
            .operators
            .iter()
            .zip(&golden.document.operators)
            .map(|(one, other)| (Some(&*one.name), Some(&*other.name), How::Mapping))
            .collect();
        assert_eq!(paired, expected);
    }

    #[test]
    fn an_operator_pairs_inside_its_module_whatever_ran_elsewhere() {
        let target = capture(
            &["Functional.gelu.0.forward", "Functional.gelu.1.forward", "Functional.gelu.1.backward"],
            &[
                ("Functional.gelu.0.forward", Some("Module.extra.Mlp.forward.0")),
                ("Functional.gelu.1.forward", Some("Module.mine.Mlp.forward.0")),
            ],
        );
        let golden = capture(
            &["Functional.gelu.0.forward", "Functional.gelu.0.backward"],
            &[("Functional.gelu.0.forward", Some("Module.yours.Mlp.forward.0"))],
        );
        let paired = names(&target, &golden, &by_layer(&target, &golden, &mapping("TopLayer: {mine: yours}")));
        assert_eq!(
            paired,
            [
                (Some("Functional.gelu.0.forward"), None, How::Name),
                (Some("Functional.gelu.1.forward"), Some("Functional.gelu.0.forward"), How::Mapping),
                (Some("Functional.gelu.1.backward"), Some("Functional.gelu.0.backward"), How::Mapping),
            ]
        );
    }

    #[test]
    fn layers_of_a_pipeline_stage_count_from_zero() {
        let stage = |first: u32| {
            let layer = |number: u32| format!("Module.encoder.layers.{number}.mlp.Mlp.forward.0");
            let names = ["Module.encoder.ParallelTransformer.forward.0".to_owned(), layer(first), layer(first + 2)];
            capture(&names.each_ref().map(String::as_str), &[])
        };
        let (target, golden) = (stage(10), stage(0));
        let paired = names(&target, &golden, &by_layer(&target, &golden, &LayerMapping::default()));
        assert_eq!(paired.len(), 3);
        assert!(paired.iter().all(|(one, other, _)| one.is_some() && other.is_some()), "{paired:?}");
    }
}
