//! The captured facts of an operator as they would be if its parts were one.

use std::collections::HashMap;
use std::sync::Arc;

use trainmon_capture_files::{Leaf, Operator, Plain, Section, TensorFacts, Value};

use crate::deviation::deviation;
use crate::item::Item;
use crate::joined::{Join, Recipe};
use crate::name::Direction;
use crate::rounding::unit_roundoff;

/// A joined operator, and the files of its tensors.
pub(super) struct FusedOperator {
    pub(super) values: Vec<Value>,
    pub(super) recipes: HashMap<Arc<str>, Recipe>,
}

/// The role of the parts' tensors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// All parts have the same tensor.
    Same,
    /// Each has a share, along this axis.
    Shares(usize),
    /// Each is a term of every element.
    Terms,
}

/// Joins the facts of `parts` in the form of `whole` on the other side.
pub(super) fn put_together(whole: &Operator, parts: &[&Operator], direction: Direction) -> FusedOperator {
    let mut recipes = HashMap::new();
    let values = parts[0].values.iter().map(|first| {
        let at_place = |operator| item(operator, &first.place);
        let items: Option<Vec<Item<'_>>> = parts.iter().map(|part| at_place(part)).collect();
        let tensors = items.as_ref().and_then(|items| items.iter().map(Item::tensor).collect::<Option<Vec<_>>>());
        let twin = at_place(whole);
        let leaf = match (&items, tensors) {
            (Some(items), Some(tensors)) => {
                let (facts, recipe) = joined(first.section, direction, items, &tensors, twin);
                recipes.extend(recipe.map(|recipe| (first.place.clone(), recipe)));
                Leaf::Tensor(Box::new(facts))
            }
            // For example, one part has a bias and another has none: their joint tensor is unknown.
            _ => twin
                .and_then(|twin| twin.tensor())
                .filter(|_| is_tensor_of_any(parts, &first.place))
                .map_or_else(|| first.leaf.clone(), |twin| Leaf::Tensor(Box::new(unseen(twin)))),
        };
        Value { section: first.section, place: first.place.clone(), leaf }
    });
    let values = values.collect();
    FusedOperator { values, recipes }
}

fn item<'c>(operator: &'c Operator, place: &str) -> Option<Item<'c>> {
    let value = operator.values.iter().find(|value| &*value.place == place)?;
    Some(Item { operator, value })
}

fn is_tensor_of_any(parts: &[&Operator], place: &str) -> bool {
    parts.iter().any(|part| item(part, place).is_some_and(|item| item.tensor().is_some()))
}

fn joined(
    section: Section,
    direction: Direction,
    items: &[Item<'_>],
    tensors: &[&TensorFacts],
    twin: Option<Item<'_>>,
) -> (TensorFacts, Option<Recipe>) {
    let whole = twin.and_then(|twin| twin.tensor());
    let files = |tensors: &[&TensorFacts]| -> Option<Vec<Box<str>>> {
        tensors.iter().map(|tensor| tensor.data_name.clone()).collect()
    };
    let recipe = |tensors: &[&TensorFacts], join| files(tensors).map(|files| Recipe { files, join });
    match role(section, direction, tensors, whole) {
        Role::Same => {
            // A part with a different input represents all: it is the difference.
            let apart = |item: &Item<'_>| twin.map_or(0.0, |twin| deviation(*item, twin).relative);
            let furthest = (1..items.len())
                .fold(0, |furthest, at| if apart(&items[at]) > apart(&items[furthest]) { at } else { furthest });
            let tensor = tensors[furthest];
            (TensorFacts { data_name: None, ..tensor.clone() }, recipe(&[tensor], Join::Along(0)))
        }
        Role::Shares(axis) => (concatenated(tensors, axis, whole), recipe(tensors, Join::Along(axis))),
        // The statistics of a sum of gradients do not follow from those of its terms.
        Role::Terms => (unseen(tensors[0]), recipe(tensors, Join::Sum)),
    }
}

/// The role by the shapes, if they show it; otherwise parameters have a row per output, and outputs a column.
fn role(section: Section, direction: Direction, tensors: &[&TensorFacts], whole: Option<&TensorFacts>) -> Role {
    let last = tensors[0].sizes().map_or(0, |sizes| sizes.len().saturating_sub(1));
    let usual = match (section, direction) {
        (Section::Parameter | Section::ParameterGradient, _) => Role::Shares(0),
        (Section::Output, Direction::Forward) | (Section::Input, Direction::Backward) => Role::Shares(last),
        (Section::Output, _) => Role::Terms,
        _ => Role::Same,
    };
    let sizes: Option<Vec<Vec<u64>>> = tensors.iter().map(|tensor| tensor.sizes()).collect();
    let (Some(sizes), Some(whole)) = (sizes, whole.and_then(TensorFacts::sizes)) else { return usual };
    if sizes.iter().all(|sizes| *sizes == whole) {
        return usual;
    }
    let is_shared = |axis: &usize| {
        let rest = |at: usize| at == *axis || sizes.iter().all(|sizes| sizes[at] == whole[at]);
        (0..whole.len()).all(rest) && added(&sizes, *axis) == whole[*axis]
    };
    let fits = sizes.iter().all(|sizes| sizes.len() == whole.len());
    let axis = (0..whole.len()).filter(|_| fits).find(is_shared);
    axis.map_or(usual, Role::Shares)
}

/// The largest tensor of which every part has a share, to identify their order: a weight, or else an output. Its place and its
/// axis.
pub(super) fn layout_tensor<'w>(whole: &'w Operator, made: &FusedOperator) -> Option<(&'w str, usize)> {
    let shares = whole.values.iter().filter_map(|value| {
        let axis = match made.recipes.get(&value.place) {
            Some(Recipe { files, join: Join::Along(axis) }) if files.len() > 1 => *axis,
            _ => return None,
        };
        let tensor = value.tensor()?;
        let is_weight = value.section.is_input() && tensor.sizes().is_some_and(|sizes| sizes.len() > 1);
        Some((is_weight, tensor.elements().unwrap_or(0), &*value.place, axis))
    });
    shares.max_by_key(|(is_weight, elements, ..)| (*is_weight, *elements)).map(|(.., place, axis)| (place, axis))
}

