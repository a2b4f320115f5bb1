//! Answers known by hand.
#![expect(unsafe_code, reason = "views of raw memory, and the floating-point control register")]

use trainmon_core::{Dtype, Scalar, Statistic, StatisticSet, TensorStats, TensorView};
use trainmon_stats::{Isa, Request, difference, measure, sign_agreement};

fn everything() -> Request {
    Request { statistics: Statistic::ALL.into_iter().collect::<StatisticSet>(), eps: 1e-8 }
}

fn of(data: &[f32]) -> TensorStats {
    measure(&TensorView::from_slice(data, &[data.len() as i64]).expect("a view"), everything())
}

fn of_doubles(data: &[f64]) -> TensorStats {
    measure(&TensorView::from_slice(data, &[data.len() as i64]).expect("a view"), everything())
}

fn bytes(dtype: Dtype, count: i64, bytes: &[u8]) -> TensorStats {
    bytes_with(dtype, count, bytes, everything())
}

fn bytes_with(dtype: Dtype, count: i64, bytes: &[u8], request: Request) -> TensorStats {
    let aligned: Vec<u64> = bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        })
        .collect();
    // SAFETY: the words hold the bytes.
    let view = unsafe { TensorView::from_raw_parts(aligned.as_ptr().cast(), dtype, &[count], &[1]) }.expect("a view");
    measure(&view, request)
}

fn near(got: f64, expected: f64) -> bool {
    (got - expected).abs() <= 1e-14 * expected.abs()
}

#[test]
fn a_small_tensor_has_the_statistics_worked_out_by_hand() {
    let reading = of(&[3.0, -4.0, 0.0, 1.0]);
    assert_eq!((reading.min, reading.max), (Scalar::Float(-4.0), Scalar::Float(3.0)));
    assert_eq!((reading.mean, reading.abs_max, reading.count), (0.0, 4.0, 4));
    assert_eq!((reading.nans, reading.infs, reading.zeros), (0, 0, 1));
    assert!(near(reading.norm, 26f64.sqrt()) && near(reading.std, (26.0 / 3.0f64).sqrt()));
}

#[test]
fn a_tensor_without_dimensions_is_its_own_value() {
    let reading = measure(&TensorView::from_slice(&[-2.5f32], &[]).unwrap(), everything());
    assert_eq!(reading.id(), Some(Scalar::Float(-2.5)));
    assert_eq!((reading.mean, reading.norm, reading.count), (-2.5, 2.5, 1));
    assert!(reading.std.is_nan());
}

#[test]
fn an_empty_tensor_gives_the_empty_reading() {
    let view = TensorView::from_slice::<f32>(&[], &[3, 0]).unwrap();
    let reading = measure(&view, everything());
    assert_eq!((reading.count, reading.norm, reading.crc32, reading.xor64), (0, 0.0, 0, 0));
    assert!(reading.mean.is_nan() && reading.std.is_nan() && reading.min.as_f64().is_nan());
    assert_eq!(sign_agreement(&view, &view), None);
    assert_eq!(difference(&view, &view, everything()).map(|reading| reading.count), Some(0));
}

#[test]
fn checksums_match_the_values_existing_dumps_hold() {
    let crc = |reading: TensorStats| format!("{:08x}", reading.crc32);
    let xor = |reading: TensorStats| format!("{:#018x}", reading.xor64);
    assert_eq!(crc(of(&[1.0, 2.0])), "2e3fa576");
    assert_eq!(crc(of(&[1.0, 2.0, 3.0])), "b20e96b1");
    assert_eq!(crc(of(&[1.0; 4])), "e8681456");
    assert_eq!(crc(measure(&TensorView::from_slice(&[1i64, 2, 3], &[3]).unwrap(), everything())), "2bcb8d87");
    assert_eq!(crc(bytes(Dtype::Bf16, 1, &0x3fc0u16.to_le_bytes())), "3c45e88c");
    assert_eq!(crc(bytes(Dtype::U8, 3, &[1, 2, 3])), "55bc801d");
    assert_eq!(crc(of(&[])), "00000000");
    assert_eq!(xor(of(&[1.0, 2.0])), "0x400000003f800000");
    assert_eq!(xor(of(&[1.0, 2.0, 3.0])), "0x400000007fc00000");
    assert_eq!(xor(bytes(Dtype::U8, 3, &[1, 2, 3])), "0x0000000000030201");
    assert_eq!(xor(of(&[1.5; 8])), "0x0000000000000000");
}

