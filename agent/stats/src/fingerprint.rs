//! A 64-bit fingerprint of a tensor's bytes: equal for replicas of a tensor, different after a single bit flip.

use std::hash::Hasher as _;

use trainmon_core::TensorView;
use twox_hash::XxHash3_64;

use crate::layout::{Order, Source};
use crate::many::side_by_side;
use crate::pool;

/// The fingerprint of a stretch of bytes; `None` before the first.
#[derive(Clone, Copy, Debug, Default)]
struct Digest(Option<u64>);

impl Digest {
    /// Adds the fingerprint of the bytes that follow.
    fn append(&mut self, next: Self) {
        self.0 = match (self.0, next.0) {
            (Some(own), Some(next)) => Some(XxHash3_64::oneshot_with_seed(own, &next.to_le_bytes())),
            (own, next) => own.or(next),
        };
    }
}

/// Returns the XXH3 (64 bits, no seed) of a tensor's bytes in logical order and native byte order.
///
/// - Shape: any, strided or not. Strides do not change the result; dtype and shape do only if they change the bytes.
///   An empty tensor has the hash of zero bytes.
/// - From 2^18 elements on, the tensor is split into shards. The split depends only on the number of elements.
///   The fingerprints are chained in order: each shard is hashed with the previous fingerprint as the seed.
/// - The result is the same on every instruction set and for any number of threads. It differs between machines of
///   different byte order.
/// - Cost: one read of the memory, no allocation.
pub fn fingerprint(view: &TensorView<'_>) -> u64 {
    let source = Source::new([view], Order::Logical);
    let mut digest = Digest::default();
    pool::fold_shards(
        source.elements(),
        &mut digest,
        |range, digest| {
            let mut hasher = XxHash3_64::with_seed(0);
            source.for_each_block(range, &mut |block| hasher.write(block.bytes(0)));
            *digest = Digest(Some(hasher.finish()));
        },
        |digest, next| digest.append(*next),
    );
    digest.0.unwrap_or_default()
}

/// Returns the fingerprints of tensors, in order. The threads work in parallel, each on a whole tensor.
pub fn fingerprints(views: &[TensorView<'_>]) -> Vec<u64> {
    side_by_side(views, TensorView::elements, fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::LARGE;

    fn noise(elements: usize) -> Vec<f32> {
        (0..elements).map(|at| ((at * 7919) % 10_007) as f32 - 5000.5).collect()
    }

    fn view(values: &[f32]) -> TensorView<'_> {
        TensorView::from_slice(values, &[values.len() as i64]).unwrap()
    }

    #[test]
    fn a_small_tensor_has_the_xxh3_of_its_bytes() {
        // Of the reference implementation (`xxhsum -H3`): no bytes, and eight bytes of 0.
        assert_eq!(fingerprint(&view(&[])), 0x2d06_8005_38d3_94c2);
        assert_eq!(fingerprint(&view(&[0.0, 0.0])), XxHash3_64::oneshot(&[0; 8]));
        let values = noise(100_003);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(fingerprint(&view(&values)), XxHash3_64::oneshot(&bytes));
    }

    #[test]
    fn one_flipped_bit_anywhere_changes_it() {
        for elements in [1, 2, 63, 4097, LARGE + 5] {
            let mut values = noise(elements);
            let before = fingerprint(&view(&values));
            for place in [0, elements / 2, elements - 1] {
                for bit in [0, 13, 31] {
                    values[place] = f32::from_bits(values[place].to_bits() ^ (1 << bit));
                    assert_ne!(fingerprint(&view(&values)), before, "bit {bit} of element {place} of {elements}");
                    values[place] = f32::from_bits(values[place].to_bits() ^ (1 << bit));
                }
            }
            assert_eq!(fingerprint(&view(&values)), before);
        }
    }

    #[test]
    fn strides_do_not_change_it() {
        let (rows, columns) = (700_usize, 600_usize);
        let values = noise(rows * columns);
        let all = TensorView::from_slice(&values, &[rows as i64, columns as i64]).unwrap();
        let part = all.narrowed(1, 7, 500);
        let copied: Vec<f32> = values.chunks(columns).flat_map(|row| row[7..500].to_vec()).collect();
        let copy = TensorView::from_slice(&copied, &[rows as i64, 493]).unwrap();
        assert!(!part.is_contiguous());
        assert_eq!(fingerprint(&part), fingerprint(&copy));
    }

    #[test]
    fn tensors_side_by_side_have_the_fingerprints_of_each() {
        let values = noise(3 * LARGE + 5);
        let views: Vec<_> = [0, 1, 3 * LARGE + 5, 17, LARGE].iter().map(|&size| view(&values[..size])).collect();
        let expected: Vec<u64> = views.iter().map(fingerprint).collect();
        assert_eq!(fingerprints(&views), expected);
    }

    #[test]
    fn the_same_bytes_in_another_order_are_others() {
        let mut values = noise(2 * LARGE);
        let before = fingerprint(&view(&values));
        values.rotate_left(LARGE);
        assert_ne!(fingerprint(&view(&values)), before);
    }
}
