//! Ends the training on all ranks at the same step, on request of an alert.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::change_request::{Change, ChangeIds, ChangeRequest};

/// Whether an alert of this rank requests the end of the training.
pub type WantsStop = Arc<dyn Fn() -> bool + Send + Sync>;

/// The pause before the second attempt, after a rank did not answer; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Rank 0's part: repeats the request until the ranks have agreed.
pub(super) struct StopRequest {
    wanted_here: WantsStop,
    numbers: ChangeIds,
    is_agreed: bool,
    next: Option<Instant>,
    pause: Duration,
}

impl StopRequest {
    pub(super) fn new(wanted_here: WantsStop, numbers: ChangeIds) -> Self {
        Self { wanted_here, numbers, is_agreed: false, next: None, pause: FIRST_PAUSE }
    }

    /// For a run whose rank 0 has no alerts.
    pub(super) fn nobody() -> Self {
        Self::new(Arc::new(|| false), ChangeIds::default())
    }

    /// The request, if rank 0 or another rank wants it and it was not made recently.
    pub(super) fn request(&mut self, now: Instant, other: Option<u32>) -> Option<ChangeRequest> {
        let asking = if (self.wanted_here)() { Some(0) } else { other };
        let asking = asking.filter(|_| !self.is_agreed && self.next.is_none_or(|next| now >= next))?;
        self.next = Some(now + self.pause);
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        let what = format!("end of the training, requested by an alert of rank {asking}");
        Some(ChangeRequest { id: self.numbers.next(), what, change: Change::Stop })
    }

    /// Records that the ranks have agreed.
    pub(super) fn is_agreed(&mut self) {
        self.is_agreed = true;
    }
}
