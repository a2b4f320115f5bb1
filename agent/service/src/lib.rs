//! Common parts of the monitor's service threads: user messages, low priority, the text of a caught panic, and fork
//! detection. Also environment variables, the wait budget at shutdown, messages from ranks to rank 0, and the HTTP
//! server behind the metrics page and live control (feature `http`).

pub mod environment;
mod fork;
#[cfg(feature = "http")]
pub mod http;
mod notice;
mod relay;
mod thread;
mod wait_budget;

pub use fork::ForkGuard;
pub use notice::{Notice, Notices, Severity};
pub use relay::{RANKS_PER_LOOK, Receipt, Relay, RelayedMessage, between_looks};
pub use thread::{panic_text, step_back};
pub use wait_budget::{receive_by, wait_as_usual, wait_at_most};
