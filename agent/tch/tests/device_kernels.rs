//! The kernels' way for tensors on a device, on the host's memory: what the kernels would find is worked out by the host's
//! pass over the memory that the table names.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(unsafe_code, reason = "addresses, as a device has them")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tch::{Device, Kind, Tensor};
use trainmon_agent::Severity;
use trainmon_agent::core::{Dtype, Statistic, TensorView};
use trainmon_agent::front::DeviceColumn;
use trainmon_agent::stats::{Request, measure};
use trainmon_device::{LaunchError, Statistics};
use trainmon_tch::{DevicePlan, DeviceRow, DeviceStatistics, KernelStatistics, Launch, LibtorchStatistics};

const COLUMNS: usize = DeviceColumn::ALL.len();
/// Words of a row.
const ROW: usize = 9;

/// Works out what the kernels would write, plus something.
struct StandIn {
    launches: Arc<AtomicUsize>,
    adds: f64,
}

fn request() -> Request {
    Request { statistics: Statistic::ALL.into_iter().collect(), eps: 1e-3 }
}

fn dtype(code: i64) -> Dtype {
    match code & 0xFF {
        0 => Dtype::F32,
        1 => Dtype::Bf16,
        2 => Dtype::F16,
        12 => Dtype::F64,
        13 => Dtype::I32,
        15 => Dtype::I64,
        17 => Dtype::Complex64,
        other => panic!("no test has {other}"),
    }
}

impl Launch for StandIn {
    unsafe fn measure(&self, of: &Statistics, stream: u64) -> Result<u32, LaunchError> {
        assert_eq!(stream, 0);
        self.launches.fetch_add(1, Ordering::Relaxed);
        let at = |address: u64| std::ptr::with_exposed_provenance_mut::<f64>(address as usize);
        // SAFETY: the words were made for as many rows, the results' memory is as large.
        let (words, out) = unsafe {
            let words = std::slice::from_raw_parts(at(of.words).cast::<i64>(), of.table.rows * ROW);
            (words, std::slice::from_raw_parts_mut(at(of.out), of.table.rows * COLUMNS))
        };
        for (row, found) in words.chunks_exact(ROW).zip(out.chunks_exact_mut(COLUMNS)) {
            let [address, _, elements, codes, _, _, inner, step, times] = *row else { panic!("nine words") };
            let (dims, strides) = ([times, elements / inner, inner], [0, if step == 0 { inner } else { step }, 1]);
            // SAFETY: the tensor is alive, and nobody writes it.
            let view = unsafe { TensorView::from_raw_parts(at(address as u64).cast(), dtype(codes), &dims, &strides) };
            let seen = measure(&view.unwrap(), request());
            let counts = [seen.nans, seen.infs, seen.zeros].map(|count| count as f64);
            let first = [seen.min.as_f64(), seen.max.as_f64(), seen.mean, seen.norm, seen.std];
            first.into_iter().chain(counts).zip(found).for_each(|(value, cell)| *cell = value + self.adds);
        }
        Ok(2)
    }
}

fn kernels(adds: f64) -> (KernelStatistics, Arc<AtomicUsize>) {
    let launches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&launches);
    let load = move |_device| Ok(Box::new(StandIn { launches: Arc::clone(&counted), adds }) as Box<dyn Launch>);
    (KernelStatistics::with(load).and_on_the_host(), launches)
}

fn rows(statistics: &mut dyn DeviceStatistics, tensors: &[Tensor]) -> Vec<DeviceRow> {
    let flight = statistics.launch(&tensors.iter().collect::<Vec<_>>(), DevicePlan::of(request())).unwrap();
    assert!(flight.is_ready().unwrap(), "host memory is there at once");
    flight.rows()
}

fn assert_alike(found: &[DeviceRow], expected: &[DeviceRow]) {
    assert_eq!(found.len(), expected.len());
    for (place, (DeviceRow(found), DeviceRow(expected))) in found.iter().zip(expected).enumerate() {
        let near = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-6 * b.abs();
        assert!(found.iter().zip(expected).all(near), "{place}: {found:?}\n{expected:?}");
    }
}

/// Laid out in every way, and of several types; the second and the last but one are what no kernel walks through.
fn samples() -> Vec<Tensor> {
    let base = Tensor::arange(40_000, (Kind::Float, Device::Cpu)).multiply_scalar(0.37).sin();
    let matrix = base.narrow(0, 0, 48).view([6, 8]);
    vec![
        base.shallow_clone(),
        matrix.view([2, 3, 8]).narrow(1, 0, 2).slice(2, 0, 8, 2),
        matrix.tr(),
        matrix.narrow(1, 3, 4),
        matrix.narrow(0, 0, 1).expand([5, 6, 8], false),
        base.to_kind(Kind::BFloat16).narrow(0, 3, 999),
        matrix.complex(&matrix),
        (matrix.shallow_clone() * 100.0).to_kind(Kind::Int64),
        matrix.as_strided([4, 4], [2, 1], 0),
        Tensor::from_slice(&[f32::NAN, 0.0]),
    ]
}

trait Complex {
    fn complex(&self, imaginary: &Tensor) -> Tensor;
}

impl Complex for Tensor {
    fn complex(&self, imaginary: &Tensor) -> Tensor {
        Tensor::stack(&[self, imaginary], -1).view_as_complex()
    }
}

#[test]
fn a_batch_has_the_operators_rows_whoever_measures_them() {
    let (mut statistics, launches) = kernels(0.0);
    let expected = rows(&mut LibtorchStatistics, &samples());
    assert_alike(&rows(&mut statistics, &samples()), &expected);
    assert_eq!(
        launches.load(Ordering::Relaxed),
        2,
        "the known tensors, which the host has found right at once, and these"
    );
    for _ in 0..3 {
        assert_alike(&rows(&mut statistics, &samples()), &expected);
    }
    assert_eq!(launches.load(Ordering::Relaxed), 5);
    assert!(statistics.remark().is_none());
}

#[test]
fn kernels_that_measure_wrong_are_given_up_and_that_is_told_once() {
    let (mut statistics, launches) = kernels(0.5);
    let expected = rows(&mut LibtorchStatistics, &samples());
    for _ in 0..3 {
        assert_alike(&rows(&mut statistics, &samples()), &expected);
    }
    assert_eq!(launches.load(Ordering::Relaxed), 1);
    let told = statistics.remark().unwrap();
    assert_eq!(told.severity, Severity::Warning);
    assert!(
        told.message.ends_with("not trainmon's kernels: they measure known tensors incorrectly"),
        "{}",
        told.message
    );
    assert!(statistics.remark().is_none());
}

#[test]
fn without_kernels_the_operators_measure_and_the_reason_is_told_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let load = move |_device| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err("there is no driver".to_owned())
    };
    let mut statistics = KernelStatistics::with(load).and_on_the_host();
    for _ in 0..3 {
        assert_eq!(rows(&mut statistics, &[Tensor::from_slice(&[3.0f32, 4.0])])[0].get(DeviceColumn::Norm), 5.0);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let told = statistics.remark().unwrap();
    assert_eq!(told.severity, Severity::Info);
    assert!(told.message.ends_with("not trainmon's kernels: there is no driver"), "{}", told.message);
    assert!(statistics.remark().is_none());
}

#[test]
fn other_devices_keep_the_operators() {
    let mut statistics = KernelStatistics::with(|_device| panic!("nobody asks for kernels of the host"));
    assert_eq!(rows(&mut statistics, &[Tensor::from_slice(&[3.0f32, 4.0])])[0].get(DeviceColumn::Norm), 5.0);
}
