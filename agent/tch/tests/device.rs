//! The statistics of libtorch's operators against the fused pass over host memory.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use tch::{Kind, Tensor};
use trainmon_agent::core::{Element, Statistic, TensorStats, TensorView};
use trainmon_agent::stats::{Request, measure};
use trainmon_tch::{DeviceColumn, DevicePlan, DeviceRow, DeviceStatistics, LibtorchStatistics};

fn request() -> Request {
    Request { statistics: Statistic::ALL.into_iter().collect(), eps: 1e-3 }
}

fn plan() -> DevicePlan {
    DevicePlan::of(request())
}

fn on_device(tensors: &[&Tensor]) -> Vec<DeviceRow> {
    let flight = LibtorchStatistics.launch(tensors, plan()).unwrap();
    assert!(flight.is_ready().unwrap(), "host tensors are there at once");
    flight.rows()
}

fn on_host<T: Element>(data: &[T]) -> TensorStats {
    measure(&TensorView::from_slice(data, &[data.len() as i64]).unwrap(), request())
}

fn assert_agree(row: &DeviceRow, expected: &TensorStats) {
    let found = row.stats(expected.dtype, expected.shape);
    let near = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * b.abs();
    let pairs = [
        (row.get(DeviceColumn::Min), expected.min.as_f64()),
        (row.get(DeviceColumn::Max), expected.max.as_f64()),
        (found.mean, expected.mean),
        (found.norm, expected.norm),
        (found.abs_max, expected.abs_max),
        (found.std, expected.std),
        (found.nans as f64, expected.nans as f64),
        (found.infs as f64, expected.infs as f64),
        (found.zeros as f64, expected.zeros as f64),
    ];
    assert!(pairs.iter().all(|&(a, b)| near(a, b)), "{found:?}\n{expected:?}");
}

#[test]
fn every_statistic_agrees_for_floats_of_all_sorts() {
    let ordinary: Vec<f32> = (0..1000).map(|index| (index as f32 * 0.37).sin() * 3.0).collect();
    let with_zeros = [0.0f32, -0.0, 5e-4, 1.0, -2.0];
    let with_nan = [1.0f32, f32::NAN, 3.0];
    let with_infinity = [1.0f32, f32::INFINITY, 3.0, f32::NEG_INFINITY];
    let one = [2.5f32];
    for data in [&ordinary[..], &with_zeros, &with_nan, &one] {
        assert_agree(&on_device(&[&Tensor::from_slice(data)])[0], &on_host(data));
    }
    let found = on_device(&[&Tensor::from_slice(&with_infinity)])[0];
    let expected = on_host(&with_infinity);
    let found = found.stats(expected.dtype, expected.shape);
    assert_eq!((found.infs, found.abs_max, found.norm), (2, f64::INFINITY, f64::INFINITY));
    assert_eq!((found.min, found.max), (expected.min, expected.max));
}

#[test]
fn dtypes_can_be_mixed_in_one_batch() {
    let floats = [1.5f64, -2.5, 0.0];
    let integers = [3i64, -4, 0, 7];
    let tensors = [Tensor::from_slice(&floats), Tensor::from_slice(&integers)];
    let half = Tensor::from_slice(&[1.5f32, -2.5, 0.0]).to_kind(Kind::BFloat16);
    let found = on_device(&[&tensors[0], &tensors[1], &half]);
    assert_agree(&found[0], &on_host(&floats));
    assert_agree(&found[1], &on_host(&integers));
    assert_agree(&found[2], &on_host(&floats));
}

#[test]
fn what_libtorch_cannot_reduce_is_refused_with_its_reason() {
    let sparse = Tensor::from_slice(&[0.0f32, 1.0]).to_sparse_sparse_dim(1);
    assert!(LibtorchStatistics.launch(&[&sparse], plan()).is_err_and(|why| !why.is_empty()));
    assert!(LibtorchStatistics.launch(&[], plan()).is_err());
}
