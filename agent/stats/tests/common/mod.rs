//! Tensors of any dtype and layout, and a plain float64 oracle for them.
#![expect(unsafe_code, reason = "views of strided memory")]

use proptest::prelude::*;
use trainmon_core::{Dtype, Shape, TensorView};

/// A tensor with its memory.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) dims: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    /// In elements, from the start of the memory.
    pub(crate) offset: usize,
    memory: Vec<u64>,
}

impl Tensor {
    /// Takes as much memory as shape and strides reach, filled by `word`.
    pub(crate) fn new(
        dtype: Dtype,
        dims: &[i64],
        strides: &[i64],
        offset: usize,
        mut word: impl FnMut() -> u64,
    ) -> Self {
        let last: i64 = dims.iter().zip(strides).map(|(&size, &stride)| (size - 1).max(0) * stride).sum();
        let elements = offset + last as usize + 1;
        let words = (elements * dtype.size()).div_ceil(8).next_multiple_of(2);
        let memory = (0..words).map(|_| word()).collect();
        Self { dtype, dims: dims.to_vec(), strides: strides.to_vec(), offset, memory }
    }

    pub(crate) fn view(&self) -> TensorView<'_> {
        // SAFETY: `new` allocated what shape and strides reach.
        unsafe {
            let start = self.memory.as_ptr().cast::<u8>().add(self.offset * self.dtype.size());
            TensorView::from_raw_parts(start, self.dtype, &self.dims, &self.strides).expect("a view")
        }
    }

    /// The bytes of the elements in logical order.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let memory: Vec<u8> = self.memory.iter().flat_map(|word| word.to_le_bytes()).collect();
        let count = Shape::new(&self.dims).expect("a shape").elements();
        let size = self.dtype.size();
        (0..count)
            .flat_map(|index| {
                let mut rest = index as i64;
                let mut at = self.offset;
                for axis in (0..self.dims.len()).rev() {
                    at += (rest % self.dims[axis] * self.strides[axis]) as usize;
                    rest /= self.dims[axis];
                }
                memory[at * size..][..size].to_vec()
            })
            .collect()
    }

    /// The elements in logical order.
    pub(crate) fn numbers(&self) -> Vec<Number> {
        self.bytes().chunks(self.dtype.size()).map(|bytes| decode(self.dtype, bytes)).collect()
    }
}

/// An element as the oracle sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// Compared with eps in float32.
    Single(f64),
    /// Compared with eps in float64.
    Double(f64),
    Integer(i128),
}

impl Number {
    pub(crate) fn value(self) -> f64 {
        match self {
            Self::Single(value) | Self::Double(value) => value,
            Self::Integer(value) => value as f64,
        }
    }

    pub(crate) fn is_zero(self, eps: f64) -> bool {
        match self {
            Self::Single(value) => (value.abs() as f32) < eps as f32,
            Self::Double(value) => value.abs() < eps,
            Self::Integer(value) => (value.unsigned_abs() as f64) < eps,
        }
    }
}

