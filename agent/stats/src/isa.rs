//! The instruction set on which the kernels run.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "a function compiled for an instruction set may only run where it exists")
)]

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set for which the kernels are compiled.
///
/// On aarch64, NEON is part of the baseline, so the portable code uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// The baseline of the compilation target.
    Portable = 1,
    /// AVX2 with FMA, F16C and POPCNT.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512 = 3,
}

/// The environment variable that limits the instruction set ("portable", "avx2", "avx512"). It can show that all of them
/// return the same bits. Read once; other values have no effect.
const VARIABLE: &str = "TRAINMON_CPU";

const UNKNOWN: u8 = 0;
static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);

impl Isa {
    /// Returns the instruction sets of this processor, the best last.
    pub fn available() -> impl Iterator<Item = Self> {
        [Self::Portable, Self::Avx2, Self::Avx512].into_iter().filter(|isa| isa.is_present())
    }

    #[cfg(target_arch = "x86_64")]
    fn is_present(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("popcnt")
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

    /// Returns the instruction set in use: the best available, unless `TRAINMON_CPU` or [`Isa::force`] selects another.
    #[inline]
    pub fn current() -> Self {
        match CHOSEN.load(Ordering::Relaxed) {
            2 => Self::Avx2,
            3 => Self::Avx512,
            1 => Self::Portable,
            _ => Self::detect(),
        }
    }

    #[cold]
    fn detect() -> Self {
        let best = Self::best_within(std::env::var(VARIABLE).ok().as_deref());
        CHOSEN.store(best as u8, Ordering::Relaxed);
        best
    }

    /// Returns the best instruction set that is available and allowed.
    fn best_within(most: Option<&str>) -> Self {
        let most = match most {
            Some("portable") => Self::Portable,
            Some("avx2") => Self::Avx2,
            _ => Self::Avx512,
        };
        Self::available().filter(|&isa| isa <= most).last().unwrap_or(Self::Portable)
    }

    /// Makes all later measurements of the process use this instruction set, or the best with `None`. An unavailable one
    /// is ignored. For tests and benchmarks.
    pub fn force(isa: Option<Self>) {
        let chosen = isa.filter(|isa| isa.is_present()).map_or(UNKNOWN, |isa| isa as u8);
        CHOSEN.store(chosen, Ordering::Relaxed);
    }

    /// Runs portable code compiled for this instruction set. It has an effect only if the code is inlined.
    #[inline]
    pub(crate) fn run<R>(self, code: impl FnOnce() -> R) -> R {
        match self {
            // SAFETY: only `detect` and `force` select, and only from the available ones.
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
fn with_avx512<R>(code: impl FnOnce() -> R) -> R {
    code()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn with_avx2<R>(code: impl FnOnce() -> R) -> R {
    code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_best_instruction_set_used() {
        let best = Isa::available().last();
        assert_eq!(Some(Isa::best_within(None)), best);
        assert_eq!(Some(Isa::best_within(Some("avx512"))), best);
        assert_eq!(Some(Isa::best_within(Some("AVX1024"))), best);
        assert_eq!(Isa::best_within(Some("portable")), Isa::Portable);
        let avx2 = if Isa::available().any(|isa| isa == Isa::Avx2) { Isa::Avx2 } else { Isa::Portable };
        assert_eq!(Isa::best_within(Some("avx2")), avx2);
        assert_eq!(Isa::detect(), Isa::best_within(std::env::var(VARIABLE).ok().as_deref()));
    }
}
