//! Where requests are understood: texts in, answers out. Knows nothing of HTTP.

use crossbeam_channel::{Sender, TrySendError};
use serde::Serialize;
use serde_json::{Value, json};
use trainmon_core::LedgerSnapshot;
use trainmon_core::config::{CaptureOnDemand, CaptureRequest, ConfigErrors, PlanChange, Window};

use super::capture_requests;
use super::change_request::{Change, ChangeIds, ChangeRequest, EmptyWindow, MAX_WAITING_CHANGES};
use super::progress::ProgressBook;
use super::status::Sources;
use crate::captures::AskedBy;

/// Takes requests.
pub(super) struct ControlService {
    pub(super) sources: Sources,
    pub(super) book: ProgressBook,
    requests: Sender<ChangeRequest>,
    numbers: ChangeIds,
    captures: Option<CaptureOnDemand>,
}

/// A request that is not fulfilled.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The change makes no sense.
    #[error("{}", errors.to_string())]
    Change { errors: ConfigErrors },
    /// It would measure nothing.
    #[error(transparent)]
    EmptyWindow(#[from] EmptyWindow),
    /// The front would go on with the old targets.
    #[error("key `targets`: this front cannot change its targets while it runs")]
    FixedTargets,
    /// No capture can be made.
    #[error("no capture: {why}")]
    NoCapture { why: String },
    /// A request for a capture makes no sense.
    #[error("{}", errors.to_string())]
    Capture { errors: ConfigErrors },
    /// Too many changes wait.
    #[error("{MAX_WAITING_CHANGES} changes wait for their turn")]
    TooMany,
    /// The monitor is shut down.
    #[error("the monitor is shutting down")]
    Over,
}

impl Refusal {
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Change { errors } => {
                with_example(errors, r#"{"targets": ["layers.0"], "step_interval": 10, "ops": ["norm", "max"]}"#)
            }
            Self::Capture { errors } => with_example(errors, r#"{"steps": 2, "level": "mix", "task": "statistics"}"#),
            Self::NoCapture { .. } => {
                "`status` shows the step in progress and the captures made; the config's `capture` sets the limits"
                    .to_owned()
            }
            Self::EmptyWindow(EmptyWindow::Over { .. }) => "give a later `stop_step`, or null for none".to_owned(),
            Self::EmptyWindow(EmptyWindow::NoneCounted) => {
                "give a number of steps; `pause` measures nothing until `resume`".to_owned()
            }
            Self::FixedTargets => "name the targets in the config and start anew".to_owned(),
            Self::TooMany => "wait until they have taken effect: `status` lists them".to_owned(),
            Self::Over => "nothing can be changed any more".to_owned(),
        }
    }
}

impl ControlService {
    pub(super) fn new(
        sources: Sources,
        book: ProgressBook,
        requests: Sender<ChangeRequest>,
        numbers: ChangeIds,
        captures: Option<CaptureOnDemand>,
    ) -> Self {
        Self { sources, book, requests, numbers, captures }
    }

    /// How things are.
    pub(super) fn status(&self) -> Value {
        to_value(&self.sources.status(&self.book))
    }

    /// Other things are measured.
    pub(super) fn set(&self, text: &str) -> Result<Value, Refusal> {
        let change = PlanChange::parse(text, "request").map_err(|errors| Refusal::Change { errors })?;
        if change.targets.is_some() && !self.sources.live.follows_targets() {
            return Err(Refusal::FixedTargets);
        }
        if change.restarts_window() {
            let live = &self.sources.live;
            // What a change under way makes of the rest is known only when this one has its turn: it is looked at again then.
            let rest = if self.book.is_settled() { live.plan().window } else { Window::default() };
            EmptyWindow::of(change.window.applied_to(rest), live.step().0 + 1)?;
        }
        let what = format!("set {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
        self.request(what, Change::Set(change))
    }

    /// Nothing is measured.
    pub(super) fn pause(&self) -> Result<Value, Refusal> {
        self.request("pause".to_owned(), Change::Pause)
    }

    /// Measuring goes on.
    pub(super) fn resume(&self) -> Result<Value, Refusal> {
        self.request("resume".to_owned(), Change::Resume)
    }

    /// Steps are captured.
    pub(super) fn dump(&self, text: &str) -> Result<Value, Refusal> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let refused = |errors| Refusal::Capture { errors };
        let request = CaptureRequest::parse(text, "request").map_err(refused)?;
        let usual = CaptureOnDemand::default();
        let order = self.captures.as_ref().unwrap_or(&usual).order(&request, "request").map_err(refused)?;
        let (step, schedule) = (self.sources.live.step().0, self.sources.live.captures());
        capture_requests::check(self.captures.as_ref(), &order, step, schedule)
            .map_err(|why| Refusal::NoCapture { why })?;
        self.send(capture_requests::request(self.numbers.next(), order, AskedBy::Ctl, step))
    }

    /// How far the books are, for [`is_delivered`](Self::is_delivered).
    pub(super) fn mark(&self) -> LedgerSnapshot {
        self.sources.ledger.snapshot()
    }

    /// Whether everything up to a mark is delivered.
    pub(super) fn is_delivered(&self, mark: LedgerSnapshot) -> bool {
        self.sources.is_delivered(mark)
    }

    fn request(&self, what: String, change: Change) -> Result<Value, Refusal> {
        self.send(ChangeRequest { id: self.numbers.next(), what, change })
    }

    fn send(&self, request: ChangeRequest) -> Result<Value, Refusal> {
        let id = request.id;
        match self.requests.try_send(request) {
            Ok(()) => {
                Ok(json!({"id": id, "hint": "GET /status lists it under `changes` with the step it takes effect at"}))
            }
            Err(TrySendError::Full(_)) => Err(Refusal::TooMany),
            Err(TrySendError::Disconnected(_)) => Err(Refusal::Over),
        }
    }
}

fn with_example(errors: &ConfigErrors, example: &str) -> String {
    let mut hints: Vec<String> = errors.errors.iter().filter_map(|error| error.hint.clone()).collect();
    hints.dedup();
    hints.push(format!("an example: {example}"));
    hints.join("; ")
}

/// A value as JSON. Our own types have string keys and finite numbers only.
fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| json!({"error": error.to_string()}))
}
