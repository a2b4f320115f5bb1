//! What the user is told of a receiver: when it stops taking, and when it takes again. In between it is only counted.

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
    /// It puts requests off until they are given up.
    GivesUp {
        lost_points: u64,
    },
}

/// The state of one receiver, and who is told.
pub(crate) struct Status {
    settlement: Arc<dyn DeliveryReport>,
    /// `metrics to http://…`: never with credentials.
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
            State::Waits => format!("{}: works again; what waited is sent", self.target),
            State::Refuses { lost_points } | State::GivesUp { lost_points } => {
                format!("{}: taken again; {lost_points} points were lost", self.target)
            }
        };
        self.settlement.info(&message);
    }

    pub(crate) fn waits(&mut self, why: &str) {
        if !matches!(self.state, State::Waits | State::GivesUp { .. }) {
            self.state = State::Waits;
            let message = format!("{}: {why}; what cannot be sent waits, training goes on", self.target);
            self.settlement.warn(&message, "start the receiver, or check `otlp.endpoint`; it is tried again and again");
        }
    }

    pub(crate) fn refused(&mut self, why: &str, hint: &str, points: u64) {
        if let State::Refuses { lost_points } = &mut self.state {
            *lost_points += points;
            return;
        }
        self.state = State::Refuses { lost_points: points };
        self.settlement.warn(&format!("{}: refused: {why}; losses are counted, training goes on", self.target), hint);
    }

    /// A request was tried for so long.
    pub(crate) fn given_up(&mut self, why: &str, tried: Duration, points: u64) {
        if let State::GivesUp { lost_points } = &mut self.state {
            *lost_points += points;
            return;
        }
        self.state = State::GivesUp { lost_points: points };
        let seconds = tried.as_secs();
        let message =
            format!("{}: given up after {seconds} s: {why}; losses are counted, the next is tried", self.target);
        self.settlement.warn(&message, "look into the receiver's log, or raise `otlp.give_up_s`");
    }

    /// The thread that sends has ended by a fault of its own.
    pub(crate) fn broken(settlement: &dyn DeliveryReport, what: &str) {
        let message = format!("{what}: the sender failed; what it had is lost and counted, training goes on");
        settlement.warn(&message, "this is a fault of trainmon: please report it");
    }

    pub(crate) fn rejected(&mut self, rejected: u64, points: u64, message: &str) {
        if !std::mem::replace(&mut self.rejection_told, true) {
            let message =
                format!("{}: {rejected} of {points} points rejected: {message}; they are counted", self.target);
            self.settlement.warn(&message, "look into the receiver's log; this is said once");
        }
    }
}
