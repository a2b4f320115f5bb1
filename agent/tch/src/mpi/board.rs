//! The board over which the ranks of an MPI job agree on changes of what is measured.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;

use mpi::environment::{is_finalized, threading_support};
use mpi::point_to_point::{Message, Status};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, MatchedReceiveVec as _, Source as _};
use mpi::{Tag, Threading};
use trainmon_agent::Board;

use super::outbox::Outbox;

const SHEET: Tag = 0;
const NOTE: Tag = 1;

/// MPI cannot carry the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpiBoardError {
    /// The monitor's thread calls MPI beside the training's.
    #[error("MPI runs with {found:?}: expected MPI_THREAD_MULTIPLE, for the monitor's thread calls it too")]
    Threading {
        /// What it runs with.
        found: Threading,
    },
}

/// A [`Board`] of messages between the ranks of an MPI communicator, for
/// [`Options::board`](trainmon_agent::Options::board): live control without a directory that all ranks see.
///
/// The ranks of the communicator must be those the monitor goes by (OpenMPI's variables give them for `MPI_COMM_WORLD`). The
/// messages travel in a communicator of their own and meet none of the training's. No call waits for another rank,
/// but for the moment in which both hand over a text beyond the library's eager limit (some kilobytes). Shut the monitor down before MPI is finalized; from then on every call is an error.
///
/// Memory: one text under way and one waiting for each rank it goes to. The communicator is left to `MPI_Finalize`: giving
/// it back is an operation of all ranks.
pub struct MpiBoard {
    link: ManuallyDrop<SimpleCommunicator>,
    /// On rank 0 one for every other rank, elsewhere one for rank 0.
    outboxes: Vec<Outbox>,
    /// The latest sheet: on rank 0 its own, elsewhere as received.
    sheet: Option<String>,
    /// On rank 0: the latest note of each rank.
    notes: HashMap<u32, String>,
}

// SAFETY: what is not `Send` in it are handles of MPI's: the communicator and requests. MPI_THREAD_MULTIPLE, which `new`
// insists on, lets any thread use them, and `&mut self` lets one at a time do so (MPI 4.0, 11.6).
#[expect(unsafe_code, reason = "MPI's handles are pointers, which Rust cannot know to be free of threads")]
unsafe impl Send for MpiBoard {}

impl MpiBoard {
    /// A board for the ranks of `world`. Every rank calls this at the same point: it duplicates the communicator.
    ///
    /// # Errors
    /// MPI was not started with `MPI_THREAD_MULTIPLE` (`mpi::initialize_with_threading`). No rank waits for another then.
    pub fn new(world: &impl Communicator) -> Result<Self, MpiBoardError> {
        match threading_support() {
            Threading::Multiple => {}
            found => return Err(MpiBoardError::Threading { found }),
        }
        let link = ManuallyDrop::new(world.duplicate());
        let outboxes = if link.rank() == 0 {
            (1..link.size()).map(|rank| Outbox::new(rank, SHEET)).collect()
        } else {
            vec![Outbox::new(0, NOTE)]
        };
        Ok(Self { link, outboxes, sheet: None, notes: HashMap::new() })
    }

    /// Puts `text` on its way to whom this rank sends.
    fn send(&mut self, text: &str) -> io::Result<()> {
        check_alive()?;
        for outbox in &mut self.outboxes {
            outbox.put(&self.link, text);
        }
        Ok(())
    }

    /// Takes in what has arrived, and sends on what waits.
    fn advance(&mut self) -> io::Result<()> {
        check_alive()?;
        for outbox in &mut self.outboxes {
            outbox.advance(&self.link);
        }
        let any = self.link.any_process();
        while let Some(found) = any.immediate_matched_probe_with_tag(SHEET) {
            let (_, text) = received(found)?;
            self.sheet = Some(text);
        }
        while let Some(found) = any.immediate_matched_probe_with_tag(NOTE) {
            let (sender, text) = received(found)?;
            self.notes.insert(sender, text);
        }
        Ok(())
    }
}

impl Board for MpiBoard {
    fn put_sheet(&mut self, text: &str) -> io::Result<()> {
        self.send(text)?;
        self.sheet = Some(text.to_owned());
        Ok(())
    }

    fn sheet(&mut self) -> io::Result<Option<String>> {
        self.advance()?;
        Ok(self.sheet.clone())
    }

    fn put_note(&mut self, _rank: u32, text: &str) -> io::Result<()> {
        self.send(text)
    }

    fn note(&mut self, rank: u32) -> io::Result<Option<String>> {
        self.advance()?;
        Ok(self.notes.get(&rank).cloned())
    }
}

/// The sender and the text of a message that is here.
fn received(found: (Message, Status)) -> io::Result<(u32, String)> {
    let (bytes, status) = found.matched_receive_vec::<u8>();
    let text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((u32::try_from(status.source_rank()).map_err(io::Error::other)?, text))
}

/// After the end a call would abort the process.
fn check_alive() -> io::Result<()> {
    if is_finalized() { Err(io::Error::other("MPI is finalized")) } else { Ok(()) }
}
