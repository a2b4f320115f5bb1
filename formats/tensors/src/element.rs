//! Decodes elements as `f64`.

use half::{bf16, f16};
use trainmon_core::Dtype;

type Decode = fn(&[u8], &mut [f64]);

/// The decoder of a dtype's bytes.
#[derive(Clone, Copy)]
pub(super) struct Decoder {
    /// Bytes per number; for a complex dtype, per part.
    pub(super) width: usize,
    /// Decodes as many numbers as the second slice can hold.
    pub(super) decode: Decode,
}

/// A little-endian number.
trait Number<const WIDTH: usize> {
    fn number(bytes: [u8; WIDTH]) -> f64;
}

macro_rules! numbers {
    ($($type:ty, $width:literal, $convert:expr;)*) => {
        $(impl Number<$width> for $type {
            fn number(bytes: [u8; $width]) -> f64 {
                let convert: fn($type) -> f64 = $convert;
                convert(<$type>::from_le_bytes(bytes))
            }
        })*
    };
}

numbers! {
    f64, 8, |x| x;
    f32, 4, f64::from;
    f16, 2, f64::from;
    bf16, 2, f64::from;
    i8, 1, f64::from;
    i16, 2, f64::from;
    i32, 4, f64::from;
    i64, 8, |x| x as f64;
    u8, 1, f64::from;
    u16, 2, f64::from;
    u32, 4, f64::from;
    u64, 8, |x| x as f64;
}

fn decode<T: Number<WIDTH>, const WIDTH: usize>(bytes: &[u8], numbers: &mut [f64]) {
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<WIDTH>().0) {
        *number = T::number(*bytes);
    }
}

fn decode_bool(bytes: &[u8], numbers: &mut [f64]) {
    for (number, &byte) in numbers.iter_mut().zip(bytes) {
        *number = f64::from(u8::from(byte != 0));
    }
}

impl Decoder {
    pub(super) fn of(dtype: Dtype) -> Self {
        let (width, decode): (usize, Decode) = match dtype {
            Dtype::F64 | Dtype::Complex128 => (8, decode::<f64, 8>),
            Dtype::F32 | Dtype::Complex64 => (4, decode::<f32, 4>),
            Dtype::F16 => (2, decode::<f16, 2>),
            Dtype::Bf16 => (2, decode::<bf16, 2>),
            Dtype::F8E4M3Fn => (1, |bytes, numbers| by_table(&E4M3_FN, bytes, numbers)),
            Dtype::F8E4M3Fnuz => (1, |bytes, numbers| by_table(&E4M3_FNUZ, bytes, numbers)),
            Dtype::F8E5M2 => (1, |bytes, numbers| by_table(&E5M2, bytes, numbers)),
            Dtype::F8E5M2Fnuz => (1, |bytes, numbers| by_table(&E5M2_FNUZ, bytes, numbers)),
            Dtype::I8 => (1, decode::<i8, 1>),
            Dtype::I16 => (2, decode::<i16, 2>),
            Dtype::I32 => (4, decode::<i32, 4>),
            Dtype::I64 => (8, decode::<i64, 8>),
            Dtype::U8 => (1, decode::<u8, 1>),
            Dtype::U16 => (2, decode::<u16, 2>),
            Dtype::U32 => (4, decode::<u32, 4>),
            Dtype::U64 => (8, decode::<u64, 8>),
            Dtype::Bool => (1, decode_bool),
        };
        Self { width, decode }
    }
}

fn by_table(table: &[f64; 256], bytes: &[u8], numbers: &mut [f64]) {
    for (number, &byte) in numbers.iter_mut().zip(bytes) {
        *number = table[usize::from(byte)];
    }
}

/// The bit layout of an 8-bit format, and its NaN encodings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// As in IEEE 754: the highest exponent means infinity or NaN.
    Ieee,
    /// Finite: all ones is NaN, and there is no infinity.
    Finite,
    /// Finite with a single zero: the encoding of -0 is NaN.
    FiniteOneZero,
}

static E4M3_FN: [f64; 256] = table(3, 7, Special::Finite);
static E4M3_FNUZ: [f64; 256] = table(3, 8, Special::FiniteOneZero);
static E5M2: [f64; 256] = table(2, 15, Special::Ieee);
static E5M2_FNUZ: [f64; 256] = table(2, 16, Special::FiniteOneZero);

const fn table(fraction_bits: u32, bias: i32, special: Special) -> [f64; 256] {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = value(code as u8, fraction_bits, bias, special);
        code += 1;
    }
    table
}

const fn value(code: u8, fraction_bits: u32, bias: i32, special: Special) -> f64 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let magnitude = code & 0x7f;
    let fraction = magnitude & ((1 << fraction_bits) - 1);
    let exponent = (magnitude >> fraction_bits) as i32;
    match special {
        Special::Ieee if exponent == 0x7f >> fraction_bits => {
            return if fraction == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        Special::Finite if magnitude == 0x7f => return f64::NAN,
        Special::FiniteOneZero if code == 0x80 => return f64::NAN,
        _ => {}
    }
    // A subnormal has the exponent of the smallest normal number and no hidden bit.
    let (significand, exponent) =
        if exponent == 0 { (fraction as u32, 1) } else { ((1 << fraction_bits) + fraction as u32, exponent) };
    sign * significand as f64 * power_of_two(exponent - bias - fraction_bits as i32)
}

const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}
