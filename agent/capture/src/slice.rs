//! Slices of tensors, without a copy.

use trainmon_core::TensorView;
use trainmon_core::config::Slice;

/// Applies the slices in order.
pub(crate) fn sliced<'t>(view: &TensorView<'t>, slices: &[Slice]) -> TensorView<'t> {
    let mut part = *view;
    for slice in slices {
        let Some(&size) = part.shape().dims().get(slice.dim) else { continue };
        if slice.size.is_some_and(|only| only != size as u64) {
            continue;
        }
        let [begin, end] = [slice.begin, slice.end.unwrap_or(size)].map(|end| from_end(end, size));
        part = part.narrowed(slice.dim, begin, end);
    }
    part
}

/// Resolves an index of a slice as Python does.
fn from_end(index: i64, size: i64) -> i64 {
    let index = if index < 0 { index.saturating_add(size) } else { index };
    index.clamp(0, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right-hand sides are Python's `x[begin:end]` of a row.
    #[test]
    fn a_slice_means_what_it_means_in_python() {
        let data: Vec<i64> = (0..12).collect();
        let view = TensorView::from_slice(&data, &[3, 4]).unwrap();
        let cut = |slice: Slice| {
            let part = sliced(&view, &[slice]);
            let mut bytes = vec![0; part.size_in_bytes()];
            trainmon_stats::copy_contiguous(&part, &mut bytes);
            let numbers: Vec<i64> =
                bytes.chunks(8).map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap())).collect();
            (part.shape().dims().to_vec(), numbers)
        };
        let slice = |dim, begin, end| Slice { dim, begin, end, size: None };
        assert_eq!(cut(slice(0, 1, Some(2))), (vec![1, 4], vec![4, 5, 6, 7]));
        assert_eq!(cut(slice(1, -2, None)), (vec![3, 2], vec![2, 3, 6, 7, 10, 11]));
        assert_eq!(cut(slice(1, 1, Some(-1))), (vec![3, 2], vec![1, 2, 5, 6, 9, 10]));
        assert_eq!(cut(slice(0, 2, Some(1))), (vec![0, 4], vec![]));
        assert_eq!(cut(slice(0, -100, Some(100))).0, [3, 4]);
        assert_eq!(cut(slice(5, 0, Some(1))).0, [3, 4], "no such dimension");
        assert_eq!(cut(Slice { size: Some(4), ..slice(0, 0, Some(1)) }).0, [3, 4], "another size");
        assert_eq!(cut(Slice { size: Some(3), ..slice(0, 0, Some(1)) }).0, [1, 4]);
    }
}
