//! For training loops whose processes talk over MPI: feature `mpi`.
//!
//! Collective operations are guarded with the agent's own
//! [`CollectiveGroup`](trainmon_agent::CollectiveGroup); `examples/data_parallel` shows a whole loop. Here is what needs
//! MPI itself: [`MpiRankStore`], over which the ranks agree on changes while the training runs.

mod outbox;
mod rank_store;

pub use rank_store::{MpiRankStore, MpiRankStoreError};
