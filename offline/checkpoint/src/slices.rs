//! Joins the slices of a tensor that tensor-parallel ranks hold. A slice may itself be cut into rows of elements, as in
//! ZeRO-3.

use trainmon_core::Shape;

use super::assemble::joined;
use super::error::PieceError;
use super::recipe::{Piece, Recipe};

/// How slices are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joint {
    /// The axis along which they are joined.
    pub(super) axis: usize,
    /// Each slice is its part of one half above its part of the other, along axis 0; does not apply to an odd size.
    pub(super) is_gated: bool,
}

/// The recipe of the whole tensor. Slices may differ in size only along the joined axis.
pub(super) fn join(slices: &[Recipe], joint: Joint) -> Result<Recipe, PieceError> {
    let shapes: Vec<Shape> = slices.iter().map(|slice| slice.shape).collect();
    let (whole, _) = joined(&shapes, joint.axis)?;
    let is_halved = joint.is_gated
        && joint.axis == 0
        && shapes.iter().all(|shape| shape.dims().first().is_some_and(|rows| rows % 2 == 0));
    // Rows of elements are contiguous in each slice and interleaved with the other slices' rows in the whole tensor.
    let rows: i64 = if is_halved { 2 } else { whole.dims()[..joint.axis].iter().product() };
    let (mut pieces, mut before) = (Vec::new(), 0);
    for slice in slices {
        let width = (slice.shape.elements() as i64).checked_div(rows).unwrap_or(0);
        for piece in &slice.pieces {
            // A whole slice, or a run of its elements.
            let start = if slice.cut_as.dims().len() == 1 { piece.at.first().copied().unwrap_or(0) } else { 0 };
            cut(piece, start, width, before, &mut pieces)?;
        }
        before += width;
    }
    let dtype = slices.first().map_or(trainmon_core::Dtype::F32, |slice| slice.dtype);
    Ok(Recipe { dtype, shape: whole, cut_as: Shape::new(&[rows, before])?, pieces })
}

/// Cuts a run of elements at the ends of rows: a partial row, whole rows, a partial row.
fn cut(piece: &Piece, start: i64, width: i64, before: i64, pieces: &mut Vec<Piece>) -> Result<(), PieceError> {
    let count = piece.shape.elements() as i64;
    let first = piece.elements.map_or(0, |(first, _)| first);
    let mut done = 0;
    while done < count && width > 0 {
        let (row, column) = ((start + done) / width, (start + done) % width);
        let rest = count - done;
        let (height, length) =
            if column == 0 && rest >= width { (rest / width, width) } else { (1, rest.min(width - column)) };
        let elements = Some((first + done as u64, (height * length) as u64));
        let (source, shape) = (piece.source.clone(), Shape::new(&[height, length])?);
        pieces.push(Piece { source, elements, shape, at: vec![row, before + column] });
        done += height * length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use trainmon_core::Dtype;
    use trainmon_tensor_files::{FileBytes, StoredTensor};

    use super::super::assemble::assemble;
    use super::super::recipe::PieceSource;
    use super::*;

    fn shape(dims: &[i64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    /// A slice of bytes, in one piece or cut into rows of so many elements.
    fn slice(dims: &[i64], bytes: &[u8], cut_at: Option<usize>) -> (Recipe, Vec<StoredTensor>) {
        let source = || PieceSource::Within { path: PathBuf::new(), bytes: FileBytes::from(Vec::new()) };
        let stored =
            |dims: &[i64], bytes: &[u8]| StoredTensor::new(Dtype::U8, shape(dims), bytes.to_vec().into()).unwrap();
        let whole = shape(dims);
        let Some(size) = cut_at else {
            let piece = Piece { source: source(), elements: None, shape: whole, at: vec![0; dims.len()] };
            let recipe = Recipe { dtype: Dtype::U8, shape: whole, cut_as: whole, pieces: vec![piece] };
            return (recipe, vec![stored(dims, bytes)]);
        };
        let (mut pieces, mut parts) = (Vec::new(), Vec::new());
        for (index, part) in bytes.chunks(size).enumerate() {
            let count = part.len() as i64;
            // In a flat tensor something else lies before it.
            let elements = Some((1, part.len() as u64));
            pieces.push(Piece { source: source(), elements, shape: shape(&[count]), at: vec![(index * size) as i64] });
            parts.push(stored(&[count + 1], &[&[99], part].concat()));
        }
        let cut_as = shape(&[bytes.len() as i64]);
        (Recipe { dtype: Dtype::U8, shape: whole, cut_as, pieces }, parts)
    }

    /// Joins them and reads the whole.
    fn read(slices: Vec<(Recipe, Vec<StoredTensor>)>, joint: Joint) -> (Vec<i64>, Vec<u8>) {
        let (recipes, parts): (Vec<Recipe>, Vec<Vec<StoredTensor>>) = slices.into_iter().unzip();
        let whole = join(&recipes, joint).unwrap();
        let parts = parts.into_iter().flatten();
        // Each piece of the whole comes from a part of a slice: those of one part stand together.
        let mut by_piece = Vec::new();
        let mut counts = recipes.iter().flat_map(|recipe| &recipe.pieces).map(|piece| piece.shape.elements());
        let mut pieces = whole.pieces.iter();
        for part in parts {
            let mut left = counts.next().unwrap();
            while left > 0 {
                left -= pieces.next().unwrap().shape.elements();
                by_piece.push(part.clone());
            }
        }
        let tensor = assemble(&whole, &by_piece).unwrap();
        (tensor.shape().dims().to_vec(), tensor.bytes().to_vec())
    }

    #[test]
    fn slices_that_are_cut_into_rows_of_elements_join_as_whole_ones_do() {
        let (upper, lower) = ([1, 2, 3, 4, 5, 6], [7, 8, 9]);
        let (left, right) = ([1, 2, 4, 5, 7, 8], [3, 6, 9]);
        for size in [None, Some(1), Some(2), Some(4), Some(6)] {
            let rows = vec![slice(&[2, 3], &upper, size), slice(&[1, 3], &lower, size)];
            let joint = Joint { axis: 0, is_gated: false };
            assert_eq!(read(rows, joint), (vec![3, 3], (1..=9).collect()), "{size:?}");
            let columns = vec![slice(&[3, 2], &left, size), slice(&[3, 1], &right, size)];
            let joint = Joint { axis: 1, is_gated: false };
            assert_eq!(read(columns, joint), (vec![3, 3], (1..=9).collect()), "{size:?}");
        }
    }

    #[test]
    fn gates_are_joined_half_by_half() {
        for size in [None, Some(3), Some(5)] {
            let slices = vec![slice(&[4, 1], &[1, 2, 5, 6], size), slice(&[4, 1], &[3, 4, 7, 8], size)];
            let joint = Joint { axis: 0, is_gated: true };
            assert_eq!(read(slices, joint), (vec![8, 1], (1..=8).collect()), "{size:?}");
        }
    }

    #[test]
    fn slices_that_do_not_lie_beside_each_other_are_refused() {
        let slices: Vec<Recipe> =
            [slice(&[2, 3], &[0; 6], None), slice(&[3, 2], &[0; 6], None)].map(|(recipe, _)| recipe).into();
        assert!(join(&slices, Joint { axis: 0, is_gated: false }).is_err());
    }
}
