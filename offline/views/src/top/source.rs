//! The source of the run: an agent's address or a directory, read on a separate thread.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use trainmon_history::{Limits, RunDocument, VERSION};
use trainmon_runs::steps::{ColumnNames, RankChoice, ReadRunError, RecordedRank, RecordedRun};
use ureq::Agent;

use super::error::TopError;
use crate::rank_history::RankHistory;

/// The interval at which an agent is polled, also if it does not respond.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest accepted overview: 128 curves of 2,048 bins take about 10 MB.
const MOST_BYTES: u64 = 64 << 20;
/// The interval at which a directory's files are checked, and the largest share of the time spent on reading them.
const READ_EVERY: Duration = Duration::from_secs(2);
const READING_SHARE: u32 = 10;

/// The run to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The address of an agent's page: `http://127.0.0.1:9464`.
    Agent(String),
    /// A run's directory or its journal.
    Run(PathBuf),
}

/// An update from the reading thread.
pub(super) enum SourceUpdate {
    /// The current state of the run.
    Run(Box<RunDocument>),
    /// The run cannot be read now; the thread tries again.
    Unreadable(String),
    /// The run can never be read.
    Failed(TopError),
}

/// The reading thread; it ends when this is dropped.
pub(super) struct RunSource {
    updates: Receiver<SourceUpdate>,
    _end: Sender<()>,
}

/// Ends the thread, also during a pause, when the other side is dropped.
type End = Receiver<()>;

/// Waits; returns true if the thread must end.
fn is_over_after(end: &End, pause: Duration) -> bool {
    end.recv_timeout(pause) != Err(RecvTimeoutError::Timeout)
}

impl RunSource {
    /// Starts the thread.
    ///
    /// # Errors
    /// A rank is given for an address, the address uses HTTPS, or the thread cannot be started.
    pub(super) fn start(target: Target, rank: Option<u32>) -> Result<Self, TopError> {
        if let (Target::Agent(_), Some(rank)) = (&target, rank) {
            return Err(TopError::RankOfAgent { rank });
        }
        if let Target::Agent(address) = &target
            && address.starts_with("https://")
        {
            return Err(TopError::Encrypted { address: address.clone() });
        }
        let (sender, updates) = channel();
        let (end, until) = channel();
        let thread = std::thread::Builder::new().name("trainmon-top".to_owned());
        let work = move || match target {
            Target::Agent(address) => ask(&address, &sender, &until),
            Target::Run(path) => read(&path, rank, &sender, &until),
        };
        thread.spawn(work).map_err(|source| TopError::Thread { source })?;
        Ok(Self { updates, _end: end })
    }

    /// The updates since the last call.
    pub(super) fn updates(&mut self) -> impl Iterator<Item = SourceUpdate> {
        self.updates.try_iter()
    }

    /// Waits for the first update.
    ///
    /// # Errors
    /// The thread ended without one.
    pub(super) fn first(&mut self) -> Result<SourceUpdate, TopError> {
        self.updates.recv().map_err(|_ended| TopError::NoAnswer { why: "the reading thread has ended".to_owned() })
    }
}

/// Polls an agent until the end.
fn ask(address: &str, sender: &Sender<SourceUpdate>, end: &End) {
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .user_agent(concat!("trainmon/", env!("CARGO_PKG_VERSION")))
        .build();
    let agent: Agent = config.into();
    let url = format!("{address}/api/overview");
    loop {
        let update = match overview(&agent, &url) {
            Ok(update) => update,
            Err(why) => SourceUpdate::Unreadable(format!("`{url}`: {why}")),
        };
        if sender.send(update).is_err() || is_over_after(end, ASK_EVERY) {
            return;
        }
    }
}

fn overview(agent: &Agent, url: &str) -> Result<SourceUpdate, String> {
    let mut answer = agent.get(url).call().map_err(|error| error.to_string())?;
    let text = answer.body_mut().with_config().limit(MOST_BYTES).read_to_string().map_err(|error| error.to_string())?;
    update_of(&text)
}

/// Parses an agent's response. The version is read first, because another version may have another layout.
fn update_of(text: &str) -> Result<SourceUpdate, String> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let failed = |error| format!("the response is not the overview of a run: {error}");
    let Versioned { version: found } = serde_json::from_str(text).map_err(failed)?;
    if found != VERSION {
        return Ok(SourceUpdate::Failed(TopError::Version { expected: VERSION, found }));
    }
    serde_json::from_str(text).map(SourceUpdate::Run).map_err(failed)
}

/// Reads a directory, and again when its files have grown.
fn read(path: &std::path::Path, rank: Option<u32>, sender: &Sender<SourceUpdate>, end: &End) {
    let choice = rank.map_or(RankChoice::First, RankChoice::Only);
    let mut last: Option<(PathBuf, u64)> = None;
    let mut has_shown = false;
    loop {
        let began = Instant::now();
        let state = RecordedRun::open_any(path, choice, &ColumnNames::default())
            .map(|run| (run.path.clone(), run.bytes(), run));
        let update = match state {
            // A journal does not grow: it is read every time.
            Ok((run_path, bytes, run))
                if !run.ranks.iter().any(RecordedRank::is_journal)
                    && last.as_ref() == Some(&(run_path.clone(), bytes)) =>
            {
                None
            }
            Ok((run_path, bytes, run)) => {
                let read = document(&run);
                // After an error, the next round tries again.
                last = read.is_ok().then_some((run_path, bytes));
                Some(read)
            }
            Err(error) => Some(Err(error)),
        };
        let update = update.map(|update| match update {
            Ok(run) => {
                has_shown = true;
                SourceUpdate::Run(run)
            }
            // A run that is starting has no files yet, and a rotation removes one for a moment.
            Err(error) if has_shown => SourceUpdate::Unreadable(error.to_string()),
            Err(error) => SourceUpdate::Failed(error.into()),
        });
        if update.is_some_and(|update| sender.send(update).is_err()) {
            return;
        }
        if is_over_after(end, READ_EVERY.max(READING_SHARE * began.elapsed())) {
            return;
        }
    }
}

fn document(run: &RecordedRun) -> Result<Box<RunDocument>, ReadRunError> {
    let Some(rank) = run.ranks.first() else {
        return Err(ReadRunError::NoSuchRank { path: run.path.clone(), rank: 0, found: "none".to_owned() });
    };
    let history = RankHistory::read(rank, Limits::default(), &mut |_| {})?;
    Ok(Box::new(history.document()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_another_version_is_told_by_its_version() {
        let first = r#"{"version":1,"overview":{"version":1,"curves":[],"alerts":[],"alerts_seen":3},"status":{}}"#;
        let update = update_of(first);
        assert!(matches!(update, Ok(SourceUpdate::Failed(TopError::Version { expected: VERSION, found: 1 }))));
        for text in ["", "<html>", "{}", r#"{"version":2}"#] {
            assert!(
                matches!(update_of(text), Err(why) if why.starts_with("the response is not the overview of a run: ")),
                "{text}"
            );
        }
    }
}
