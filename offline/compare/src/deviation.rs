//! How far a value is from its counterpart, as one number without a unit.

use trainmon_capture_files::{Leaf, Plain, TensorFacts};
use trainmon_noise::{SINGLE, of_reordered_sums};

use super::item::Item;
use super::rounding::unit_roundoff;

/// In what two values differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// In nothing that can be seen.
    Nothing,
    /// In their numbers.
    Numbers,
    /// One has NaN or an infinity where the other has none.
    NotFinite,
    /// In their checksums, which do not tell by how much.
    Digest,
    /// In their shapes.
    Shape,
    /// In their dtypes; the numbers are told apart as far as both dtypes can.
    Dtype,
    /// An argument that is no tensor.
    Argument,
    /// One side has a value, the other none, or of another kind.
    Presence,
    /// In whether gradients flow through them.
    RequiresGrad,
    /// Neither statistics nor checksums are there to tell.
    Unseen,
    /// A rank's part of a tensor beside the whole: statistics of one say nothing of the other.
    Part,
}

impl What {
    /// The noun for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Numbers => "values",
            Self::NotFinite => "NaN or infinity",
            Self::Digest => "checksum",
            Self::Shape => "shape",
            Self::Dtype => "dtype",
            Self::Argument => "argument",
            Self::Presence => "presence",
            Self::RequiresGrad => "requires_grad",
            Self::Unseen => "unseen",
            Self::Part => "a part beside the whole",
        }
    }
}

/// A difference between two values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// In what.
    pub what: What,
    /// By how much of their own size: 0 for none, infinite where that is no question of size.
    pub relative: f64,
}

impl Deviation {
    /// None.
    pub const NONE: Self = Self { what: What::Nothing, relative: 0.0 };

    /// One that is no question of size.
    pub(super) const fn of(what: What) -> Self {
        Self { what, relative: f64::INFINITY }
    }

    /// Whether there is any.
    pub fn is_some(&self) -> bool {
        self.relative > 0.0
    }

    /// The larger of two.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other.relative > self.relative { other } else { self }
    }
}

/// Compares two values by all that the captures say of them.
///
/// Max and min are held against the largest magnitude of both, the mean against the root mean square, the norm against itself:
/// a mean that is zero up to rounding says nothing about its own relative difference.
pub fn deviation(target: Item<'_>, golden: Item<'_>) -> Deviation {
    match (&target.value.leaf, &golden.value.leaf) {
        (Leaf::Nothing, Leaf::Nothing) => Deviation::NONE,
        (Leaf::Tensor(target), Leaf::Tensor(golden)) => tensors(target, golden),
        (Leaf::Plain { value: target, .. }, Leaf::Plain { value: golden, .. })
        | (Leaf::Group { ranks: target, .. }, Leaf::Group { ranks: golden, .. }) => arguments(target, golden),
        _ => Deviation::of(What::Presence),
    }
}

fn arguments(target: &Plain, golden: &Plain) -> Deviation {
    if target == golden {
        return Deviation::NONE;
    }
    if let (Plain::Text(target), Plain::Text(golden)) = (target, golden)
        && is_device(target)
        && is_device(golden)
    {
        return Deviation::NONE;
    }
    let is_whole = |plain: &Plain| matches!(plain, Plain::Int(_) | Plain::Bool(_));
    let relative = match (target.number(), golden.number()) {
        // Numbers that count do not round.
        (Some(a), Some(b)) if is_whole(target) && is_whole(golden) && a.to_bits() != b.to_bits() => f64::INFINITY,
        (Some(a), Some(b)) if a.is_nan() && b.is_nan() => return Deviation::NONE,
        (Some(a), Some(b)) if a.is_finite() && b.is_finite() => apart(a, b, a.abs().max(b.abs())),
        _ => f64::INFINITY,
    };
    Deviation { what: What::Argument, relative }
}

