//! What every service thread of the monitor needs: messages for the user, low priority, the text of a caught panic,
//! whether the process was forked, the environment, how long the end may wait, messages that ranks hand to rank 0, and the HTTP
//! server behind the scrape page and live control (feature `http`).

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
