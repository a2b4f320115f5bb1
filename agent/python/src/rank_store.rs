//! The store for the agreement of ranks, implemented by a Python object with `put_leader_state`, `leader_state`,
//! `put_rank_state` and `rank_state`.

use std::io;

use pyo3::prelude::*;
use trainmon_agent::RankStore;

/// A store that calls Python from one of the monitor's threads.
pub(crate) struct PyRankStore(Py<PyAny>);

impl PyRankStore {
    pub(crate) fn new(rank_store: Py<PyAny>) -> Self {
        Self(rank_store)
    }

    fn call<T>(&self, body: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        // Do not call an interpreter that is ending.
        let called = Python::try_attach(|py| body(self.0.bind(py)));
        match called {
            Some(outcome) => outcome.map_err(|error| io::Error::other(error.to_string())),
            None => Err(io::Error::other("the interpreter is ending")),
        }
    }
}

impl RankStore for PyRankStore {
    fn put_leader_state(&mut self, text: &str) -> io::Result<()> {
        self.call(|rank_store| rank_store.call_method1("put_leader_state", (text,)).map(drop))
    }

    fn leader_state(&mut self) -> io::Result<Option<String>> {
        self.call(|rank_store| rank_store.call_method0("leader_state")?.extract())
    }

    fn put_rank_state(&mut self, rank: u32, text: &str) -> io::Result<()> {
        self.call(|rank_store| rank_store.call_method1("put_rank_state", (rank, text)).map(drop))
    }

    fn rank_state(&mut self, rank: u32) -> io::Result<Option<String>> {
        self.call(|rank_store| rank_store.call_method1("rank_state", (rank,))?.extract())
    }
}
