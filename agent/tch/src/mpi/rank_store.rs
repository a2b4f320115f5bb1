//! The store through which the ranks of an MPI job agree on changes to the plan.

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

/// An error of [`MpiRankStore::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpiRankStoreError {
    /// MPI does not support concurrent calls from the training's thread and the monitor's.
    #[error("MPI runs with thread level `{found:?}`, but the monitor's thread requires `MPI_THREAD_MULTIPLE`")]
    Threading {
        /// The thread level of the running MPI.
        found: Threading,
    },
}

/// A [`RankStore`] that sends messages between the ranks of an MPI communicator, for
/// [`Options::rank_store`](trainmon_agent::Options::rank_store): live control without a shared directory.
///
/// The ranks of the communicator must be the monitor's ranks (OpenMPI's variables give them for `MPI_COMM_WORLD`). The
/// messages use a separate communicator, so they never mix with the training's. A call waits for another rank only
/// while both transfer a text above the library's eager limit (some kilobytes). Shut the monitor down before you
/// finalize MPI; after that, every call returns an error.
///
/// Memory: one text in transit and one waiting for each receiving rank. The communicator is left to `MPI_Finalize`,
/// because freeing it is a collective operation.
pub struct MpiRankStore {
    link: ManuallyDrop<SimpleCommunicator>,
    /// One per other rank on rank 0, and one for rank 0 on every other rank.
    outboxes: Vec<Outbox>,
    /// The latest leader state: its own on rank 0, the received one on every other rank.
    leader_state: Option<String>,
    /// The latest state of each rank; only on rank 0.
    rank_states: HashMap<u32, String>,
}

// SAFETY: the only fields that are not `Send` are MPI's handles: the communicator and requests. With
// MPI_THREAD_MULTIPLE, which `new` requires, any thread may use them, and `&mut self` limits that to one at a time (MPI
// 4.0, 11.6).
#[expect(unsafe_code, reason = "MPI's handles are pointers, which are not `Send` by default")]
unsafe impl Send for MpiRankStore {}

impl MpiRankStore {
    /// Creates a store for the ranks of `world`. Every rank must call it at the same point: it duplicates the
    /// communicator.
    ///
    /// # Errors
    /// MPI was not started with `MPI_THREAD_MULTIPLE` (`mpi::initialize_with_threading`). In this case no rank waits
    /// for another.
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

    /// Sends `text` to all receivers of this rank.
    fn send(&mut self, text: &str) -> io::Result<()> {
        check_alive()?;
        for outbox in &mut self.outboxes {
            outbox.put(&self.link, text);
        }
        Ok(())
    }

    /// Receives messages that have arrived, and sends waiting ones.
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

/// Returns the sender and the text of an arrived message.
fn received(found: (Message, Status)) -> io::Result<(u32, String)> {
    let (bytes, status) = found.matched_receive_vec::<u8>();
    let text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((u32::try_from(status.source_rank()).map_err(io::Error::other)?, text))
}

/// Fails after `MPI_Finalize`, when a call of MPI would abort the process.
fn check_alive() -> io::Result<()> {
    if is_finalized() { Err(io::Error::other("MPI is finalized")) } else { Ok(()) }
}
