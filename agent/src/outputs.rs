//! Which exporters a config asks for, and how each is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trainmon_core::config::{Config, Csv, Journal as JournalSettings, TensorBoard};
use trainmon_core::{AlertBook, CollectiveBook, Kind, Ledger, StatisticSet};
use trainmon_dump::journal::{Journal, JournalRun, JournalSpec, Pruned, Storage, prune};
use trainmon_exporters::otlp::{self, Backlog, OtlpExporter, OtlpOpening, SettingWarning};
use trainmon_exporters::tensorboard::TensorBoardExporter;
use trainmon_exporters::{
    CsvExporter, Exporter, MeasuredStatistics, PrometheusExporter, QueueGauge, RunInfo, SCRAPE_STATISTICS, SinkSource,
    Sources,
};

use crate::books::SinkShared;
use crate::journal::OpenJournal;
use crate::notice::with_causes;
use crate::options::{Options, environment};
use crate::requests::Requests;
use crate::settlement::JournalBacklog;

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

/// What a config asks for, opened.
pub(crate) struct Outputs {
    pub(crate) exporters: Vec<Output>,
    pub(crate) journal: Option<OpenJournal>,
}

impl Outputs {
    /// Everyone's books, and where what they write is.
    pub(crate) fn whereabouts(&self) -> Vec<(Arc<SinkShared>, Vec<String>)> {
        let exporters = self.exporters.iter().map(|out| (Arc::clone(&out.shared), out.exporter.whereabouts()));
        let journal = self.journal.iter().map(|journal| (Arc::clone(&journal.shared), journal.whereabouts()));
        exporters.chain(journal).collect()
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
    pub(crate) alerts: &'a Arc<AlertBook>,
    pub(crate) collectives: &'a Arc<CollectiveBook>,
}

impl Opening<'_> {
    /// Opens what the config asks for, besides the caller's own exporters. One that cannot be opened is reported and
    /// left out.
    pub(crate) fn open(self, own: Vec<Box<dyn Exporter>>) -> Outputs {
        let mut outputs: Vec<Output> = own.into_iter().map(|exporter| Output::new(exporter, self.config)).collect();
        let csv = self.config.csv.as_ref().filter(|_| self.rank_measures).map(|csv| self.csv(csv));
        let events = self.config.tensorboard.as_ref().filter(|_| self.rank_measures);
        let events = events.map(|settings| self.events(settings, csv.as_ref().map(CsvExporter::directory)));
        let journal = self.config.journal.as_ref().filter(|_| self.rank_measures);
        let journal = journal.and_then(|journal| self.journal(journal, csv.as_ref().map(CsvExporter::directory)));
        outputs.extend(csv.map(|csv| Output::new(Box::new(csv), self.config)));
        outputs.extend(events.map(|events| Output::new(Box::new(events), self.config)));
        outputs.extend(self.otlp(&outputs, journal.as_ref()));
        if let Some(prometheus) = &self.config.prometheus {
            // Its own books are on its page too, so they exist before it does.
            let shared = Arc::new(SinkShared::new("prometheus", self.config.pipeline.queue_steps));
            let kept = journal.as_ref().map(|journal| &journal.shared);
            let sinks = outputs.iter().map(|output| &output.shared).chain([&shared]).chain(kept);
            let sources = self.sources(sinks, journal.as_ref());
            match PrometheusExporter::start(prometheus, self.run.clone(), sources) {
                Ok(exporter) => outputs.push(Output { exporter: Box::new(exporter), shared }),
                Err(error) => self.options.voice.warn(
                    format!("no scrape page: {}; everything else goes on", with_causes(&error)),
                    Some(error.hint().to_owned()),
                ),
            }
        }
        Outputs { exporters: outputs, journal }
    }

