//! The store over which the ranks of an MPI job agree on changes of what is measured.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;

use mpi::environment::{is_finalized, threading_support};
use mpi::point_to_point::{Message, Status};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, MatchedReceiveVec as _, Source as _};
use mpi::{Tag, Threading};
use trainmon_agent::RankStore;

use super::outbox::Outbox;

const LEADER_STATE: Tag = 0;
const RANK_STATE: Tag = 1;

/// MPI cannot carry the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpiRankStoreError {
    /// The monitor's thread calls MPI beside the training's.
    #[error("MPI runs with {found:?}: expected MPI_THREAD_MULTIPLE, for the monitor's thread calls it too")]
    Threading {
        /// What it runs with.
        found: Threading,
    },
}

/// A [`RankStore`] of messages between the ranks of an MPI communicator, for
/// [`Options::rank_store`](trainmon_agent::Options::rank_store): live control without a directory that all ranks see.
///
/// The ranks of the communicator must be those the monitor goes by (OpenMPI's variables give them for `MPI_COMM_WORLD`). The
/// messages travel in a communicator of their own and meet none of the training's. No call waits for another rank,
/// but for the moment in which both hand over a text beyond the library's eager limit (some kilobytes). Shut the monitor down before MPI is finalized; from then on every call is an error.
///
/// Memory: one text under way and one waiting for each rank it goes to. The communicator is left to `MPI_Finalize`: giving
/// it back is an operation of all ranks.
pub struct MpiRankStore {
    link: ManuallyDrop<SimpleCommunicator>,
    /// On rank 0 one for every other rank, elsewhere one for rank 0.
    outboxes: Vec<Outbox>,
    /// The latest leader state: on rank 0 its own, elsewhere as received.
    leader_state: Option<String>,
    /// On rank 0: the latest rank state of each rank.
    rank_states: HashMap<u32, String>,
}

// SAFETY: what is not `Send` in it are handles of MPI's: the communicator and requests. MPI_THREAD_MULTIPLE, which `new`
// insists on, lets any thread use them, and `&mut self` lets one at a time do so (MPI 4.0, 11.6).
#[expect(unsafe_code, reason = "MPI's handles are pointers, which Rust cannot know to be free of threads")]
unsafe impl Send for MpiRankStore {}

impl MpiRankStore {
    /// A store for the ranks of `world`. Every rank calls this at the same point: it duplicates the communicator.
    ///
    /// # Errors
    /// MPI was not started with `MPI_THREAD_MULTIPLE` (`mpi::initialize_with_threading`). No rank waits for another then.
    pub fn new(world: &impl Communicator) -> Result<Self, MpiRankStoreError> {
        match threading_support() {
            Threading::Multiple => {}
            found => return Err(MpiRankStoreError::Threading { found }),
        }
        let link = ManuallyDrop::new(world.duplicate());
        let outboxes = if link.rank() == 0 {
            (1..link.size()).map(|rank| Outbox::new(rank, LEADER_STATE)).collect()
        } else {
            vec![Outbox::new(0, RANK_STATE)]
        };
        Ok(Self { link, outboxes, leader_state: None, rank_states: HashMap::new() })
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
        while let Some(found) = any.immediate_matched_probe_with_tag(LEADER_STATE) {
            let (_, text) = received(found)?;
            self.leader_state = Some(text);
        }
        while let Some(found) = any.immediate_matched_probe_with_tag(RANK_STATE) {
            let (sender, text) = received(found)?;
            self.rank_states.insert(sender, text);
        }
        Ok(())
    }
}

impl RankStore for MpiRankStore {
    fn put_leader_state(&mut self, text: &str) -> io::Result<()> {
        self.send(text)?;
        self.leader_state = Some(text.to_owned());
        Ok(())
    }

    fn leader_state(&mut self) -> io::Result<Option<String>> {
        self.advance()?;
        Ok(self.leader_state.clone())
    }

    fn put_rank_state(&mut self, _rank: u32, text: &str) -> io::Result<()> {
        self.send(text)
    }

    fn rank_state(&mut self, rank: u32) -> io::Result<Option<String>> {
        self.advance()?;
        Ok(self.rank_states.get(&rank).cloned())
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
