//! The journal of a running monitor.
//!
//! `in_step` appends a step in the training thread before control returns to the training, so that a completed step is in
//! the kernel's memory. If that could hang or costs too much (`watch`), and for alerts, the journal is an exporter
//! (`exporter`) with its own queue, thread and counters. The worker passes steps to it before other exporters. Both share
//! `appender`; `flush` is the thread that waits for the disk.

mod appender;
#[cfg(feature = "otlp")]
mod backlog;
mod exporter;
mod flush;
mod in_step;
mod watch;

use std::sync::Arc;

use parking_lot::Mutex;
use trainmon_core::TensorTable;
use trainmon_core::config::Journal as Settings;
use trainmon_exporters::JournalSource;
use trainmon_journal::Journal;
use trainmon_service::{Notice, Notices, Severity};

use self::appender::Appender;
#[cfg(feature = "otlp")]
pub(crate) use self::backlog::JournalBacklog;
use self::exporter::JournalExporter;
use self::flush::{FlushCadence, Flusher};
pub(crate) use self::in_step::InStepJournal;
use self::watch::AppendWatch;
use crate::sink_shared::{Output, SinkShared};

/// The `sink` label of the journal's counters.
pub(crate) const JOURNAL: &str = "journal";

/// An open journal file and its counters.
pub(crate) struct OpenJournal {
    pub(crate) journal: Journal,
    pub(crate) shared: Arc<SinkShared>,
    pub(crate) source: JournalSource,
    flush_steps: u64,
    in_step_budget: f64,
}

impl OpenJournal {
    /// Adds empty counters to a new file.
    pub(crate) fn new(journal: Journal, settings: &Settings, queue_steps: usize) -> Self {
        let shared = Arc::new(SinkShared::new(JOURNAL, queue_steps));
        let (flush_steps, in_step_budget) = (settings.flush_steps, settings.in_step_share());
        Self { journal, shared, source: JournalSource::default(), flush_steps, in_step_budget }
    }

    /// The path of the file.
    pub(crate) fn locations(&self) -> Vec<String> {
        vec![self.journal.path().display().to_string()]
    }

    /// Starts the thread that flushes. Returns the journal's sink and, if the training thread may append, its access.
    pub(crate) fn start(
        self,
        tensors: TensorTable,
        notices: &Notices,
    ) -> Result<(Output, Option<InStepJournal>), std::io::Error> {
        let locations = self.locations();
        let Self { journal, shared, source, flush_steps, in_step_budget } = self;
        let (flusher, flush_clock) = Flusher::start(journal.view(), source.clone(), notices.clone())?;
        // Flushes the start of the file, which is required to read the rest.
        flusher.ask();
        let is_wanted = in_step_budget > 0.0;
        let may_hang = journal.may_hang();
        let flushes = FlushCadence::new(flush_steps, flusher);
        let appender = Arc::new(Mutex::new(Appender::new(journal, source, flushes)));
        let in_step = (is_wanted && !may_hang).then(|| {
            let watch = AppendWatch::new(in_step_budget);
            InStepJournal::new(Arc::clone(&appender), Arc::clone(&shared), tensors, flush_clock, watch)
        });
        if is_wanted && may_hang {
            notices.say(&Notice {
                severity: Severity::Info,
                message: format!(
                    "journal: `{}` is not on a local disk; another thread appends the steps, and a kill can lose \
                     the last ones",
                    locations.concat()
                ),
                hint: Some("set `journal.dir` to a directory on a local disk or tmpfs".to_owned()),
            });
        }
        Ok((Output { exporter: Box::new(JournalExporter::new(appender, locations)), shared }, in_step))
    }
}
