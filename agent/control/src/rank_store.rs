//! The states that ranks exchange, and the store that transports them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use trainmon_core::Step;
use trainmon_core::config::Plan;
use trainmon_service::{Receipt, RelayedMessage};

use super::change_request::EmptyWindow;
use crate::captures::{AgreedCapture, AskedBy, Captured};
use crate::live::Switch;

/// A store for short texts with which ranks communicate: rank 0 publishes one state that all read, the leader's; every
/// other rank has a state of its own that rank 0 reads. To use something other than files (a key-value store,
/// messages), implement this trait and pass it as `Options::rank_store` on every rank.
///
/// # Texts
/// One line of UTF-8 JSON without a line end. A store transports it unchanged and does not interpret it. A rank's state
/// has less than 400 bytes; about 2 KiB with an alert that requests a capture, and up to 8 KiB with alerts to send. The
/// leader's state has a few hundred bytes, about 45 more per rank, and the names of all targets twice. A request has up to
/// 64 KiB of names; a watched config file may have more. Refuse longer texts instead of truncating
/// them.
///
/// # Guarantees
/// Each new text replaces the previous one atomically: a reader gets the latest text, or for a while an earlier one,
/// never a mixture or a part. Texts of an earlier run may be present; they are recognized by ids in them. The order of
/// texts of different ranks is not guaranteed. A writer must find its own text with its next read. This is essential
/// for rank 0: a change is agreed on only after rank 0 has read back what it wrote.
///
/// # Calls
/// Rank 0 calls [`put_leader_state`](Self::put_leader_state), [`leader_state`](Self::leader_state) and
/// [`rank_state`](Self::rank_state) for ranks from 1 on; rank `r` calls [`leader_state`](Self::leader_state) and
/// [`put_rank_state`](Self::put_rank_state) for `r`. A run of one process calls nothing. Calls come one at a time from
/// one thread of the monitor, `trainmon-agree`, never from the training's thread. If the store must be called from the
/// training's thread (MPI without `MPI_THREAD_MULTIPLE`), put a queue between the two. Calls begin after the monitor
/// has started, at most ten times per second, on rank 0 once per awaited rank each time.
///
/// # Blocking
/// A blocking call only delays changes. But a call must not wait for another rank to call something, so a collective, a
/// blocking receive, or a `get` that waits for its key is not allowed. Rank 0 gives up on a change after 20 s. At the
/// end of the monitor, a call in progress is awaited for up to two seconds, and then abandoned on its thread. Whatever
/// the store uses must outlive it, or fail from then on with an error.
///
/// # Errors and panics
/// An error is reported once, and the call is repeated until the end of the run. A rank whose state cannot be read
/// counts as one that does not answer; the others are read. A panic ends live control on its rank, not the training.
pub trait RankStore: Send {
    /// Publishes the leader's state. Called when it differs from the previous one.
    ///
    /// # Errors
    /// The state may not be published. It may be published nevertheless: rank 0 reads it before it publishes anything
    /// else.
    fn put_leader_state(&mut self, text: &str) -> io::Result<()>;

    /// Reads the leader's state; `None` before the first.
    ///
    /// # Errors
    /// It cannot be read now.
    fn leader_state(&mut self) -> io::Result<Option<String>>;

    /// Publishes this rank's state.
    ///
    /// # Errors
    /// It is not published. The same or a later state is tried with the next poll.
    fn put_rank_state(&mut self, rank: u32, text: &str) -> io::Result<()>;

    /// Reads the state of a rank; `None` before its first.
    ///
    /// # Errors
    /// It cannot be read now.
    fn rank_state(&mut self, rank: u32) -> io::Result<Option<String>>;
}

/// A store of a front, for the monitor's options.
#[derive(Clone)]
pub struct SharedRankStore(Arc<Mutex<dyn RankStore>>);

impl SharedRankStore {
    /// Wraps a store. Clones share it and call it one at a time. It is dropped with the last clone, possibly on the
    /// monitor's thread.
    pub fn new(rank_store: impl RankStore + 'static) -> Self {
        Self(Arc::new(Mutex::new(rank_store)))
    }

