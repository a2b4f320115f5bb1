//! Who is connected to the page, and who makes room: whoever has been there longest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// Connections without a request yet. A scraper sends its request with the connection: one that waits while so many come
/// after it will not.
pub(crate) const MAX_SILENT: usize = 64;
/// Several scrapers and a few people; each may hold a page in memory (3 MB at 20 k series).
pub(crate) const MAX_ANSWERED: usize = 32;

/// The connections there are, each kind oldest first. A newcomer never waits for a place: beyond the most there may be the
/// oldest is cut off.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    silent: VecDeque<Guest>,
    answered: VecDeque<Guest>,
    next: u64,
}

#[derive(Debug)]
struct Guest {
    number: u64,
    connection: AbortHandle,
}

/// One connection's place; given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    guests: Arc<Mutex<Guests>>,
    number: u64,
}

impl Guests {
    /// A place for a connection that has said nothing yet. `serve` starts what serves it.
    pub(crate) fn admit(guests: &Arc<Mutex<Self>>, serve: impl FnOnce(Place) -> AbortHandle) {
        let mut known = lock(guests);
        let number = known.next;
        known.next += 1;
        let connection = serve(Place { guests: Arc::clone(guests), number });
        push(&mut known.silent, MAX_SILENT, Guest { number, connection });
    }
}

impl Place {
    /// The connection has sent a request: it will be answered.
    pub(crate) fn has_asked(&self) {
        let mut guests = lock(&self.guests);
        let place = guests.silent.iter().position(|guest| guest.number == self.number);
        if let Some(guest) = place.and_then(|place| guests.silent.remove(place)) {
            push(&mut guests.answered, MAX_ANSWERED, guest);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut guests = lock(&self.guests);
        guests.silent.retain(|guest| guest.number != self.number);
        guests.answered.retain(|guest| guest.number != self.number);
    }
}

fn push(guests: &mut VecDeque<Guest>, most: usize, guest: Guest) {
    guests.push_back(guest);
    if guests.len() > most
        && let Some(oldest) = guests.pop_front()
    {
        // Ends when the runtime comes to it, not here: its place is dropped then.
        oldest.connection.abort();
    }
}

fn lock(guests: &Mutex<Guests>) -> MutexGuard<'_, Guests> {
    guests.lock().unwrap_or_else(PoisonError::into_inner)
}