#[test]
fn one_nan_or_infinity_shows_wherever_it_stands() {
    for len in [1, 15, 16, 17, 31, 100, 4095, 4096, 4097, 9000] {
        for at in [0, len / 2, len - 1] {
            let mut data = vec![1.0f32; len];
            data[at] = f32::NAN;
            let reading = of(&data);
            assert_eq!((reading.nans, reading.infs), (1, 0));
            for value in [reading.min.as_f64(), reading.max.as_f64(), reading.mean, reading.norm, reading.abs_max] {
                assert!(value.is_nan());
            }
            data[at] = f32::NEG_INFINITY;
            let reading = of(&data);
            assert_eq!((reading.nans, reading.infs, reading.min), (0, 1, Scalar::Float(f64::NEG_INFINITY)));
            assert_eq!(
                (reading.mean, reading.norm, reading.abs_max),
                (f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY)
            );
            assert!(reading.std.is_nan());
        }
    }
    let both = of(&[f32::INFINITY, 1.0, f32::NEG_INFINITY]);
    assert!(both.mean.is_nan() && both.norm == f64::INFINITY && both.infs == 2);
}

#[test]
fn zeros_are_strictly_below_eps_in_float32() {
    let at = 1e-8f64 as f32;
    let below = f32::from_bits(at.to_bits() - 1);
    assert_eq!(of(&[at, -at, below, -below, 0.0, -0.0, f32::NAN]).zeros, 4);
    let none = Request { eps: 0.0, ..everything() };
    assert_eq!(measure(&TensorView::from_slice(&[0.0f32], &[1]).unwrap(), none).zeros, 0);
    let integers = TensorView::from_slice(&[0i8, 1, -1, 2], &[4]).unwrap();
    assert_eq!(measure(&integers, Request { eps: 1.5, ..everything() }).zeros, 3);
}

/// A 16-bit float by its definition.
fn sixteen_bits(dtype: Dtype, bits: u16) -> f64 {
    let (mantissa_bits, bias) = if dtype == Dtype::Bf16 { (7, 127) } else { (10, 15) };
    let exponent_ones = (1 << (15 - mantissa_bits)) - 1;
    let exponent = i32::from(bits >> mantissa_bits) & exponent_ones;
    let mantissa = f64::from(bits & ((1 << mantissa_bits) - 1));
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(1 - bias - mantissa_bits),
        _ if exponent < exponent_ones => {
            (mantissa + 2f64.powi(mantissa_bits)) * 2f64.powi(exponent - bias - mantissa_bits)
        }
        _ if mantissa == 0.0 => f64::INFINITY,
        _ => f64::NAN,
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// What is found on every instruction set there is.
fn on_every_isa(dtype: Dtype, patterns: &[u16], request: Request) -> Vec<TensorStats> {
    let bytes: Vec<u8> = patterns.iter().flat_map(|pattern| pattern.to_le_bytes()).collect();
    let measured = |isa| {
        Isa::force(Some(isa));
        let reading = bytes_with(dtype, patterns.len() as i64, &bytes, request);
        Isa::force(None);
        reading
    };
    Isa::available().map(measured).collect()
}

#[test]
fn sixteen_bit_floats_below_eps_are_counted_at_every_bound() {
    let every_pattern: Vec<u16> = (0..=u16::MAX).collect();
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let magnitudes: Vec<f32> = every_pattern.iter().map(|&bits| sixteen_bits(dtype, bits).abs() as f32).collect();
        let least = sixteen_bits(dtype, 1);
        for eps in [0.0, 1e-45, 1e-40, least, 1.5 * least, 1e-8, 6.1e-5, 6.103_515_6e-5, 6.2e-5, 1e-3, 1.0] {
            for eps in [eps, -eps, eps * 1e3, 65504.0, 65519.9, 65536.0, 3.3e38, 1e39, f64::INFINITY, f64::NAN] {
                let expected = magnitudes.iter().filter(|&&magnitude| magnitude < eps as f32).count() as u64;
                for reading in on_every_isa(dtype, &every_pattern, Request { eps, ..everything() }) {
                    assert_eq!(reading.zeros, expected, "{dtype}, eps {eps}");
                }
            }
        }
    }
}

