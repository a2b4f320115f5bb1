//! A training that exists in numbers only.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use trainmon_agent::core::config::{Config, Pipeline};
use trainmon_agent::core::{
    Alert, AlertPhase, AlertRule, Kind, MicroStep, Record, StepBatch, TensorId, TensorInfo, TensorStats,
};
use trainmon_agent::exporters::{ExportError, ExportFailure, Exporter};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StepFacts};

/// Long enough for any machine: it bounds a broken test, not a working one.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// What an exporter got, in order.
#[derive(Clone, Debug)]
pub(crate) enum Got {
    Step(u64),
    Alert(Box<Alert>),
}

/// An exporter that keeps what it gets.
#[derive(Clone, Default)]
pub(crate) struct Keeper {
    got: Arc<(Mutex<Vec<Got>>, Condvar)>,
    /// Refuses alerts.
    pub(crate) fails: Arc<Mutex<bool>>,
}

impl Keeper {
    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.0.lock().unwrap().clone()
    }

    pub(crate) fn alerts(&self) -> Vec<Alert> {
        let alert = |got| match got {
            Got::Alert(alert) => Some(*alert),
            Got::Step(_) => None,
        };
        self.got().into_iter().filter_map(alert).collect()
    }

    /// The alerts that began, by rule.
    pub(crate) fn begun(&self, rule: AlertRule) -> Vec<Alert> {
        self.alerts().into_iter().filter(|alert| alert.rule == rule && alert.phase == AlertPhase::Begins).collect()
    }

    pub(crate) fn wait_for_alert(&self, wanted: impl Fn(&Alert) -> bool) -> Alert {
        let deadline = Instant::now() + PATIENCE;
        let mut got = self.got.0.lock().unwrap();
        loop {
            let found = got.iter().find_map(|got| match got {
                Got::Alert(alert) if wanted(alert) => Some(alert.as_ref().clone()),
                _ => None,
            });
            if let Some(alert) = found {
                return alert;
            }
            assert!(Instant::now() < deadline, "no such alert among {got:?}");
            got = self.got.1.wait_timeout(got, Duration::from_secs(1)).unwrap().0;
        }
    }

    fn keep(&self, got: Got) {
        self.got.0.lock().unwrap().push(got);
        self.got.1.notify_all();
    }
}

impl Exporter for Keeper {
    fn name(&self) -> &'static str {
        "keeper"
    }

    fn export(&mut self, _names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        self.keep(Got::Step(batch.step.0));
        Ok(())
    }

    fn alert(&mut self, alert: &Alert) -> Result<(), ExportError> {
        if *self.fails.lock().unwrap() {
            return Err(ExportError::Write { path: "keeper".into(), source: std::io::ErrorKind::StorageFull.into() });
        }
        self.keep(Got::Alert(Box::new(alert.clone())));
        Ok(())
    }

    fn shutdown(&mut self, _deadline: Instant) -> Result<(), ExportError> {
        Ok(())
    }

    fn locations(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What the monitor said.
#[derive(Clone, Default)]
pub(crate) struct ReceivedMessages(Arc<Mutex<Vec<String>>>);

impl ReceivedMessages {
    pub(crate) fn notices(&self) -> Notices {
        let said = Arc::clone(&self.0);
        Notices::new(move |notice| said.lock().unwrap().push(notice.to_string()))
    }

    pub(crate) fn containing(&self, words: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|said| said.contains(words)).count()
    }

    pub(crate) fn all(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

/// A run of a model with `LAYERS` layers of two tensors each.
pub(crate) struct Run {
    pub(crate) monitor: Monitor,
    pub(crate) keeper: Keeper,
    pub(crate) heard: ReceivedMessages,
    pub(crate) tensors: Vec<TensorId>,
    pub(crate) step: u64,
    /// What measuring a record is said to cost.
    pub(crate) cost: Duration,
}

pub(crate) const LAYERS: usize = 3;

/// The config of such a run; `alert` is the object.
pub(crate) fn config(alert: &str) -> Config {
    let text = format!(
        r#"{{"wg_distribution": true, "mv_distribution": true, "update": true, "param_distribution": true,
            "ops": ["norm", "mean"], "alert": {alert}}}"#
    );
    let parsed = Config::parse(&text, "alerts.json", &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
    // Steps come as fast as the test makes them: none may be dropped.
    let pipeline = Pipeline { queue_steps: 4_096, shutdown_timeout_ms: 60_000 };
    Config { csv: None, prometheus: None, pipeline, ..parsed.config }
}

impl Run {
    pub(crate) fn new(alert: &str) -> Self {
        Self::with(config(alert), 0)
    }

    pub(crate) fn with(config: Config, first_step: u64) -> Self {
        Self::with_exporters(config, first_step, None, None)
    }

    /// With another exporter, and a place for files.
    pub(crate) fn with_exporters(
        config: Config,
        first_step: u64,
        own: Option<Box<dyn Exporter>>,
        output_dir: Option<&Path>,
    ) -> Self {
        let (keeper, heard) = (Keeper::default(), ReceivedMessages::default());
        let options = Options {
            ranks: Some(Ranks::SINGLE),
            run: Some("a-run".to_owned()),
            start_iteration: first_step,
            output_dir: output_dir.map(Path::to_path_buf),
            notices: heard.notices(),
            ..Options::default()
        };
        let exporters = own.into_iter().chain([Box::new(keeper.clone()) as Box<dyn Exporter>]).collect();
        let monitor = Monitor::start_with(config, options, exporters).unwrap();
        let name = |layer: usize| [format!("h.{layer}.attn.weight"), format!("h.{layer}.mlp.weight")];
        let tensors = (0..LAYERS).flat_map(name).map(|name| monitor.register(&name, 0)).collect();
        Self { monitor, keeper, heard, tensors, step: first_step, cost: Duration::ZERO }
    }

    /// One step in which `shift` multiplies the norm of a tensor's signal; the loss is 2.
    pub(crate) fn step(&mut self, shift: impl Fn(usize, Kind) -> f64) {
        self.step_with(StepFacts { loss: Some(2.0), ..StepFacts::default() }, shift);
    }

    pub(crate) fn step_with(&mut self, facts: StepFacts, shift: impl Fn(usize, Kind) -> f64) {
        for kind in [Kind::GradReduced, Kind::ExpAvg, Kind::ExpAvgSq, Kind::Update, Kind::ParamUpdated] {
            for (index, &tensor) in self.tensors.iter().enumerate() {
                let calm = 1.0 + 0.02 * ((self.step * 13 + index as u64 * 5) as f64).sin();
                let reading = Some(TensorStats::of_value(calm * shift(index, kind)).into());
                let record = Record { tensor, kind, micro_step: MicroStep(0), reading };
                self.monitor.record(record, self.cost, 0);
            }
        }
        self.monitor.end_step(facts);
        self.step += 1;
    }

    pub(crate) fn calm(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step(|_, _| 1.0);
        }
    }

    /// Shuts down; what the exporter got is complete then.
    pub(crate) fn finish(&self) {
        let report = self.monitor.shutdown();
        assert!(report.balances(), "{report}");
    }
}
