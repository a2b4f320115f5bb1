//! The connections to the page. A new connection replaces the oldest one beyond the limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// The maximum number of connections without a request. Scrapers send their request at once, so the oldest of so many
/// will not.
pub(crate) const MAX_SILENT: usize = 64;
/// The maximum number of connections being answered: several scrapers and a few people. Each may hold a page in memory
/// (3 MB for 20,000 series).
pub(crate) const MAX_ANSWERED: usize = 32;
/// The maximum number of open live pages, each with one connection.
pub(crate) const MAX_STREAMS: usize = 16;

/// The open connections, each kind oldest first. A new connection never waits: beyond the limit, the oldest is closed.
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

/// One connection's slot, released when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Mutex<Connections>>,
    number: u64,
}

impl Connections {
    /// Reserves a slot for a new connection. `serve` starts the task that serves it.
    pub(crate) fn admit(connections: &Arc<Mutex<Self>>, serve: impl FnOnce(Place) -> AbortHandle) {
        let mut known = lock(connections);
        let number = known.next;
        known.next += 1;
        let connection = serve(Place { connections: Arc::clone(connections), number });
        push(&mut known.silent, MAX_SILENT, Connection { number, connection });
    }

    /// Closes event streams, and connections without a request.
    pub(crate) fn end_unanswered(connections: &Mutex<Self>) {
        let connections = lock(connections);
        for waiting in connections.streams.iter().chain(&connections.silent) {
            waiting.connection.abort();
        }
    }
}

impl Place {
    /// Records that the connection has sent a request and will be answered.
    pub(crate) fn has_asked(&self) {
        let mut connections = lock(&self.connections);
        let place = connections.silent.iter().position(|connection| connection.number == self.number);
        if let Some(connection) = place.and_then(|place| connections.silent.remove(place)) {
            push(&mut connections.answered, MAX_ANSWERED, connection);
        }
    }

    /// Records that the connection is an event stream, which has its own limit.
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
        // Ends when the runtime polls the task; its slot is released then.
        oldest.connection.abort();
    }
}

fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}
