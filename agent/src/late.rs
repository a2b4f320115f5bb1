//! Numbers of a step that arrive after its end, or never.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trainmon_core::Step;
use trainmon_service::{Notice, Severity};

/// Counters publish no other memory.
const COUNT: Ordering = Ordering::Relaxed;

trainmon_core::named_enum! {
    /// A number that a [`PendingStep`](crate::PendingStep) may provide after the step's end. Messages use its name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LateNumber: name {
        /// The global gradient norm, combined from the parts of several ranks.
        GradNorm = "global gradient norm",
        /// The global gradient norm of the framework.
        FrameworkGradNorm = "framework's gradient norm",
        /// The loss, computed by a device.
        Loss = "loss",
    }
}

impl LateNumber {
    /// The suggested fix if it arrives too late.
    fn hint(self) -> &'static str {
        match self {
            Self::GradNorm => {
                "a step waits for its norm for three quarters of `queue_steps` later steps, at most 32: raise \
                 `queue_steps`, and watch every rank"
            }
            Self::Loss | Self::FrameworkGradNorm => {
                "the device is several steps behind: measure less, or raise `step_interval`"
            }
        }
    }
}

/// The numbers of one step that are still expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Awaited([bool; LateNumber::ALL.len()]);

impl Awaited {
    pub(crate) fn set(&mut self, number: LateNumber, is_awaited: bool) {
        self.0[number as usize] = is_awaited;
    }

    pub(crate) fn contains(self, number: LateNumber) -> bool {
        self.0[number as usize]
    }
}

/// The number of steps that lack an expected number. `Display` gives a part of a sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingNumbers([u64; LateNumber::ALL.len()]);

impl MissingNumbers {
    /// The number of steps that lack this number.
    pub fn of(self, number: LateNumber) -> u64 {
        self.0[number as usize]
    }

    /// The total of missing numbers.
    pub fn total(self) -> u64 {
        self.0.iter().sum()
    }

    /// The suggested fix for the first missing number.
    pub(crate) fn hint(self) -> &'static str {
        let missing = LateNumber::ALL.into_iter().find(|&number| self.of(number) > 0);
        missing.unwrap_or(LateNumber::GradNorm).hint()
    }
}

impl fmt::Display for MissingNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = LateNumber::ALL.into_iter().filter(|&number| self.of(number) > 0);
        for (place, number) in missing.enumerate() {
            let (comma, steps) = (if place == 0 { "" } else { ", " }, self.of(number));
            write!(f, "{comma}the {} of {steps} step{}", number.name(), if steps == 1 { "" } else { "s" })?;
        }
        Ok(())
    }
}

/// The counters behind [`MissingNumbers`], and the messages already given.
#[derive(Debug, Default)]
pub(crate) struct MissingCounts {
    counts: [AtomicU64; LateNumber::ALL.len()],
    told: [AtomicBool; LateNumber::ALL.len()],
}

impl MissingCounts {
    /// Counts a step that is delivered without these numbers. Returns a notice once per number; a sum over ranks that was
    /// abandoned early was already reported.
    pub(crate) fn leave_without(&self, step: Step, awaited: Awaited, is_overdue: bool) -> Vec<Notice> {
        let mut notices = Vec::new();
        for number in LateNumber::ALL.into_iter().filter(|&number| awaited.contains(number)) {
            self.counts[number as usize].fetch_add(1, COUNT);
            let is_new = is_overdue || number != LateNumber::GradNorm;
            if is_new && !self.told[number as usize].swap(true, COUNT) {
                notices.push(Notice {
                    severity: Severity::Warning,
                    message: format!(
                        "step {} is delivered without its {}, which arrived too late; such steps are counted, \
                         training continues",
                        step.0,
                        number.name()
                    ),
                    hint: Some(number.hint().to_owned()),
                });
            }
        }
        notices
    }

    pub(crate) fn snapshot(&self) -> MissingNumbers {
        MissingNumbers(self.counts.each_ref().map(|count| count.load(COUNT)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_number_is_counted_and_those_that_are_overdue_are_told_once() {
        let counts = MissingCounts::default();
        let mut awaited = Awaited::default();
        assert!(counts.leave_without(Step(0), awaited, true).is_empty());
        awaited.set(LateNumber::GradNorm, true);
        assert!(counts.leave_without(Step(1), awaited, false).is_empty(), "whoever gave it up has said so");
        let said = counts.leave_without(Step(2), awaited, true);
        assert!(said[0].message.contains("step 2 is delivered without its global gradient norm"), "{said:?}");
        awaited.set(LateNumber::Loss, true);
        let said = counts.leave_without(Step(3), awaited, true);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].message.contains("its loss"), "{said:?}");
        awaited.set(LateNumber::GradNorm, false);
        assert!(counts.leave_without(Step(4), awaited, true).is_empty());
        let missing = counts.snapshot();
        assert_eq!((missing.total(), missing.of(LateNumber::GradNorm)), (5, 3));
        assert_eq!(missing.to_string(), "the global gradient norm of 3 steps, the loss of 2 steps");
    }
}
