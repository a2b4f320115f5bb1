//! Where the run comes from: an agent's address or a directory, read on a thread of its own.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use trainmon_history::{Limits, RunDocument, VERSION};
use trainmon_runs::steps::{ColumnNames, RankChoice, ReadRunError, RecordedRank, RecordedRun};
use ureq::Agent;

use super::error::TopError;
use crate::rank_history::RankHistory;

/// An agent is asked so often; one that does not answer too.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// An answer may take so long.
const TIMEOUT: Duration = Duration::from_secs(10);
/// No overview is larger: 128 curves of 2,048 bins are some 10 MB.
const MOST_BYTES: u64 = 64 << 20;
/// A directory's files are looked at so often, and no more than this share of the time is spent on reading them.
const READ_EVERY: Duration = Duration::from_secs(2);
const READING_SHARE: u32 = 10;

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The address of an agent's page: `http://127.0.0.1:9464`.
    Agent(String),
    /// A run's directory, or its journal.
    Run(PathBuf),
}

/// What the thread has found.
pub(super) enum SourceUpdate {
    /// The run as it is now.
    Run(Box<RunDocument>),
    /// It cannot be read now; it is tried again.
    Trouble(String),
    /// It never will be.
    Failed(TopError),
}

/// The thread; it ends when this is dropped.
pub(super) struct Source {
    news: Receiver<SourceUpdate>,
    _end: Sender<()>,
}

/// Ends, in the middle of a pause too, when the other side is dropped.
type End = Receiver<()>;

/// Waits; true if it is over.
fn is_over_after(end: &End, pause: Duration) -> bool {
    end.recv_timeout(pause) != Err(RecvTimeoutError::Timeout)
}

impl Source {
    /// Begins to read.
    ///
    /// # Errors
    /// A rank of an address is asked for, the address is encrypted, or there is no thread.
    pub(super) fn start(target: Target, rank: Option<u32>) -> Result<Self, TopError> {
        if let (Target::Agent(_), Some(rank)) = (&target, rank) {
            return Err(TopError::RankOfAgent { rank });
        }
        if let Target::Agent(address) = &target
            && address.starts_with("https://")
        {
            return Err(TopError::Encrypted { address: address.clone() });
        }
        let (tell, news) = channel();
        let (end, until) = channel();
        let thread = std::thread::Builder::new().name("trainmon-top".to_owned());
        let work = move || match target {
            Target::Agent(address) => ask(&address, &tell, &until),
            Target::Run(path) => read(&path, rank, &tell, &until),
        };
        thread.spawn(work).map_err(|source| TopError::Thread { source })?;
        Ok(Self { news, _end: end })
    }

    /// What has come since the last call.
    pub(super) fn news(&mut self) -> impl Iterator<Item = SourceUpdate> {
        self.news.try_iter()
    }

    /// Waits for the first.
    ///
    /// # Errors
    /// The thread has ended without any.
    pub(super) fn first(&mut self) -> Result<SourceUpdate, TopError> {
        self.news.recv().map_err(|_ended| TopError::NoAnswer { why: "the reading thread has ended".to_owned() })
    }
}

/// Asks an agent again and again.
fn ask(address: &str, tell: &Sender<SourceUpdate>, end: &End) {
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .user_agent(concat!("trainmon/", env!("CARGO_PKG_VERSION")))
        .build();
    let agent: Agent = config.into();
    let url = format!("{address}/api/overview");
    loop {
        let news = match overview(&agent, &url) {
            Ok(news) => news,
            Err(why) => SourceUpdate::Trouble(format!("`{url}`: {why}")),
        };
        if tell.send(news).is_err() || is_over_after(end, ASK_EVERY) {
            return;
        }
    }
}

fn overview(agent: &Agent, url: &str) -> Result<SourceUpdate, String> {
    let mut answer = agent.get(url).call().map_err(|error| error.to_string())?;
    let text = answer.body_mut().with_config().limit(MOST_BYTES).read_to_string().map_err(|error| error.to_string())?;
    news_of(&text)
}

/// What an agent's answer says. Its version is read before the rest, which another version may have in another form.
fn news_of(text: &str) -> Result<SourceUpdate, String> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let failed = |error| format!("no overview of a run: {error}");
    let Versioned { version: found } = serde_json::from_str(text).map_err(failed)?;
    if found != VERSION {
        return Ok(SourceUpdate::Failed(TopError::Version { expected: VERSION, found }));
    }
    serde_json::from_str(text).map(SourceUpdate::Run).map_err(failed)
}

/// Reads a directory, and again when its files have grown.
fn read(path: &std::path::Path, rank: Option<u32>, tell: &Sender<SourceUpdate>, end: &End) {
    let choice = rank.map_or(RankChoice::First, RankChoice::Only);
    let mut last: Option<(PathBuf, u64)> = None;
    let mut has_shown = false;
    loop {
        let began = Instant::now();
        let state = RecordedRun::open_any(path, choice, &ColumnNames::default())
            .map(|run| (run.path.clone(), run.bytes(), run));
        let news = match state {
            // A journal does not grow: it is read again and again.
            Ok((run_path, bytes, run))
                if !run.ranks.iter().any(RecordedRank::is_journal)
                    && last.as_ref() == Some(&(run_path.clone(), bytes)) =>
            {
                None
            }
            Ok((run_path, bytes, run)) => {
                let read = document(&run);
                // What could not be read is tried again.
                last = read.is_ok().then_some((run_path, bytes));
                Some(read)
            }
            Err(error) => Some(Err(error)),
        };
        let news = news.map(|news| match news {
            Ok(run) => {
                has_shown = true;
                SourceUpdate::Run(run)
            }
            // A run that is being started has no files yet; a rotation takes one away for a moment.
            Err(error) if has_shown => SourceUpdate::Trouble(error.to_string()),
            Err(error) => SourceUpdate::Failed(error.into()),
        });
        if news.is_some_and(|news| tell.send(news).is_err()) {
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
        let news = news_of(first);
        assert!(matches!(news, Ok(SourceUpdate::Failed(TopError::Version { expected: VERSION, found: 1 }))));
        for text in ["", "<html>", "{}", r#"{"version":2}"#] {
            assert!(matches!(news_of(text), Err(why) if why.starts_with("no overview of a run: ")), "{text}");
        }
    }
}
