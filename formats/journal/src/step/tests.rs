use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use trainmon_core::config::Config;
use trainmon_core::{DropReason, Dtype, Kind, MicroStep, Reading, Record, Scalar, Shape, Statistic, TensorStats};

use super::super::number_names::StoredNames;
use super::*;

fn any_bits() -> impl Strategy<Value = f64> {
    prop_oneof![any::<u64>().prop_map(f64::from_bits), Just(0.0), Just(-0.0), Just(f64::NAN), -1e3..1e3]
}

fn any_duration() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0u32..1_000_000_000).prop_map(|(seconds, nanoseconds)| Duration::new(seconds, nanoseconds))
}

fn any_scalar() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        any_bits().prop_map(Scalar::Float),
        any::<i64>().prop_map(Scalar::Int),
        any::<u64>().prop_map(Scalar::UInt),
        any::<bool>().prop_map(Scalar::Bool),
    ]
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let size = prop_oneof![0i64..300, Just(i64::from(u32::MAX)), Just(1 << 33)];
    vec(size, 0..=8).prop_filter_map("an element count beyond 63 bits", |sizes| Shape::new(&sizes).ok())
}

prop_compose! {
    fn any_stats()(
        dtype in prop::sample::select(Dtype::ALL.to_vec()),
        shape in any_shape(),
        (min, max) in (any_scalar(), any_scalar()),
        [mean, norm, abs_max, std] in [any_bits(), any_bits(), any_bits(), any_bits()],
        (nans, infs, zeros, count) in (any::<u64>(), 0u64..2, any::<u64>(), 0u64..2),
        (crc32, xor64) in (any::<u32>(), any::<u64>()),
        is_counted in any::<bool>(),
    ) -> TensorStats {
        let count = if is_counted { shape.elements() as u64 } else { count };
        TensorStats { dtype, shape, min, max, mean, norm, abs_max, std, nans, infs, zeros, count, crc32, xor64 }
    }
}

prop_compose! {
    fn any_record(tensors: u32)(
        tensor in 0..tensors,
        kind in prop::sample::select(Kind::ALL.to_vec()),
        micro_step in any::<u32>(),
        stats in option::of(any_stats()),
    ) -> Record {
        let reading = stats.map(|stats| Reading::of_kind(kind, stats));
        Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(micro_step), reading }
    }
}

prop_compose! {
    fn any_batch(tensors: u32)(
        (step, skipped_steps, bytes_read) in any::<(u64, u64, u64)>(),
        (seconds, is_before, duration) in (0u64..1 << 40, any::<bool>(), option::of(any_duration())),
        collected in any::<bool>(),
        [loss, learning_rate, framework_grad_norm] in [option::of(any_bits()), option::of(any_bits()), option::of(any_bits())],
        grad_norm in prop_oneof![Just(GradNorm::OfRecords), Just(GradNorm::Unknown), any_bits().prop_map(GradNorm::Known)],
        ops in option::of(vec(prop::sample::select(Statistic::ALL.to_vec()), 0..13)),
        times in vec(any_duration(), Phase::ALL.len()),
        (drawn, sampling_stride, is_planned) in any::<([u64; 6], u32, bool)>(),
        records in vec(any_record(tensors), 0..20),
    ) -> StepBatch {
        let distance = Duration::new(seconds, 7);
        let epoch = SystemTime::UNIX_EPOCH;
        let mut cost = PhaseTimes::default();
        Phase::ALL.into_iter().zip(times).for_each(|(phase, time)| cost.add(phase, time));
        let [observed, not_sampled, offered, accepted, dropped @ ..] = drawn;
        let mut counts = LedgerSnapshot { observed, not_sampled, offered, accepted, ..LedgerSnapshot::default() };
        DropReason::ALL.into_iter().zip(dropped).for_each(|(why, count)| counts.dropped[why as usize] = count);
        StepBatch {
            step: Step(step),
            time: if is_before { epoch - distance } else { epoch + distance },
            duration,
            collected,
            skipped_steps,
            loss,
            learning_rate,
            grad_norm,
            framework_grad_norm,
            ops: ops.map(Into::into),
            plan: is_planned.then(|| Arc::new(Plan::of(&Config::default()))),
            sampling_stride,
            records,
            cost,
            bytes_read,
            counts,
        }
    }
}

const TENSORS: u32 = 12;

fn names() -> Vec<TensorInfo> {
    (0..TENSORS).map(|id| TensorInfo { name: format!("blocks.{id}.größe").into(), vpp_stage: id % 3 }).collect()
}

/// Equal to the last bit: `PartialEq` would say that a NaN differs from itself.
fn same(a: &StepBatch, b: &StepBatch) -> bool {
    let bytes = |batch| {
        let mut out = Vec::new();
        encode_step(&mut out, &names(), 0, batch);
        out
    };
    bytes(a) == bytes(b) && a.records.len() == b.records.len() && format!("{a:?}") == format!("{b:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_step_reads_back_to_the_last_bit(batch in any_batch(TENSORS), stored in 0..=TENSORS as usize) {
        let number_names = NumberNames::of(&StoredNames::current());
        let mut bytes = b"what the last step left".to_vec();
        encode_step(&mut bytes, &names(), stored, &batch);
        let content = decode_step(&bytes, &number_names).unwrap();
        prop_assert!(same(&content.batch, &batch), "{:?}\n{batch:?}", content.batch);
        prop_assert_eq!(content.names_known, TENSORS);
        for record in batch.records.iter().filter(|record| record.tensor.index() >= stored) {
            let late = content.late_names.iter().find(|(id, _)| *id == record.tensor);
            prop_assert_eq!(late.map(|(_, info)| info), Some(&names()[record.tensor.index()]));
        }
    }

    #[test]
    fn bytes_that_are_no_step_are_refused_and_never_more(batch in any_batch(TENSORS), cut in any::<prop::sample::Index>(),
        flips in vec((any::<prop::sample::Index>(), 1u8..), 1..8)) {
        let number_names = NumberNames::of(&StoredNames::current());
        let mut bytes = Vec::new();
        encode_step(&mut bytes, &names(), 3, &batch);
        prop_assert!(decode_step(&bytes[..cut.index(bytes.len())], &number_names).is_err());
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert!(decode_step(&longer, &number_names).is_err());
        for (place, flip) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= flip;
        }
        // Here no checksum stands before the decoder: it may find a step, another one.
        drop(decode_step(&bytes, &number_names));
    }
}
