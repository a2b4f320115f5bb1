//! Every dtype and layout against a plain float64 oracle.

mod common;

use common::{Number, Tensor, contents, layouts, strides, tensors, word};
use proptest::prelude::*;
use trainmon_core::{Dtype, Scalar, Statistic, StatisticSet, TensorStats};
use trainmon_stats::{Isa, Request, copy_contiguous, difference, measure, measure_and_copy, sign_agreement};

const EPS: f64 = 1e-3;

fn everything() -> Request {
    Request { statistics: Statistic::ALL.into_iter().collect::<StatisticSet>(), eps: EPS }
}

fn is_near(got: f64, expected: f64, tolerance: f64) -> bool {
    got == expected || (got.is_nan() && expected.is_nan()) || (got - expected).abs() <= tolerance
}

/// zlib's CRC-32, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

fn xor64(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |xor, (at, &byte)| xor ^ (u64::from(byte) << (at % 8 * 8)))
}

/// Relative slack on magnitudes: complex ones are rounded roots.
fn slack(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Complex64 => 1.3e-7,
        Dtype::Complex128 => 1e-15,
        _ => 0.0,
    }
}

fn check_extremes(reading: &TensorStats, numbers: &[Number]) -> Result<(), TestCaseError> {
    let integers: Vec<i128> =
        numbers.iter().filter_map(|&n| if let Number::Integer(n) = n { Some(n) } else { None }).collect();
    if let (Some(&min), Some(&max)) = (integers.iter().min(), integers.iter().max()) {
        let exact = |scalar| match scalar {
            Scalar::Int(value) => i128::from(value),
            Scalar::UInt(value) => i128::from(value),
            Scalar::Bool(value) => i128::from(value),
            Scalar::Float(_) => i128::MAX,
        };
        prop_assert_eq!((exact(reading.min), exact(reading.max)), (min, max));
        prop_assert_eq!(reading.abs_max, min.unsigned_abs().max(max.unsigned_abs()) as f64);
        return Ok(());
    }
    let values = || numbers.iter().map(|number| number.value());
    let has_nan = values().any(f64::is_nan);
    let pick = |pick: fn(f64, f64) -> f64, value: &dyn Fn(f64) -> f64| {
        if has_nan { f64::NAN } else { values().map(value).reduce(pick).unwrap_or(f64::NAN) }
    };
    for (got, expected) in [
        (reading.min.as_f64(), pick(f64::min, &|value| value)),
        (reading.max.as_f64(), pick(f64::max, &|value| value)),
        (reading.abs_max, pick(f64::max, &f64::abs)),
    ] {
        prop_assert!(is_near(got, expected, slack(reading.dtype) * expected.abs()), "{} for {}", got, expected);
    }
    Ok(())
}

/// Mean, norm and standard deviation in units of the largest magnitude, so that the oracle cannot overflow.
fn check_moments(reading: &TensorStats, values: &[f64]) -> Result<(), TestCaseError> {
    let count = values.len() as f64;
    if values.iter().any(|value| value.is_nan()) {
        prop_assert!(reading.mean.is_nan() && reading.norm.is_nan() && reading.std.is_nan());
        return Ok(());
    }
    let infinities = (values.contains(&f64::INFINITY), values.contains(&f64::NEG_INFINITY));
    if infinities != (false, false) {
        let expected = match infinities {
            (true, true) => f64::NAN,
            (true, false) => f64::INFINITY,
            _ => f64::NEG_INFINITY,
        };
        prop_assert!(is_near(reading.mean, expected, 0.0), "mean {} for {}", reading.mean, expected);
        prop_assert_eq!(reading.norm, f64::INFINITY);
        prop_assert!(reading.std.is_nan());
        return Ok(());
    }
    let largest = values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let tight = 1e-12 + 4.0 * slack(reading.dtype);
    let norm = unit * values.iter().map(|value| (value / unit).powi(2)).sum::<f64>().sqrt();
    prop_assert!(is_near(reading.norm, norm, tight * norm), "norm {} for {}", reading.norm, norm);
    // Sums beyond float64 depend on their order.
    if largest < 1e300 {
        let mean = values.iter().map(|value| value / unit).sum::<f64>() / count;
        prop_assert!(is_near(reading.mean, unit * mean, tight * unit), "mean {} for {}", reading.mean, unit * mean);
        let spread = values.iter().map(|value| (value / unit - mean).powi(2)).sum::<f64>();
        let std = unit * (spread / (count - 1.0)).sqrt();
        let loose = 1e-6 * std + tight * unit;
        prop_assert!(
            is_near(reading.std, if count < 2.0 { f64::NAN } else { std }, loose),
            "std {} for {}",
            reading.std,
            std
        );
    }
    Ok(())
}

fn check(reading: &TensorStats, numbers: &[Number]) -> Result<(), TestCaseError> {
    let count = |is: &dyn Fn(Number) -> bool| numbers.iter().filter(|&&number| is(number)).count() as u64;
    prop_assert_eq!(reading.count, numbers.len() as u64);
    prop_assert_eq!(reading.nans, count(&|number| number.value().is_nan()));
    prop_assert_eq!(reading.infs, count(&|number| number.value().is_infinite()));
    prop_assert_eq!(reading.zeros, count(&|number| number.is_zero(EPS)));
    if numbers.is_empty() {
        prop_assert_eq!(reading.norm, 0.0);
        prop_assert!(reading.mean.is_nan() && reading.min.as_f64().is_nan() && reading.std.is_nan());
        return Ok(());
    }
    check_extremes(reading, numbers)?;
    check_moments(reading, &numbers.iter().map(|number| number.value()).collect::<Vec<_>>())
}

