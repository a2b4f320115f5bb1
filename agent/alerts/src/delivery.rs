//! Delivery of alerts and findings: a bounded queue and a thread per notifier, so that neither the worker nor another
//! notifier waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use trainmon_core::{Alert, AlertTotals};

use trainmon_service::{Notices, panic_text, receive_by, step_back};

/// Relaxed, because the queue publishes the memory and counters and flags do not.
const COUNT: Ordering = Ordering::Relaxed;

/// A message to deliver.
pub(crate) trait Message: Send + 'static {
    /// The number of things in the message, which are lost with it.
    fn weight(&self) -> u64;

    /// Drops the things beyond `most`, if the message can be split.
    fn cut(&mut self, _most: u64) {}
}

/// A notifier's name in messages, and the limits of its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSpec {
    /// The thread's name without the prefix `trainmon-`.
    pub(crate) thread: &'static str,
    /// The notifier's name in messages.
    pub(crate) name: &'static str,
    /// The plural noun for its things.
    pub(crate) things: &'static str,
    /// The maximum number of queued messages.
    pub(crate) messages: usize,
    /// The maximum number of queued things, including the message being delivered.
    pub(crate) most: u64,
}

/// An alert, formatted for delivery.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    /// `{"run", "text", …}` with all fields of the alert.
    pub(crate) json: String,
    /// The same fields as environment variables.
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Message for Arc<Payload> {
    fn weight(&self) -> u64 {
        1
    }
}

impl Payload {
    /// Formats an alert. `ranks`: the ranks that the alert is about, in a job of several ranks.
    pub(crate) fn new(alert: &Alert, run: &str, ranks: Option<&[u32]>) -> Self {
        // An alert contains only numbers and texts, which always serialize.
        let mut fields = serde_json::Map::new();
        fields.insert("run".to_owned(), run.into());
        // The field that chat programs show.
        fields.insert("text".to_owned(), alert.message.clone().into());
        if let Ok(serde_json::Value::Object(own)) = serde_json::to_value(alert) {
            fields.extend(own);
        }
        if let Some(ranks) = ranks {
            fields.insert("ranks".to_owned(), ranks.into());
        }
        let listed = ranks.unwrap_or(&[alert.rank.0]).iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let environment = vec![
            ("TRAINMON_ALERT_RUN", run.to_owned()),
            ("TRAINMON_ALERT_RULE", alert.rule.name().to_owned()),
            ("TRAINMON_ALERT_SEVERITY", alert.severity.name().to_owned()),
            ("TRAINMON_ALERT_PHASE", alert.phase.name().to_owned()),
            ("TRAINMON_ALERT_STEP", alert.step.to_string()),
            ("TRAINMON_ALERT_RANK", alert.rank.to_string()),
            ("TRAINMON_ALERT_RANKS", listed),
            ("TRAINMON_ALERT_SERIES", alert.series.to_string()),
            ("TRAINMON_ALERT_VALUE", alert.value.to_string()),
            ("TRAINMON_ALERT_MESSAGE", alert.message.clone()),
        ];
        Self { json: serde_json::Value::Object(fields).to_string(), environment }
    }
}

/// Why a delivery failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) what: String,
    pub(crate) hint: &'static str,
}

/// Delivers messages. May block.
pub(crate) trait Notifier: Send + 'static {
    /// The type of message.
    type Message: Message;

    /// Delivers one message. A value from `closing` is the deadline for the delivery.
    fn deliver(&mut self, message: &Self::Message, closing: &Receiver<Instant>) -> Result<(), Failed>;

    /// Returns an action that another thread runs when the notifier is abandoned during a delivery: it ends what would
    /// continue by itself. Does not wait.
    fn emergency_stop(&self) -> Box<dyn FnOnce() + Send> {
        Box::new(|| {})
    }
}

/// The state shared between the notifier's thread and those who wait for it.
struct Shared {
    queue_spec: QueueSpec,
    /// The number of things queued or being delivered; 0 after the notifier is abandoned.
    waiting: AtomicU64,
    given_up: AtomicBool,
    totals: Arc<AlertTotals>,
    notices: Notices,
}

impl Shared {
    /// Subtracts a message from the count; `false` if it was abandoned, and counted, in the meantime.
    fn settle(&self, weight: u64) -> bool {
        self.waiting.fetch_update(COUNT, COUNT, |waiting| waiting.checked_sub(weight)).is_ok()
    }

