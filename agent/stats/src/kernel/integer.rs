//! Integers of every width, and bool. Extremes are exact; sums are float64, exact below 2^53.

use std::marker::PhantomData;

use trainmon_core::Scalar;

use super::{Arithmetic, ZeroBound, double};
use crate::isa::Isa;
use crate::layout::Plain;
use crate::partial::{Extreme, Partial, Totals};

/// The number of elements widened at a time; they stay in the level-1 cache.
const CHUNK: usize = 1024;

/// An integer type.
pub(crate) trait Integer: Plain + Ord {
    /// The 64-bit type of the same signedness.
    type Wide: Extreme;
    /// Returns the same number in the wide type.
    fn widen(self) -> Self::Wide;
    /// Returns the nearest float64.
    fn to_f64(self) -> f64;
    /// Returns the absolute value.
    fn magnitude(self) -> u64;
    /// Returns the number in the type that readings use.
    fn scalar(wide: Self::Wide) -> Scalar;
}

macro_rules! integers {
    ($($name:ty => $wide:ty, $scalar:ident, $to_f64:expr, |$value:ident| $magnitude:expr;)*) => {$(
        impl Integer for $name {
            type Wide = $wide;

            #[inline]
            fn widen(self) -> $wide {
                <$wide>::from(self)
            }

            #[inline]
            fn to_f64(self) -> f64 {
                let to_f64: fn(Self) -> f64 = $to_f64;
                to_f64(self)
            }

            #[inline]
            fn magnitude(self) -> u64 {
                let $value = self;
                u64::from($magnitude)
            }

            fn scalar(wide: $wide) -> Scalar {
                Scalar::$scalar(wide)
            }
        }
    )*};
}
integers! {
    i8 => i64, Int, f64::from, |value| value.unsigned_abs();
    i16 => i64, Int, f64::from, |value| value.unsigned_abs();
    i32 => i64, Int, f64::from, |value| value.unsigned_abs();
    i64 => i64, Int, |value| value as f64, |value| value.unsigned_abs();
    u8 => u64, UInt, f64::from, |value| value;
    u16 => u64, UInt, f64::from, |value| value;
    u32 => u64, UInt, f64::from, |value| value;
    u64 => u64, UInt, |value| value as f64, |value| value;
}

/// The arithmetic of an integer type.
pub(crate) struct Integers<T>(PhantomData<T>);

impl<T: Integer> Arithmetic for Integers<T> {
    type Element = T;
    type Extreme = T::Wide;

    #[inline]
    fn value(element: T) -> f64 {
        element.to_f64()
    }

    fn fold(isa: Isa, block: &[T], zero: &ZeroBound, into: &mut Partial<T::Wide>) {
        isa.run(|| {
            let (mut min, mut max) = (block[0], block[0]);
            for &element in block {
                min = min.min(element);
                max = max.max(element);
            }
            into.include(min.widen(), max.widen());
            if zero.is_wanted {
                into.zeros += block.iter().map(|element| u64::from(element.magnitude() < zero.integer)).sum::<u64>();
            }
        });
        let mut values = [0.0f64; CHUNK];
        for chunk in block.chunks(CHUNK) {
            isa.run(|| {
                for (value, element) in values.iter_mut().zip(chunk) {
                    *value = element.to_f64();
                }
            });
            let Totals { sum, squares, .. } = double::totals::<false>(isa, &values[..chunk.len()], 0);
            into.sum.add(sum);
            into.squares.add(squares);
        }
    }

    fn scalar(extreme: T::Wide) -> Scalar {
        T::scalar(extreme)
    }
}

/// The arithmetic of bool: 0 and 1. Any byte but 0 is true, as in torch.
pub(crate) struct Bools;

impl Arithmetic for Bools {
    type Element = u8;
    type Extreme = u64;

    #[inline]
    fn value(element: u8) -> f64 {
        f64::from(u8::from(element != 0))
    }

    fn fold(isa: Isa, block: &[u8], zero: &ZeroBound, into: &mut Partial<u64>) {
        let ones = isa.run(|| block.iter().map(|&byte| u32::from(byte != 0)).sum::<u32>());
        let (ones, all) = (u64::from(ones), block.len() as u64);
        into.include(u64::from(ones == all), u64::from(ones > 0));
        into.sum.add(ones as f64);
        into.squares.add(ones as f64);
        if zero.is_wanted {
            into.zeros += match zero.integer {
                0 => 0,
                1 => all - ones,
                _ => all,
            };
        }
    }

    fn scalar(extreme: u64) -> Scalar {
        Scalar::Bool(extreme != 0)
    }
}
