//! Assembles tensors from pieces.

use trainmon_core::Shape;
use trainmon_tensor_files::StoredTensor;

use super::error::PieceError;
use super::recipe::{Piece, Recipe};

/// The largest number of pieces for which all pairs are checked for overlap; beyond it, only the number of elements is
/// checked.
const PAIRS_CHECKED: usize = 1024;

/// Assembles a tensor. A single whole piece is not copied, several are copied once.
pub(super) fn assemble(recipe: &Recipe, parts: &[StoredTensor]) -> Result<StoredTensor, PieceError> {
    for part in parts {
        if part.dtype() != recipe.dtype {
            let (first, other) = (recipe.dtype.to_string(), part.dtype().to_string());
            return Err(PieceError::Dtypes { first, other });
        }
    }
    let selected: Vec<StoredTensor> =
        recipe.pieces.iter().zip(parts).map(|(piece, part)| select(piece, part)).collect::<Result<_, _>>()?;
    if let ([one], true) = (&selected[..], recipe.cut_as == recipe.shape)
        && one.shape() == recipe.shape
    {
        return Ok(one.clone());
    }
    check(recipe)?;
    let width = recipe.dtype.size();
    let mut whole = vec![0; recipe.cut_as.elements() * width];
    for (piece, part) in recipe.pieces.iter().zip(&selected) {
        place(part.bytes(), piece, &recipe.cut_as, width, &mut whole);
    }
    Ok(StoredTensor::new(recipe.dtype, recipe.shape, whole.into())?)
}

/// The elements of a source that a piece covers, in the piece's shape.
fn select(piece: &Piece, part: &StoredTensor) -> Result<StoredTensor, PieceError> {
    let Some((first, count)) = piece.elements else {
        return Ok(part.clone().reshaped(piece.shape)?);
    };
    let width = part.dtype().size() as u64;
    let bytes = part.shared_bytes().part("a piece", first.saturating_mul(width), count.saturating_mul(width))?;
    Ok(StoredTensor::new(part.dtype(), piece.shape, bytes)?)
}

/// Checks that the pieces cover each element of the tensor exactly once.
fn check(recipe: &Recipe) -> Result<(), PieceError> {
    let whole = recipe.cut_as;
    for piece in &recipe.pieces {
        let dims = piece.shape.dims();
        let fits = dims.len() == whole.dims().len()
            && piece.at.len() == dims.len()
            && (0..dims.len()).all(|axis| {
                let (at, size) = (piece.at[axis], dims[axis]);
                at >= 0 && at.checked_add(size).is_some_and(|end| end <= whole.dims()[axis])
            });
        if !fits {
            let (shape, at) = (piece.shape.to_string(), piece.at.clone());
            return Err(PieceError::Outside { piece: shape, at, whole: whole.to_string() });
        }
    }
    let found = recipe.pieces.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.shape.elements() as u64));
    if found != whole.elements() as u64 {
        return Err(PieceError::Elements { found, expected: whole.elements() as u64 });
    }
    if recipe.pieces.len() <= PAIRS_CHECKED {
        for (index, first) in recipe.pieces.iter().enumerate() {
            if let Some(second) = recipe.pieces[..index].iter().find(|second| overlap(first, second)) {
                return Err(PieceError::Overlap { first: first.at.clone(), second: second.at.clone() });
            }
        }
    }
    Ok(())
}

fn overlap(first: &Piece, second: &Piece) -> bool {
    (0..first.at.len()).all(|axis| {
        let (from, to) = (first.at[axis].max(second.at[axis]), {
            let end = |piece: &Piece| piece.at[axis] + piece.shape.dims()[axis];
            end(first).min(end(second))
        });
        from < to
    })
}