/// Every bit of two readings. NaN is NaN, and the sign of a zero extreme is nobody's.
fn are_same(a: &TensorStats, b: &TensorStats) -> bool {
    let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() };
    Statistic::ALL.iter().all(|&statistic| bits(a.value(statistic)) == bits(b.value(statistic)))
}

fn real_float() -> impl Strategy<Value = Dtype> {
    prop::sample::select(Dtype::ALL[..8].to_vec())
}

/// Two tensors of one shape, each with dtype and strides of its own.
fn pairs() -> impl Strategy<Value = (Tensor, Tensor)> {
    layouts()
        .prop_flat_map(|(dims, first)| (Just(first), strides(dims)))
        .prop_flat_map(|(first, (dims, second))| {
            (Just((dims, first, second)), [real_float(), real_float()], contents(), any::<u64>())
        })
        .prop_map(|((dims, first, second), dtypes, content, mut seed)| {
            let mut tensor =
                |dtype, strides: &[i64]| Tensor::new(dtype, &dims, strides, 1, || word(content, &mut seed));
            (tensor(dtypes[0], &first), tensor(dtypes[1], &second))
        })
}

#[test]
fn the_norm_of_an_expanded_tensor_is_finite_where_only_the_sum_of_all_squares_is_not() {
    let tensor = Tensor::new(Dtype::F64, &[1000], &[0], 0, || 1e154_f64.to_bits());
    let reading = measure(&tensor.view(), everything());
    let norm = 1e154 * 1000f64.sqrt();
    assert!((reading.norm - norm).abs() <= 1e-12 * norm, "{}", reading.norm);
    assert_eq!(reading.std, 0.0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn every_statistic_agrees_with_the_oracle(tensor in tensors()) {
        check(&measure(&tensor.view(), everything()), &tensor.numbers())?;
    }

    #[test]
    fn checksums_are_those_of_the_logical_bytes(tensor in tensors(), with_statistics: bool) {
        let checksums = StatisticSet::EMPTY.with(Statistic::Crc32).with(Statistic::Xor64);
        let request =
            if with_statistics { everything() } else { Request { statistics: checksums, eps: EPS } };
        let reading = measure(&tensor.view(), request);
        let bytes = tensor.bytes();
        prop_assert_eq!(reading.crc32, crc32(&bytes));
        prop_assert_eq!(reading.xor64, xor64(&bytes));
        prop_assert_eq!(reading.count, (bytes.len() / tensor.dtype.size()) as u64);
    }

    #[test]
    fn a_contiguous_copy_holds_the_logical_bytes(tensor in tensors()) {
        let expected = tensor.bytes();
        let mut copy = vec![0; expected.len()];
        copy_contiguous(&tensor.view(), &mut copy);
        prop_assert_eq!(copy, expected);
    }

    #[test]
    fn a_tensor_measured_and_copied_at_once_gives_what_both_give(tensor in tensors(), statistics: u8) {
        let few = [Statistic::Crc32, Statistic::Xor64, Statistic::Norm].into_iter().enumerate();
        let few: StatisticSet = few.filter(|(bit, _)| statistics & 1 << bit != 0).map(|(_, one)| one).collect();
        let request = if statistics & 8 == 0 { everything() } else { Request { statistics: few, eps: EPS } };
        let mut copy = vec![0xa5; tensor.bytes().len()];
        let found = measure_and_copy(&tensor.view(), request, &mut copy);
        // A NaN is no equal of itself; its text is.
        prop_assert_eq!(format!("{found:?}"), format!("{:?}", measure(&tensor.view(), request)));
        prop_assert_eq!(copy, tensor.bytes());
    }

    #[test]
    fn sign_agreement_is_the_mean_of_sign_products(pair in pairs()) {
        let signs = |tensor: &Tensor| {
            tensor.numbers().iter().map(|n| match n.value() {
                value if value > 0.0 => 1i64,
                value if value < 0.0 => -1,
                _ => 0,
            }).collect::<Vec<_>>()
        };
        let (a, b) = (signs(&pair.0), signs(&pair.1));
        let agreement: i64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
        let expected = (!a.is_empty()).then(|| f64::midpoint(agreement as f64 / a.len() as f64, 1.0));
        prop_assert_eq!(sign_agreement(&pair.0.view(), &pair.1.view()), expected);
    }

    #[test]
    fn a_difference_is_measured_as_if_it_had_been_written_out(pair in pairs()) {
        let is_double = [&pair.0, &pair.1].iter().any(|tensor| tensor.dtype == Dtype::F64);
        let numbers: Vec<Number> = pair.0.numbers().iter().zip(pair.1.numbers()).map(|(before, after)| {
            if is_double {
                Number::Double(after.value() - before.value())
            } else {
                Number::Single(f64::from(after.value() as f32 - before.value() as f32))
            }
        }).collect();
        let reading = difference(&pair.0.view(), &pair.1.view(), everything()).expect("two float tensors of one shape");
        prop_assert_eq!(reading.dtype, pair.1.dtype);
        check(&reading, &numbers)?;
    }

    /// Others run at the same time on whatever is forced here; their answers must be right on any.
    #[test]
    fn instruction_sets_agree_bit_for_bit(tensor in tensors()) {
        Isa::force(Some(Isa::Portable));
        let portable = measure(&tensor.view(), everything());
        for isa in Isa::available() {
            Isa::force(Some(isa));
            let other = measure(&tensor.view(), everything());
            prop_assert!(are_same(&portable, &other), "{:?}: {:?} for {:?}", isa, other, portable);
        }
        Isa::force(None);
    }
}
