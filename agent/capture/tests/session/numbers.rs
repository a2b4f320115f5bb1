//! What a document says of tensors: msprobe's own figures with `low`, the right ones with `high`.

use half::{bf16, f16};
use trainmon_capture_files::Plain;
use trainmon_core::{Dtype, TensorView};

use crate::support::{Host, bytes, floats, host, operator, tensor_of};

const LOW: &str = r#""task": "statistics", "precision": "low", "statistics": {"summary_mode": "md5"}"#;
const HIGH: &str = r#""task": "statistics", "statistics": {"summary_mode": "md5"}"#;

struct Case {
    dtype: Dtype,
    dims: &'static [i64],
    bytes: Vec<u8>,
    low: [Plain; 4],
    high: [Plain; 4],
}

fn case<const N: usize>(
    dtype: Dtype,
    dims: &'static [i64],
    elements: &[[u8; N]],
    low: [Plain; 4],
    high: [Plain; 4],
) -> Case {
    Case { dtype, dims, bytes: elements.concat(), low, high }
}

fn float(value: f64) -> Plain {
    Plain::Float(value)
}

/// Facts of msprobe's own tests and of runs of it (low); of float64 arithmetic (high).
fn cases() -> Vec<Case> {
    let null = || Plain::Null;
    let norm = 14.0_f64.sqrt();
    let f32s = |numbers: &[f32]| numbers.iter().map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let large = f16::from_f32(60_000.0).to_le_bytes();
    let complex = f32s(&[1.0, 2.0, 3.0, 4.0]);
    vec![
        case(
            Dtype::F32,
            &[3],
            &f32s(&[1.0, 2.0, 3.0]),
            [float(3.0), float(1.0), float(2.0), float(f64::from(norm as f32))],
            [float(3.0), float(1.0), float(2.0), float(norm)],
        ),
        case(
            Dtype::I32,
            &[3],
            &[1i32, 2, 3].map(i32::to_le_bytes),
            [Plain::Int(3), Plain::Int(1), null(), null()],
            [Plain::Int(3), Plain::Int(1), float(2.0), float(norm)],
        ),
        case(
            Dtype::Bool,
            &[3],
            &[[1u8], [0], [1]],
            [Plain::Bool(true), Plain::Bool(false), null(), null()],
            [Plain::Bool(true), Plain::Bool(false), float(2.0 / 3.0), float(2.0_f64.sqrt())],
        ),
        case(
            Dtype::F32,
            &[],
            &f32s(&[42.0]),
            [float(42.0), float(42.0), float(42.0), float(42.0)],
            [float(42.0), float(42.0), float(42.0), float(42.0)],
        ),
        case(
            Dtype::I64,
            &[],
            &[(-7i64).to_le_bytes()],
            [Plain::Int(-7), Plain::Int(-7), Plain::Int(-7), Plain::Int(-7)],
            [Plain::Int(-7), Plain::Int(-7), float(-7.0), float(7.0)],
        ),
        case(
            Dtype::F64,
            &[2],
            &[1.0f64, 3.0].map(f64::to_le_bytes),
            [float(3.0), float(1.0), null(), null()],
            [float(3.0), float(1.0), float(2.0), float(10.0_f64.sqrt())],
        ),
        case(
            Dtype::Complex64,
            &[2],
            &complex,
            [float(5.0), float(5.0_f64.sqrt()), float(f64::from((5.0 + 5.0_f64.sqrt()) as f32 / 2.0)), null()],
            [float(5.0), float(5.0_f64.sqrt()), float(f64::midpoint(5.0, 5.0_f64.sqrt())), float(30.0_f64.sqrt())],
        ),
        case(
            Dtype::F16,
            &[100],
            &[large; 100],
            [float(60_000.0), float(60_000.0), float(60_000.0), float(f64::INFINITY)],
            [float(60_000.0), float(60_000.0), float(60_000.0), float(600_000.0)],
        ),
        case(
            Dtype::Bf16,
            &[3],
            &[1.0f32, 2.0, 3.0].map(|number| bf16::from_f32(number).to_le_bytes()),
            [float(3.0), float(1.0), float(2.0), float(3.734_375)],
            [float(3.0), float(1.0), float(2.0), float(norm)],
        ),
        case(
            Dtype::F32,
            &[4],
            &f32s(&[3e38; 4]),
            [float(f64::from(3e38f32)), float(f64::from(3e38f32)), float(f64::INFINITY), float(f64::INFINITY)],
            [
                float(f64::from(3e38f32)),
                float(f64::from(3e38f32)),
                float(f64::from(3e38f32)),
                float(f64::from(3e38f32) * 2.0),
            ],
        ),
        case(Dtype::F32, &[0], &[[0u8; 4]; 0], [null(), null(), null(), null()], [null(), null(), null(), null()]),
        case(
            Dtype::F8E4M3Fn,
            &[2],
            &[[0x38u8], [0x40]],
            [null(), null(), null(), null()],
            [float(2.0), float(1.0), float(1.5), float(5.0_f64.sqrt())],
        ),
    ]
}

fn near(found: &Plain, expected: &Plain, dtype: Dtype) -> bool {
    // Magnitudes of complex64 are float32.
    let tolerance = if dtype == Dtype::Complex64 { 1e-7 } else { 1e-15 };
    match (found, expected) {
        (Plain::Float(found), Plain::Float(expected)) if expected.is_finite() => {
            (found - expected).abs() <= expected.abs() * tolerance
        }
        (found, expected) => found == expected,
    }
}

