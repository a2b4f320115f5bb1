//! The exporters of a config, and how they are opened.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trainmon_core::config::{Config, Csv, Journal as JournalSettings, TensorBoard};
use trainmon_core::{AlertTotals, CollectiveTotals, Kind, Ledger, PartTable, StatisticSet, with_causes};
#[cfg(feature = "csv")]
use trainmon_exporters::CsvExporter;
#[cfg(feature = "prometheus")]
use trainmon_exporters::PrometheusExporter;
#[cfg(feature = "otlp")]
use trainmon_exporters::otlp::{self, Backlog, OtlpExporter, OtlpOpening, SettingWarning};
#[cfg(feature = "tensorboard")]
use trainmon_exporters::tensorboard::TensorBoardExporter;
use trainmon_exporters::{Exporter, MeasuredStatistics, QueueGauge, RunInfo, SCRAPE_STATISTICS, SinkSource, Sources};
use trainmon_journal::{Journal, JournalSpec, Pruned, Storage, prune, prune_runs};
#[cfg(feature = "otlp")]
use trainmon_service::environment;

#[cfg(feature = "otlp")]
use crate::journal::JournalBacklog;
use crate::journal::OpenJournal;
use crate::options::Options;
use crate::requests::Requests;
use crate::run_place::RunPlace;
#[cfg(feature = "csv")]
use crate::run_place::ranks_here;
use crate::sink_shared::{Output, SinkShared};

/// The opened outputs of a config.
pub(crate) struct Outputs {
    pub(crate) exporters: Vec<Output>,
    pub(crate) journal: Option<OpenJournal>,
}

impl Outputs {
    /// The counters of all outputs, and the locations of their files.
    pub(crate) fn locations(&self) -> Vec<(Arc<SinkShared>, Vec<String>)> {
        let exporters = self.exporters.iter().map(Output::locations);
        let journal = self.journal.iter().map(|journal| (Arc::clone(&journal.shared), journal.locations()));
        exporters.chain(journal).collect()
    }
}

/// The settings for opening exporters.
pub(crate) struct Opening<'a> {
    pub(crate) config: &'a Config,
    pub(crate) options: &'a Options,
    pub(crate) run: &'a RunInfo,
    /// The run's directories; a continued earlier directory becomes this run's.
    pub(crate) place: &'a mut RunPlace,
    /// Whether this rank measures. If not, it writes no files.
    pub(crate) rank_measures: bool,
    pub(crate) ledger: &'a Arc<Ledger>,
    /// The number of batches waiting for the worker.
    pub(crate) waiting: Arc<AtomicUsize>,
    /// The requested statistics of each kind.
    pub(crate) requests: &'a Requests,
    pub(crate) alerts: &'a Arc<AlertTotals>,
    pub(crate) collectives: &'a Arc<CollectiveTotals>,
    pub(crate) parts: &'a Arc<PartTable>,
    /// The counters of the baseline comparison, if there is one.
    pub(crate) baseline: Option<&'a Arc<SinkShared>>,
}

