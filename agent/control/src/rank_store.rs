//! What ranks tell each other, and the way it takes.

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

/// The way ranks tell each other a few words: rank 0 puts up one state that all read, the leader's; every other rank has a
/// state of its own that rank 0 reads. To carry them over anything else than files (a key-value store, messages), implement
/// this and hand it over as `Options::rank_store`, on every rank.
///
/// # Texts
/// One line of JSON without an end of line, in UTF-8; a store carries it as it is and never looks into it. A rank's state has
/// less than 400 bytes; with an alert that asks for a capture some 2 KiB, with alerts to be sent up to 8 KiB. The leader's has some hundred bytes, about 45 more per
/// rank, and every name that is measured, twice: up to 64 KiB of names in a request from outside, more only where a watched
/// config file has more. Refuse what is too long rather than cut it.
///
/// # What is promised
/// Each new text takes the place of the one before, whole: a reader gets the latest, or for a while one before it, never
/// a mixture and never a part. Texts left by an earlier run may be found; they are told apart by words in them. Nothing
/// is promised about the order of texts of different ranks. Who put up a text finds it with its next look, rank 0 above
/// all: a change is agreed upon only once rank 0 has read back what it put up.
///
/// # Who calls what, and where
/// Rank 0 calls [`put_leader_state`](Self::put_leader_state), [`leader_state`](Self::leader_state) and
/// [`rank_state`](Self::rank_state) for ranks from 1 on; rank `r` calls [`leader_state`](Self::leader_state) and
/// [`put_rank_state`](Self::put_rank_state) for `r`. A run of one process calls nothing. Calls come one at a time from one thread of the monitor, `trainmon-agree`, never from the training's: what must be called
/// from the training's thread only (MPI that was not started with `MPI_THREAD_MULTIPLE`) needs a mailbox between the two.
/// They begin after the monitor has started, at most ten times per second, on rank 0 once per awaited rank each time.
///
/// # Blocking
/// Allowed, it delays changes and nothing else; but ranks never wait for each other here, so a call must not wait for
/// another rank to call something: a collective, a blocking receive, or a `get` that waits for its key will not do. Rank 0
/// gives up on a change after 20 s. At the end of the monitor a call under way is waited for up to two seconds and then
/// left behind on its thread, so whatever the store uses must outlive it, or refuse from then on with an error.
///
/// # Errors and panics
/// An error is said once and what failed is tried again, until the end of the run. A rank whose state cannot be read
/// counts as one that does not answer; the others are read. A panic ends live control on its rank, not the training.
pub trait RankStore: Send {
    /// Puts up the leader's state. Called where it differs from the one before.
    ///
    /// # Errors
    /// It is not known to be up. It may be all the same: rank 0 looks before it says anything else.
    fn put_leader_state(&mut self, text: &str) -> io::Result<()>;

    /// The leader's state; `None` if none is up yet.
    ///
    /// # Errors
    /// It cannot be read now.
    fn leader_state(&mut self) -> io::Result<Option<String>>;

    /// Leaves this rank's state.
    ///
    /// # Errors
    /// It is not left; the same or a later one is tried with the next look.
    fn put_rank_state(&mut self, rank: u32, text: &str) -> io::Result<()>;

    /// The state of a rank; `None` if it left none yet.
    ///
    /// # Errors
    /// It cannot be read now.
    fn rank_state(&mut self, rank: u32) -> io::Result<Option<String>>;
}

/// A store that a front brings along, for the monitor's options.
#[derive(Clone)]
pub struct SharedRankStore(Arc<Mutex<dyn RankStore>>);

impl SharedRankStore {
    /// Takes a store. Clones share it and call it one at a time; it is dropped with the last of them, which may be the one on
    /// the monitor's thread.
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
    /// Drawn by rank 0 when it starts: a leader state of an earlier run has another.
    pub(super) session: String,
    /// The other ranks that rank 0 has heard of, with the word each drew when it started. A rank that does not find its own
    /// word here obeys nothing: the leader state is not, or not yet, meant for it.
    pub(super) members: BTreeMap<u32, String>,
    /// What is proposed and not agreed upon yet.
    pub(super) proposal: Option<Proposal>,
    /// What was agreed upon last. It stays up, whatever is proposed or withdrawn after it: a rank that is late, or was
    /// started anew, finds it here.
    pub(super) agreed: Option<Agreement>,
    /// What became of the messages that ranks hand over at the moment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) receipts: BTreeMap<u32, Receipt>,
}

/// A plan that rank 0 proposes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Proposal {
    pub(super) id: u64,
    pub(super) plan: Plan,
    /// Whether the window begins anew with the switch.
    pub(super) restart: bool,
    /// Whether the training is asked to end with the switch.
    #[serde(default)]
    pub(super) stop: bool,
    /// A capture; its first step counts once it is agreed upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) capture: Option<Box<AgreedCapture>>,
}

/// A proposal that every rank knows, and the step at which it takes effect. Never taken back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Agreement {
    pub(super) proposal: Proposal,
    pub(super) step: u64,
}

impl Proposal {
    /// The plan as it rules from `step` on: a window that begins anew cannot begin earlier.
    pub(super) fn plan_from(&self, step: u64) -> Plan {
        let mut plan = self.plan.clone();
        if self.restart {
            plan.window.start_step = plan.window.start_step.max(step);
        }
        plan
    }

    /// Whether it makes sense if it takes effect at `step`.
    pub(super) fn check_at(&self, step: u64) -> Result<(), EmptyWindow> {
        if self.restart { EmptyWindow::of(self.plan.window, step) } else { Ok(()) }
    }
}

impl Agreement {
    /// What rank 0 and those who follow do about it.
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
    /// The word this rank drew when it started.
    pub(super) word: String,
    /// The session of the leader state it saw last: proves that this was written in this run. Empty before it found one.
    pub(super) session: String,
    /// The latest proposal of that session it knows; 0 before there is one.
    pub(super) heard: u64,
    /// Its step when it wrote this.
    pub(super) step: u64,
    /// Its running step time; 0 before that is known.
    pub(super) seconds_per_step: f64,
    /// The latest switch of that session that happened here.
    pub(super) switched: Option<Happened>,
    /// Whether it keeps the step that the latest proposal it knows would have run again.
    #[serde(default)]
    pub(super) keeps_step: bool,
    /// Whether an alert of this rank asks the training to end.
    #[serde(default)]
    pub(super) wants_stop: bool,
    /// The capture asked for on this rank last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wants_capture: Option<WantedCapture>,
    /// The captures that were over here last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) captured: Vec<Captured>,
    /// Messages for rank 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<RelayedMessage>,
}

/// A capture that a rank other than 0 asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WantedCapture {
    /// Counts what this process asked for, from 1.
    pub(super) number: u64,
    pub(super) asked: AskedBy,
}

/// By its number: an alert may have numbers that equal nothing.
impl PartialEq for WantedCapture {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// A switch that happened: the number of what was agreed upon, and the first step under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Happened {
    pub(super) id: u64,
    pub(super) step: u64,
}

/// A word nobody else draws.
pub(super) fn draw_word() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(hex(&bytes))
}

/// Two digits per byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}
