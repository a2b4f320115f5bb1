//! Which exporters a config asks for, and how each is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trainmon_core::config::{Config, Csv, TensorBoard};
use trainmon_core::{Ledger, StatisticSet};
use trainmon_exporters::tensorboard::TensorBoardExporter;
use trainmon_exporters::{
    CsvExporter, Exporter, MeasuredStatistics, PrometheusExporter, QueueGauge, RunInfo, SinkSource, Sources,
};

use crate::books::SinkShared;
use crate::notice::with_causes;
use crate::options::{Options, environment};
use crate::requests::Requests;

/// An exporter and the books it will be run with.
pub(crate) struct Output {
    pub(crate) exporter: Box<dyn Exporter>,
    pub(crate) shared: Arc<SinkShared>,
}

impl Output {
    fn new(exporter: Box<dyn Exporter>, config: &Config) -> Self {
        let shared = Arc::new(SinkShared::new(exporter.name(), config.pipeline.queue_steps));
        Self { exporter, shared }
    }
}

/// What exporters are opened with.
pub(crate) struct Opening<'a> {
    pub(crate) config: &'a Config,
    pub(crate) options: &'a Options,
    pub(crate) run: &'a RunInfo,
    /// Whether this rank measures: one that does not writes no files.
    pub(crate) rank_measures: bool,
    pub(crate) ledger: &'a Arc<Ledger>,
    /// Batches waiting for the worker.
    pub(crate) waiting: Arc<AtomicUsize>,
    /// What is measured of each kind.
    pub(crate) requests: &'a Requests,
}

impl Opening<'_> {
    /// Opens what the config asks for, besides the caller's own exporters. One that cannot be opened is reported and
    /// left out.
    pub(crate) fn open(self, own: Vec<Box<dyn Exporter>>) -> Vec<Output> {
        let mut outputs: Vec<Output> = own.into_iter().map(|exporter| Output::new(exporter, self.config)).collect();
        let csv = self.config.csv.as_ref().filter(|_| self.rank_measures).map(|csv| self.csv(csv));
        let events = self.config.tensorboard.as_ref().filter(|_| self.rank_measures);
        let events = events.map(|settings| self.events(settings, csv.as_ref().map(CsvExporter::directory)));
        outputs.extend(csv.map(|csv| Output::new(Box::new(csv), self.config)));
        outputs.extend(events.map(|events| Output::new(Box::new(events), self.config)));
        if let Some(prometheus) = &self.config.prometheus {
            // Its own books are on its page too, so they exist before it does.
            let shared = Arc::new(SinkShared::new("prometheus", self.config.pipeline.queue_steps));
            let sinks = outputs.iter().map(|output| &output.shared).chain([&shared]);
            let sources = self.sources(sinks);
            match PrometheusExporter::start(prometheus, self.run.clone(), sources) {
                Ok(exporter) => outputs.push(Output { exporter: Box::new(exporter), shared }),
                Err(error) => self.options.voice.warn(
                    format!("no scrape page: {}; everything else goes on", with_causes(&error)),
                    Some(error.hint().to_owned()),
                ),
            }
        }
        outputs
    }

    fn csv(&self, csv: &Csv) -> CsvExporter {
        let base = self.base(csv.output_dir.as_deref());
        self.continued_csv(csv, &base).unwrap_or_else(|| CsvExporter::new(self.config, csv, &base, self.run))
    }

    fn events(&self, settings: &TensorBoard, csv_directory: Option<&Path>) -> TensorBoardExporter {
        let base = self.base(settings.output_dir.as_deref());
        TensorBoardExporter::new(self.config, settings, csv_directory, &base, self.run)
    }

    /// Where run directories are made.
    fn base(&self, configured: Option<&Path>) -> PathBuf {
        let given = configured.or(self.options.output_dir.as_deref()).map(Path::to_path_buf);
        given.unwrap_or_else(|| environment::default_output_dir(self.config.dialect))
    }

    /// The exporter that appends to an earlier run, where that is asked for and there is one; else it says why not.
    fn continued_csv(&self, csv: &Csv, base: &Path) -> Option<CsvExporter> {
        let window = csv.append_output?;
        let (why, hint) = match CsvExporter::continuing(self.config, csv, base, self.run) {
            Ok(Some(exporter)) => return Some(exporter),
            Ok(None) => (
                format!(
                    "`{}` has no run of rank {} from {} to {}",
                    base.display(),
                    self.run.rank,
                    window.first,
                    window.last
                ),
                "a run directory's name begins with its time",
            ),
            Err(error) => (with_causes(&error), error.hint()),
        };
        let message = format!("`append_output`: {why}; a new run directory is made");
        self.options.voice.warn(message, Some(hint.to_owned()));
        None
    }

    fn sources<'b>(&self, sinks: impl Iterator<Item = &'b Arc<SinkShared>>) -> Sources {
        let measured = |kind| self.requests.get(kind).map_or(StatisticSet::EMPTY, |request| request.statistics);
        Sources {
            ledger: Arc::clone(self.ledger),
            worker_queue: queue_gauge(Arc::clone(&self.waiting), self.config.pipeline.queue_steps),
            sinks: sinks
                .map(|shared| SinkSource {
                    name: shared.name,
                    ledger: Arc::clone(&shared.ledger),
                    queue: queue_gauge(Arc::clone(&shared.queued), shared.capacity),
                })
                .collect(),
            statistics: MeasuredStatistics::of_kinds(measured),
        }
    }
}

fn queue_gauge(waiting: Arc<AtomicUsize>, capacity: usize) -> QueueGauge {
    QueueGauge { length: Arc::new(move || waiting.load(Ordering::Relaxed)), capacity }
}