#[test]
fn sixteen_bit_floats_have_their_extremes_whatever_their_signs() {
    const MINUS: u16 = 0x8000;
    // Finite, in no order.
    let magnitude = |at: usize| ((at * 7919 + 13) % 0x7c00) as u16;
    let sign_at = |which: &str, at: usize| match which {
        "all" => MINUS,
        "one" if at == 5 => MINUS,
        "all but one" if at != 5 => MINUS,
        _ => 0,
    };
    for dtype in [Dtype::F16, Dtype::Bf16] {
        for len in [1, 2, 31, 32, 33, 64, 100, 8192, 8192 + 45] {
            for which in ["none", "one", "all but one", "all"] {
                let patterns: Vec<u16> = (0..len).map(|at| magnitude(at) | sign_at(which, at)).collect();
                let values = || patterns.iter().map(|&bits| sixteen_bits(dtype, bits));
                let expected = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
                for reading in on_every_isa(dtype, &patterns, everything()) {
                    let found = (reading.min.as_f64(), reading.max.as_f64());
                    assert_eq!(found, expected, "{dtype}, {len} elements, sign: {which}");
                }
            }
        }
    }
}

#[test]
fn squares_too_small_for_float64_do_not_change_a_norm() {
    for len in [4, 16, 17, 4096] {
        for tiny in [1e-154, 1e-160, 1e-300, 5e-324] {
            let mut data = vec![tiny; len];
            data[len / 2] = -3.0;
            for isa in Isa::available() {
                Isa::force(Some(isa));
                assert_eq!(of_doubles(&data).norm, 3.0, "{isa:?}, {len} elements, {tiny}");
                Isa::force(None);
            }
        }
    }
}

#[test]
fn norms_survive_values_whose_squares_leave_float64() {
    for scale in [1e200, 1e-200, 1e-310, 5e-324, 1e153] {
        let reading = of_doubles(&[3.0 * scale, -4.0 * scale]);
        let expected = ((3.0 * scale / (4.0 * scale)).powi(2) + 1.0).sqrt() * (4.0 * scale);
        assert!(near(reading.norm, expected), "{} for {expected}", reading.norm);
    }
    let large = of_doubles(&[1e200, 3e200]);
    assert!(near(large.mean, 2e200) && near(large.std, 2f64.sqrt() * 1e200));
}

#[test]
fn the_deviation_of_nearly_constant_values_is_kept() {
    let data: Vec<f64> = (0..10_000).map(|index| 1e6 + f64::from(index % 2) * 1e-3).collect();
    let reading = of_doubles(&data);
    let expected = 5e-4 * (10_000f64 / 9_999.0).sqrt();
    assert!((reading.std / expected - 1.0).abs() < 1e-6, "{}", reading.std);
    assert_eq!(of(&vec![0.1; 5000]).std, 0.0);
}

#[test]
fn integers_keep_64_bits() {
    let signed = measure(&TensorView::from_slice(&[i64::MIN, i64::MAX, 0], &[3]).unwrap(), everything());
    assert_eq!((signed.min, signed.max, signed.zeros), (Scalar::Int(i64::MIN), Scalar::Int(i64::MAX), 1));
    let unsigned = measure(&TensorView::from_slice(&[u64::MAX, u64::MAX - 1], &[2]).unwrap(), everything());
    assert_eq!((unsigned.min, unsigned.max), (Scalar::UInt(u64::MAX - 1), Scalar::UInt(u64::MAX)));
    let truth = measure(&TensorView::from_slice(&[true, false, true, true], &[4]).unwrap(), everything());
    assert_eq!((truth.min, truth.max, truth.mean, truth.zeros), (Scalar::Bool(false), Scalar::Bool(true), 0.75, 1));
}

