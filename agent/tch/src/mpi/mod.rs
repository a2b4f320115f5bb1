//! Support for training loops whose processes communicate over MPI (feature `mpi`).
//!
//! To guard collective operations, use the agent's [`CollectiveGroup`](trainmon_agent::CollectiveGroup);
//! `examples/data_parallel` shows a whole loop. This module contains the part that requires MPI itself:
//! [`MpiRankStore`], through which the ranks agree on changes during the training.

mod outbox;
mod rank_store;

pub use rank_store::{MpiRankStore, MpiRankStoreError};
