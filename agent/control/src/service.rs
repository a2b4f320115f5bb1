//! Handles control requests: texts in, answers out, independent of HTTP.

use crossbeam_channel::{Sender, TrySendError};
use serde::Serialize;
use serde_json::{Value, json};
use trainmon_core::LedgerSnapshot;
use trainmon_core::config::{CaptureOnDemand, CaptureRequest, ConfigErrors, PlanChange, Window};

use super::capture_requests;
use super::change_request::{Change, ChangeIds, ChangeRequest, EmptyWindow, MAX_WAITING_CHANGES};
use super::progress::ProgressLog;
use super::status::Sources;
use crate::captures::AskedBy;

/// Handles requests.
pub(super) struct ControlService {
    pub(super) sources: Sources,
    pub(super) progress_log: ProgressLog,
    requests: Sender<ChangeRequest>,
    numbers: ChangeIds,
    captures: Option<CaptureOnDemand>,
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The change is invalid.
    #[error("{}", errors.to_string())]
    Change { errors: ConfigErrors },
    /// The change would measure nothing.
    #[error(transparent)]
    EmptyWindow(#[from] EmptyWindow),
    /// The front would continue with the old targets.
    #[error("key `targets`: this front cannot change targets during the training")]
    FixedTargets,
    /// The capture is impossible.
    #[error("cannot capture: {why}")]
    NoCapture { why: String },
    /// The capture request is invalid.
    #[error("{}", errors.to_string())]
    Capture { errors: ConfigErrors },
    /// Too many changes are waiting.
    #[error("too many changes: {MAX_WAITING_CHANGES} are already waiting")]
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
                "run `trainmon ctl status` for the current step and the captures so far; the config key `capture` sets the limits"
                    .to_owned()
            }
            Self::EmptyWindow(EmptyWindow::Over { .. }) => "set a later `stop_step`, or null for none".to_owned(),
            Self::EmptyWindow(EmptyWindow::NoneCounted) => {
                "set a number of steps above 0, or use `pause` to stop measuring".to_owned()
            }
            Self::FixedTargets => "set `targets` in the config and restart the training".to_owned(),
            Self::TooMany => "wait until they have taken effect; `status` lists them".to_owned(),
            Self::Over => "nothing can be changed after the end of the training".to_owned(),
        }
    }
}

impl ControlService {
    pub(super) fn new(
        sources: Sources,
        progress_log: ProgressLog,
        requests: Sender<ChangeRequest>,
        numbers: ChangeIds,
        captures: Option<CaptureOnDemand>,
    ) -> Self {
        Self { sources, progress_log, requests, numbers, captures }
    }

    /// Returns the status.
    pub(super) fn status(&self) -> Value {
        to_value(&self.sources.status(&self.progress_log))
    }

    /// Changes what is measured.
    pub(super) fn set(&self, text: &str) -> Result<Value, Refusal> {
        let change = PlanChange::parse(text, "request").map_err(|errors| Refusal::Change { errors })?;
        if change.targets.is_some() && !self.sources.live.follows_targets() {
            return Err(Refusal::FixedTargets);
        }
        if change.restarts_window() {
            let live = &self.sources.live;
            // The effect of earlier changes on the rest is known only when this one is due, so it is checked again
            // then.
            let rest = if self.progress_log.is_settled() { live.plan().window } else { Window::default() };
            EmptyWindow::of(change.window.applied_to(rest), live.step().0 + 1)?;
        }
        let what = format!("set {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
        self.request(what, Change::Set(change))
    }

    /// Stops measuring.
    pub(super) fn pause(&self) -> Result<Value, Refusal> {
        self.request("pause".to_owned(), Change::Pause)
    }

    /// Resumes measuring.
    pub(super) fn resume(&self) -> Result<Value, Refusal> {
        self.request("resume".to_owned(), Change::Resume)
    }

    /// Captures steps.
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

    /// The current counts, for [`is_delivered`](Self::is_delivered).
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
            Ok(()) => Ok(
                json!({"id": id, "hint": "GET /status lists it under `changes`, with the step at which it takes effect"}),
            ),
            Err(TrySendError::Full(_)) => Err(Refusal::TooMany),
            Err(TrySendError::Disconnected(_)) => Err(Refusal::Over),
        }
    }
}

fn with_example(errors: &ConfigErrors, example: &str) -> String {
    let mut hints: Vec<String> = errors.errors.iter().filter_map(|error| error.hint.clone()).collect();
    hints.dedup();
    hints.push(format!("example: {example}"));
    hints.join("; ")
}

/// Converts a value to JSON. The types here have string keys and finite numbers only.
fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| json!({"error": error.to_string()}))
}
