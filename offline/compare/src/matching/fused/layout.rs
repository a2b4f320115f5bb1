//! The order of the parts in a fused weight.
//!
//! Most fused weights have them one after another, some in groups. Megatron's `linear_qkv` has the query heads of a group, its
//! key head and its value head together, group after group. Others have them head by head, and some interleave gate and up row
//! by row. No capture has the number of groups, but few numbers divide all parts, and only the right one puts the parts where
//! the fused weight has them.

use trainmon_tensor_files::StoredTensor;

use crate::joined::Layout;

/// The number of sampled elements: enough to distinguish orders at no cost.
const SAMPLES: usize = 4096;
/// The square of the relative difference up to which an order is the right one: another has about 2.
const NEAR: f64 = 0.01;

/// The layout that matches `parts` and `whole` on `axis` best. `is_permuted`: both have the same numbers in any order; if no
/// layout fits then, it is [`Layout::Unknown`]. Otherwise (the weights differ), the default is one part after another.
pub(super) fn layout(parts: &[StoredTensor], whole: &StoredTensor, axis: usize, is_permuted: bool) -> Layout {
    let Some(samples) = Samples::of(parts, whole, axis) else { return Layout::PLAIN };
    let plain = samples.apart(1);
    if plain <= NEAR {
        return Layout::PLAIN;
    }
    let divisor = samples.sizes.iter().copied().fold(0, gcd);
    let groups = (2..=divisor).filter(|groups| divisor % groups == 0);
    let nearest = groups.map(|groups| (samples.apart(groups), groups)).min_by(|one, other| one.0.total_cmp(&other.0));
    match nearest {
        // One part that differs completely does not change the order of the others.
        Some((apart, groups)) if apart < plain / 2.0 => Layout::Groups(groups as u64),
        _ if is_permuted => Layout::Unknown,
        _ => Layout::PLAIN,
    }
}

fn gcd(one: usize, other: usize) -> usize {
    if other == 0 { one } else { gcd(other, one % other) }
}

struct Samples<'t> {
    parts: &'t [StoredTensor],
    /// The sizes of the parts on the axis.
    sizes: Vec<usize>,
    /// The number of elements per step on the axis.
    inner: usize,
    /// The sampled positions in the whole, and their values.
    taken: Vec<(usize, f64)>,
}

impl<'t> Samples<'t> {
    /// `None` if the parts' sizes do not add up to the whole's.
    fn of(parts: &'t [StoredTensor], whole: &StoredTensor, axis: usize) -> Option<Self> {
        let shape = whole.shape();
        let dims = shape.dims();
        let mut sizes = Vec::with_capacity(parts.len());
        for part in parts {
            let part = part.shape();
            let same = |at: usize| at == axis || part.dims()[at] == dims[at];
            if part.dims().len() != dims.len() || !(0..dims.len()).all(same) {
                return None;
            }
            sizes.push(*part.dims().get(axis)? as usize);
        }
        if sizes.iter().sum::<usize>() != dims[axis] as usize || whole.numbers() != whole.elements() {
            return None;
        }
        let count = whole.elements();
        // Multiples of a large prime cover the whole tensor.
        let places = (0..count.min(SAMPLES)).map(|at| if count <= SAMPLES { at } else { at * 2_654_435_761 % count });
        let taken = places.map(|at| (at, number(whole, at))).filter(|(_, number)| number.is_finite()).collect();
        Some(Self { parts, sizes, inner: dims[axis + 1..].iter().product::<i64>() as usize, taken })
    }

    /// The squared distance of the parts from the whole, relative to the whole, for a number of groups.
    fn apart(&self, groups: usize) -> f64 {
        let size: usize = self.sizes.iter().sum();
        let (mut difference, mut square) = (0.0, 0.0);
        for &(at, golden) in &self.taken {
            let (row, inside) = (at / self.inner, at % self.inner);
            let (outer, row) = (row / size, row % size);
            let (group, mut row) = (row / (size / groups), row % (size / groups));
            let mut part = 0;
            while row >= self.sizes[part] / groups {
                row -= self.sizes[part] / groups;
                part += 1;
            }
            let row = outer * self.sizes[part] + group * (self.sizes[part] / groups) + row;
            let found = number(&self.parts[part], row * self.inner + inside);
            if found.is_finite() {
                difference += (found - golden).powi(2);
                square += golden * golden;
            }
        }
        if difference == 0.0 { 0.0 } else { difference / square }
    }
}

fn number(tensor: &StoredTensor, at: usize) -> f64 {
    let mut number = [0.0];
    tensor.read_f64(at, &mut number);
    number[0]
}

#[cfg(test)]
mod tests {
    use trainmon_core::{Dtype, Shape};
    use trainmon_tensor_files::FileBytes;

    use super::*;

    fn tensor(rows: &[[f32; 3]]) -> StoredTensor {
        let bytes: Vec<u8> = rows.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
        StoredTensor::new(Dtype::F32, Shape::new(&[rows.len() as i64, 3]).unwrap(), FileBytes::from(bytes)).unwrap()
    }

    fn rows(count: usize, seed: usize) -> Vec<[f32; 3]> {
        let value = |at: usize| ((at * 7919 + seed * 104_729) % 211) as f32 / 100.0 - 1.05;
        (0..count).map(|row| [value(row * 3), value(row * 3 + 1), value(row * 3 + 2)]).collect()
    }

    fn fused(parts: &[Vec<[f32; 3]>], groups: usize) -> Vec<[f32; 3]> {
        let share = |group: usize, part: &Vec<[f32; 3]>| {
            let share = part.len() / groups;
            part[group * share..(group + 1) * share].to_vec()
        };
        (0..groups).flat_map(|group| parts.iter().flat_map(move |part| share(group, part))).collect()
    }

    #[test]
    fn the_number_of_groups_is_found_even_where_one_part_is_another() {
        let parts = [rows(16, 1), rows(4, 2), rows(4, 3)];
        let mut changed = parts.clone();
        changed[1] = rows(4, 9);
        for groups in [1, 2, 4] {
            for parts_now in [&parts, &changed] {
                let split: Vec<StoredTensor> = parts_now.iter().map(|part| tensor(part)).collect();
                let found = layout(&split, &tensor(&fused(&parts, groups)), 0, false);
                assert_eq!(found, Layout::Groups(groups as u64));
            }
        }
    }

    #[test]
    fn an_order_that_no_layout_gives_is_unknown_and_other_weights_are_no_order() {
        let parts = [rows(4, 1), rows(4, 2)];
        let split: Vec<StoredTensor> = parts.iter().map(|part| tensor(part)).collect();
        let mut reversed = fused(&parts, 1);
        reversed.reverse();
        assert_eq!(layout(&split, &tensor(&reversed), 0, true), Layout::Unknown);
        assert_eq!(layout(&split, &tensor(&rows(8, 7)), 0, false), Layout::PLAIN);
        assert_eq!(layout(&split, &tensor(&rows(9, 7)), 0, true), Layout::PLAIN, "the sizes do not add up");
    }
}
