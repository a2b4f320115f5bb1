//! Compares two tensors of one shape in a joint pass.

use trainmon_core::{Dtype, Statistic, TensorStats, TensorView};

use crate::Request;
use crate::checksum::Checksums;
use crate::finish::PassResult;
use crate::fp_env::StandardFloats;
use crate::isa::Isa;
use crate::kernel::{
    Arithmetic, Bf16, Double, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F16, Narrow, Singles, ZeroBound, spread,
};
use crate::layout::{BLOCK_ELEMENTS, Block, Order, Source};
use crate::partial::{Partial, Sum};
use crate::pool;

/// Elements of each tensor that are processed at a time: four buffers of float64 fit the level-1 cache.
const CHUNK: usize = 1024;
const _: () = assert!(BLOCK_ELEMENTS.is_multiple_of(CHUNK));

/// Converts elements of one operand into a buffer, whose length is the number of elements.
type Convert<T> = fn(Isa, &Block<'_, 2>, usize, usize, &mut [T]);

fn signs<A: Arithmetic>(isa: Isa, block: &Block<'_, 2>, operand: usize, start: usize, out: &mut [i8]) {
    let elements = &block.elements::<A::Element>(operand)[start..][..out.len()];
    isa.run(|| {
        for (sign, &element) in out.iter_mut().zip(elements) {
            let value = A::value(element);
            *sign = i8::from(value > 0.0) - i8::from(value < 0.0);
        }
    });
}

fn singles<A: Arithmetic>(isa: Isa, block: &Block<'_, 2>, operand: usize, start: usize, out: &mut [f32]) {
    let elements = &block.elements::<A::Element>(operand)[start..][..out.len()];
    isa.run(|| {
        for (value, &element) in out.iter_mut().zip(elements) {
            *value = A::value(element) as f32;
        }
    });
}

fn doubles<A: Arithmetic>(isa: Isa, block: &Block<'_, 2>, operand: usize, start: usize, out: &mut [f64]) {
    let elements = &block.elements::<A::Element>(operand)[start..][..out.len()];
    isa.run(|| {
        for (value, &element) in out.iter_mut().zip(elements) {
            *value = A::value(element);
        }
    });
}

/// The instance of a generic conversion for a real float dtype; `None` for the others.
macro_rules! for_real_float {
    ($convert:ident, $dtype:expr) => {
        match $dtype {
            Dtype::F64 => Some($convert::<Double> as Convert<_>),
            Dtype::F32 => Some($convert::<Singles<f32>> as Convert<_>),
            Dtype::F16 => Some($convert::<Singles<F16>> as Convert<_>),
            Dtype::Bf16 => Some($convert::<Singles<Bf16>> as Convert<_>),
            Dtype::F8E4M3Fn => Some($convert::<Narrow<E4M3FN>> as Convert<_>),
            Dtype::F8E4M3Fnuz => Some($convert::<Narrow<E4M3FNUZ>> as Convert<_>),
            Dtype::F8E5M2 => Some($convert::<Narrow<E5M2>> as Convert<_>),
            Dtype::F8E5M2Fnuz => Some($convert::<Narrow<E5M2FNUZ>> as Convert<_>),
            _ => None,
        }
    };
}

/// Compares the signs of two blocks of one dtype as bit patterns, without conversion.
type Agreement = fn(Isa, &Block<'_, 2>) -> i64;

macro_rules! agreement_of_words {
    ($($name:ident: $word:ident, $signed:ident, infinity $infinity:expr;)*) => {$(
        /// Returns the sum of sign(a) x sign(b) over at most [`CHUNK`] elements, which cannot overflow the signed word.
        fn $name(isa: Isa, a: &[$word], b: &[$word]) -> i64 {
            /// Returns whether the word is neither zero nor NaN.
            #[inline(always)]
            fn has_sign(word: $word) -> bool {
                (word & ($word::MAX >> 1)).wrapping_sub(1) < $infinity
            }
            isa.run(|| {
                let sum: $signed = a
                    .iter()
                    .zip(b)
                    .map(|(&a, &b)| {
                        let product = ((a ^ b).cast_signed() >> ($word::BITS - 1)) | 1;
                        if has_sign(a) & has_sign(b) { product } else { 0 }
                    })
                    .sum();
                i64::from(sum)
            })
        }
    )*};
}
agreement_of_words! {
    agreement_of_bf16: u16, i16, infinity 0x7f80;
    agreement_of_f16: u16, i16, infinity 0x7c00;
    agreement_of_f32: u32, i32, infinity 0x7f80_0000;
    agreement_of_f64: u64, i64, infinity 0x7ff0_0000_0000_0000;
}

/// Returns the comparison of bit patterns for two tensors of one dtype; `None` for mixed pairs and narrow floats.
fn agreement_of(dtypes: [Dtype; 2]) -> Option<Agreement> {
    macro_rules! by_chunks {
        ($of:ident) => {
            |isa, block| {
                let mut sum = 0;
                for_each_chunk(block, |start, len| {
                    sum += $of(isa, &block.elements(0)[start..][..len], &block.elements(1)[start..][..len]);
                });
                sum
            }
        };
    }
    match dtypes {
        [Dtype::Bf16, Dtype::Bf16] => Some(by_chunks!(agreement_of_bf16)),
        [Dtype::F16, Dtype::F16] => Some(by_chunks!(agreement_of_f16)),
        [Dtype::F32, Dtype::F32] => Some(by_chunks!(agreement_of_f32)),
        [Dtype::F64, Dtype::F64] => Some(by_chunks!(agreement_of_f64)),
        _ => None,
    }
}

/// Returns the sign agreement of two tensors: ((sum of sign(a) x sign(b)) / elements + 1) / 2.
///
/// 1 if all signs agree, 0 if all are opposite; a pair with a zero counts half. NaN has sign 0. The float dtypes may
/// differ. `None` for different shapes, no elements, or a dtype that is not a real float. One pass over both, exact;
/// allocates nothing.
pub fn sign_agreement(a: &TensorView<'_>, b: &TensorView<'_>) -> Option<f64> {
    let _standard = StandardFloats::enter();
    if a.shape() != b.shape() || a.elements() == 0 {
        return None;
    }
    let signs_of = [for_real_float!(signs, a.dtype())?, for_real_float!(signs, b.dtype())?];
    let isa = Isa::current();
    let source = Source::new([a, b], Order::Memory);
    let mut agreement = 0i64;
    pool::fold_shards(
        source.elements(),
        &mut agreement,
        |range, sum| {
            if let Some(agreement_of) = agreement_of([a.dtype(), b.dtype()]) {
                source.for_each_block(range, &mut |block| *sum += agreement_of(isa, block));
                return;
            }
            let mut buffers = [[0i8; CHUNK]; 2];
            source.for_each_block(range, &mut |block| {
                for_each_chunk(block, |start, len| {
                    for (operand, buffer) in buffers.iter_mut().enumerate() {
                        signs_of[operand](isa, block, operand, start, &mut buffer[..len]);
                    }
                    *sum += i64::from(isa.run(|| product_sum(&buffers[0][..len], &buffers[1][..len])));
                });
            });
        },
        |sum, next| *sum += next,
    );
    Some(f64::midpoint(agreement as f64 / source.elements() as f64, 1.0))
}

#[inline]
fn product_sum(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| i32::from(a * b)).sum()
}

/// Calls `work` for each [`CHUNK`] of a block, by start and length, and prefetches the memory that follows.
#[inline]
fn for_each_chunk(block: &Block<'_, 2>, mut work: impl FnMut(usize, usize)) {
    let mut start = 0;
    while start < block.len() {
        let len = CHUNK.min(block.len() - start);
        (0..2).for_each(|operand| block.ask_ahead(operand, start, len));
        work(start, len);
        start += len;
    }
}

/// Measures `after - before` without storing the difference as a whole.
///
/// Differences are computed in float32, or in float64 if either tensor is float64; the dtypes may differ. The reading has
/// the dtype and shape of `after`. Checksums are not computed (0). An empty pair gives [`TensorStats::empty`]. `None` for
/// different shapes or a dtype that is not a real float. One pass over both; allocates nothing.
pub fn difference(before: &TensorView<'_>, after: &TensorView<'_>, request: Request) -> Option<TensorStats> {
    let _standard = StandardFloats::enter();
    if before.shape() != after.shape() {
        return None;
    }
    let pair = [before, after];
    let are_all = |dtype| pair.iter().all(|view| view.dtype() == dtype);
    let source = Source::new(pair, Order::Memory);
    if pair.iter().any(|view| view.dtype() == Dtype::F64) {
        let convert = [for_real_float!(doubles, before.dtype())?, for_real_float!(doubles, after.dtype())?];
        let is_native = are_all(Dtype::F64);
        Some(Difference::<Double> { source, convert, is_native }.reading(after, request))
    } else {
        let convert = [for_real_float!(singles, before.dtype())?, for_real_float!(singles, after.dtype())?];
        let is_native = are_all(Dtype::F32);
        Some(Difference::<Singles<f32>> { source, convert, is_native }.reading(after, request))
    }
}

struct Difference<'a, A: Arithmetic> {
    /// The tensors `before` and `after`.
    source: Source<'a, 2>,
    convert: [Convert<A::Element>; 2],
    /// Whether both tensors have the dtype of the differences, so that nothing is converted.
    is_native: bool,
}