/// Whether the numbers of a joined operator equal the whole's in any order, as far as statistics show.
pub(super) fn is_permuted(whole: &Operator, made: &FusedOperator, place: &str) -> bool {
    let of = |values: &[Value]| {
        let tensor = values.iter().find(|value| &*value.place == place)?.tensor()?;
        tensor.statistics.iter().map(Plain::number).collect::<Option<Vec<f64>>>()
    };
    of(&whole.values).is_some_and(|numbers| of(&made.values) == Some(numbers))
}

/// Adds sizes, which a file may give as any number.
fn added(sizes: &[Vec<u64>], axis: usize) -> u64 {
    sizes.iter().fold(0, |sum, sizes| sum.saturating_add(sizes[axis]))
}

fn unseen(tensor: &TensorFacts) -> TensorFacts {
    TensorFacts { statistics: [0; 4].map(|_| Plain::Null), digest: None, data_name: None, ..tensor.clone() }
}

/// The facts of a concatenation along `axis` (the last, if there are fewer). Statistics are rounded, and so are those of the
/// joined tensor: within rounding, the whole's own are used.
fn concatenated(tensors: &[&TensorFacts], axis: usize, whole: Option<&TensorFacts>) -> TensorFacts {
    let mut facts = unseen(tensors[0]);
    let sizes: Option<Vec<Vec<u64>>> = tensors.iter().map(|tensor| tensor.sizes()).collect();
    let Some(sizes) = sizes.filter(|sizes| sizes.iter().all(|one| one.len() == sizes[0].len() && !one.is_empty()))
    else {
        return facts;
    };
    let axis = axis.min(sizes[0].len() - 1);
    let mut shape = sizes[0].clone();
    shape[axis] = added(&sizes, axis);
    facts.shape = Arc::new(Plain::List(shape.iter().map(|&size| Plain::Int(size as i64)).collect()));
    let counts: Vec<f64> = tensors.iter().map(|tensor| tensor.elements().unwrap_or(0) as f64).collect();
    let count = counts.iter().sum::<f64>().max(1.0);
    let numbers =
        |at: usize| -> Option<Vec<f64>> { tensors.iter().map(|tensor| tensor.statistics[at].number()).collect() };
    let pick = |numbers: Vec<f64>, pick: fn(f64, f64) -> f64| {
        if numbers.iter().any(|number| number.is_nan()) {
            f64::NAN
        } else {
            numbers.into_iter().reduce(pick).unwrap_or(0.0)
        }
    };
    let norm = numbers(3).map(|norms| norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt());
    let mean = numbers(2).map(|means| means.iter().zip(&counts).map(|(mean, count)| mean * count).sum::<f64>() / count);
    let size = norm.map_or(0.0, |norm| norm / count.sqrt());
    let roundoff = 16.0 * tensors[0].dtype.text().and_then(unit_roundoff).unwrap_or(0.0).max(0.5_f64.powi(24));
    let made = [
        (numbers(0).map(|all| pick(all, f64::max)), 0.0),
        (numbers(1).map(|all| pick(all, f64::min)), 0.0),
        (mean, size * roundoff),
        (norm, norm.unwrap_or(0.0) * roundoff),
    ];
    for (at, (number, allowed)) in made.into_iter().enumerate() {
        let Some(number) = number else { continue };
        let own = whole.and_then(|whole| whole.statistics[at].number());
        facts.statistics[at] = Plain::Float(own.filter(|own| (own - number).abs() <= allowed).unwrap_or(number));
    }
    facts
}
