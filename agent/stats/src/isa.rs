//! Which instruction set the kernels run on.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "a function compiled for an instruction set may only run where it exists")
)]

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set the kernels are compiled for.
///
/// Aarch64's NEON belongs to its baseline: there the portable code is compiled to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Isa {
    /// Whatever the target's baseline offers.
    Portable = 1,
    /// AVX2 with FMA and F16C.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512 = 3,
}

const UNKNOWN: u8 = 0;
static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);

impl Isa {
    /// Those this processor has, the best last.
    pub fn available() -> impl Iterator<Item = Self> {
        [Self::Portable, Self::Avx2, Self::Avx512].into_iter().filter(|isa| isa.is_present())
    }

    #[cfg(target_arch = "x86_64")]
    fn is_present(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            Self::Avx512 => {
                Self::Avx2.is_present()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_present(self) -> bool {
        self == Self::Portable
    }

    /// The one in use: the best there is, unless [`Isa::force`] said otherwise.
    #[inline]
    pub(crate) fn current() -> Self {
        match CHOSEN.load(Ordering::Relaxed) {
            2 => Self::Avx2,
            3 => Self::Avx512,
            1 => Self::Portable,
            _ => Self::detect(),
        }
    }

    #[cold]
    fn detect() -> Self {
        let best = Self::available().last().unwrap_or(Self::Portable);
        CHOSEN.store(best as u8, Ordering::Relaxed);
        best
    }

    /// Makes every following measurement of the process use this one, or again the best. Ignored if it is not there.
    /// For tests and benchmarks.
    pub fn force(isa: Option<Self>) {
        let chosen = isa.filter(|isa| isa.is_present()).map_or(UNKNOWN, |isa| isa as u8);
        CHOSEN.store(chosen, Ordering::Relaxed);
    }

    /// Runs portable code compiled for this instruction set. The code must be inlined for that to have an effect.
    #[inline]
    pub(crate) fn run<R>(self, code: impl FnOnce() -> R) -> R {
        match self {
            // SAFETY: only `detect` and `force` choose, and only what is present.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { with_avx512(code) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { with_avx2(code) },
            _ => code(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn with_avx512<R>(code: impl FnOnce() -> R) -> R {
    code()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn with_avx2<R>(code: impl FnOnce() -> R) -> R {
    code()
}