/// Copies a piece to its place in contiguous runs: the last axis, and the axes before it that the piece covers
/// completely.
fn place(part: &[u8], piece: &Piece, whole: &Shape, width: usize, out: &mut [u8]) {
    let (dims, full) = (piece.shape.dims(), whole.dims());
    if part.is_empty() {
        return;
    }
    let mut run_axis = dims.len();
    let mut run = 1;
    while run_axis > 0 {
        run_axis -= 1;
        run *= dims[run_axis];
        if dims[run_axis] != full[run_axis] {
            break;
        }
    }
    let strides = whole.contiguous_strides();
    let start: i64 = piece.at.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
    let run = run as usize * width;
    let mut index = vec![0i64; run_axis];
    for row in part.chunks_exact(run) {
        let offset: i64 = index.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        let to = (start + offset) as usize * width;
        out[to..to + run].copy_from_slice(row);
        let Some(axis) = (0..run_axis).rev().find(|&axis| index[axis] + 1 < dims[axis]) else { return };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

/// Joins pieces along an axis, as tensor-parallel ranks hold them: returns each piece's place and the whole shape.
pub(super) fn joined(shapes: &[Shape], axis: usize) -> Result<(Shape, Vec<Vec<i64>>), PieceError> {
    let Some((first, others)) = shapes.split_first() else { return Ok((Shape::default(), Vec::new())) };
    let fits = |other: &Shape| {
        let (a, b) = (first.dims(), other.dims());
        a.len() == b.len() && axis < a.len() && (0..a.len()).all(|at| at == axis || a[at] == b[at])
    };
    if let Some(other) = shapes.iter().find(|other| !fits(other)).or_else(|| others.iter().find(|other| !fits(other))) {
        return Err(PieceError::Join { first: first.to_string(), other: other.to_string(), axis });
    }
    let mut whole = first.dims().to_vec();
    whole[axis] = 0;
    let mut places = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let mut at = vec![0; whole.len()];
        at[axis] = whole[axis];
        whole[axis] = whole[axis].saturating_add(shape.dims()[axis]);
        places.push(at);
    }
    Ok((Shape::new(&whole)?, places))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use trainmon_core::Dtype;
    use trainmon_tensor_files::FileBytes;

    use super::super::recipe::PieceSource;
    use super::*;

    fn shape(dims: &[i64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn piece(at: &[i64], dims: &[i64]) -> Piece {
        let source = PieceSource::Within { path: PathBuf::new(), bytes: FileBytes::from(Vec::new()) };
        Piece { source, elements: None, shape: shape(dims), at: at.to_vec() }
    }

    fn recipe(dims: &[i64], pieces: Vec<Piece>) -> Recipe {
        Recipe { dtype: Dtype::U8, shape: shape(dims), cut_as: shape(dims), pieces }
    }

    fn bytes(dims: &[i64], bytes: &[u8]) -> StoredTensor {
        StoredTensor::new(Dtype::U8, shape(dims), bytes.to_vec().into()).unwrap()
    }

    #[test]
    fn blocks_in_any_axes_are_put_where_they_belong() {
        let pieces = vec![piece(&[0, 0], &[2, 1]), piece(&[0, 1], &[1, 2]), piece(&[1, 1], &[1, 2])];
        let parts = [bytes(&[2, 1], &[1, 4]), bytes(&[1, 2], &[2, 3]), bytes(&[1, 2], &[5, 6])];
        assert_eq!(assemble(&recipe(&[2, 3], pieces), &parts).unwrap().bytes(), [1, 2, 3, 4, 5, 6]);
        let along_last = vec![piece(&[0, 0, 0], &[2, 1, 2]), piece(&[0, 1, 0], &[2, 1, 2])];
        let parts = [bytes(&[2, 1, 2], &[0, 1, 4, 5]), bytes(&[2, 1, 2], &[2, 3, 6, 7])];
        assert_eq!(assemble(&recipe(&[2, 2, 2], along_last), &parts).unwrap().bytes(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn pieces_that_leave_holes_or_lie_on_each_other_are_refused() {
        let one = || bytes(&[2], &[1, 2]);
        let hole = assemble(&recipe(&[5], vec![piece(&[0], &[2]), piece(&[2], &[2])]), &[one(), one()]);
        assert!(matches!(hole, Err(PieceError::Elements { found: 4, expected: 5 })), "{hole:?}");
        let twice = assemble(&recipe(&[4], vec![piece(&[0], &[2]), piece(&[1], &[2])]), &[one(), one()]);
        assert!(matches!(twice, Err(PieceError::Overlap { .. })), "{twice:?}");
        let outside = assemble(&recipe(&[4], vec![piece(&[0], &[2]), piece(&[3], &[2])]), &[one(), one()]);
        assert!(matches!(outside, Err(PieceError::Outside { .. })), "{outside:?}");
    }

    #[test]
    fn shapes_join_along_one_axis_only() {
        let (whole, places) = joined(&[shape(&[2, 3]), shape(&[2, 4])], 1).unwrap();
        assert_eq!((whole, places), (shape(&[2, 7]), vec![vec![0, 0], vec![0, 3]]));
        assert!(joined(&[shape(&[2, 3]), shape(&[3, 3])], 1).is_err());
        assert!(joined(&[shape(&[2]), shape(&[2])], 1).is_err());
    }
}
