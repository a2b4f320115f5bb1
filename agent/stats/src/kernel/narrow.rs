//! The four 8-bit floats, converted by lookup table.

use trainmon_core::Scalar;

use super::{Arithmetic, Singles, ZeroBound};
use crate::isa::Isa;
use crate::partial::Partial;

/// The number of elements widened at a time; they stay in the level-1 cache.
const CHUNK: usize = 1024;

/// Four exponent bits, three of mantissa, bias 7, no infinities: NaN is 0x7f and 0xff, the largest number 448.
pub(crate) const E4M3FN: u8 = 0;
/// Four exponent bits, three of mantissa, bias 8, neither infinities nor -0: NaN is 0x80, the largest number 240.
pub(crate) const E4M3FNUZ: u8 = 1;
/// Five exponent bits, two of mantissa, bias 15, as IEEE: infinity is 0x7c, the largest number 57344.
pub(crate) const E5M2: u8 = 2;
/// Five exponent bits, two of mantissa, bias 16, neither infinities nor -0: NaN is 0x80, the largest number 57344.
pub(crate) const E5M2FNUZ: u8 = 3;

struct Format {
    mantissa_bits: u32,
    bias: i32,
    /// The pattern of negative zero is NaN, the only special value.
    is_unsigned_zero: bool,
    /// An exponent of all ones means infinity or NaN.
    is_ieee: bool,
}

const FORMATS: [Format; 4] = [
    Format { mantissa_bits: 3, bias: 7, is_unsigned_zero: false, is_ieee: false },
    Format { mantissa_bits: 3, bias: 8, is_unsigned_zero: true, is_ieee: false },
    Format { mantissa_bits: 2, bias: 15, is_unsigned_zero: false, is_ieee: true },
    Format { mantissa_bits: 2, bias: 16, is_unsigned_zero: true, is_ieee: false },
];

static TABLES: [[f32; 256]; 4] = [table(&FORMATS[0]), table(&FORMATS[1]), table(&FORMATS[2]), table(&FORMATS[3])];

const fn table(format: &Format) -> [f32; 256] {
    let mut values = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        values[byte] = decode(format, byte as u32);
        byte += 1;
    }
    values
}

const fn decode(format: &Format, byte: u32) -> f32 {
    let magnitude = byte & 0x7f;
    let mantissa_ones = (1 << format.mantissa_bits) - 1;
    let mantissa = magnitude & mantissa_ones;
    let exponent = magnitude >> format.mantissa_bits;
    let exponent_ones = 0x7f >> format.mantissa_bits;
    let is_nan = if format.is_unsigned_zero {
        byte == 0x80
    } else if format.is_ieee {
        exponent == exponent_ones && mantissa != 0
    } else {
        magnitude == 0x7f
    };
    let sign = if byte > 0x7f { -1.0 } else { 1.0 };
    if is_nan {
        f32::NAN
    } else if format.is_ieee && exponent == exponent_ones {
        sign * f32::INFINITY
    } else if exponent == 0 {
        sign * mantissa as f32 * power_of_two(1 - format.bias - format.mantissa_bits as i32)
    } else {
        let significand = (mantissa | (1 << format.mantissa_bits)) as f32;
        sign * significand * power_of_two(exponent as i32 - format.bias - format.mantissa_bits as i32)
    }
}

/// Returns 2^`exponent`, which must be in float32's normal range.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// The arithmetic of an 8-bit float.
pub(crate) struct Narrow<const FORMAT: u8>;

impl<const FORMAT: u8> Arithmetic for Narrow<FORMAT> {
    type Element = u8;
    type Extreme = f64;

    #[inline]
    fn value(element: u8) -> f64 {
        f64::from(TABLES[usize::from(FORMAT)][usize::from(element)])
    }

    fn fold(isa: Isa, block: &[u8], zero: &ZeroBound, into: &mut Partial<f64>) {
        let table = &TABLES[usize::from(FORMAT)];
        let mut values = [0.0f32; CHUNK];
        for chunk in block.chunks(CHUNK) {
            for (value, &byte) in values.iter_mut().zip(chunk) {
                *value = table[usize::from(byte)];
            }
            Singles::<f32>::fold(isa, &values[..chunk.len()], zero, into);
        }
    }

    fn scalar(extreme: f64) -> Scalar {
        Scalar::Float(extreme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<const FORMAT: u8>(byte: u8) -> f64 {
        Narrow::<FORMAT>::value(byte)
    }

    #[test]
    fn e4m3fn_has_no_infinity_and_ends_at_448() {
        assert_eq!(value::<E4M3FN>(0x7e), 448.0);
        assert_eq!(value::<E4M3FN>(0xfe), -448.0);
        assert_eq!(value::<E4M3FN>(0x38), 1.0);
        assert_eq!(value::<E4M3FN>(0x01), 2f64.powi(-9));
        assert_eq!(value::<E4M3FN>(0x08), 2f64.powi(-6));
        assert!(value::<E4M3FN>(0x7f).is_nan() && value::<E4M3FN>(0xff).is_nan());
        assert!(value::<E4M3FN>(0x80) == 0.0 && value::<E4M3FN>(0x80).is_sign_negative());
    }

    #[test]
    fn e5m2_follows_ieee() {
        assert_eq!(value::<E5M2>(0x7b), 57344.0);
        assert_eq!(value::<E5M2>(0x7c), f64::INFINITY);
        assert_eq!(value::<E5M2>(0xfc), f64::NEG_INFINITY);
        assert!((0x7d..=0x7f).all(|byte| value::<E5M2>(byte).is_nan()));
        assert_eq!(value::<E5M2>(0x3c), 1.0);
        assert_eq!(value::<E5M2>(0x01), 2f64.powi(-16));
    }

    #[test]
    fn the_unsigned_zero_formats_have_one_nan_only() {
        assert_eq!(value::<E4M3FNUZ>(0x7f), 240.0);
        assert_eq!(value::<E4M3FNUZ>(0x40), 1.0);
        assert_eq!(value::<E4M3FNUZ>(0x01), 2f64.powi(-10));
        assert_eq!(value::<E5M2FNUZ>(0x7f), 57344.0);
        assert_eq!(value::<E5M2FNUZ>(0x40), 1.0);
        assert_eq!(value::<E5M2FNUZ>(0x01), 2f64.powi(-17));
        for byte in 0..=255 {
            assert_eq!(value::<E4M3FNUZ>(byte).is_nan(), byte == 0x80);
            assert_eq!(value::<E5M2FNUZ>(byte).is_nan(), byte == 0x80);
            assert!(!value::<E4M3FNUZ>(byte).is_infinite() && !value::<E5M2FNUZ>(byte).is_infinite());
        }
    }
}
