//! Who is connected to the page, and who makes room: whoever has been there longest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// Connections without a request yet. A scraper sends its request with the connection: one that waits while so many come
/// after it will not.
pub(crate) const MAX_SILENT: usize = 64;
/// Several scrapers and a few people; each may hold a page in memory (3 MB at 20 k series).
pub(crate) const MAX_ANSWERED: usize = 32;
/// People with the live page open: each takes one for as long as it is.
pub(crate) const MAX_STREAMS: usize = 16;

/// The connections there are, each kind oldest first. A newcomer never waits for a place: beyond the most there may be the
/// oldest is cut off.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    silent: VecDeque<Connection>,
    answered: VecDeque<Connection>,
    streams: VecDeque<Connection>,
    next: u64,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    connection: AbortHandle,
}

/// One connection's place; given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Mutex<Connections>>,
    number: u64,
}

impl Connections {
    /// A place for a connection that has said nothing yet. `serve` starts what serves it.
    pub(crate) fn admit(connections: &Arc<Mutex<Self>>, serve: impl FnOnce(Place) -> AbortHandle) {
        let mut known = lock(connections);
        let number = known.next;
        known.next += 1;
        let connection = serve(Place { connections: Arc::clone(connections), number });
        push(&mut known.silent, MAX_SILENT, Connection { number, connection });
    }

    /// Cuts off the answers that go on for as long as their reader listens, and connections without a request.
    pub(crate) fn end_unanswered(connections: &Mutex<Self>) {
        let connections = lock(connections);
        for waiting in connections.streams.iter().chain(&connections.silent) {
            waiting.connection.abort();
        }
    }
}

impl Place {
    /// The connection has sent a request: it will be answered.
    pub(crate) fn has_asked(&self) {
        let mut connections = lock(&self.connections);
        let place = connections.silent.iter().position(|connection| connection.number == self.number);
        if let Some(connection) = place.and_then(|place| connections.silent.remove(place)) {
            push(&mut connections.answered, MAX_ANSWERED, connection);
        }
    }

    /// The connection's answer goes on for as long as its reader listens: it takes no place of those that end.
    pub(crate) fn is_stream(&self) {
        let mut connections = lock(&self.connections);
        let place = connections.answered.iter().position(|connection| connection.number == self.number);
        if let Some(connection) = place.and_then(|place| connections.answered.remove(place)) {
            push(&mut connections.streams, MAX_STREAMS, connection);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut connections = lock(&self.connections);
        connections.silent.retain(|connection| connection.number != self.number);
        connections.answered.retain(|connection| connection.number != self.number);
        connections.streams.retain(|connection| connection.number != self.number);
    }
}

fn push(connections: &mut VecDeque<Connection>, most: usize, connection: Connection) {
    connections.push_back(connection);
    if connections.len() > most
        && let Some(oldest) = connections.pop_front()
    {
        // Ends when the runtime comes to it, not here: its place is dropped then.
        oldest.connection.abort();
    }
}

fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}
