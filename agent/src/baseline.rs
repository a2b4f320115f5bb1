//! The rule `Baseline`: compares the run with golden runs, on its own thread with its own queue. A golden run on a slow disk
//! does not delay the training; if the queue is full, a step is skipped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use trainmon_alerts::{AlertManager, Raised};
use trainmon_baseline::{BaselineWatch, Departure, Looked, Over, TensorKey, UserMessage};
use trainmon_core::config::{Config, Dialect};
use trainmon_core::{
    AlertPhase, AlertRule, AlertScope, AlertSeries, AlertSignal, Expectation, Kind, MicroStep, Rank, Statistic, Step,
    StepBatch, TensorInfo, layer_of, with_causes,
};
use trainmon_exporters::{DeliveryReport, ExportError, ExportFailure, Exporter};
use trainmon_service::Notices;

use crate::run_place::RunPlace;
use crate::sink_shared::{Output, SinkShared};

/// The name of its thread and counters.
const BASELINE: &str = "baseline";

/// The counters of the sink, if a config requests it and this rank measures.
pub(crate) fn baseline_shared(config: &Config, rank_measures: bool) -> Option<Arc<SinkShared>> {
    let is_asked_for = config.alert.rules.iter().any(|rule| rule.rule == AlertRule::Baseline);
    (rank_measures && is_asked_for).then(|| Arc::new(SinkShared::new(BASELINE, config.pipeline.queue_steps)))
}

/// Compares each step with the golden runs and raises the alerts.
pub(crate) struct BaselineSink {
    golden: Vec<PathBuf>,
    config: Config,
    rank: Rank,
    /// The location of this run's own files.
    own: Option<PathBuf>,
    /// `None` if there is nothing (more) to compare with.
    watch: Option<BaselineWatch>,
    manager: Arc<AlertManager>,
    notices: Notices,
}

impl BaselineSink {
    /// Creates the output for a config with such a rule. The sink's own thread opens the golden runs.
    pub(crate) fn output(
        config: &Config,
        rank: Rank,
        place: &RunPlace,
        manager: &Arc<AlertManager>,
        notices: &Notices,
        shared: Arc<SinkShared>,
    ) -> Output {
        let rule = config.alert.rules.iter().find(|rule| rule.rule == AlertRule::Baseline);
        let golden = rule.map(|rule| rule.golden.clone()).unwrap_or_default();
        let own = place.run_directory.clone().or_else(|| place.rank_directory.clone());
        let (config, manager, notices) = (config.clone(), Arc::clone(manager), notices.clone());
        Output { exporter: Box::new(Self { golden, config, rank, own, watch: None, manager, notices }), shared }
    }

    fn open(&mut self) {
        match BaselineWatch::open(&self.golden, self.rank.0, self.own.as_deref(), self.config.clone()) {
            Ok((watch, messages)) => {
                self.watch = Some(watch);
                self.tell(messages);
            }
            Err(error) => {
                let message = format!("the rule `Baseline` is off: {}; training continues", with_causes(&error));
                self.notices.warn(message, Some(error.hint().to_owned()));
            }
        }
    }

    fn tell(&self, messages: Vec<UserMessage>) {
        for UserMessage { is_warning, message } in messages {
            let message = format!("Baseline: {message}");
            if is_warning { self.notices.warn(message, None) } else { self.notices.info(message) }
        }
    }

    fn act(&self, looked: Looked, step: Step, time: SystemTime) {
        let Looked { departure, over, findings, messages } = looked;
        self.tell(messages);
        let rank = self.rank;
        if let Some(departure) = departure {
            let message = format!("Baseline: differs from the golden run on rank {rank}: {departure}");
            self.raise(AlertPhase::Begins, 1, &departure, step, time, message);
        } else if findings > 0 {
            self.manager.count(AlertRule::Baseline);
        }
        if let Some(Over { departure, findings, still_wrong, for_want_of_golden }) = over {
            let series = self.series(&departure);
            let how = match (for_want_of_golden, still_wrong) {
                (true, _) => "the golden run has ended".to_owned(),
                (false, 0) => "no difference from the golden run remains".to_owned(),
                (false, 1) => "no new difference from the golden run; 1 reported number still differs".to_owned(),
                (false, still) => {
                    format!("no new difference from the golden run; {still} reported numbers still differ")
                }
            };
            let count = if findings == 1 { "1 finding".to_owned() } else { format!("{findings} findings") };
            let message = format!(
                "Baseline: {how} on rank {rank} at step {step}; {count} since {series} first differed at step {}",
                departure.step
            );
            self.raise(AlertPhase::Ends, findings, &departure, step, time, message);
        }
    }

    fn raise(
        &self,
        phase: AlertPhase,
        findings: u64,
        departure: &Departure,
        step: Step,
        time: SystemTime,
        message: String,
    ) {
        let bounds = departure.bounds;
        let expected = Expectation {
            typical: Some(departure.golden),
            lower: bounds.map(|bounds| bounds.lower),
            upper: bounds.map(|bounds| bounds.upper),
        };
        let (rule, series, value) = (AlertRule::Baseline, self.series(departure), departure.target);
        self.manager.raise(Raised { rule, phase, findings, step, time, series, value, expected, message });
    }

    /// The series of a departure, as other alerts name it.
    fn series(&self, departure: &Departure) -> AlertSeries {
        let TensorKey { kind, name, vpp_stage, micro_step } = &departure.tensor;
        let Some(kind) = Kind::from_name(kind) else {
            let (signal, statistic) = match name.as_str() {
                "learning_rate" => (AlertSignal::LearningRate, None),
                "grad_norm" => (AlertSignal::Grad, Some(Statistic::Norm)),
                _ => (AlertSignal::Loss, None),
            };
            return AlertSeries::global(signal, statistic);
        };
        // V2 counts from 1.
        let first = u32::from(self.config.dialect == Dialect::V2);
        AlertSeries {
            scope: AlertScope::Tensor,
            name: name.clone(),
            signal: AlertSignal::Kind(kind),
            statistic: Statistic::from_name(&departure.statistic),
            layer: Some(layer_of(name).to_owned()),
            micro_step: MicroStep(micro_step.map_or(0, |micro_step| micro_step.saturating_sub(first))),
            vpp_stage: *vpp_stage,
        }
    }
}

impl Exporter for BaselineSink {
    fn name(&self) -> &'static str {
        BASELINE
    }

    fn reports_deliveries(&mut self, _: &Arc<dyn DeliveryReport>) -> bool {
        self.open();
        false
    }

    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        match watch.look_at(names, batch) {
            Ok(looked) => self.act(looked, batch.step, batch.time),
            Err(error) => {
                self.watch = None;
                let message = format!("Baseline: {}; the comparison ends here", with_causes(&error));
                self.notices.warn(message, Some(error.hint().to_owned()));
            }
        }
        Ok(())
    }

    /// False: it raises alerts itself and ignores those of other rules.
    fn takes_alerts(&self) -> bool {
        false
    }

    fn shutdown(&mut self, _: Instant) -> Result<(), ExportError> {
        Ok(())
    }

    fn locations(&self) -> Vec<String> {
        self.golden.iter().map(|path| format!("compared with {}", path.display())).collect()
    }
}