    fn run<C: Notifier>(&self, mut notifier: C, messages: &Receiver<C::Message>, closing: &Receiver<Instant>) {
        let QueueSpec { name, things, .. } = self.queue_spec;
        let mut fails = false;
        for message in messages {
            if self.given_up.load(COUNT) {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| notifier.deliver(&message, closing)));
            let outcome = outcome.unwrap_or_else(|panic| Err(Failed { what: panic_text(&*panic), hint: "" }));
            let weight = message.weight();
            if !self.settle(weight) {
                return;
            }
            match outcome {
                Ok(()) if std::mem::take(&mut fails) => self.notices.info(format!("{name}: delivery works again")),
                Ok(()) => {}
                Err(Failed { what, hint }) => {
                    self.totals.lose(weight);
                    if !std::mem::replace(&mut fails, true) {
                        let hint = Some(hint).filter(|hint| !hint.is_empty()).map(str::to_owned);
                        self.notices.warn(format!("{name}: {what}; trainmon counts lost {things}"), hint);
                    }
                }
            }
        }
    }
}

/// The worker's side of a notifier's queue.
pub(crate) struct NotifyQueue<P> {
    queue: Sender<P>,
    close: Sender<Instant>,
    done: Receiver<()>,
    emergency_stop: Box<dyn FnOnce() + Send>,
    shared: Arc<Shared>,
    /// Whether a full queue was already reported.
    overflow_told: AtomicBool,
}

impl<P: Message> NotifyQueue<P> {
    /// Starts the notifier's thread. Reports a failure and returns `None`.
    pub(crate) fn open(
        queue_spec: QueueSpec,
        notifier: impl Notifier<Message = P>,
        (totals, notices): (&Arc<AlertTotals>, &Notices),
    ) -> Option<Self> {
        let queue = Self::start(queue_spec, notifier, Arc::clone(totals), notices.clone());
        queue.map_err(|error| notices.warn(format!("{}: cannot start the thread: {error}", queue_spec.name), None)).ok()
    }

    /// Starts the notifier's thread.
    pub(crate) fn start(
        queue_spec: QueueSpec,
        notifier: impl Notifier<Message = P>,
        totals: Arc<AlertTotals>,
        notices: Notices,
    ) -> std::io::Result<Self> {
        let (queue, messages) = bounded(queue_spec.messages);
        let (close, closing) = bounded(1);
        let (alive, done) = bounded::<()>(0);
        let shared =
            Shared { queue_spec, waiting: AtomicU64::new(0), given_up: AtomicBool::new(false), totals, notices };
        let (shared, emergency_stop) = (Arc::new(shared), notifier.emergency_stop());
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name(format!("trainmon-{}", queue_spec.thread)).spawn(move || {
            let _alive = alive;
            step_back();
            of_thread.run(notifier, &messages, &closing);
        })?;
        Ok(Self { queue, close, done, emergency_stop, shared, overflow_told: AtomicBool::new(false) })
    }

    /// Queues a message without waiting. Things that exceed the limits are lost and counted; the first time, a message
    /// about it is returned.
    #[must_use]
    pub(crate) fn send(&self, mut message: P) -> Option<String> {
        let Shared { queue_spec, waiting, totals, .. } = &*self.shared;
        let weight = message.weight();
        // Only the worker adds messages, so the remaining space does not shrink in between.
        message.cut(queue_spec.most.saturating_sub(waiting.load(COUNT)));
        let taken = message.weight();
        waiting.fetch_add(taken, COUNT);
        let is_sent = taken > 0 && self.queue.try_send(message).is_ok();
        if !is_sent {
            waiting.fetch_sub(taken, COUNT);
        }
        let lost = if is_sent { weight - taken } else { weight };
        totals.lose(lost);
        let QueueSpec { name, things, .. } = queue_spec;
        let is_new = lost > 0 && !self.overflow_told.swap(true, COUNT);
        is_new.then(|| format!("{name}: queue full; trainmon drops and counts {things} until there is space"))
    }

    /// Closes the queue; the rest is delivered until the deadline.
    pub(crate) fn close(self, deadline: Instant) -> ClosingQueue {
        let Self { queue, close, done, emergency_stop, shared, overflow_told: _ } = self;
        drop(queue);
        // The only message on this channel, so there is space for it.
        close.try_send(deadline).unwrap_or_default();
        ClosingQueue { done, emergency_stop, shared }
    }
}

