//! Complex numbers, measured by magnitude. A magnitude is NaN if either part is.

use trainmon_core::Scalar;

use super::{Arithmetic, Double, Singles, ZeroBound};
use crate::isa::Isa;
use crate::partial::Partial;

/// The number of magnitudes computed at a time; they stay in the level-1 cache.
const CHUNK: usize = 1024;

/// The arithmetic of two float32: magnitudes are float32.
pub(crate) struct Complex64;

/// The arithmetic of two float64: magnitudes are float64.
pub(crate) struct Complex128;

/// Returns the magnitude. Squares of float32 are in the range of float64, so it needs no scaling.
#[inline]
fn magnitude64([re, im]: [f32; 2]) -> f32 {
    let (re, im) = (f64::from(re), f64::from(im));
    (re * re + im * im).sqrt() as f32
}

/// Returns the magnitude. `hypot` alone returns infinity for an infinite part even if the other is NaN.
#[inline]
fn magnitude128([re, im]: [f64; 2]) -> f64 {
    if re.is_nan() || im.is_nan() { f64::NAN } else { re.hypot(im) }
}

/// Computes the magnitudes of a chunk: from plain squares if they neither overflow nor underflow, else with `hypot`.
fn magnitudes_of(isa: Isa, chunk: &[[f64; 2]], magnitudes: &mut [f64; CHUNK]) {
    const SAFE_SQUARES: std::ops::Range<f64> = 1e-280..1e300;
    let is_safe = isa.run(|| {
        let mut is_safe = true;
        for (magnitude, [re, im]) in magnitudes.iter_mut().zip(chunk) {
            let squares = re * re + im * im;
            is_safe &= squares == 0.0 && *re == 0.0 && *im == 0.0 || SAFE_SQUARES.contains(&squares);
            *magnitude = squares.sqrt();
        }
        is_safe
    });
    if !is_safe {
        for (magnitude, &element) in magnitudes.iter_mut().zip(chunk) {
            *magnitude = magnitude128(element);
        }
    }
}

impl Arithmetic for Complex64 {
    type Element = [f32; 2];
    type Extreme = f64;

    #[inline]
    fn value(element: [f32; 2]) -> f64 {
        f64::from(magnitude64(element))
    }

    fn fold(isa: Isa, block: &[[f32; 2]], zero: &ZeroBound, into: &mut Partial<f64>) {
        let mut magnitudes = [0.0f32; CHUNK];
        for chunk in block.chunks(CHUNK) {
            isa.run(|| {
                for (magnitude, &element) in magnitudes.iter_mut().zip(chunk) {
                    *magnitude = magnitude64(element);
                }
            });
            Singles::<f32>::fold(isa, &magnitudes[..chunk.len()], zero, into);
        }
    }

    fn scalar(extreme: f64) -> Scalar {
        Scalar::Float(extreme)
    }
}

impl Arithmetic for Complex128 {
    type Element = [f64; 2];
    type Extreme = f64;

    #[inline]
    fn value(element: [f64; 2]) -> f64 {
        magnitude128(element)
    }

    fn fold(isa: Isa, block: &[[f64; 2]], zero: &ZeroBound, into: &mut Partial<f64>) {
        let mut magnitudes = [0.0f64; CHUNK];
        for chunk in block.chunks(CHUNK) {
            magnitudes_of(isa, chunk, &mut magnitudes);
            Double::fold(isa, &magnitudes[..chunk.len()], zero, into);
        }
    }

    fn scalar(extreme: f64) -> Scalar {
        Scalar::Float(extreme)
    }
}
