//! How long the end of a run may wait. Ctrl-C during the wait shortens it.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;

/// When every wait of this process ends, regardless of its own deadline. Global, because signals are per process.
static LIMIT: Mutex<Option<Instant>> = Mutex::new(None);

/// The interval between two checks of [`LIMIT`].
const LOOK: Duration = Duration::from_millis(50);

/// Ends every wait after at most `long`: current waits, and those that start before [`wait_as_usual`].
pub fn wait_at_most(long: Duration) {
    let limit = Instant::now() + long;
    let mut known = LIMIT.lock();
    *known = Some(known.map_or(limit, |earlier| earlier.min(limit)));
}

/// Restores the waits' own deadlines.
pub fn wait_as_usual() {
    *LIMIT.lock() = None;
}

/// Receives from a channel until the deadline, or the moment that [`wait_at_most`] sets meanwhile.
///
/// # Errors
/// As for `recv_deadline`: the time is over, or all senders are gone. A value that is already in the channel is always
/// returned.
pub fn receive_by<T>(channel: &Receiver<T>, deadline: Instant) -> Result<T, RecvTimeoutError> {
    loop {
        let limit = LIMIT.lock().map_or(deadline, |limit| limit.min(deadline));
        let now = Instant::now();
        let received = channel.recv_deadline(limit.min(now + LOOK));
        if !matches!(received, Err(RecvTimeoutError::Timeout)) || now >= limit {
            return received;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_under_way_ends_when_the_user_has_no_patience_left() {
        let (give, take) = crossbeam_channel::bounded::<()>(1);
        let far = Instant::now() + Duration::from_hours(1);
        let waiting = std::thread::Builder::new().name("waiting".to_owned());
        let waiting = waiting.spawn(move || (receive_by(&take, far), take)).expect("there is room for a thread");
        wait_at_most(Duration::ZERO);
        let (ended, take) = waiting.join().expect("it does not panic");
        assert_eq!(ended, Err(RecvTimeoutError::Timeout));
        give.send(()).expect("there is room");
        assert_eq!(receive_by(&take, far), Ok(()), "what is there already is given");
        wait_as_usual();
        drop(give);
        assert_eq!(receive_by(&take, far), Err(RecvTimeoutError::Disconnected));
        assert_eq!(receive_by(&crossbeam_channel::never::<()>(), Instant::now()), Err(RecvTimeoutError::Timeout));
    }
}
