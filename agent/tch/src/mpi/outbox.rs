//! Texts for one rank: one is in transit at a time, and only the newest of the waiting ones is kept.

use std::mem::ManuallyDrop;

use mpi::Tag;
use mpi::request::{Request, StaticScope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, Destination as _};

/// The texts for one rank. If it is dropped, the memory of a text in transit is leaked, because MPI may still read it.
pub(super) struct Outbox {
    rank: i32,
    tag: Tag,
    under_way: Option<UnderWay>,
    waiting: Option<Box<[u8]>>,
}

/// A text that MPI may still read.
struct UnderWay {
    request: Request<'static, [u8], StaticScope>,
    /// From [`Box::into_raw`].
    text: *mut [u8],
}

impl Outbox {
    pub(super) fn new(rank: i32, tag: Tag) -> Self {
        Self { rank, tag, under_way: None, waiting: None }
    }

    /// Sends `text` at once, or after the one in transit. It replaces a waiting text. Never blocks.
    pub(super) fn put(&mut self, link: &SimpleCommunicator, text: &str) {
        self.waiting = Some(text.as_bytes().into());
        self.advance(link);
    }

    /// Sends the waiting text if none is in transit.
    pub(super) fn advance(&mut self, link: &SimpleCommunicator) {
        if let Some(UnderWay { request, text }) = self.under_way.take() {
            match request.test() {
                Ok(_) => give_back(text),
                Err(request) => {
                    self.under_way = Some(UnderWay { request, text });
                    return;
                }
            }
        }
        if let Some(text) = self.waiting.take() {
            let text = Box::into_raw(text);
            let peer = link.process_at_rank(self.rank);
            let request = peer.immediate_send_with_tag(StaticScope, lend(text), self.tag);
            self.under_way = Some(UnderWay { request, text });
        }
    }
}

/// Lends a text to a request.
#[expect(unsafe_code, reason = "MPI reads the text after the call that starts sending it has returned")]
fn lend(text: *mut [u8]) -> &'static [u8] {
    // SAFETY: `text` comes from `Box::into_raw` and is never written to. Only `give_back` frees it, when the request
    // that holds this reference is gone.
    unsafe { &*text }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // MPI may still read the text, and dropping an unfinished request panics.
        let _under_way = ManuallyDrop::new(self.under_way.take());
    }
}

/// Frees a text that has been sent.
#[expect(unsafe_code, reason = "MPI reads the text after the call that starts sending it has returned")]
fn give_back(sent: *mut [u8]) {
    // SAFETY: `sent` comes from `Box::into_raw` in `advance` and is freed once. The lent reference is gone with the
    // request, and MPI does not read the buffer of a completed operation (MPI 4.0, 3.7.3).
    drop(unsafe { Box::from_raw(sent) });
}
