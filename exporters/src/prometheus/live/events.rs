//! Server-sent events: what came since the reader's cursor, as it comes.

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

/// Three times a second: smooth for an eye, and a run of 1,000 steps a second costs no more than one of three.
const PERIOD: Duration = Duration::from_millis(333);
/// Without a step the reader is told that all is well otherwise, and how long ago the last one was.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The body of an answer that does not end. It is asked for an event when the one before is written: a reader who does not read
/// has nothing waiting here.
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
    /// From a reader's cursor on. Call it within the server's runtime.
    pub(crate) fn new(page: Arc<PageSource>, live: Arc<LiveRun>, cursor: Cursor) -> Self {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { page, live, ticks, cursor, changes: 0, last: None, is_over: false }
    }

    /// An event, if there is news or the reader has heard nothing for too long.
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

/// JSON has no line ends outside its texts, and escapes them there: one line of data is all of it.
fn event_text(name: &str, data: &impl Serialize) -> Bytes {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    text.extend(json(data));
    text.extend(b"\n\n");
    text.into()
}
