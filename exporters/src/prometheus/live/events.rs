//! Server-sent events with the changes since the reader's cursor.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use tokio::time::{Interval, MissedTickBehavior, interval};
use trainmon_history::Cursor;

use super::{LiveRun, json};
use crate::prometheus::page::PageSource;

/// Three times a second looks smooth, and a run of 1,000 steps per second costs no more than one of three.
const PERIOD: Duration = Duration::from_millis(333);
/// The interval of status events while there are no steps.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The body of an endless response. The next event is created when the previous one is written, so nothing accumulates
/// for a slow reader.
#[derive(Debug)]
pub(crate) struct Events {
    page: Arc<PageSource>,
    live: Arc<LiveRun>,
    ticks: Interval,
    cursor: Cursor,
    /// [`LiveRun::changes`] at the last event.
    changes: u64,
    last: Option<Instant>,
    is_over: bool,
}

impl Events {
    /// Starts at a reader's cursor. Call it within the server's runtime.
    pub(crate) fn new(page: Arc<PageSource>, live: Arc<LiveRun>, cursor: Cursor) -> Self {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { page, live, ticks, cursor, changes: 0, last: None, is_over: false }
    }

    /// The next event, if something changed or the heartbeat is due.
    fn next(&mut self, now: Instant) -> Option<Bytes> {
        let changes = self.live.changes();
        if changes != self.changes {
            (self.changes, self.last) = (changes, Some(now));
            let Some(event) = self.live.since(self.cursor, &self.page, now) else {
                self.is_over = true;
                return Some(event_text("reset", &()));
            };
            self.cursor = event.tail.cursor;
            return Some(event_text("tail", &event));
        }
        let is_due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= HEARTBEAT);
        is_due.then(|| {
            self.last = Some(now);
            event_text("status", &self.live.status(&self.page, now))
        })
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let events = self.get_mut();
        loop {
            if events.is_over {
                return Poll::Ready(None);
            }
            ready!(events.ticks.poll_tick(context));
            if let Some(event) = events.next(Instant::now()) {
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
        }
    }
}

/// Formats an event. JSON has no line ends outside its texts and escapes them there, so it is one line of data.
fn event_text(name: &str, data: &impl Serialize) -> Bytes {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    text.extend(json(data));
    text.extend(b"\n\n");
    text.into()
}