fn is_device(text: &str) -> bool {
    ["cpu", "cuda", "npu", "mps", "xpu"].iter().any(|device| text.starts_with(device))
}

fn tensors(target: &TensorFacts, golden: &TensorFacts) -> Deviation {
    if target.shape != golden.shape && target.sizes() != golden.sizes() {
        return Deviation::of(What::Shape);
    }
    if target.is_shard != golden.is_shard {
        return Deviation { what: What::Part, relative: 0.0 };
    }
    // What is in memory before somebody writes there is not data.
    let is_unwritten = target.is_unwritten || golden.is_unwritten;
    let numbers = if is_unwritten { Some(Deviation::NONE) } else { numbers(target, golden) };
    if target.dtype != golden.dtype && !is_same_dtype(target, golden) {
        return dtypes(target, golden, numbers);
    }
    if is_unwritten {
        return Deviation::NONE;
    }
    let digests = match (&target.digest, &golden.digest) {
        (Some(one), Some(other)) if !one.is_null() && !other.is_null() && is_one_kind(one, other) => Some(one == other),
        _ => None,
    };
    match (digests, numbers) {
        (Some(true), _) => Deviation::NONE,
        // All there is of one element are its numbers. A checksum that is another was taken of memory that changed meanwhile, as
        // msprobe's asynchronous ones are.
        (Some(false), Some(found)) if golden.elements() == Some(1) && !found.is_some() => Deviation::NONE,
        (Some(false), None) => Deviation::of(What::Digest),
        // What statistics do not show is of the size of rounding, as far as anybody can tell.
        (Some(false), Some(found)) if !found.is_some() => Deviation { what: What::Digest, relative: roundoff(golden) },
        (_, Some(found)) => found,
        (None, None) => Deviation { what: What::Unseen, relative: 0.0 },
    }
}

/// Whether both checksums are of one kind: a CRC-32 (`37bf296c`) says nothing of an exclusive or (`0x017c45157daa1aeb`).
pub(super) fn is_one_kind(target: &Plain, golden: &Plain) -> bool {
    let kind = |digest: &Plain| digest.text().map(|text| if text.starts_with("0x") { 0 } else { text.len() });
    kind(target) == kind(golden)
}

/// Whether two frameworks' names are of one dtype: `Float32` and `torch.float32`.
fn is_same_dtype(target: &TensorFacts, golden: &TensorFacts) -> bool {
    let name = |tensor: &TensorFacts| {
        let name = tensor.dtype.text()?;
        Some(name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase())
    };
    name(target).is_some_and(|one| name(golden) == Some(one))
}

/// A coarser dtype than the golden's is a loss of precision whatever the numbers; of a finer one the numbers count.
fn dtypes(target: &TensorFacts, golden: &TensorFacts, numbers: Option<Deviation>) -> Deviation {
    let roundoff = |tensor: &TensorFacts| tensor.dtype.text().and_then(unit_roundoff);
    match (roundoff(target), roundoff(golden), numbers) {
        (Some(one), Some(other), Some(numbers)) if one <= other => Deviation { what: What::Dtype, ..numbers },
        _ => Deviation::of(What::Dtype),
    }
}

fn roundoff(tensor: &TensorFacts) -> f64 {
    unit_roundoff(tensor.dtype.text().unwrap_or("")).unwrap_or(f64::EPSILON)
}