impl Opening<'_> {
    /// Opens the exporters of the config and the caller's own. Reports and skips one that cannot be opened.
    pub(crate) fn open(mut self, own: Vec<Box<dyn Exporter>>) -> Outputs {
        let mut outputs: Vec<Output> = own.into_iter().map(|exporter| Output::new(exporter, self.config)).collect();
        let csv = self.config.csv.as_ref().filter(|_| self.rank_measures);
        let csv = csv.and_then(|csv| self.csv(csv));
        let events = self.config.tensorboard.as_ref().filter(|_| self.rank_measures);
        let events = events.and_then(|settings| self.events(settings));
        let journal = self.config.journal.as_ref().filter(|_| self.rank_measures);
        let journal = journal.and_then(|journal| self.journal(journal, csv.is_some()));
        outputs.extend(csv.into_iter().chain(events).map(|exporter| Output::new(exporter, self.config)));
        outputs.extend(self.otlp(&outputs, journal.as_ref()));
        outputs.extend(self.prometheus(&outputs, journal.as_ref()));
        Outputs { exporters: outputs, journal }
    }

    /// Warns that the config requests an exporter that was not compiled in.
    #[cfg(not(all(feature = "csv", feature = "otlp", feature = "prometheus", feature = "tensorboard")))]
    fn not_built<T>(&self, feature: &str) -> Option<T> {
        let message = format!("no {feature}: this build lacks the exporter; all else continues");
        self.options.notices.warn(message, Some(format!("build trainmon with the feature `{feature}`")));
        None
    }

    /// Warns that an exporter cannot be opened.
    fn without<T>(&self, what: &str, error: &dyn Error, hint: &str) -> Option<T> {
        let message = format!("no {what}: {}; all else continues", with_causes(error));
        self.options.notices.warn(message, Some(hint.to_owned()));
        None
    }

    /// Opens the scrape page, or warns. Its counters are created first, because the page shows them too.
    #[cfg(feature = "prometheus")]
    fn prometheus(&self, others: &[Output], journal: Option<&OpenJournal>) -> Option<Output> {
        let prometheus = self.config.prometheus.as_ref()?;
        let shared = Arc::new(SinkShared::new("prometheus", self.config.pipeline.queue_steps));
        match PrometheusExporter::start(prometheus, self.run.clone(), self.sources(others, &shared, journal)) {
            Ok(exporter) => Some(Output { exporter: Box::new(exporter), shared }),
            Err(error) => self.without("scrape page", &error, error.hint()),
        }
    }

    #[cfg(not(feature = "prometheus"))]
    fn prometheus(&self, _others: &[Output], _journal: Option<&OpenJournal>) -> Option<Output> {
        self.config.prometheus.as_ref().and_then(|_| self.not_built("prometheus"))
    }

    #[cfg(not(feature = "otlp"))]
    fn otlp(&self, _others: &[Output], _journal: Option<&OpenJournal>) -> Option<Output> {
        self.config.otlp.as_ref().filter(|_| self.rank_measures).and_then(|_| self.not_built("otlp"))
    }

    /// Opens the OTLP export, or warns. A rank that does not measure has no data to send.
    #[cfg(feature = "otlp")]
    fn otlp(&self, others: &[Output], journal: Option<&OpenJournal>) -> Option<Output> {
        let settings = self.config.otlp.as_ref().filter(|_| self.rank_measures)?;
        let notices = &self.options.notices;
        let (is_disabled, warning) = otlp::is_disabled(&environment::variable);
        if is_disabled {
            notices.info("no OTLP export: `OTEL_SDK_DISABLED` is true; all else continues".to_owned());
            return None;
        }
        let shared = Arc::new(SinkShared::new("otlp", self.config.pipeline.queue_steps));
        let opening = OtlpOpening {
            config: self.config,
            run: self.run,
            sources: &self.sources(others, &shared, journal),
            environment: &environment::variable,
            journal: journal.map(|open| Arc::new(JournalBacklog(open.journal.view())) as Arc<dyn Backlog>),
        };
        match OtlpExporter::new(settings, opening) {
            Ok((exporter, warnings)) => {
                for SettingWarning { message, hint } in warning.into_iter().chain(warnings) {
                    notices.warn(format!("otlp: {message}"), Some(hint.to_owned()));
                }
                Some(Output { exporter: Box::new(exporter), shared })
            }
            Err(error) => self.without("OTLP export", &error, error.hint()),
        }
    }

    /// Opens the journal, or warns.
    fn journal(&self, settings: &JournalSettings, has_csv: bool) -> Option<OpenJournal> {
        let JournalSettings { dir, size_mb, keep, .. } = settings;
        let csv = &self.config.csv_layout;
        let beside_csv = self.place.rank_directory.clone().filter(|_| has_csv);
        let directory = dir.clone().or(beside_csv).unwrap_or_else(|| self.place.journal.clone());
        let keep = usize::try_from(*keep).unwrap_or(usize::MAX);
        match dir {
            None if self.place.is_of_layout_run() => {
                self.tell_pruned(prune_runs(&self.place.base, self.run.rank, keep));
            }
            _ => self.tell_pruned(prune(&directory, self.run.rank, keep)),
        }
        let spec = JournalSpec {
            file_bytes: size_mb << 20,
            run: self.run.clone(),
            config: self.config,
            csv,
            storage: Storage::Auto,
        };
        match Journal::create_in(&directory, &spec) {
            Ok(journal) => Some(OpenJournal::new(journal, settings, self.config.pipeline.queue_steps)),
            Err(error) => self.without("journal", &error, error.hint()),
        }
    }

    /// Reports the deletion of the oldest journals, which frees their space for the new one.
    fn tell_pruned(&self, Pruned { removed, failed }: Pruned) {
        let notices = &self.options.notices;
        match &removed[..] {
            [] => {}
            [only] => notices.info(format!("journal: deleted `{}` of an earlier run", only.display())),
            [.., newest] => notices.info(format!(
                "journal: deleted {} journals of earlier runs, the newest is `{}`",
                removed.len(),
                newest.display()
            )),
        }
        if let Some((path, error)) = failed.first() {
            let message = format!("journal: cannot delete `{}` of an earlier run: {error}", path.display());
            notices.warn(message, Some("delete it yourself, or raise `journal.keep`".to_owned()));
        }
    }

    /// Opens the CSV files.
    #[cfg(feature = "csv")]
    fn csv(&mut self, csv: &Csv) -> Option<Box<dyn Exporter>> {
        if let Some(exporter) = self.continued_csv(csv) {
            self.place.moved_to(exporter.directory());
            return Some(Box::new(exporter));
        }
        let directory = self.place.rank_directory.clone()?;
        let ranks = ranks_here(self.run.world_size);
        let exporter = CsvExporter::in_directory(self.config, csv, directory);
        Some(Box::new(exporter.within_budget(ranks).without_repeats(self.run.world_size)))
    }

    #[cfg(not(feature = "csv"))]
    fn csv(&mut self, _csv: &Csv) -> Option<Box<dyn Exporter>> {
        self.not_built("csv")
    }

    #[cfg(feature = "tensorboard")]
    fn events(&self, settings: &TensorBoard) -> Option<Box<dyn Exporter>> {
        let own = || self.place.rank_directory.as_ref().map(|directory| directory.join("tensorboard"));
        let named = settings.dir.as_ref().map(|dir| dir.join(format!("rank{}", self.run.rank)));
        let directory = named.or_else(own)?;
        Some(Box::new(TensorBoardExporter::in_directory(self.config, settings, directory)))
    }

    #[cfg(not(feature = "tensorboard"))]
    fn events(&self, _settings: &TensorBoard) -> Option<Box<dyn Exporter>> {
        self.not_built("tensorboard")
    }

    /// Opens the exporter that appends to an earlier run if requested, or warns.
    #[cfg(feature = "csv")]
    fn continued_csv(&self, csv: &Csv) -> Option<CsvExporter> {
        let window = csv.append_output.filter(|_| !self.place.is_of_layout_run())?;
        let base = self.place.base.as_path();
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
                "set two times around the one at the start of the run directory's name",
            ),
            Err(error) => (with_causes(&error), error.hint()),
        };
        let message = format!("`append_output`: {why}; trainmon creates a new run directory");
        self.options.notices.warn(message, Some(hint.to_owned()));
        None
    }

    /// The monitor's state that an exporter reads. `own` are the exporter's counters.
    #[cfg_attr(
        not(any(feature = "otlp", feature = "prometheus")),
        expect(dead_code, reason = "only OTLP and the scrape page report the monitor's state")
    )]
    fn sources(&self, others: &[Output], own: &Arc<SinkShared>, journal: Option<&OpenJournal>) -> Sources {
        let kept = journal.map(|journal| &journal.shared);
        let sinks = others.iter().map(|output| &output.shared).chain([own]).chain(kept).chain(self.baseline);
        // Live control may enable measurements that the config does not request.
        let is_live = self.config.control.is_some() || self.config.dynamic_on.is_some();
        let switched_on = if is_live { SCRAPE_STATISTICS } else { StatisticSet::EMPTY };
        let measured = |kind: Kind| {
            let of_kind = if kind.is_feature() || kind == Kind::Scalar { StatisticSet::EMPTY } else { switched_on };
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
            parts: Arc::clone(self.parts),
            has_account: true,
        }
    }
}

fn queue_gauge(waiting: Arc<AtomicUsize>, capacity: usize) -> QueueGauge {
    QueueGauge { length: Arc::new(move || waiting.load(Ordering::Relaxed)), capacity }
}
