//! What the meter reads, and what it spares itself: one rule for every front.

use std::cell::Cell;
use std::convert::Infallible;

use trainmon_agent::StepFacts;
use trainmon_agent::core::{Kind, MicroStep, TensorView, ViewError};
use trainmon_agent::front::{Found, Label, Meter, Readable, Shown};

use super::common::config;
use super::probe::{Probe, start};

/// A tensor as torch has it: memory, and a count of torch's writes.
struct Tensor {
    data: Vec<f32>,
    version: Option<i64>,
    /// How often somebody asked where it lies.
    found: Cell<u32>,
}

impl Tensor {
    fn new(data: Vec<f32>) -> Self {
        Self { data, version: Some(0), found: Cell::new(0) }
    }

    fn find(&self) -> Result<Found<&Self>, ViewError> {
        self.found.set(self.found.get() + 1);
        self.view()?;
        Ok(Found::Here(self))
    }

    fn view(&self) -> Result<TensorView<'_>, ViewError> {
        TensorView::from_slice(&self.data, &[self.data.len() as i64])
    }
}

impl Readable for &Tensor {
    type Unreadable = ViewError;

    fn view(&self) -> Result<TensorView<'_>, ViewError> {
        Tensor::view(self)
    }

    fn version(&self) -> Option<i64> {
        self.version
    }
}

/// A step's readings: the norm, and the bytes read for it.
fn step(meter: &Meter, shown: Shown, tensor: &Tensor) -> (Option<f64>, u64) {
    let found = meter.measure(shown, || tensor.find());
    meter.monitor().end_step(StepFacts::default());
    (found.and_then(|measured| measured.norm()), meter.monitor().cost().bytes_read)
}

#[test]
fn a_reading_is_used_again_while_nobody_wrote_torch_or_another() {
    let (monitor, _heard) = start(crate::with_parameters(), &Probe::default());
    let label = Label::new(monitor.register("fc.weight", 0), Kind::ParamUpdated);
    let meter = Meter::new(monitor);
    let shown = Shown { may_be_known: true, ..Shown::new(label) };
    let mut tensor = Tensor::new(vec![1.0; 100]);
    assert_eq!(step(&meter, shown, &tensor), (Some(10.0), 400));
    assert_eq!(step(&meter, shown, &tensor), (Some(10.0), 400), "known");
    tensor.data[0] = 2.0;
    tensor.version = Some(1);
    let torch_wrote = step(&meter, shown, &tensor);
    assert_eq!(torch_wrote, (Some(103.0_f64.sqrt()), 800));
    tensor.data.fill(2.0);
    assert_eq!(step(&meter, shown, &tensor), (Some(20.0), 1200), "written behind torch's back");
    meter.forget(label);
    assert_eq!(step(&meter, shown, &tensor), (Some(20.0), 1600), "forgotten");
    assert_eq!(step(&meter, Shown::new(label), &tensor), (Some(20.0), 2000), "not to be known");
    tensor.version = None;
    assert_eq!(step(&meter, shown, &tensor), (Some(20.0), 2400), "torch does not count");
    // A known reading is that of the memory: the loss scale may change.
    tensor.version = Some(2);
    step(&meter, shown, &tensor);
    assert_eq!(step(&meter, Shown { factor: 0.5, ..shown }, &tensor), (Some(10.0), 2800));
    assert!(meter.monitor().shutdown().balances());
}

#[test]
fn a_gradient_is_known_within_its_step_only() {
    let (monitor, _heard) = start(config(), &Probe::default());
    let tensor_id = monitor.register("fc.weight", 0);
    let meter = Meter::new(monitor);
    let tensor = Tensor::new(vec![1.0; 100]);
    let show = |kind| {
        let shown = Shown { may_be_known: true, ..Shown::new(Label::new(tensor_id, kind)) };
        meter.measure(shown, || tensor.find())
    };
    show(Kind::GradUnreduced);
    show(Kind::GradReduced);
    meter.monitor().end_step(StepFacts::default());
    assert_eq!(meter.monitor().cost().bytes_read, 400);
    show(Kind::GradReduced);
    meter.monitor().end_step(StepFacts::default());
    assert_eq!(meter.monitor().cost().bytes_read, 800);
}

#[test]
fn what_is_not_measured_is_not_looked_for_and_what_is_not_there_is_counted() {
    let (monitor, heard) = start(config(), &Probe::default());
    let tensor_id = monitor.register("fc.weight", 0);
    let meter = Meter::new(monitor);
    let tensor = Tensor::new(vec![1.0; 4]);
    assert!(meter.measure(Shown::new(Label::new(tensor_id, Kind::ParamUpdated)), || tensor.find()).is_none());
    assert_eq!(tensor.found.get(), 0, "its kind is not asked for");
    let label = Label { micro_step: MicroStep(1), ..Label::new(tensor_id, Kind::GradReduced) };
    let missing: Result<Found<&Tensor>, Infallible> = Ok(Found::Missing);
    assert!(meter.measure(Shown::new(label), || missing).is_none());
    let queued: Result<Found<&Tensor>, Infallible> = Ok(Found::Queued);
    assert!(meter.measure(Shown::new(label), || queued).is_none());
    assert!(meter.measure::<&Tensor, _>(Shown::new(label), || Err("it is sparse")).is_none());
    assert!(meter.measure(Shown { factor: f64::NAN, ..Shown::new(label) }, || tensor.find()).is_none());
    assert_eq!((heard.containing("it is sparse"), heard.containing("not a finite number above 0")), (1, 1));
    let counts = meter.monitor().report().counts;
    assert_eq!((counts.observed, counts.not_sampled), (3, 2), "a record without a reading, and two that are none");
    assert!(meter.monitor().shutdown().balances());
}

#[test]
fn a_copy_is_of_its_step_alone() {
    let (monitor, heard) = start(crate::with_parameters(), &Probe::default());
    let tensor_id = monitor.register("fc.weight", 0);
    let meter = Meter::new(monitor);
    let mut tensor = Tensor::new(vec![3.0, 4.0]);
    let recorded = || meter.monitor().report().counts.observed;
    meter.keep_copy(tensor_id, || tensor.find());
    tensor.data[0] = 4.0;
    meter.measure_change(tensor_id, || tensor.find());
    assert_eq!(recorded(), 2, "the update and its ratio");
    meter.measure_change(tensor_id, || tensor.find());
    assert_eq!(recorded(), 2, "the copy is used up");
    // The step failed, and the next attempt leaves this parameter out.
    meter.keep_copy(tensor_id, || tensor.find());
    meter.discard_copy(tensor_id);
    meter.measure_change(tensor_id, || tensor.find());
    assert_eq!(recorded(), 2);
    // It cannot be read afterwards: no later step takes the copy for its own.
    meter.keep_copy(tensor_id, || tensor.find());
    meter.measure_change::<&Tensor, _>(tensor_id, || Err("it is sparse"));
    meter.measure_change(tensor_id, || tensor.find());
    assert_eq!((recorded(), heard.containing("it is sparse")), (3, 1));
}
