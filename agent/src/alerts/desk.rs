//! Where alerts are raised and acted upon: shared by the worker, which brings steps, and the training thread, which
//! saves and loads what the detectors remember.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use trainmon_core::config::{AlertActions, Config};
use trainmon_core::{Alert, AlertBook, AlertPhase, AlertSeverity, Rank, StepBatch, TensorInfo, TensorTable};

use super::command::Runner;
use super::delivery::{Letter, Post};
use super::engine::{Engine, Said, Verdict};
use super::state::{AlertStateError, LoadedAlertState, SavedAlerts};
use super::webhook::Poster;
use super::words::hint;
use crate::guard::panic_text;
use crate::notice::{Notice, Severity, Voice, with_causes};

/// How long a state waits for the steps that are on their way to the worker. It is milliseconds behind, or stuck.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Flags and counters publish no other memory.
const FLAG: Ordering = Ordering::Relaxed;

/// What a desk is opened with.
pub(crate) struct Opening<'a> {
    pub(crate) config: &'a Config,
    pub(crate) rank: Rank,
    pub(crate) run: String,
    /// Where the run directories are.
    pub(crate) base: &'a Path,
    pub(crate) tensors: TensorTable,
    pub(crate) book: Arc<AlertBook>,
    pub(crate) voice: Voice,
}

/// The alerts of a monitor.
pub(crate) struct AlertDesk {
    room: Mutex<Room>,
    /// Told after every step looked at.
    progress: Condvar,
    /// Batches handed to the worker.
    offered: AtomicU64,
    stop: AtomicBool,
    run: String,
    tensors: TensorTable,
    book: Arc<AlertBook>,
    voice: Voice,
}

struct Room {
    engine: Engine,
    names: Vec<TensorInfo>,
    /// Batches the worker brought.
    looked_at: u64,
    posts: Posts,
    /// Whether the user was told that the JSON file cannot be written.
    file_fails: bool,
    /// Set when a detector panicked: it looks at nothing any more.
    is_broken: bool,
}

#[derive(Default)]
struct Posts {
    webhook: Option<Post>,
    command: Option<Post>,
}

impl AlertDesk {
    /// Opens the desk. A webhook or command whose thread cannot be started is reported and left out.
    pub(crate) fn open(opening: Opening<'_>) -> Self {
        let Opening { config, rank, run, base, tensors, book, voice } = opening;
        let post = |name, started: std::io::Result<Post>| match started {
            Ok(post) => Some(post),
            Err(error) => {
                voice.warn(format!("alert {name}: cannot start its thread: {error}"), None);
                None
            }
        };
        let webhook = config.alert.webhook.clone().and_then(|webhook| {
            post("webhook", Post::start("webhook", Poster::new(webhook), Arc::clone(&book), voice.clone()))
        });
        let command = config.alert.command.clone().and_then(|command| {
            post("command", Post::start("command", Runner::new(command), Arc::clone(&book), voice.clone()))
        });
        let room = Room {
            engine: Engine::new(config, rank, base, Arc::clone(&book)),
            names: Vec::new(),
            looked_at: 0,
            posts: Posts { webhook, command },
            file_fails: false,
            is_broken: false,
        };
        Self {
            room: Mutex::new(room),
            progress: Condvar::new(),
            offered: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            run,
            tensors,
            book,
            voice,
        }
    }

    /// The books, for whoever shows them.
    pub(crate) fn book(&self) -> &Arc<AlertBook> {
        &self.book
    }

    /// Whether an alert asks the training to end.
    pub(crate) fn stop_requested(&self) -> bool {
        self.stop.load(FLAG)
    }

    /// A batch is on its way to the worker.
    pub(crate) fn announce(&self) {
        self.offered.fetch_add(1, FLAG);
    }

    /// Looks at a step: acts on what is found, and returns it for the exporters. Never panics.
    pub(crate) fn look_at(&self, batch: &StepBatch) -> Vec<Alert> {
        let start = Instant::now();
        let mut room = self.room.lock();
        let verdict = if room.is_broken {
            Verdict::default()
        } else {
            let Room { engine, names, .. } = &mut *room;
            self.tensors.sync_into(names);
            let looked = catch_unwind(AssertUnwindSafe(|| engine.look_at(batch, names, start)));
            looked.unwrap_or_else(|panic| {
                room.is_broken = true;
                self.voice.warn(format!("alerts: {}; no rule looks any more", panic_text(&*panic)), None);
                Verdict::default()
            })
        };
        self.book.looked(start.elapsed());
        room.looked_at += 1;
        self.progress.notify_all();
        let Verdict { said, unsaid, not_written } = verdict;
        let file_failed = not_written.map(|(lost, error)| (lost, with_causes(&error)));
        let begins_to_fail = file_failed.is_some() && !room.file_fails;
        room.file_fails = file_failed.is_some();
        let alerts = said.into_iter().map(|said| self.act(said, &room.posts)).collect();
        // A listener may do anything, also ask for the state: not while the room is locked.
        drop(room);
        if let Some((lost, why)) = file_failed {
            self.book.lose(lost);
            if begins_to_fail {
                self.voice.warn(format!("anomaly.json: {why}; findings are lost there and counted"), None);
            }
        }
        if unsaid > 0 {
            self.book.lose(unsaid);
            self.voice.warn(format!("{unsaid} more alerts in step {}: counted, not said", batch.step), None);
        }
        self.speak(alerts)
    }