    /// The OTLP export, or a word why there is none. A rank that does not measure has nothing to say.
    fn otlp(&self, others: &[Output], journal: Option<&OpenJournal>) -> Option<Output> {
        let settings = self.config.otlp.as_ref().filter(|_| self.rank_measures)?;
        let voice = &self.options.voice;
        let (is_disabled, warning) = otlp::is_disabled(&environment::variable);
        if is_disabled {
            voice.info("no OTLP export: `OTEL_SDK_DISABLED` is true; everything else goes on".to_owned());
            return None;
        }
        let shared = Arc::new(SinkShared::new("otlp", self.config.pipeline.queue_steps));
        let kept = journal.map(|journal| &journal.shared);
        let sinks = others.iter().map(|output| &output.shared).chain([&shared]).chain(kept);
        let opening = OtlpOpening {
            config: self.config,
            run: self.run,
            sources: &self.sources(sinks, journal),
            environment: &environment::variable,
            journal: journal.map(|open| Arc::new(JournalBacklog(open.journal.view())) as Arc<dyn Backlog>),
        };
        match OtlpExporter::new(settings, opening) {
            Ok((exporter, warnings)) => {
                for SettingWarning { message, hint } in warning.into_iter().chain(warnings) {
                    voice.warn(format!("otlp: {message}"), Some(hint.to_owned()));
                }
                Some(Output { exporter: Box::new(exporter), shared })
            }
            Err(error) => {
                let message = format!("no OTLP export: {}; everything else goes on", with_causes(&error));
                voice.warn(message, Some(error.hint().to_owned()));
                None
            }
        }
    }

    /// The journal, or a word why there is none.
    fn journal(&self, settings: &JournalSettings, csv_directory: Option<&Path>) -> Option<OpenJournal> {
        let JournalSettings { dir, size_mb, keep, .. } = settings;
        let csv = &self.config.csv_layout;
        let beside_csv = csv_directory.map(Path::to_path_buf);
        let directory = dir.clone().or(beside_csv).unwrap_or_else(|| self.base(csv.output_dir.as_deref()));
        let RunInfo { run, rank, local_rank, world_size } = self.run.clone();
        self.prune(&directory, usize::try_from(*keep).unwrap_or(usize::MAX));
        let spec = JournalSpec {
            file_bytes: size_mb << 20,
            run: JournalRun { run, rank, local_rank, world_size },
            config: self.config,
            csv,
            storage: Storage::Auto,
        };
        match Journal::create_in(&directory, &spec) {
            Ok(journal) => Some(OpenJournal::new(journal, settings, self.config.pipeline.queue_steps)),
            Err(error) => {
                let message = format!("no journal: {}; everything else goes on", with_causes(&error));
                self.options.voice.warn(message, Some(error.hint().to_owned()));
                None
            }
        }
    }

    /// Takes the oldest journals of earlier runs away, before the new one needs the space.
    fn prune(&self, directory: &Path, keep: usize) {
        let Pruned { removed, failed } = prune(directory, self.run.rank, keep);
        let voice = &self.options.voice;
        if let [.., newest] = &removed[..] {
            let count = removed.len();
            voice.info(format!("journal: {count} of earlier runs deleted, the newest of them `{}`", newest.display()));
        }
        if let Some((path, error)) = failed.first() {
            let message = format!("journal: cannot delete `{}` of an earlier run: {error}", path.display());
            voice.warn(message, Some("delete it by hand, or raise `journal.keep`".to_owned()));
        }
    }

    fn csv(&self, csv: &Csv) -> CsvExporter {
        let base = self.base(csv.output_dir.as_deref());
        self.continued_csv(csv, &base).unwrap_or_else(|| CsvExporter::new(self.config, csv, &base, self.run))
    }

    fn events(&self, settings: &TensorBoard, csv_directory: Option<&Path>) -> TensorBoardExporter {
        let base = self.base(self.config.csv_layout.output_dir.as_deref());
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

    fn sources<'b>(&self, sinks: impl Iterator<Item = &'b Arc<SinkShared>>, journal: Option<&OpenJournal>) -> Sources {
        // Live control may switch on what the config does not ask for.
        let is_live = self.config.control.is_some() || self.config.dynamic_on.is_some();
        let switched_on = if is_live { SCRAPE_STATISTICS } else { StatisticSet::EMPTY };
        let measured = |kind: Kind| {
            let of_kind = if kind.is_feature() { StatisticSet::EMPTY } else { switched_on };
            self.requests.get(kind).map_or(of_kind, |request| request.statistics)
        };
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
            journal: journal.map(|journal| journal.source.clone()),
            statistics: MeasuredStatistics::of_kinds(measured),
            overhead_budget: self.config.overhead_budget,
            alerts: Arc::clone(self.alerts),
            collectives: Arc::clone(self.collectives),
        }
    }
}

fn queue_gauge(waiting: Arc<AtomicUsize>, capacity: usize) -> QueueGauge {
    QueueGauge { length: Arc::new(move || waiting.load(Ordering::Relaxed)), capacity }
}
