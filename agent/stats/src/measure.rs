//! Measures one tensor.

use trainmon_core::{Dtype, Statistic, StatisticSet, TensorStats, TensorView};

use crate::Request;
use crate::checksum::{self, Checksums, RequestedChecksums, Summer};
use crate::copy::CopyTarget;
use crate::finish::PassResult;
use crate::fp_env::StandardFloats;
use crate::isa::Isa;
use crate::kernel::{
    Arithmetic, Bf16, Bools, Complex64, Complex128, Double, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F16, Integers, Narrow,
    Singles, ZeroBound, spread,
};
use crate::layout::{Order, Source};
use crate::partial::{Partial, Sum};
use crate::pool;

/// Returns the statistics that need no arithmetic on elements.
fn without_arithmetic() -> StatisticSet {
    StatisticSet::EMPTY.with(Statistic::Count).with(Statistic::Crc32).with(Statistic::Xor64)
}

/// Measures a tensor in one pass over its memory.
///
/// Fields that were not requested may be filled too. The crate's documentation describes each statistic for NaN,
/// infinities, bool and complex elements. Cost: one read of the memory; a second one in the rare cases listed there, and
/// for checksums of a tensor that is not contiguous. Allocates nothing.
pub fn measure(view: &TensorView<'_>, request: Request) -> TensorStats {
    measure_to(view, request, None)
}

/// Measures a tensor and copies its elements contiguously, in logical order: [`measure`] and
/// [`copy_contiguous`](crate::copy_contiguous) in one pass.
///
/// Checksums are those of the copy. Cost: one read and one write of the memory, block by block while the block is in the
/// cache; a second read for a tensor that is not contiguous. Allocates nothing.
///
/// # Panics
/// `target` does not have exactly the tensor's size in bytes.
pub fn measure_and_copy(view: &TensorView<'_>, request: Request, target: &mut [u8]) -> TensorStats {
    assert_eq!(target.len(), view.elements() * view.dtype().size(), "the target holds exactly the tensor");
    measure_to(view, request, Some(&CopyTarget::of(target)))
}

fn measure_to(view: &TensorView<'_>, request: Request, target: Option<&CopyTarget<'_>>) -> TensorStats {
    if view.elements() == 0 {
        return TensorStats::empty(view.dtype(), view.shape());
    }
    let _standard = StandardFloats::enter();
    let wanted = RequestedChecksums::of(request.statistics);
    let needs_arithmetic = request.statistics.union(without_arithmetic()) != without_arithmetic();
    let needs_order = wanted.any() || target.is_some();
    if needs_arithmetic && (!needs_order || view.is_contiguous()) {
        return by_dtype(view, request, wanted, None, target);
    }
    let checksums = checksum::in_logical_order(view, wanted, target);
    if needs_arithmetic {
        return by_dtype(view, request, RequestedChecksums::NEITHER, Some(checksums), None);
    }
    let mut reading = TensorStats::empty(view.dtype(), view.shape());
    reading.count = view.elements() as u64;
    (reading.crc32, reading.xor64) = (checksums.crc, checksums.xor);
    reading
}

/// Uses the `known` checksums or else computes them in the same pass, which also fills the target if there is one.
fn by_dtype(
    view: &TensorView<'_>,
    request: Request,
    wanted: RequestedChecksums,
    known: Option<Checksums>,
    target: Option<&CopyTarget<'_>>,
) -> TensorStats {
    match view.dtype() {
        Dtype::F64 => pass::<Double>(view, request, wanted, known, target),
        Dtype::F32 => pass::<Singles<f32>>(view, request, wanted, known, target),
        Dtype::F16 => pass::<Singles<F16>>(view, request, wanted, known, target),
        Dtype::Bf16 => pass::<Singles<Bf16>>(view, request, wanted, known, target),
        Dtype::F8E4M3Fn => pass::<Narrow<E4M3FN>>(view, request, wanted, known, target),
        Dtype::F8E4M3Fnuz => pass::<Narrow<E4M3FNUZ>>(view, request, wanted, known, target),
        Dtype::F8E5M2 => pass::<Narrow<E5M2>>(view, request, wanted, known, target),
        Dtype::F8E5M2Fnuz => pass::<Narrow<E5M2FNUZ>>(view, request, wanted, known, target),
        Dtype::I8 => pass::<Integers<i8>>(view, request, wanted, known, target),
        Dtype::I16 => pass::<Integers<i16>>(view, request, wanted, known, target),
        Dtype::I32 => pass::<Integers<i32>>(view, request, wanted, known, target),
        Dtype::I64 => pass::<Integers<i64>>(view, request, wanted, known, target),
        Dtype::U8 => pass::<Integers<u8>>(view, request, wanted, known, target),
        Dtype::U16 => pass::<Integers<u16>>(view, request, wanted, known, target),
        Dtype::U32 => pass::<Integers<u32>>(view, request, wanted, known, target),
        Dtype::U64 => pass::<Integers<u64>>(view, request, wanted, known, target),
        Dtype::Bool => pass::<Bools>(view, request, wanted, known, target),
        Dtype::Complex64 => pass::<Complex64>(view, request, wanted, known, target),
        Dtype::Complex128 => pass::<Complex128>(view, request, wanted, known, target),
    }
}