    /// Looks whether the run stalls; the alert for the exporters if it begins to.
    pub(crate) fn look_for_stall(&self) -> Vec<Alert> {
        let mut room = self.room.lock();
        let said = room.engine.look_for_stall(Instant::now());
        let alerts = said.into_iter().map(|said| self.act(said, &room.posts)).collect();
        drop(room);
        self.speak(alerts)
    }

    /// When to look for a stall.
    pub(crate) fn stall_deadline(&self) -> Option<Instant> {
        self.room.lock().engine.stall_deadline()
    }

    /// Sends an alert where its rule wants it. The log is left for `speak`.
    fn act(&self, said: Said, posts: &Posts) -> Said {
        // A dump is refused by the config until there is somebody to take one.
        let AlertActions { log: _, webhook, command, dump: _, stop } = said.actions;
        let targets = [posts.webhook.as_ref().filter(|_| webhook), posts.command.as_ref().filter(|_| command)];
        if targets.iter().any(Option::is_some) {
            let letter = Arc::new(Letter::new(&said.alert, &self.run));
            targets.into_iter().flatten().for_each(|post| post.send(&letter));
        }
        if stop && said.alert.phase == AlertPhase::Begins {
            self.stop.store(true, FLAG);
        }
        said
    }

    fn speak(&self, said: Vec<Said>) -> Vec<Alert> {
        for Said { alert, actions } in &said {
            if !actions.log {
                continue;
            }
            let is_quiet = alert.phase == AlertPhase::Ends || alert.severity == AlertSeverity::Info;
            let severity = if is_quiet { Severity::Info } else { Severity::Warning };
            let hint = hint(alert.rule).filter(|_| alert.phase == AlertPhase::Begins).map(str::to_owned);
            self.voice.say(&Notice { severity, message: alert.message.clone(), hint });
        }
        said.into_iter().map(|said| said.alert).collect()
    }

    /// What the detectors remember after every step ended so far. Waits for steps that are on their way to the worker;
    /// if they do not arrive it says so and gives what there is: nothing if a step is being looked at all that time.
    pub(crate) fn save(&self) -> Option<SavedAlerts> {
        let (offered, deadline) = (self.offered.load(FLAG), Instant::now() + MAX_WAIT);
        let saved = self.room.try_lock_until(deadline).map(|mut room| {
            let is_behind = |room: &mut Room| room.looked_at < offered;
            let waited = self.progress.wait_while_until(&mut room, is_behind, deadline);
            (room.engine.save(), waited.timed_out())
        });
        let last = match &saved {
            Some((_, false)) => None,
            Some((saved, true)) => Some(saved.step.map_or_else(|| "none".to_owned(), |step| step.to_string())),
            None => Some("none".to_owned()),
        };
        if let Some(last) = last {
            self.voice.warn(
                format!("the alert state lacks steps that are still queued: the last in it is {last}"),
                Some("an exporter or a rule is slow, or the machine is starved".to_owned()),
            );
        }
        saved.map(|(saved, _)| saved)
    }

    /// Goes on from a saved state, and says what of it is left out.
    pub(crate) fn load(&self, state: serde_json::Value) -> Result<LoadedAlertState, AlertStateError> {
        let saved = SavedAlerts::read(state)?;
        let mut room = self.room.try_lock_for(MAX_WAIT).ok_or(AlertStateError::Busy { waited: MAX_WAIT })?;
        let loaded = room.engine.load(saved);
        drop(room);
        if let Some(complaint) = loaded.complaint() {
            self.voice.info(complaint);
        }
        Ok(loaded)
    }

    /// Delivers what is queued, by the deadline.
    pub(crate) fn finish(&self, deadline: Instant) {
        let Posts { webhook, command } = std::mem::take(&mut self.room.lock().posts);
        [webhook, command].into_iter().flatten().for_each(|post| post.finish(deadline));
    }
}
