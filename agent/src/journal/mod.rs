//! The journal in a running monitor.
//!
//! A step goes into it before it returns to the host: `in_step` appends in the training thread, so that what has ended is
//! in memory of the kernel. Where that could hang or costs too much (`watch`), and for alerts, the journal is an exporter
//! like any other (`exporter`), with a queue, a thread and books of its own; the worker lets it go first. `appender` is what
//! both ways share, `flush` the thread that waits for the disk.

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
use crate::books::{Output, SinkShared};

/// The `sink` label of the journal's books.
pub(crate) const JOURNAL: &str = "journal";

/// A journal file and the books it will be written with.
pub(crate) struct OpenJournal {
    pub(crate) journal: Journal,
    pub(crate) shared: Arc<SinkShared>,
    pub(crate) source: JournalSource,
    flush_steps: u64,
    in_step_budget: f64,
}

impl OpenJournal {
    /// Empty books for a file just made.
    pub(crate) fn new(journal: Journal, settings: &Settings, queue_steps: usize) -> Self {
        let shared = Arc::new(SinkShared::new(JOURNAL, queue_steps));
        let (flush_steps, in_step_budget) = (settings.flush_steps, settings.in_step_share());
        Self { journal, shared, source: JournalSource::default(), flush_steps, in_step_budget }
    }

    /// Where the file is.
    pub(crate) fn whereabouts(&self) -> Vec<String> {
        vec![self.journal.path().display().to_string()]
    }

    /// Starts the thread that flushes, and gives what the sink is made of and what the training thread appends with.
    pub(crate) fn start(
        self,
        tensors: TensorTable,
        notices: &Notices,
    ) -> Result<(Output, Option<InStepJournal>), std::io::Error> {
        let whereabouts = self.whereabouts();
        let Self { journal, shared, source, flush_steps, in_step_budget } = self;
        let (flusher, flush_clock) = Flusher::start(journal.view(), source.clone(), notices.clone())?;
        // What the file begins with is all that is needed to make sense of the rest.
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
                    "journal: `{}` is on no local disk: steps reach it beside the training, and \
                     after a kill the last ones may be missing",
                    whereabouts.concat()
                ),
                hint: Some("name a directory on a local disk or on tmpfs in `journal.dir`".to_owned()),
            });
        }
        Ok((Output { exporter: Box::new(JournalExporter::new(appender, whereabouts)), shared }, in_step))
    }
}