impl<A> Difference<'_, A>
where
    A: Arithmetic,
    A::Element: Default + std::ops::Sub<Output = A::Element>,
{
    fn reading(&self, after: &TensorView<'_>, request: Request) -> TensorStats {
        if self.source.elements() == 0 {
            return TensorStats::empty(after.dtype(), after.shape());
        }
        let isa = Isa::current();
        let zero = ZeroBound::new(request.eps, request.statistics.contains(Statistic::Zeros));
        let mut partial = Partial::default();
        pool::fold_shards(
            self.source.elements(),
            &mut partial,
            |range, partial| self.for_each_chunk(isa, range, |chunk| A::fold(isa, chunk, &zero, partial)),
            Partial::merge,
        );
        let (visited, multiplicity) = (self.source.elements() as u64, self.source.multiplicity());
        let spread_pass = |centre, divisor| self.spread(isa, centre, divisor);
        let found = PassResult { partial, visited, multiplicity, checksums: Checksums::default() };
        found.reading(after, request, A::scalar, &spread_pass)
    }

    #[cold]
    fn spread(&self, isa: Isa, centre: f64, divisor: f64) -> f64 {
        let mut total = Sum::default();
        pool::fold_shards(
            self.source.elements(),
            &mut total,
            |range, sum| self.for_each_chunk(isa, range, |chunk| sum.add(spread::<A>(chunk, centre, divisor))),
            Sum::merge,
        );
        total.value()
    }

    fn for_each_chunk(&self, isa: Isa, range: std::ops::Range<usize>, mut sink: impl FnMut(&[A::Element])) {
        let mut buffers = [[A::Element::default(); CHUNK]; 2];
        self.source.for_each_block(range, &mut |block| {
            for_each_chunk(block, |start, len| {
                let [before, after] = &mut buffers;
                if self.is_native {
                    let [from, to] = [0, 1].map(|operand| &block.elements::<A::Element>(operand)[start..][..len]);
                    isa.run(|| {
                        for ((change, &to), &from) in after.iter_mut().zip(to).zip(from) {
                            *change = to - from;
                        }
                    });
                } else {
                    self.convert[0](isa, block, 0, start, &mut before[..len]);
                    self.convert[1](isa, block, 1, start, &mut after[..len]);
                    isa.run(|| {
                        for (after, &before) in after[..len].iter_mut().zip(&before[..len]) {
                            *after = *after - before;
                        }
                    });
                }
                sink(&after[..len]);
            });
        });
    }
}
