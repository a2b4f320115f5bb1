//! The way ranks agree through Python: an object with `put_sheet`, `sheet`, `put_note` and `note`.

use std::io;

use pyo3::prelude::*;
use trainmon_agent::Board;

/// Calls Python, from a thread of the monitor's.
pub(crate) struct PyBoard(Py<PyAny>);

impl PyBoard {
    pub(crate) fn new(board: Py<PyAny>) -> Self {
        Self(board)
    }

    fn call<T>(&self, body: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        // The interpreter may be on its way out: nothing is asked of it then.
        let called = Python::try_attach(|py| body(self.0.bind(py)));
        match called {
            Some(outcome) => outcome.map_err(|error| io::Error::other(error.to_string())),
            None => Err(io::Error::other("the interpreter is ending")),
        }
    }
}

impl Board for PyBoard {
    fn put_sheet(&mut self, text: &str) -> io::Result<()> {
        self.call(|board| board.call_method1("put_sheet", (text,)).map(drop))
    }

    fn sheet(&mut self) -> io::Result<Option<String>> {
        self.call(|board| board.call_method0("sheet")?.extract())
    }

    fn put_note(&mut self, rank: u32, text: &str) -> io::Result<()> {
        self.call(|board| board.call_method1("put_note", (rank, text)).map(drop))
    }

    fn note(&mut self, rank: u32) -> io::Result<Option<String>> {
        self.call(|board| board.call_method1("note", (rank,))?.extract())
    }
}
