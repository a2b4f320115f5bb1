//! Texts on their way to one rank: one at a time, and of those that wait the newest.

use std::mem::ManuallyDrop;

use mpi::Tag;
use mpi::request::{Request, StaticScope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, Destination as _};

/// What is sent to one rank. Dropping it leaves a text under way to MPI: its memory is not given back.
pub(super) struct Outbox {
    rank: i32,
    tag: Tag,
    under_way: Option<Request<'static, [u8], StaticScope>>,
    waiting: Option<Box<[u8]>>,
}

impl Outbox {
    pub(super) fn new(rank: i32, tag: Tag) -> Self {
        Self { rank, tag, under_way: None, waiting: None }
    }

    /// Sends `text`, at once or when the one before has gone; it replaces one that waits. Never waits itself.
    pub(super) fn put(&mut self, link: &SimpleCommunicator, text: &str) {
        self.waiting = Some(text.as_bytes().into());
        self.advance(link);
    }

    /// Sends on what waits, if it can go.
    pub(super) fn advance(&mut self, link: &SimpleCommunicator) {
        if let Some(request) = self.under_way.take() {
            match request.test_with_data() {
                Ok((_, sent)) => give_back(sent),
                Err(request) => {
                    self.under_way = Some(request);
                    return;
                }
            }
        }
        if let Some(text) = self.waiting.take() {
            let text: &'static [u8] = Box::leak(text);
            self.under_way = Some(link.process_at_rank(self.rank).immediate_send_with_tag(StaticScope, text, self.tag));
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // MPI may still read the text, and a request that is dropped on its own panics.
        let _under_way = ManuallyDrop::new(self.under_way.take());
    }
}

/// Frees a text that has been sent.
#[expect(unsafe_code, reason = "MPI reads the text after the call that starts sending it has returned")]
fn give_back(sent: &'static [u8]) {
    // SAFETY: `sent` comes from `Box::leak` in `advance`, the only place that starts a request. Its only other holders were
    // the request, which is consumed, and MPI, which does not read the buffer of a completed operation (MPI 4.0, 3.7.3).
    drop(unsafe { Box::from_raw(std::ptr::from_ref(sent).cast_mut()) });
}
