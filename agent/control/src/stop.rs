//! Ending the training on all ranks at the same step, because an alert of one of them asks for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::change_request::{Change, ChangeIds, ChangeRequest};

/// Whether an alert of this rank asks the training to end.
pub type WantsStop = Arc<dyn Fn() -> bool + Send + Sync>;

/// Between two attempts, of which the first fails when a rank does not answer; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Rank 0's part: makes a request of it, until the ranks have agreed.
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

    /// Of a run whose rank 0 has no alerts.
    pub(super) fn nobody() -> Self {
        Self::new(Arc::new(|| false), ChangeIds::default())
    }

    /// The request, where rank 0 or this other rank asks for it and it was not made lately.
    pub(super) fn request(&mut self, now: Instant, other: Option<u32>) -> Option<ChangeRequest> {
        let asking = if (self.wanted_here)() { Some(0) } else { other };
        let asking = asking.filter(|_| !self.is_agreed && self.next.is_none_or(|next| now >= next))?;
        self.next = Some(now + self.pause);
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        let what = format!("an alert of rank {asking} asks the training to end");
        Some(ChangeRequest { id: self.numbers.next(), what, change: Change::Stop })
    }

    /// The ranks have agreed: it happens.
    pub(super) fn is_agreed(&mut self) {
        self.is_agreed = true;
    }
}