    fn lock(&self) -> MutexGuard<'_, dyn RankStore + 'static> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RankStore for SharedRankStore {
    fn put_leader_state(&mut self, text: &str) -> io::Result<()> {
        self.lock().put_leader_state(text)
    }

    fn leader_state(&mut self) -> io::Result<Option<String>> {
        self.lock().leader_state()
    }

    fn put_rank_state(&mut self, rank: u32, text: &str) -> io::Result<()> {
        self.lock().put_rank_state(rank, text)
    }

    fn rank_state(&mut self, rank: u32) -> io::Result<Option<String>> {
        self.lock().rank_state(rank)
    }
}

impl fmt::Debug for SharedRankStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedRankStore")
    }
}

/// The leader's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LeaderState {
    /// A random id that rank 0 creates when it starts. A leader state of an earlier run has another one.
    pub(super) session: String,
    /// The other ranks that rank 0 knows, with the random id that each created when it started. A rank that does not
    /// find its own id here ignores the leader state, which is not, or not yet, meant for it.
    pub(super) members: BTreeMap<u32, String>,
    /// The proposal that is not agreed on yet.
    pub(super) proposal: Option<Proposal>,
    /// The last agreement. It stays whatever is proposed or withdrawn after it, so that a late or restarted rank finds
    /// it.
    pub(super) agreed: Option<Agreement>,
    /// The receipts for the ranks' messages.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) receipts: BTreeMap<u32, Receipt>,
}

/// A plan that rank 0 proposes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Proposal {
    pub(super) id: u64,
    pub(super) plan: Plan,
    /// Whether the step window restarts with the switch.
    pub(super) restart: bool,
    /// Whether the training is to end with the switch.
    #[serde(default)]
    pub(super) stop: bool,
    /// A capture. Its first step is valid once it is agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) capture: Option<Box<AgreedCapture>>,
}

/// A proposal that every rank knows, and the step at which it takes effect. Never withdrawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Agreement {
    pub(super) proposal: Proposal,
    pub(super) step: u64,
}

impl Proposal {
    /// The plan as it applies from `step` on: a restarted window cannot begin earlier.
    pub(super) fn plan_from(&self, step: u64) -> Plan {
        let mut plan = self.plan.clone();
        if self.restart {
            plan.window.start_step = plan.window.start_step.max(step);
        }
        plan
    }

    /// Checks that the proposal has a step to measure if it takes effect at `step`.
    pub(super) fn check_at(&self, step: u64) -> Result<(), EmptyWindow> {
        if self.restart { EmptyWindow::of(self.plan.window, step) } else { Ok(()) }
    }
}

impl Agreement {
    /// The switch that results on every rank.
    pub(super) fn switch(&self) -> Switch {
        let Proposal { id, restart, stop, .. } = self.proposal;
        let capture = self.proposal.capture.as_deref().cloned().map(Arc::new);
        Switch {
            id,
            step: Step(self.step),
            plan: Arc::new(self.proposal.plan_from(self.step)),
            restart,
            stop,
            keeps_plan: stop || capture.is_some(),
            capture,
        }
    }
}

/// The state of a rank other than 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RankState {
    /// The random id that this rank created when it started.
    pub(super) word: String,
    /// The session of the last leader state, which shows that this state belongs to the same run. Empty before the
    /// first.
    pub(super) session: String,
    /// The latest known proposal of that session; 0 before the first.
    pub(super) heard: u64,
    /// The rank's step when it wrote the state.
    pub(super) step: u64,
    /// The rank's average step time; 0 before it is known.
    pub(super) seconds_per_step: f64,
    /// The latest switch of that session on this rank.
    pub(super) switched: Option<Happened>,
    /// Whether the rank keeps the step that the latest known proposal replays.
    #[serde(default)]
    pub(super) keeps_step: bool,
    /// Whether an alert of this rank requests the end of the training.
    #[serde(default)]
    pub(super) wants_stop: bool,
    /// The last capture requested on this rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wants_capture: Option<WantedCapture>,
    /// The captures that ended last on this rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) captured: Vec<Captured>,
    /// Messages for rank 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<RelayedMessage>,
}

/// A capture that a rank other than 0 requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WantedCapture {
    /// The number of the request in this process, from 1.
    pub(super) number: u64,
    pub(super) asked: AskedBy,
}

/// Compares numbers only, because an alert may contain NaN.
impl PartialEq for WantedCapture {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// A switch that took effect: the number of the agreement, and the first step under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Happened {
    pub(super) id: u64,
    pub(super) step: u64,
}

/// Creates a random id.
pub(super) fn random_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(hex(&bytes))
}

/// Formats bytes as two hexadecimal digits each.
pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}
