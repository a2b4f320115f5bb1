//! Measuring one tensor.

use trainmon_core::{Dtype, Statistic, StatisticSet, TensorStats, TensorView};

use crate::Request;
use crate::checksum::{self, Checksums, RequestedChecksums, Summer};
use crate::finish::Found;
use crate::fp_env::StandardFloats;
use crate::isa::Isa;
use crate::kernel::{
    Arithmetic, Bf16, Bools, Complex64, Complex128, Double, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F16, Integers, Narrow,
    Singles, ZeroBound, spread,
};
use crate::layout::{Order, Source};
use crate::partial::{Partial, Sum};
use crate::pool;

/// What needs no arithmetic on elements.
fn without_arithmetic() -> StatisticSet {
    StatisticSet::EMPTY.with(Statistic::Count).with(Statistic::Crc32).with(Statistic::Xor64)
}

/// Measures a tensor: one pass over its memory.
///
/// Fields of the reading that were not asked for may be filled nevertheless. The crate's documentation says what each
/// statistic means for NaN, infinities, bool and complex elements. Costs one read of the memory; a second one in the
/// rare cases named there, and for checksums of a tensor that is not contiguous. Allocates nothing.
pub fn measure(view: &TensorView<'_>, request: Request) -> TensorStats {
    if view.elements() == 0 {
        return TensorStats::empty(view.dtype(), view.shape());
    }
    let _standard = StandardFloats::enter();
    let wanted = RequestedChecksums::of(request.statistics);
    let needs_arithmetic = request.statistics.union(without_arithmetic()) != without_arithmetic();
    let is_interleaved = needs_arithmetic && (!wanted.any() || view.is_contiguous());
    if is_interleaved {
        return by_dtype(view, request, wanted, None);
    }
    let checksums = checksum::in_logical_order(view, wanted);
    if needs_arithmetic {
        return by_dtype(view, request, RequestedChecksums::NEITHER, Some(checksums));
    }
    let mut reading = TensorStats::empty(view.dtype(), view.shape());
    reading.count = view.elements() as u64;
    (reading.crc32, reading.xor64) = (checksums.crc, checksums.xor);
    reading
}

/// Checksums are those given, or else taken in passing.
fn by_dtype(
    view: &TensorView<'_>,
    request: Request,
    wanted: RequestedChecksums,
    known: Option<Checksums>,
) -> TensorStats {
    match view.dtype() {
        Dtype::F64 => pass::<Double>(view, request, wanted, known),
        Dtype::F32 => pass::<Singles<f32>>(view, request, wanted, known),
        Dtype::F16 => pass::<Singles<F16>>(view, request, wanted, known),
        Dtype::Bf16 => pass::<Singles<Bf16>>(view, request, wanted, known),
        Dtype::F8E4M3Fn => pass::<Narrow<E4M3FN>>(view, request, wanted, known),
        Dtype::F8E4M3Fnuz => pass::<Narrow<E4M3FNUZ>>(view, request, wanted, known),
        Dtype::F8E5M2 => pass::<Narrow<E5M2>>(view, request, wanted, known),
        Dtype::F8E5M2Fnuz => pass::<Narrow<E5M2FNUZ>>(view, request, wanted, known),
        Dtype::I8 => pass::<Integers<i8>>(view, request, wanted, known),
        Dtype::I16 => pass::<Integers<i16>>(view, request, wanted, known),
        Dtype::I32 => pass::<Integers<i32>>(view, request, wanted, known),
        Dtype::I64 => pass::<Integers<i64>>(view, request, wanted, known),
        Dtype::U8 => pass::<Integers<u8>>(view, request, wanted, known),
        Dtype::U16 => pass::<Integers<u16>>(view, request, wanted, known),
        Dtype::U32 => pass::<Integers<u32>>(view, request, wanted, known),
        Dtype::U64 => pass::<Integers<u64>>(view, request, wanted, known),
        Dtype::Bool => pass::<Bools>(view, request, wanted, known),
        Dtype::Complex64 => pass::<Complex64>(view, request, wanted, known),
        Dtype::Complex128 => pass::<Complex128>(view, request, wanted, known),
    }
}

/// One pass over the elements of one dtype, checksums taken block by block while the block is in the cache.
fn pass<A: Arithmetic>(
    view: &TensorView<'_>,
    request: Request,
    wanted: RequestedChecksums,
    known: Option<Checksums>,
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
            source.for_each_block(range, &mut |block| {
                A::fold(isa, block.elements(0), &zero, partial);
                if let Some(summer) = &mut summer {
                    summer.update(isa, block.bytes(0));
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
    Found { partial, visited, multiplicity, checksums }.reading(view, request, A::scalar, &spread_pass)
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
