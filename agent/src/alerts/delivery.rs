//! Alerts on their way out of the process: a bounded queue and a thread per carrier, so that none waits for another and
//! the worker waits for none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use trainmon_core::{Alert, AlertBook};

use crate::guard::panic_text;
use crate::notice::Voice;
use crate::priority::step_back;

/// Alerts that may wait for a carrier. A run that has more at once has one cause for them all.
const QUEUE: usize = 256;

/// An alert, ready to leave.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// `{"run", "text", …}` with everything the alert has.
    pub(crate) json: String,
    /// The same as environment variables.
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Letter {
    pub(crate) fn new(alert: &Alert, run: &str) -> Self {
        // An alert has numbers and texts only: nothing JSON could refuse.
        let mut fields = serde_json::Map::new();
        fields.insert("run".to_owned(), run.into());
        // The field chat programs show.
        fields.insert("text".to_owned(), alert.message.clone().into());
        if let Ok(serde_json::Value::Object(own)) = serde_json::to_value(alert) {
            fields.extend(own);
        }
        let phase = if alert.phase == trainmon_core::AlertPhase::Begins { "begins" } else { "ends" };
        let environment = vec![
            ("TRAINMON_ALERT_RUN", run.to_owned()),
            ("TRAINMON_ALERT_RULE", alert.rule.name().to_owned()),
            ("TRAINMON_ALERT_SEVERITY", alert.severity.name().to_owned()),
            ("TRAINMON_ALERT_PHASE", phase.to_owned()),
            ("TRAINMON_ALERT_STEP", alert.step.to_string()),
            ("TRAINMON_ALERT_RANK", alert.rank.to_string()),
            ("TRAINMON_ALERT_SERIES", alert.series.to_string()),
            ("TRAINMON_ALERT_VALUE", alert.value.to_string()),
            ("TRAINMON_ALERT_MESSAGE", alert.message.clone()),
        ];
        Self { json: serde_json::Value::Object(fields).to_string(), environment }
    }
}

/// Why an alert did not get through.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) what: String,
    pub(crate) hint: &'static str,
}

/// Brings alerts somewhere. May take its time.
pub(crate) trait Carrier: Send + 'static {
    /// Brings one. A message on `closing` says until when it may take.
    fn carry(&mut self, letter: &Letter, closing: &Receiver<Instant>) -> Result<(), Failed>;
}

/// A carrier's queue, seen from the worker.
pub(crate) struct Post {
    name: &'static str,
    queue: Sender<Arc<Letter>>,
    close: Sender<Instant>,
    done: Receiver<()>,
    waiting: Arc<AtomicU64>,
    book: Arc<AlertBook>,
    voice: Voice,
}

impl Post {
    /// Starts the carrier's thread.
    pub(crate) fn start(
        name: &'static str,
        mut carrier: impl Carrier,
        book: Arc<AlertBook>,
        voice: Voice,
    ) -> std::io::Result<Self> {
        let (queue, letters) = bounded::<Arc<Letter>>(QUEUE);
        let (close, closing) = bounded(1);
        let (alive, done) = bounded::<()>(0);
        let waiting = Arc::<AtomicU64>::default();
        let (shared, thread_book, thread_voice) = (Arc::clone(&waiting), Arc::clone(&book), voice.clone());
        std::thread::Builder::new().name(format!("trainmon-{name}")).spawn(move || {
            let _alive = alive;
            step_back();
            let mut fails = false;
            for letter in letters {
                let outcome = catch_unwind(AssertUnwindSafe(|| carrier.carry(&letter, &closing)));
                let outcome = outcome.unwrap_or_else(|panic| Err(Failed { what: panic_text(&*panic), hint: "" }));
                // Given up by `close` in the meantime: then it is counted already.
                let counts = shared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
                match outcome {
                    Ok(()) if fails => {
                        fails = false;
                        thread_voice.info(format!("alert {name}: gets through again"));
                    }
                    Ok(()) => {}
                    Err(Failed { what, hint }) => {
                        thread_book.lose(u64::from(counts));
                        if !std::mem::replace(&mut fails, true) {
                            let hint = Some(hint).filter(|hint| !hint.is_empty()).map(str::to_owned);
                            thread_voice.warn(format!("alert {name}: {what}; the alert is lost and counted"), hint);
                        }
                    }
                }
            }
        })?;
        Ok(Self { name, queue, close, done, waiting, book, voice })
    }

    /// Hands an alert over without waiting; one too many is lost, and counted.
    pub(crate) fn send(&self, letter: &Arc<Letter>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if self.queue.try_send(Arc::clone(letter)).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.book.lose(1);
        }
    }

    /// Waits until everything is delivered, until the deadline; what is not is lost, counted and said.
    pub(crate) fn finish(self, deadline: Instant) {
        let Self { name, queue, close, done, waiting, book, voice } = self;
        drop(queue);
        // The only message there ever is, so there is room for it.
        close.try_send(deadline).unwrap_or_default();
        if done.recv_deadline(deadline) != Err(RecvTimeoutError::Disconnected) {
            let left = waiting.swap(0, Ordering::Relaxed);
            book.lose(left);
            voice.warn(format!("alert {name}: {left} alerts were not delivered before the shutdown deadline"), None);
        }
    }
}