fn small_float(bits: u32, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> (f64, u32, u32) {
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let sign = if bits >> (mantissa_bits + exponent_bits) == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(mantissa) / f64::from(1u32 << mantissa_bits);
    let magnitude = if exponent == 0 {
        fraction * 2f64.powi(1 - bias)
    } else {
        (1.0 + fraction) * 2f64.powi(exponent as i32 - bias)
    };
    (sign * magnitude, exponent, mantissa)
}

fn ieee(bits: u32, exponent_bits: u32, mantissa_bits: u32) -> f64 {
    let ones = (1 << exponent_bits) - 1;
    match small_float(bits, exponent_bits, mantissa_bits, ones / 2) {
        (value, exponent, 0) if exponent == ones as u32 => value.signum() * f64::INFINITY,
        (_, exponent, _) if exponent == ones as u32 => f64::NAN,
        (value, ..) => value,
    }
}

fn unsigned_zero(bits: u32, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f64 {
    if bits == 0x80 { f64::NAN } else { small_float(bits, exponent_bits, mantissa_bits, bias).0 }
}

fn decode(dtype: Dtype, bytes: &[u8]) -> Number {
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    let unsigned = u128::from_le_bytes(wide);
    let signed = (unsigned << (128 - 8 * bytes.len())).cast_signed() >> (128 - 8 * bytes.len());
    let bits = unsigned as u32;
    let single = |at: usize| f64::from(f32::from_le_bytes(wide[at..at + 4].try_into().expect("four bytes")));
    let double = |at: usize| f64::from_le_bytes(wide[at..at + 8].try_into().expect("eight bytes"));
    let magnitude = |re: f64, im: f64| if re.is_nan() || im.is_nan() { f64::NAN } else { re.hypot(im) };
    match dtype {
        Dtype::F64 => Number::Double(double(0)),
        Dtype::F32 => Number::Single(single(0)),
        Dtype::F16 => Number::Single(ieee(bits, 5, 10)),
        Dtype::Bf16 => Number::Single(f64::from(f32::from_bits(bits << 16))),
        Dtype::F8E4M3Fn if bits & 0x7f == 0x7f => Number::Single(f64::NAN),
        Dtype::F8E4M3Fn => Number::Single(small_float(bits, 4, 3, 7).0),
        Dtype::F8E4M3Fnuz => Number::Single(unsigned_zero(bits, 4, 3, 8)),
        Dtype::F8E5M2 => Number::Single(ieee(bits, 5, 2)),
        Dtype::F8E5M2Fnuz => Number::Single(unsigned_zero(bits, 5, 2, 16)),
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Number::Integer(signed),
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => Number::Integer(unsigned.cast_signed()),
        Dtype::Bool => Number::Integer(i128::from(unsigned != 0)),
        Dtype::Complex64 => Number::Single(f64::from(magnitude(single(0), single(4)) as f32)),
        Dtype::Complex128 => Number::Double(magnitude(double(0), double(8))),
    }
}

/// What the bits of the memory look like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    /// Every pattern, NaN, infinities and subnormals included.
    Anything,
    /// No infinity or NaN in any float format of 16 bits or more, magnitudes below 2.
    Finite,
    /// Mostly zero.
    Sparse,
}

pub(crate) fn word(content: Content, state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let noise = (*state ^ (*state >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let noise = noise ^ (noise >> 32);
    match content {
        Content::Anything => noise,
        Content::Finite => noise & 0xbfff_bfff_bfff_bfff,
        Content::Sparse if noise.is_multiple_of(5) => noise.rotate_left(17) & 0xbfff_bfff_bfff_bfff,
        Content::Sparse => 0,
    }
}

pub(crate) fn contents() -> impl Strategy<Value = Content> {
    prop_oneof![Just(Content::Anything), Just(Content::Finite), Just(Content::Sparse)]
}

/// Lengths that touch the edges of lanes, packed blocks and direct blocks.
fn lengths() -> impl Strategy<Value = Vec<i64>> {
    prop_oneof![
        (0i64..70).prop_map(|size| vec![size]),
        prop_oneof![Just(511i64), Just(512), Just(1024), Just(4096), Just(8192), Just(16384)]
            .prop_flat_map(|edge| (edge - 17..edge + 18).prop_map(|size| vec![size])),
        prop::collection::vec(0i64..7, 0..6),
        (1i64..5, 500i64..1100).prop_map(|(outer, inner)| vec![outer, inner]),
        (1i64..4, 1i64..40, 1i64..40).prop_map(|(a, b, c)| vec![a, b, c]),
    ]
}

/// Strides for these sizes: dimensions in any order in memory, gaps between them, some expanded.
pub(crate) fn strides(dims: Vec<i64>) -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    let rank = dims.len();
    let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
    let identity = Just((0..rank).rev().collect::<Vec<_>>());
    let gaps = prop::collection::vec(prop_oneof![4 => Just(1i64), 1 => 2i64..4, 1 => Just(0i64)], rank);
    (prop_oneof![order, identity], prop_oneof![gaps, Just(vec![1; rank])]).prop_map(move |(order, gaps)| {
        let mut strides = vec![0; rank];
        let mut next = 1;
        for axis in order {
            strides[axis] = next * gaps[axis];
            if gaps[axis] > 0 {
                next *= gaps[axis] * dims[axis].max(1);
            }
        }
        (dims.clone(), strides)
    })
}

pub(crate) fn layouts() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    lengths().prop_flat_map(strides)
}

pub(crate) fn tensors() -> impl Strategy<Value = Tensor> {
    (prop::sample::select(Dtype::ALL.to_vec()), layouts(), 0usize..4, contents(), any::<u64>()).prop_map(
        |(dtype, (dims, strides), offset, content, mut seed)| {
            Tensor::new(dtype, &dims, &strides, offset, || word(content, &mut seed))
        },
    )
}
