//! The kernels' codes of dtypes, equal to those in `kernels/elements.py`.

use trainmon_core::Dtype;

/// The first code of a dtype with elements that float32 cannot represent exactly.
pub(crate) const FIRST_WIDE: u8 = 12;

/// The kernels' code of a dtype.
pub(crate) const fn code(dtype: Dtype) -> u8 {
    match dtype {
        Dtype::F32 => 0,
        Dtype::Bf16 => 1,
        Dtype::F16 => 2,
        Dtype::I16 => 3,
        Dtype::U16 => 4,
        Dtype::F8E4M3Fn => 5,
        Dtype::F8E4M3Fnuz => 6,
        Dtype::F8E5M2 => 7,
        Dtype::F8E5M2Fnuz => 8,
        Dtype::I8 => 9,
        Dtype::U8 => 10,
        Dtype::Bool => 11,
        Dtype::F64 => FIRST_WIDE,
        Dtype::I32 => 13,
        Dtype::U32 => 14,
        Dtype::I64 => 15,
        Dtype::U64 => 16,
        Dtype::Complex64 => 17,
        Dtype::Complex128 => 18,
    }
}

/// Whether magnitudes are compared with eps in float32, as in the host's kernels.
pub(crate) const fn compares_in_float32(dtype: Dtype) -> bool {
    matches!(
        dtype,
        Dtype::F32
            | Dtype::F16
            | Dtype::Bf16
            | Dtype::F8E4M3Fn
            | Dtype::F8E4M3Fnuz
            | Dtype::F8E5M2
            | Dtype::F8E5M2Fnuz
            | Dtype::Complex64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_have_the_same_numbers() {
        let source = include_str!("../kernels/elements.py");
        for dtype in Dtype::ALL {
            let name = match dtype {
                Dtype::Complex64 => "C64".to_owned(),
                Dtype::Complex128 => "C128".to_owned(),
                _ => format!("{dtype:?}").trim_start_matches("F8").to_uppercase(),
            };
            let line = format!("\n{name}: tl.constexpr = tl.constexpr({})\n", code(dtype));
            assert!(source.contains(&line), "{line}");
        }
        assert!(source.contains(&format!("\nFIRST_WIDE: tl.constexpr = tl.constexpr({FIRST_WIDE})\n")));
    }
}
