//! The names of dtypes in each format, for writing and reading.

use safetensors::Dtype as SafeName;
use trainmon_core::Dtype;

/// The dtype with this name in a format.
pub(super) fn dtype_called<N: PartialEq<W>, W: Copy>(name_of: impl Fn(Dtype) -> Option<N>, name: W) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|dtype| name_of(*dtype).is_some_and(|own| own == name))
}

/// The name in a safetensors file.
pub(super) fn safetensors_name(dtype: Dtype) -> Option<SafeName> {
    Some(match dtype {
        Dtype::F64 => SafeName::F64,
        Dtype::F32 => SafeName::F32,
        Dtype::F16 => SafeName::F16,
        Dtype::Bf16 => SafeName::BF16,
        Dtype::F8E4M3Fn => SafeName::F8_E4M3,
        Dtype::F8E4M3Fnuz => SafeName::F8_E4M3FNUZ,
        Dtype::F8E5M2 => SafeName::F8_E5M2,
        Dtype::F8E5M2Fnuz => SafeName::F8_E5M2FNUZ,
        Dtype::I8 => SafeName::I8,
        Dtype::I16 => SafeName::I16,
        Dtype::I32 => SafeName::I32,
        Dtype::I64 => SafeName::I64,
        Dtype::U8 => SafeName::U8,
        Dtype::U16 => SafeName::U16,
        Dtype::U32 => SafeName::U32,
        Dtype::U64 => SafeName::U64,
        Dtype::Bool => SafeName::BOOL,
        Dtype::Complex64 => SafeName::C64,
        Dtype::Complex128 => return None,
    })
}

/// numpy's `descr`, with the byte order that is written.
pub(super) fn numpy_descr(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::F64 => "<f8",
        Dtype::F32 => "<f4",
        Dtype::F16 => "<f2",
        Dtype::I8 => "|i1",
        Dtype::I16 => "<i2",
        Dtype::I32 => "<i4",
        Dtype::I64 => "<i8",
        Dtype::U8 => "|u1",
        Dtype::U16 => "<u2",
        Dtype::U32 => "<u4",
        Dtype::U64 => "<u8",
        Dtype::Bool => "|b1",
        Dtype::Complex64 => "<c8",
        Dtype::Complex128 => "<c16",
        Dtype::Bf16 | Dtype::F8E4M3Fn | Dtype::F8E4M3Fnuz | Dtype::F8E5M2 | Dtype::F8E5M2Fnuz => return None,
    })
}

/// The storage class of a dtype; newer dtypes have none and use byte storages.
pub(super) fn storage_class(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::F64 => "DoubleStorage",
        Dtype::F32 => "FloatStorage",
        Dtype::F16 => "HalfStorage",
        Dtype::Bf16 => "BFloat16Storage",
        Dtype::I8 => "CharStorage",
        Dtype::I16 => "ShortStorage",
        Dtype::I32 => "IntStorage",
        Dtype::I64 => "LongStorage",
        Dtype::U8 => "ByteStorage",
        Dtype::Bool => "BoolStorage",
        Dtype::Complex64 => "ComplexFloatStorage",
        Dtype::Complex128 => "ComplexDoubleStorage",
        _ => return None,
    })
}