/// A notifier that delivers its remaining messages.
pub(crate) struct ClosingQueue {
    done: Receiver<()>,
    emergency_stop: Box<dyn FnOnce() + Send>,
    shared: Arc<Shared>,
}

impl ClosingQueue {
    /// Waits for the deliveries until the deadline. The rest is abandoned, counted and reported.
    pub(crate) fn finish(self, deadline: Instant) {
        let Self { done, emergency_stop, shared } = self;
        if receive_by(&done, deadline) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        shared.given_up.store(true, COUNT);
        let left = shared.waiting.swap(0, COUNT);
        emergency_stop();
        shared.totals.lose(left);
        if left > 0 {
            let QueueSpec { name, things, .. } = shared.queue_spec;
            shared.notices.warn(
                format!("{name}: {left} {things} were not delivered before the shutdown deadline"),
                Some("raise `shutdown_timeout_ms`, or check why the delivery is slow".to_owned()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    impl Message for u64 {
        fn weight(&self) -> u64 {
            *self
        }

        fn cut(&mut self, most: u64) {
            *self = (*self).min(most);
        }
    }

    /// Waits for a word before each delivery.
    struct Slow {
        go: Receiver<()>,
        took: Sender<()>,
        brought: Arc<Mutex<Vec<u64>>>,
    }

    impl Notifier for Slow {
        type Message = u64;

        fn deliver(&mut self, message: &u64, _closing: &Receiver<Instant>) -> Result<(), Failed> {
            self.took.send(()).unwrap_or_default();
            self.go.recv().unwrap_or_default();
            self.brought.lock().unwrap().push(*message);
            Ok(())
        }
    }

    type Fixture =
        (NotifyQueue<u64>, Sender<()>, Receiver<()>, Arc<Mutex<Vec<u64>>>, Arc<AlertTotals>, Arc<Mutex<Vec<String>>>);

    fn post() -> Fixture {
        let (go, waits) = bounded(100);
        let (took, taken) = bounded(100);
        let (brought, totals, said) =
            (Arc::default(), Arc::<AlertTotals>::default(), Arc::<Mutex<Vec<String>>>::default());
        let notifier = Slow { go: waits, took, brought: Arc::clone(&brought) };
        let queue_spec = QueueSpec { thread: "slow", name: "slow", things: "things", messages: 8, most: 10 };
        let ears = Arc::clone(&said);
        let notices = Notices::new(move |notice| ears.lock().unwrap().push(notice.message.clone()));
        let post = NotifyQueue::start(queue_spec, notifier, Arc::clone(&totals), notices).unwrap();
        (post, go, taken, brought, totals, said)
    }

    const PATIENCE: Duration = Duration::from_mins(2);

    #[test]
    fn what_there_is_no_room_for_is_cut_off_and_counted() {
        let (post, go, taken, brought, totals, said) = post();
        let complaints: Vec<String> = [4, 9, 5].into_iter().filter_map(|weight| post.send(weight)).collect();
        taken.recv_timeout(PATIENCE).unwrap();
        drop(go);
        let deadline = Instant::now() + PATIENCE;
        post.close(deadline).finish(deadline);
        assert_eq!((brought.lock().unwrap().as_slice(), totals.snapshot().lost), (&[4, 6][..], 3 + 5));
        assert_eq!(complaints, ["slow: queue full; trainmon drops and counts things until there is space"]);
        assert_eq!(said.lock().unwrap().len(), 0);
    }

    #[test]
    fn what_is_given_up_is_counted_once_and_brought_no_more() {
        let (post, go, taken, brought, totals, said) = post();
        assert!([1, 2, 3].into_iter().all(|weight| post.send(weight).is_none()));
        taken.recv_timeout(PATIENCE).unwrap();
        let closing = post.close(Instant::now());
        let done = closing.done.clone();
        closing.finish(Instant::now());
        assert_eq!(totals.snapshot().lost, 6);
        drop(go);
        assert_eq!(done.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        assert_eq!((brought.lock().unwrap().as_slice(), totals.snapshot().lost), (&[1][..], 6));
        assert_eq!(*said.lock().unwrap(), ["slow: 6 things were not delivered before the shutdown deadline"]);
    }

    #[test]
    fn nothing_is_said_of_a_carrier_that_has_delivered_everything() {
        let (post, _go, _taken, _brought, totals, said) = post();
        // Its thread may still be ending when the deadline has passed already.
        post.close(Instant::now()).finish(Instant::now());
        assert_eq!((totals.snapshot().lost, said.lock().unwrap().len()), (0, 0));
    }
}