/// Runs one pass over elements of one dtype. Each block is also copied and hashed while it is in the cache.
#[expect(unsafe_code, reason = "copies blocks into the range of their shard")]
fn pass<A: Arithmetic>(
    view: &TensorView<'_>,
    request: Request,
    wanted: RequestedChecksums,
    known: Option<Checksums>,
    target: Option<&CopyTarget<'_>>,
) -> TensorStats {
    let isa = Isa::current();
    let source = Source::new([view], Order::Memory);
    let zero = ZeroBound::new(request.eps, request.statistics.contains(Statistic::Zeros));
    let mut pass = (Partial::default(), Checksums::default());
    pool::fold_shards(
        source.elements(),
        &mut pass,
        |range, (partial, checksums)| {
            let mut summer = wanted.any().then(|| Summer::new(wanted));
            let mut at = range.start * view.dtype().size();
            source.for_each_block(range, &mut |block| {
                A::fold(isa, block.elements(0), &zero, partial);
                let mut bytes = block.bytes(0);
                if let Some(target) = target {
                    // SAFETY: shards do not overlap, and neither do the blocks of one.
                    bytes = unsafe { target.put(at, bytes) };
                    at += bytes.len();
                }
                if let Some(summer) = &mut summer {
                    summer.update(isa, bytes);
                }
            });
            if let Some(summer) = summer {
                *checksums = summer.finish();
            }
        },
        |(partial, checksums), (next, next_checksums)| {
            partial.merge(next);
            checksums.append(wanted, next_checksums);
        },
    );
    let (partial, in_passing) = pass;
    let (visited, multiplicity) = (source.elements() as u64, source.multiplicity());
    let spread_pass = |centre, divisor| spread_of::<A>(&source, centre, divisor);
    let checksums = known.unwrap_or(in_passing);
    PassResult { partial, visited, multiplicity, checksums }.reading(view, request, A::scalar, &spread_pass)
}

#[cold]
fn spread_of<A: Arithmetic>(source: &Source<'_, 1>, centre: f64, divisor: f64) -> f64 {
    let mut total = Sum::default();
    pool::fold_shards(
        source.elements(),
        &mut total,
        |range, sum| {
            source.for_each_block(range, &mut |block| sum.add(spread::<A>(block.elements(0), centre, divisor)));
        },
        Sum::merge,
    );
    total.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every shard writes its own part of the target.
    #[test]
    fn a_large_tensor_is_copied_whole_by_several_threads() {
        let elements = 3_usize * (1 << 20) + 77;
        let data: Vec<u32> = (0..elements as u32).map(|index| index.wrapping_mul(2_654_435_761)).collect();
        let expected: Vec<u8> = data.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let flat = TensorView::from_slice(&data, &[elements as i64]).unwrap();
        for statistics in [&[Statistic::Max, Statistic::Crc32][..], &[Statistic::Crc32], &[]] {
            let request = Request { statistics: statistics.iter().copied().collect(), eps: 0.0 };
            let mut copy = vec![0; expected.len()];
            let found = measure_and_copy(&flat, request, &mut copy);
            assert!(copy == expected, "{statistics:?}");
            // A NaN is no equal of itself; its text is.
            assert_eq!(format!("{found:?}"), format!("{:?}", measure(&flat, request)));
        }
    }
}