/// By statistics; `None` if there are none.
pub(super) fn numbers(target: &TensorFacts, golden: &TensorFacts) -> Option<Deviation> {
    let value = |plain: &Plain| match plain {
        Plain::Bool(value) => Some(f64::from(u8::from(*value))),
        other => other.number(),
    };
    let [max, min, mean, norm] =
        [0, 1, 2, 3].map(|at: usize| Some((value(&target.statistics[at])?, value(&golden.statistics[at])?)));
    let all = [max, min, mean, norm];
    if all.iter().all(Option::is_none) {
        return golden.elements().filter(|&elements| elements == 0).map(|_| Deviation::NONE);
    }
    let is_odd = |(a, b): (f64, f64)| {
        !(a.is_finite() && b.is_finite()) && a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan())
    };
    if all.into_iter().flatten().any(is_odd) {
        return Some(Deviation::of(What::NotFinite));
    }
    let magnitude = |pair: Option<(f64, f64)>| pair.map_or(0.0, |(a, b)| finite(a).max(finite(b)));
    let size = magnitude(max).max(magnitude(min));
    let norm_size = magnitude(norm);
    let count = golden.elements().unwrap_or(1).max(1) as f64;
    let mean_size = if norm.is_some() && norm_size > 0.0 { norm_size / count.sqrt() } else { size };
    // A mean smaller than the last bit of what it is the mean of is what is left of a sum that cancels: it says nothing.
    let unit = roundoff(golden).min(SINGLE) * mean_size;
    let mean = mean.filter(|(a, b)| a.abs().max(b.abs()) > unit);
    let part = |pair: Option<(f64, f64)>, size: f64| pair.map_or(0.0, |(a, b)| apart(a, b, size));
    let relative = part(max, size).max(part(min, size)).max(part(mean, mean_size)).max(part(norm, norm_size));
    Some(if relative > 0.0 { Deviation { what: What::Numbers, relative } } else { Deviation::NONE })
}

/// How far two tensors may be apart that have the same elements in another order, of which float32 sums are apart in their last bits;
/// `None` where they are others: max and min must be the same, and mean and norm rounded to float32 themselves, as msprobe's are.
pub(super) fn of_another_order(target: &TensorFacts, golden: &TensorFacts) -> Option<f64> {
    let [max, min, mean, norm] =
        [0, 1, 2, 3].map(|at: usize| target.statistics[at].number().zip(golden.statistics[at].number()));
    let (Some(max), Some(min), Some(mean), Some(norm)) = (max, min, mean, norm) else { return None };
    let is_single = |(a, b): (f64, f64)| [a, b].iter().all(|&number| f64::from(number as f32) == number);
    let count = golden.elements().unwrap_or(1).max(1) as f64;
    let size = norm.0.max(norm.1) / count.sqrt();
    let [of_mean, of_norm] = of_reordered_sums(count, mean.0.abs().max(mean.1.abs()) / size);
    let is_so = max.0 == max.1
        && min.0 == min.1
        && is_single(mean)
        && is_single(norm)
        && apart(mean.0, mean.1, size) <= of_mean
        && apart(norm.0, norm.1, norm.0.max(norm.1)) <= of_norm;
    is_so.then_some(of_mean.max(of_norm))
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value.abs() } else { 0.0 }
}

fn apart(a: f64, b: f64, size: f64) -> f64 {
    if a == b || a.is_nan() || a.is_infinite() {
        return 0.0;
    }
    let difference = (a - b).abs();
    if size > 0.0 { difference / size } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tensor(elements: i64, digest: &str) -> TensorFacts {
        TensorFacts {
            kind: "torch.Tensor".into(),
            dtype: Arc::new(Plain::Text("torch.float32".into())),
            shape: Arc::new(Plain::List(Box::new([Plain::Int(elements)]))),
            statistics: [2.0, 2.0, 2.0, 2.0].map(Plain::Float),
            requires_grad: Some(false),
            is_shard: false,
            is_from_empty: false,
            is_unwritten: false,
            data_name: None,
            digest: Some(Plain::Text(digest.into())),
            peer: None,
        }
    }

    #[test]
    fn one_element_whose_numbers_agree_is_the_same_whatever_its_checksum_says() {
        assert_eq!(tensors(&tensor(1, "37bf296c"), &tensor(1, "00000000")), Deviation::NONE);
        let more = tensors(&tensor(2, "37bf296c"), &tensor(2, "00000000"));
        assert_eq!(more.what, What::Digest);
        assert!(more.is_some());
    }
}