#[test]
fn complex_numbers_are_measured_by_magnitude() {
    let parts: Vec<u8> = [3.0f32, 4.0, f32::MAX, 0.0].iter().flat_map(|part| part.to_le_bytes()).collect();
    let reading = bytes(Dtype::Complex64, 2, &parts);
    assert_eq!((reading.min, reading.max), (Scalar::Float(5.0), Scalar::Float(f64::from(f32::MAX))));
    let parts: Vec<u8> = [f64::INFINITY, f64::NAN, 3e200, 4e200].iter().flat_map(|part| part.to_le_bytes()).collect();
    let reading = bytes(Dtype::Complex128, 2, &parts);
    assert_eq!((reading.nans, reading.infs), (1, 0));
    assert!(bytes(Dtype::Complex128, 1, &parts[16..]).abs_max / 5e200 - 1.0 < 1e-15);
}

#[test]
fn an_expanded_tensor_of_a_billion_elements_reads_one() {
    let value = [-0.1f32];
    // SAFETY: stride 0 reaches the one element only.
    let view =
        unsafe { TensorView::from_raw_parts(value.as_ptr().cast(), Dtype::F32, &[1000, 1_000_000], &[0, 0]).unwrap() };
    let statistics = everything().statistics.iter().filter(|s| !matches!(s, Statistic::Crc32 | Statistic::Xor64));
    let reading = measure(&view, Request { statistics: statistics.collect(), eps: 1.0 });
    let exact = f64::from(-0.1f32);
    assert_eq!((reading.count, reading.zeros, reading.mean), (1_000_000_000, 1_000_000_000, exact));
    assert!(near(reading.norm, -exact * 1e9f64.sqrt()) && reading.std == 0.0);
}

#[test]
fn signs_agree_from_nought_to_one() {
    let view = |data: &'static [f32]| TensorView::from_slice(data, &[data.len() as i64]).unwrap();
    let a = view(&[1.0, -2.0, 3.0, 0.0]);
    assert_eq!(sign_agreement(&a, &a), Some(0.875));
    assert_eq!(sign_agreement(&a, &view(&[-1.0, 2.0, -3.0, 5.0])), Some(0.125));
    assert_eq!(sign_agreement(&a, &view(&[f32::NAN, -1e-45, 3.0, 1.0])), Some(0.75));
    assert_eq!(sign_agreement(&a, &view(&[f32::INFINITY, f32::NEG_INFINITY, -f32::NAN, -0.0])), Some(0.75));
    assert_eq!(sign_agreement(&a, &view(&[1.0])), None);
    let integers = TensorView::from_slice(&[1i32, 2, 3, 4], &[4]).unwrap();
    assert_eq!(sign_agreement(&a, &integers), None);
    assert_eq!(difference(&a, &integers, everything()), None);
}

/// Subnormals are numbers, whatever the host thinks of them.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_host_that_flushes_subnormals_does_not_lose_ours() {
    use std::arch::asm;
    const FLUSH_BOTH: u32 = 0x8040;
    let with_register = |value: u32| {
        // SAFETY: loads a valid control word.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value) };
    };
    let data = vec![1e-45f32; 1 << 21];
    let half_subnormals = [1u8, 0, 1, 0];
    with_register(0x1f80 | FLUSH_BOTH);
    let (single, half) = (of(&data), bytes(Dtype::F16, 2, &half_subnormals));
    with_register(0x1f80);
    assert_eq!(single.abs_max, f64::from(1e-45f32));
    assert_eq!(single.mean, f64::from(1e-45f32));
    assert_eq!(half.mean, 2f64.powi(-24));
}
