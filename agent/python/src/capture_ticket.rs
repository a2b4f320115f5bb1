//! The class `CaptureTicket`.

use parking_lot::Mutex;
use pyo3::prelude::*;
use trainmon_agent::CaptureTicket;

/// A step that must be captured; it ends with `Monitor.end_capture`.
#[pyclass(frozen, name = "CaptureTicket", module = "trainmon._trainmon")]
pub(crate) struct PyCaptureTicket {
    #[pyo3(get)]
    step: u64,
    #[pyo3(get)]
    rank: u32,
    #[pyo3(get)]
    config: String,
    #[pyo3(get)]
    what: String,
    #[pyo3(get)]
    number: u64,
    ticket: Mutex<Option<CaptureTicket>>,
}

impl PyCaptureTicket {
    pub(crate) fn new(ticket: CaptureTicket) -> Self {
        let (step, rank, config) = (ticket.step.0, ticket.rank, ticket.config.clone());
        let (what, number) = (ticket.in_words(), ticket.number());
        Self { step, rank, config, what, number, ticket: Mutex::new(Some(ticket)) }
    }

    pub(crate) fn take(&self) -> Option<CaptureTicket> {
        self.ticket.lock().take()
    }
}
