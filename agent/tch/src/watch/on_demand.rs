//! Captures that are requested while the training runs.
//!
//! The monitor agrees on the steps with the other ranks. A step that is due is captured from the end of the previous
//! step to its own end. Without a request, each step only reads one number, and nothing is observed.

use std::sync::Arc;

use trainmon_agent::core::{Step, with_causes};
use trainmon_agent::{CaptureTicket, Monitor};
use trainmon_capture::{CaptureConfig, CaptureDialect, CapturePlace, CapturePlan};

use crate::capture::{Capture, CaptureOptions};

/// The requested captures, including that of the current step if it is due.
pub(super) struct OnDemand {
    monitor: Monitor,
    options: CaptureOptions,
    running: Option<(CaptureTicket, Capture)>,
    /// The last captured step. A further attempt has the same number and is not captured again.
    captured: Option<Step>,
}

impl OnDemand {
    /// Offers captures if the config allows requests for them.
    pub(super) fn new(monitor: Monitor, options: CaptureOptions) -> Self {
        let mut on_demand = Self { monitor, options, running: None, captured: None };
        if on_demand.monitor.has_captures() {
            on_demand.monitor.offer_captures();
            // The first step begins here.
            on_demand.begin_next_step();
        }
        on_demand
    }

    /// Writes the capture of the previous step, and begins one of the new step if it is due.
    pub(super) fn begin_next_step(&mut self) {
        self.end(None);
        let step = self.monitor.step();
        let Some(due) = self.monitor.due_capture().filter(|_| self.captured != Some(step)) else { return };
        self.captured = Some(step);
        let Some(ticket) = self.monitor.begin_capture(&due) else { return };
        match self.begin(&ticket) {
            Ok(capture) => self.running = Some((ticket, capture)),
            Err(why) => self.monitor.end_capture(ticket, None, Some(why), None),
        }
    }

    fn begin(&self, ticket: &CaptureTicket) -> Result<Capture, String> {
        let parsed = CaptureConfig::parse(&ticket.config, "capture", CaptureDialect::Trainmon);
        let plan = Arc::new(CapturePlan::new(parsed.map_err(|errors| errors.to_string())?.config));
        let place = CapturePlace { step: ticket.step.0, rank: Some(u64::from(ticket.rank)) };
        Capture::begin(&plan, place, &self.options, self.monitor.notices()).map_err(|error| with_causes(&error))
    }

    /// Ends the capture of the step. `why` is the reason if it is incomplete.
    pub(super) fn end(&mut self, why: Option<&str>) {
        let Some((ticket, mut capture)) = self.running.take() else { return };
        let written = capture.write().map_err(|error| with_causes(&error));
        let progress = capture.progress();
        let made = capture.finish().map(drop).map_err(|error| with_causes(&error));
        let why = why.map(str::to_owned).or(progress.stopped).or(written.err()).or(made.err());
        self.monitor.end_capture(ticket, Some(progress.bytes), why, None);
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        self.end(Some("the watch was dropped during the step"));
    }
}
