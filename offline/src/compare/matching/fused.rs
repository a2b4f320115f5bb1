//! A fused projection beside its parts: `qkv_proj` and `q_proj`, `k_proj`, `v_proj`; `gate_up_proj` and `gate_proj`, `up_proj`.
//!
//! Where one side has the fused module and the other all of its parts below the same parent, the parts are put together as the
//! fused module would show them, and stand for it. Only statistics can be put together: max, min, mean and norm of a
//! concatenation follow from those of its pieces.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use trainmon_dump::capture::{Leaf, Operator, Plain, Section, TensorFacts, Value};

use crate::compare::input::Capture;
use crate::compare::name::{Direction, OperatorName};
use crate::compare::rounding::unit_roundoff;

/// What fused modules are called, and their parts.
const FUSED: [(&[&str], &[&[&str]]); 2] = [
    (
        &["qkv_proj", "qkv", "query_key_value", "linear_qkv", "c_attn", "Wqkv"],
        &[&["q_proj", "k_proj", "v_proj"], &["query", "key", "value"], &["q", "k", "v"], &["wq", "wk", "wv"]],
    ),
    (&["gate_up_proj", "linear_fc1", "dense_h_to_4h", "w13"], &[&["gate_proj", "up_proj"], &["w1", "w3"]]),
];

/// Puts the parts of one side together where the other has them fused, in both directions. The parts themselves are no longer
/// there; [`Capture::fused`] names what came of them.
pub(crate) fn fuse(target: &mut Capture, golden: &mut Capture) {
    let made = fuse_parts(target, golden);
    target.fused.extend(made);
    let made = fuse_parts(golden, target);
    golden.fused.extend(made);
}

/// A module's call, by what tells it from others but its class: path, direction, number.
type Call<'n> = (&'n str, Direction, u32);

fn call(name: &str) -> Option<Call<'_>> {
    let name = OperatorName::parse(name).filter(|name| !name.is_operator && name.family() == "Module")?;
    let (path, _) = name.callee.split_once('.')?.1.rsplit_once('.')?;
    Some((path, name.direction, name.call))
}

fn fuse_parts(split: &mut Capture, fused: &Capture) -> HashSet<Box<str>> {
    let operators = &split.document.operators;
    let places: HashMap<Call<'_>, usize> =
        operators.iter().enumerate().filter_map(|(index, operator)| Some((call(&operator.name)?, index))).collect();
    let mut made: HashMap<usize, Operator> = HashMap::new();
    let mut gone: HashSet<usize> = HashSet::new();
    for whole in &fused.document.operators {
        let Some((path, direction, number)) = call(&whole.name) else { continue };
        if places.contains_key(&(path, direction, number)) {
            continue;
        }
        let (parent, last) = path.rsplit_once('.').map_or(("", path), |(parent, last)| (parent, last));
        let groups = FUSED.iter().filter(|(names, _)| names.contains(&last)).flat_map(|(_, groups)| *groups);
        let found = groups.filter_map(|group| {
            let path = |part: &&str| if parent.is_empty() { (*part).to_owned() } else { format!("{parent}.{part}") };
            let place = |part: &&str| places.get(&(path(part).as_str(), direction, number)).copied();
            group.iter().map(place).collect::<Option<Vec<usize>>>()
        });
        let Some(parts) = found.into_iter().next() else { continue };
        let of_parts: Vec<&Operator> = parts.iter().map(|&index| &operators[index]).collect();
        // It is whole when the last of its parts is.
        let Some(&last) = parts.iter().max() else { continue };
        made.insert(last, put_together(whole, &of_parts, direction));
        gone.extend(parts);
    }
    let names = made.values().map(|operator| operator.name.clone()).collect();
    let before = std::mem::take(&mut split.document.operators);
    for (index, operator) in before.into_iter().enumerate() {
        if let Some(whole) = made.remove(&index) {
            split.document.operators.push(whole);
        } else if !gone.contains(&index) {
            split.document.operators.push(operator);
        }
    }
    names
}

fn put_together(whole: &Operator, parts: &[&Operator], direction: Direction) -> Operator {
    let values = parts[0].values.iter().map(|first| {
        let others: Option<Vec<&TensorFacts>> = parts
            .iter()
            .map(|part| {
                let value = part.values.iter().find(|value| value.place == first.place)?;
                if let Leaf::Tensor(facts) = &value.leaf { Some(&**facts) } else { None }
            })
            .collect();
        let twin = whole.values.iter().find(|value| value.place == first.place);
        let twin = twin.and_then(|twin| if let Leaf::Tensor(facts) = &twin.leaf { Some(&**facts) } else { None });
        let leaf = match others {
            Some(tensors) => Leaf::Tensor(Box::new(match (first.section, direction) {
                (Section::Parameter | Section::ParameterGradient, _) => concatenated(&tensors, 0, twin),
                (Section::Output, Direction::Forward) | (Section::Input, Direction::Backward) => {
                    concatenated(&tensors, usize::MAX, twin)
                }
                // All were given the same.
                (Section::Input, _) if tensors.iter().all(|tensor| tensor.statistics == tensors[0].statistics) => {
                    TensorFacts { data_name: None, ..tensors[0].clone() }
                }
                // A sum of gradients says nothing by its terms' statistics.
                _ => unseen(tensors[0]),
            })),
            None => first.leaf.clone(),
        };
        Value { section: first.section, place: first.place.clone(), leaf }
    });
    Operator { name: whole.name.clone(), values: values.collect() }
}

fn unseen(tensor: &TensorFacts) -> TensorFacts {
    TensorFacts { statistics: [0; 4].map(|_| Plain::Null), digest: None, data_name: None, ..tensor.clone() }
}

/// What a concatenation along `axis` (the last, if there are fewer) would show. Statistics are rounded, and so is what is made of
/// them: within that they are the whole's own.
fn concatenated(tensors: &[&TensorFacts], axis: usize, whole: Option<&TensorFacts>) -> TensorFacts {
    let mut facts = unseen(tensors[0]);
    let sizes: Option<Vec<Vec<u64>>> = tensors.iter().map(|tensor| tensor.sizes()).collect();
    let Some(sizes) = sizes.filter(|sizes| sizes.iter().all(|one| one.len() == sizes[0].len() && !one.is_empty()))
    else {
        return facts;
    };
    let axis = axis.min(sizes[0].len() - 1);
    let mut shape = sizes[0].clone();
    shape[axis] = sizes.iter().map(|sizes| sizes[axis]).sum();
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
