//! A journal of the version before readings of tensors and plain numbers were told apart in memory: its records are read as
//! what they are.

use std::path::Path;

use trainmon_core::{CollectiveTiming, Dtype, Kind, Reading, Scalar, Shape, Step, TensorStats, Values};
use trainmon_journal::{Fault, Recovered};

use super::support::batch;

#[test]
fn every_kind_of_record_of_an_earlier_version_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journal/data/journal_before_reading_kinds.tmj");
    let recovered = Recovered::open(&path).unwrap();
    assert_eq!(recovered.faults(), [Fault::NeverWrittenBefore { step: Step(4) }]);
    assert_eq!(Recovered::run_of(&path).unwrap(), *recovered.run(), "its beginning tells whose it is");
    let steps: Vec<_> = recovered.steps().map(|step| step.unwrap().batch).collect();
    assert_eq!(steps.iter().map(|batch| batch.step.0).collect::<Vec<_>>(), [4, 5]);
    let shape = Shape::new(&[3, 4]).unwrap();
    let full = TensorStats {
        min: Scalar::Float(-2.5),
        max: Scalar::Float(7.25),
        mean: 0.1,
        norm: 9.75,
        abs_max: 7.25,
        std: 1.5,
        nans: 1,
        infs: 2,
        zeros: 3,
        count: 12,
        crc32: 0xdead_beef,
        xor64: 0x0123_4567_89ab_cdef,
        ..TensorStats::empty(Dtype::Bf16, shape)
    };
    let integers = TensorStats {
        min: Scalar::Int(-5),
        max: Scalar::UInt(u64::MAX),
        count: 12,
        ..TensorStats::empty(Dtype::I64, shape)
    };
    let empty = TensorStats::empty(Dtype::F16, Shape::new(&[0, 4]).unwrap());
    let timing = CollectiveTiming { bytes: 4096, seconds: 0.25, algbw: 1.5, busbw: 2.25 };
    let unclocked = CollectiveTiming { bytes: 0, seconds: 0.0, algbw: f64::NAN, busbw: f64::NAN };
    let expected: [(Kind, Option<Reading>); 15] = [
        (Kind::GradReduced, Some(full.into())),
        (Kind::ParamOrigin, Some(integers.into())),
        (Kind::ActvGrad, None),
        (Kind::GradUnreduced, Some(empty.into())),
        (Kind::MgDirection, Some(TensorStats::of_value(0.75).into())),
        (Kind::UpdateRatio, Some(Reading::of_values(&[1e-3]))),
        (Kind::UpdateRatio, Some(Reading::of_values(&[f64::NAN]))),
        (Kind::UpdateRatio, Some(Reading::of_values(&[f64::INFINITY]))),
        (Kind::AttentionHook, Some(Reading::of_values(&[2.5, 0.875]))),
        (Kind::LinearHook, Some(Reading::of_values(&[3.5, 11.0]))),
        (Kind::MoeRouterWeightHook, Some(Reading::of_values(&[0.0]))),
        (Kind::MoeRouterLogitHook, Some(Reading::of_values(&[-1.25]))),
        (Kind::CommTime, Some(Values::of_collective(Dtype::Bf16, &timing).into())),
        (Kind::CommTime, Some(Values::of_collective(Dtype::I64, &unclocked).into())),
        (Kind::Comm, Some(full.into())),
    ];
    let found: Vec<_> = steps[0].records.iter().map(|record| (record.kind, record.reading)).collect();
    // As texts: a NaN differs from itself.
    assert_eq!(format!("{found:?}"), format!("{:?}", expected.to_vec()));
    assert_eq!(format!("{:?}", steps[1]), format!("{:?}", batch(5, 15)));
}
