//! The difference of a value from its counterpart, as one number without a unit.

use trainmon_capture_files::{Leaf, Plain, TensorFacts};
use trainmon_noise::{SINGLE, of_reordered_sums};

use super::item::Item;
use super::rounding::unit_roundoff;

/// The property in which two values differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// No visible difference.
    Nothing,
    /// The numbers.
    Numbers,
    /// NaN or infinity on one side only.
    NotFinite,
    /// The checksums, which do not show by how much.
    Digest,
    /// The shapes.
    Shape,
    /// The dtypes; the numbers are compared as far as both dtypes allow.
    Dtype,
    /// An argument that is not a tensor.
    Argument,
    /// A value that one side lacks or has as another kind.
    Presence,
    /// `requires_grad`.
    RequiresGrad,
    /// Unknown: neither statistics nor checksums exist.
    Unseen,
    /// A rank's part on one side, the whole tensor on the other: their statistics are not comparable.
    Part,
}

impl What {
    /// The noun for a message.
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
    /// The property.
    pub what: What,
    /// The relative difference: 0 for none, infinite if the property has no size.
    pub relative: f64,
}

impl Deviation {
    /// No difference.
    pub const NONE: Self = Self { what: What::Nothing, relative: 0.0 };

    /// A difference without a size.
    pub(super) const fn of(what: What) -> Self {
        Self { what, relative: f64::INFINITY }
    }

    /// Whether the values differ.
    pub fn is_some(&self) -> bool {
        self.relative > 0.0
    }

    /// The larger of two deviations.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other.relative > self.relative { other } else { self }
    }
}

/// Compares two values by all their captured properties.
///
/// Max and min are relative to the larger magnitude of both, the mean to the root mean square, the norm to itself: a mean near
/// zero has no meaningful relative error of its own.
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
        // Integers are exact.
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
    // Unwritten memory is not data.
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
        // One element has no more than its numbers. A different checksum was taken of memory that changed meanwhile, as with
        // msprobe's asynchronous checksums.
        (Some(false), Some(found)) if golden.elements() == Some(1) && !found.is_some() => Deviation::NONE,
        (Some(false), None) => Deviation::of(What::Digest),
        // A difference that statistics do not show counts as rounding.
        (Some(false), Some(found)) if !found.is_some() => Deviation { what: What::Digest, relative: roundoff(golden) },
        (_, Some(found)) => found,
        (None, None) => Deviation { what: What::Unseen, relative: 0.0 },
    }
}

/// Whether both checksums are of the same type: a CRC-32 (`37bf296c`) is not comparable with an exclusive or
/// (`0x017c45157daa1aeb`).
pub(super) fn is_one_kind(target: &Plain, golden: &Plain) -> bool {
    let kind = |digest: &Plain| digest.text().map(|text| if text.starts_with("0x") { 0 } else { text.len() });
    kind(target) == kind(golden)
}

/// Whether the names of two frameworks mean the same dtype: `Float32` and `torch.float32`.
fn is_same_dtype(target: &TensorFacts, golden: &TensorFacts) -> bool {
    let name = |tensor: &TensorFacts| {
        let name = tensor.dtype.text()?;
        Some(name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase())
    };
    name(target).is_some_and(|one| name(golden) == Some(one))
}

/// A coarser dtype than the baseline's is a loss of precision whatever the numbers; a finer one is compared by its numbers.
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

/// Compares by statistics; `None` if there are none.
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
    // A mean below the last bit of its elements is the rest of a sum that cancels and has no meaning.
    let unit = roundoff(golden).min(SINGLE) * mean_size;
    let mean = mean.filter(|(a, b)| a.abs().max(b.abs()) > unit);
    let part = |pair: Option<(f64, f64)>, size: f64| pair.map_or(0.0, |(a, b)| apart(a, b, size));
    let relative = part(max, size).max(part(min, size)).max(part(mean, mean_size)).max(part(norm, norm_size));
    Some(if relative > 0.0 { Deviation { what: What::Numbers, relative } } else { Deviation::NONE })
}

/// Returns the difference of two tensors that may have the same elements in another order, so that their float32 sums differ in
/// the last bits. `None` for different elements: max and min must be equal, mean and norm rounded to float32 as in msprobe's
/// files.
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
