//! How far two tensors are apart, in one pass.

use rayon::prelude::*;
use trainmon_core::Dtype;
use trainmon_dump::tensor_file::StoredTensor;

/// Numbers read at a time: two buffers of them stay in a core's cache. Sums are made chunk by chunk and added in order,
/// so the result is the same with any number of threads.
const CHUNK: usize = 2048;
/// Chunks a thread takes at a time.
const CHUNKS_PER_TASK: usize = 32;

/// What the pass found. Every sum is over `f64`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distance {
    /// Euclidean norm of the difference.
    pub(super) l2: f64,
    /// Of the first, and of the second.
    pub(super) norms: [f64; 2],
    /// Their scalar product.
    pub(super) dot: f64,
    /// The largest difference of two elements; infinite if one is infinite or NaN and the other is something else.
    pub(super) max_abs: f64,
    /// Where: an index into the numbers row by row.
    pub(super) max_abs_at: usize,
    /// Elements that are not the same.
    pub(super) differing: u64,
    /// Of these, those that differ by more than one unit in the last place of the coarser dtype.
    pub(super) beyond_rounding: u64,
    /// Elements that are infinite or NaN, in the first and in the second.
    pub(super) non_finite: [u64; 2],
}

impl Distance {
    /// The cosine of the angle between the two: 1 if both are zero, none if one is, or if an element is no number.
    pub(super) fn cosine(&self) -> Option<f64> {
        if self.non_finite != [0, 0] {
            return None;
        }
        match self.norms {
            [0.0, 0.0] => Some(1.0),
            [a, b] if a == 0.0 || b == 0.0 => None,
            // Rounding can take it a hair beyond one.
            [a, b] => Some((self.dot / a / b).clamp(-1.0, 1.0)),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Sums {
    difference: f64,
    squares: [f64; 2],
    dot: f64,
    max_abs: f64,
    max_abs_at: usize,
    differing: u64,
    beyond_rounding: u64,
    non_finite: [u64; 2],
}

/// The distance between two tensors of one shape.
///
/// # Panics
/// The shapes differ.
pub(super) fn distance(a: &StoredTensor, b: &StoredTensor) -> Distance {
    let count = a.numbers().min(b.numbers());
    assert_eq!(a.shape(), b.shape(), "only tensors of one shape have a distance");
    let coarseness = spacing(a.dtype()).max(spacing(b.dtype()));
    let tasks = count.div_ceil(CHUNK * CHUNKS_PER_TASK);
    let partial: Vec<Sums> = (0..tasks)
        .into_par_iter()
        .map(|task| {
            let first = task * CHUNK * CHUNKS_PER_TASK;
            of_range(a, b, first, (first + CHUNK * CHUNKS_PER_TASK).min(count), coarseness)
        })
        .collect();
    let sums = partial.iter().fold(Sums::default(), Sums::plus);
    Distance {
        l2: sums.difference.sqrt(),
        norms: sums.squares.map(f64::sqrt),
        dot: sums.dot,
        max_abs: sums.max_abs,
        max_abs_at: sums.max_abs_at,
        differing: sums.differing,
        beyond_rounding: sums.beyond_rounding,
        non_finite: sums.non_finite,
    }
}

fn of_range(a: &StoredTensor, b: &StoredTensor, first: usize, end: usize, coarseness: f64) -> Sums {
    let (mut left, mut right) = (vec![0.0; CHUNK], vec![0.0; CHUNK]);
    let mut sums = Sums::default();
    for at in (first..end).step_by(CHUNK) {
        let length = CHUNK.min(end - at);
        a.read_f64(at, &mut left[..length]);
        b.read_f64(at, &mut right[..length]);
        let chunk = of_chunk(&left[..length], &right[..length], at, coarseness);
        sums = sums.plus(&chunk);
    }
    sums
}

fn of_chunk(left: &[f64], right: &[f64], at: usize, coarseness: f64) -> Sums {
    let mut sums = Sums::default();
    for (index, (&x, &y)) in left.iter().zip(right).enumerate() {
        sums.squares[0] += x * x;
        sums.squares[1] += y * y;
        sums.dot += x * y;
        if x == y || (x.is_nan() && y.is_nan()) {
            sums.non_finite[0] += u64::from(!x.is_finite());
            sums.non_finite[1] += u64::from(!y.is_finite());
            continue;
        }
        sums.non_finite[0] += u64::from(!x.is_finite());
        sums.non_finite[1] += u64::from(!y.is_finite());
        let difference = x - y;
        sums.difference += difference * difference;
        sums.differing += 1;
        let size = if difference.is_finite() { difference.abs() } else { f64::INFINITY };
        sums.beyond_rounding += u64::from(size > coarseness * x.abs().max(y.abs()) || !difference.is_finite());
        if size > sums.max_abs {
            (sums.max_abs, sums.max_abs_at) = (size, at + index);
        }
    }
    sums
}

impl Sums {
    fn plus(self, other: &Self) -> Self {
        let (max_abs, max_abs_at) = if other.max_abs > self.max_abs {
            (other.max_abs, other.max_abs_at)
        } else {
            (self.max_abs, self.max_abs_at)
        };
        Self {
            difference: self.difference + other.difference,
            squares: [self.squares[0] + other.squares[0], self.squares[1] + other.squares[1]],
            dot: self.dot + other.dot,
            max_abs,
            max_abs_at,
            differing: self.differing + other.differing,
            beyond_rounding: self.beyond_rounding + other.beyond_rounding,
            non_finite: [self.non_finite[0] + other.non_finite[0], self.non_finite[1] + other.non_finite[1]],
        }
    }
}

/// The distance between two neighbouring numbers of a dtype around 1; integers have no rounding.
fn spacing(dtype: Dtype) -> f64 {
    2.0 * dtype.unit_roundoff().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use trainmon_core::Shape;

    use super::*;

    fn tensor(numbers: &[f32]) -> StoredTensor {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        StoredTensor::new(Dtype::F32, Shape::new(&[numbers.len() as i64]).unwrap(), bytes.into()).unwrap()
    }

    #[test]
    fn one_pass_finds_norm_angle_and_the_worst_element() {
        let found = distance(&tensor(&[3.0, 4.0, 0.0]), &tensor(&[3.0, 4.0, 12.0]));
        assert_eq!((found.l2, found.norms, found.max_abs, found.max_abs_at), (12.0, [5.0, 13.0], 12.0, 2));
        assert_eq!((found.differing, found.beyond_rounding), (1, 1));
        assert!((found.cosine().unwrap() - 25.0 / 65.0).abs() < 1e-15);
    }

    #[test]
    fn a_unit_in_the_last_place_is_rounding_and_two_are_not() {
        let next = |x: f32, by: u32| f32::from_bits(x.to_bits() + by);
        let found = distance(&tensor(&[1.0, 1.5, 2.0]), &tensor(&[next(1.0, 1), next(1.5, 2), 2.0]));
        assert_eq!((found.differing, found.beyond_rounding), (2, 1));
        let bytes: Vec<u8> = [0x3f80u16, 0x4000].iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let coarse = StoredTensor::new(Dtype::Bf16, Shape::new(&[2]).unwrap(), bytes.into()).unwrap();
        let found = distance(&coarse, &tensor(&[1.003, 2.1]));
        assert_eq!((found.differing, found.beyond_rounding), (2, 1));
    }

    #[test]
    fn zeros_and_what_is_no_number_have_answers_of_their_own() {
        assert_eq!(distance(&tensor(&[0.0; 3]), &tensor(&[-0.0; 3])).cosine(), Some(1.0));
        assert_eq!(distance(&tensor(&[0.0; 3]), &tensor(&[1.0; 3])).cosine(), None);
        let same = distance(&tensor(&[f32::NAN, f32::INFINITY]), &tensor(&[f32::NAN, f32::INFINITY]));
        assert_eq!((same.differing, same.max_abs, same.non_finite, same.cosine()), (0, 0.0, [2, 2], None));
        let other = distance(&tensor(&[f32::NAN, 1.0]), &tensor(&[1.0, 1.0]));
        assert_eq!((other.beyond_rounding, other.max_abs, other.max_abs_at), (1, f64::INFINITY, 0));
        assert_eq!(distance(&tensor(&[]), &tensor(&[])).cosine(), Some(1.0));
    }

    #[test]
    fn many_chunks_are_added_up_in_order() {
        let a: Vec<f32> = (0..CHUNK * CHUNKS_PER_TASK * 2 + 7).map(|index| index as f32).collect();
        let mut b = a.clone();
        b[CHUNK * CHUNKS_PER_TASK + 5] += 1024.0;
        let found = distance(&tensor(&a), &tensor(&b));
        assert_eq!((found.l2, found.max_abs_at, found.differing), (1024.0, CHUNK * CHUNKS_PER_TASK + 5, 1));
    }
}
