//! Element types, with torch's names.

crate::named_enum! {
    /// The element type of a tensor.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[expect(missing_docs, reason = "each name is its own documentation")]
    pub enum Dtype: torch_name {
        F64 = "torch.float64",
        F32 = "torch.float32",
        F16 = "torch.float16",
        Bf16 = "torch.bfloat16",
        F8E4M3Fn = "torch.float8_e4m3fn",
        F8E4M3Fnuz = "torch.float8_e4m3fnuz",
        F8E5M2 = "torch.float8_e5m2",
        F8E5M2Fnuz = "torch.float8_e5m2fnuz",
        I8 = "torch.int8",
        I16 = "torch.int16",
        I32 = "torch.int32",
        I64 = "torch.int64",
        U8 = "torch.uint8",
        U16 = "torch.uint16",
        U32 = "torch.uint32",
        U64 = "torch.uint64",
        Bool = "torch.bool",
        /// Two `F32` values: real and imaginary part.
        Complex64 = "torch.complex64",
        /// Two `F64` values: real and imaginary part.
        Complex128 = "torch.complex128",
    }
}

impl Dtype {
    /// The size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::F8E4M3Fn | Self::F8E4M3Fnuz | Self::F8E5M2 | Self::F8E5M2Fnuz | Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// The alignment of an element; for complex types, that of the real part.
    pub const fn align(self) -> usize {
        match self {
            Self::Complex64 => 4,
            Self::Complex128 => 8,
            other => other.size(),
        }
    }

    /// Parses torch's name of a dtype, with or without `torch.`.
    pub fn from_torch_name(name: &str) -> Option<Self> {
        let bare = name.strip_prefix("torch.").unwrap_or(name);
        Self::ALL.into_iter().find(|dtype| dtype.torch_name()["torch.".len()..] == *bare)
    }

    /// Half the distance from 1 to the next number; `None` for types that do not round.
    pub fn unit_roundoff(self) -> Option<f64> {
        let bits = match self {
            Self::F64 | Self::Complex128 => 53,
            Self::F32 | Self::Complex64 => 24,
            Self::F16 => 11,
            Self::Bf16 => 8,
            Self::F8E4M3Fn | Self::F8E4M3Fnuz => 4,
            Self::F8E5M2 | Self::F8E5M2Fnuz => 3,
            _ => return None,
        };
        Some(0.5_f64.powi(bits))
    }

    /// Whether elements can be NaN or infinite.
    pub const fn is_floating(self) -> bool {
        !matches!(
            self,
            Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::Bool
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_names_lead_back_to_their_dtype() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_torch_name(dtype.torch_name()), Some(dtype));
        }
        assert_eq!(Dtype::from_torch_name("float8_e4m3fn"), Some(Dtype::F8E4M3Fn));
        assert_eq!(Dtype::from_torch_name("float128"), None);
    }
}