#[test]
fn numbers_are_msprobes_with_low_and_right_with_high() {
    for (keys, is_low) in [(LOW, true), (HIGH, false)] {
        let host = Host::new(keys);
        for case in cases() {
            host.call("f", |values| bytes(values, case.dtype, case.dims, &case.bytes), |_| ()).unwrap();
        }
        let document = host.document();
        for (index, case) in cases().iter().enumerate() {
            let facts = tensor_of(&operator(&document, &format!("Functional.f.{index}.forward")).values[0]);
            let expected = if is_low { &case.low } else { &case.high };
            let is_right =
                facts.statistics.iter().zip(expected).all(|(found, expected)| near(found, expected, case.dtype));
            assert!(
                is_right,
                "{:?} {:?}, low {is_low}: {:?}, expected {expected:?}",
                case.dtype, case.dims, facts.statistics
            );
        }
    }
}

/// Dtype, shape, bytes, CRC-32 and exclusive or.
type Summed = (Dtype, &'static [i64], Vec<u8>, &'static str, &'static str);

/// Checksums of recorded runs.
#[test]
fn checksums_are_those_of_the_bytes() {
    let f32s = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let i64s: Vec<u8> = [1i64, 2, 3].iter().flat_map(|number| number.to_le_bytes()).collect();
    let all: [Summed; 6] = [
        (Dtype::F32, &[2], f32s(&[1.0, 2.0]), "2e3fa576", "0x400000003f800000"),
        (Dtype::F32, &[3], f32s(&[1.0, 2.0, 3.0]), "b20e96b1", "0x400000007fc00000"),
        (Dtype::F32, &[4], f32s(&[1.0; 4]), "e8681456", "0x0000000000000000"),
        (Dtype::I64, &[3], i64s, "2bcb8d87", "0x0000000000000000"),
        (Dtype::Bf16, &[1], bf16::from_f32(1.5).to_le_bytes().to_vec(), "3c45e88c", "0x0000000000003fc0"),
        (Dtype::U8, &[3], vec![1, 2, 3], "55bc801d", "0x0000000000030201"),
    ];
    for (keys, is_xor) in [(HIGH, false), (r#""task": "statistics", "statistics": {"summary_mode": "xor"}"#, true)] {
        let host = Host::new(keys);
        for (dtype, dims, memory, _, _) in &all {
            host.call("f", |values| bytes(values, *dtype, dims, memory), |_| ()).unwrap();
        }
        let document = host.document();
        for (index, (dtype, _, _, crc, xor)) in all.iter().enumerate() {
            let facts = tensor_of(&operator(&document, &format!("Functional.f.{index}.forward")).values[0]);
            let expected = if is_xor { xor } else { crc };
            assert_eq!(facts.digest.as_ref().and_then(Plain::text), Some(*expected), "{dtype:?}");
            assert_eq!(
                facts.statistics.iter().all(Plain::is_null),
                is_xor,
                "numbers where no checksum takes their place"
            );
        }
    }
}

#[test]
#[expect(unsafe_code, reason = "strided views have no other constructor")]
fn a_strided_tensor_has_the_checksum_of_its_contiguous_copy() {
    let rows: Vec<f32> = (0..12u8).map(f32::from).collect();
    let columns: Vec<f32> = (0..4u8).flat_map(|column| (0..3u8).map(move |row| f32::from(row * 4 + column))).collect();
    let host_of = Host::new(HIGH);
    // SAFETY: the view reaches exactly the twelve elements of `rows`, which outlives it.
    let transposed = unsafe { TensorView::from_raw_parts(rows.as_ptr().cast(), Dtype::F32, &[4, 3], &[1, 4]) }.unwrap();
    host_of
        .call("f", |values| host(transposed, &[4, 3], |tensor| assert_eq!(values.tensor(tensor), None)), |_| ())
        .unwrap();
    host_of.call("f", |values| floats(values, &columns), |_| ()).unwrap();
    let document = host_of.document();
    let digest = |name: &str| tensor_of(&operator(&document, name).values[0]).digest.clone();
    assert_eq!(digest("Functional.f.0.forward"), digest("Functional.f.1.forward"));
}

#[test]
fn a_slice_is_measured_summed_and_shown_as_it_is_cut() {
    let keys =
        r#""task": "statistics", "statistics": {"summary_mode": "md5", "slice": [{"dim": 0, "begin": 1, "end": 3}]}"#;
    let host = Host::new(keys);
    host.call("f", |values| floats(values, &[9.0, 1.0, 2.0, 9.0]), |_| ()).unwrap();
    let document = host.document();
    let facts = tensor_of(&document.operators[0].values[0]);
    assert_eq!((facts.sizes(), facts.digest.as_ref().and_then(Plain::text)), (Some(vec![2]), Some("2e3fa576")));
    assert_eq!(facts.statistics[0], float(2.0));
}

#[test]
fn calls_that_bring_a_nan_are_marked_and_counted() {
    let host = Host::new(r#""task": "overflow_check", "overflow_check": {"overflow_nums": 2}"#);
    host.call("clean", |values| floats(values, &[1.0]), |values| floats(values, &[2.0])).unwrap();
    host.call("bad", |values| floats(values, &[1.0]), |values| floats(values, &[f32::NAN])).unwrap();
    assert_eq!(host.said(), Vec::<String>::new());
    host.call("bad", |values| floats(values, &[1.0]), |values| floats(values, &[f32::INFINITY])).unwrap();
    assert_eq!(host.call("later", |_| (), |_| ()), None, "two were asked for");
    let text = host.text("dump.json");
    for (name, is_nan) in [("clean.0", 0), ("bad.0", 1), ("bad.1", 1)] {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        assert!(line.contains(&format!("\"is_nan\":{is_nan}")) && !line.contains("\"Max\""), "{line}");
    }
    assert_eq!(host.said().len(), 1, "{:?}", host.said());
}
