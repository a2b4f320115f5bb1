//! User messages about a receiver: when it stops accepting and when it accepts again. Failures in between are only
//! counted.

use std::sync::Arc;
use std::time::Duration;

use crate::DeliveryReport;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Works,
    Waits,
    Refuses {
        lost_points: u64,
    },
    /// Requests are deferred until they are abandoned.
    GivesUp {
        lost_points: u64,
    },
}

/// The state of one receiver, and the receiver of messages about it.
pub(crate) struct Status {
    settlement: Arc<dyn DeliveryReport>,
    /// `metrics to http://…`, never with credentials.
    target: String,
    state: State,
    rejection_told: bool,
}

impl Status {
    pub(crate) fn new(settlement: Arc<dyn DeliveryReport>, target: String) -> Self {
        Self { settlement, target, state: State::Works, rejection_told: false }
    }

    pub(crate) fn taken(&mut self) {
        let message = match std::mem::replace(&mut self.state, State::Works) {
            State::Works => return,
            State::Waits => format!("{}: available again; the backlog is being sent", self.target),
            State::Refuses { lost_points } | State::GivesUp { lost_points } => {
                format!("{}: accepted again; points lost: {lost_points}", self.target)
            }
        };
        self.settlement.info(&message);
    }

    pub(crate) fn waits(&mut self, why: &str) {
        if !matches!(self.state, State::Waits | State::GivesUp { .. }) {
            self.state = State::Waits;
            let message = format!("{}: {why}; data waits in the backlog, and training continues", self.target);
            self.settlement.warn(&message, "start the receiver, or check `otlp.endpoint`; trainmon keeps retrying");
        }
    }

    pub(crate) fn refused(&mut self, why: &str, hint: &str, points: u64) {
        if let State::Refuses { lost_points } = &mut self.state {
            *lost_points += points;
            return;
        }
        self.state = State::Refuses { lost_points: points };
        self.settlement
            .warn(&format!("{}: refused: {why}; losses are counted, and training continues", self.target), hint);
    }

    /// Records that a request was abandoned after this time.
    pub(crate) fn given_up(&mut self, why: &str, tried: Duration, points: u64) {
        if let State::GivesUp { lost_points } = &mut self.state {
            *lost_points += points;
            return;
        }
        self.state = State::GivesUp { lost_points: points };
        let seconds = tried.as_secs();
        let message = format!(
            "{}: gave up on a request after {seconds} s: {why}; losses are counted, and later requests are sent",
            self.target
        );
        self.settlement.warn(&message, "check the receiver's log, or raise `otlp.give_up_s`");
    }

    /// Reports that the sender thread has ended because of a bug.
    pub(crate) fn broken(settlement: &dyn DeliveryReport, what: &str) {
        let message = format!("sender of {what} failed; its data is lost and counted, and training continues");
        settlement.warn(&message, "this is a bug in trainmon: please report it");
    }

    pub(crate) fn rejected(&mut self, rejected: u64, points: u64, message: &str) {
        if !std::mem::replace(&mut self.rejection_told, true) {
            let message = format!(
                "{}: receiver rejected {rejected} of {points} points: {message}; they are counted",
                self.target
            );
            self.settlement.warn(&message, "check the receiver's log; trainmon reports this once");
        }
    }
}
