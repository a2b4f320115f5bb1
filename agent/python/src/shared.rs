//! The state of a monitor for Python: the meter of its tensors, and the statistics that a script has set.

use std::time::Instant;

use parking_lot::Mutex;
use pyo3::prelude::*;
use trainmon_agent::Monitor;
use trainmon_agent::core::config::{Config, Signal};
use trainmon_agent::core::{Kind, Phase, Statistic, TensorView};
use trainmon_agent::front::{Meter, Readable as _};
use trainmon_agent::stats::{fingerprints, sign_agreement};

use crate::tensor::HostTensor;

/// The state shared by the Python object and the handler of the interpreter's end.
pub(crate) struct Shared {
    pub(crate) monitor: Monitor,
    pub(crate) meter: Meter,
    /// The statistics of the last `set_ops`, and the version of the plan at that time: a later plan overrides them.
    live_ops: Mutex<Option<(u64, Vec<Statistic>)>>,
}

impl Shared {
    pub(crate) fn new(monitor: Monitor) -> Self {
        Self { meter: Meter::new(monitor.clone()).with_latest(), monitor, live_ops: Mutex::default() }
    }

    /// Returns the statistics that are measured of this kind now; none if it is not measured.
    pub(crate) fn statistics_of(&self, kind: Kind) -> Vec<Statistic> {
        if self.monitor.request(kind).is_none() {
            return Vec::new();
        }
        let planned = || self.config_now().signal(kind).map(|signal| signal.ops.clone());
        self.ops_since_set().or_else(planned).unwrap_or_default()
    }

    /// Returns the config, including changes by live control.
    fn config_now(&self) -> Config {
        self.monitor.config().with_plan(&self.monitor.plan())
    }

    /// Returns the statistics of `set_ops`, unless live control has changed the plan since.
    fn ops_since_set(&self) -> Option<Vec<Statistic>> {
        let version = self.monitor.plan_version();
        self.live_ops.lock().as_ref().filter(|(of, _)| *of == version).map(|(_, ops)| ops.clone())
    }

    /// Returns the statistics that are measured of any kind now.
    pub(crate) fn statistics(&self) -> Vec<Statistic> {
        if let Some(ops) = self.ops_since_set() {
            return ops;
        }
        let config = self.config_now();
        let mut all = Vec::new();
        for signal in signals(&config) {
            let new: Vec<_> = signal.ops.iter().copied().filter(|it| !all.contains(it)).collect();
            all.extend(new);
        }
        all
    }

    /// Sets the measured statistics. Unknown names cause a warning.
    pub(crate) fn set_ops(&self, names: &[String]) -> Vec<Statistic> {
        let mut known = Vec::with_capacity(names.len());
        for name in names {
            match Statistic::from_name(name) {
                Some(statistic) => known.push(statistic),
                // These are always written.
                None if name == "shape" || name == "dtype" => {}
                None => self.monitor.warn(
                    format!("the unknown op `{name}` is ignored"),
                    Some(format!("use ops of this list: {}", Statistic::ALL.map(Statistic::name).join(", "))),
                ),
            }
        }
        let ops = self.monitor.set_ops(&known);
        *self.live_ops.lock() = Some((self.monitor.plan_version(), ops.clone()));
        ops
    }

    /// Returns the magnitude below which an element counts as zero.
    pub(crate) fn eps(&self) -> f64 {
        let config = self.config_now();
        signals(&config).next().map_or(0.0, |signal| signal.eps)
    }

    /// Returns the fingerprints of host tensors' bytes; `None` for one that cannot be read.
    pub(crate) fn fingerprints(&self, shown: &[Bound<'_, PyAny>]) -> Vec<Option<u64>> {
        let start = Instant::now();
        let mut found = vec![None; shown.len()];
        let tensors: Vec<_> = shown.iter().map(|tensor| HostTensor::describe(tensor).ok()).collect();
        let there =
            tensors.iter().enumerate().filter_map(|(place, tensor)| Some((place, tensor.as_ref()?.view().ok()?)));
        let (places, views): (Vec<usize>, Vec<_>) = there.unzip();
        if let Some(one) = tensors.iter().flatten().next() {
            let elements = views.iter().map(TensorView::elements).sum();
            for (place, fingerprint) in places.into_iter().zip(one.run(elements, || fingerprints(&views))) {
                found[place] = Some(fingerprint);
            }
        }
        self.monitor.add_cost(Phase::Measure, start.elapsed());
        found
    }

    /// Returns the sign agreement of two tensors without recording it; the time is counted.
    pub(crate) fn sign_agreement(&self, gradient: &Bound<'_, PyAny>, moment: &Bound<'_, PyAny>) -> Option<f64> {
        let start = Instant::now();
        let gradient = HostTensor::describe(gradient).ok()?;
        let moment = HostTensor::describe(moment).ok()?;
        let (signs, moment) = (gradient.view().ok()?, moment.view().ok()?);
        let agreement = gradient.run(signs.elements(), || sign_agreement(&signs, &moment));
        self.monitor.add_cost(Phase::Measure, start.elapsed());
        agreement
    }
}

fn signals(config: &Config) -> impl Iterator<Item = &Signal> {
    Kind::ALL.into_iter().filter_map(|kind| config.signal(kind))
}
