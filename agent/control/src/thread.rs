//! The control threads of a rank: the server's (rank 0), and one that leads or follows.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use trainmon_core::config::{Config, Control as ControlConfig};
use trainmon_core::with_causes;
use trainmon_service::{Notices, Relay, between_looks, receive_by};

use super::capture_requests::CaptureRequests;
use super::change_request::{ChangeIds, ChangeRequest, MAX_WAITING_CHANGES};
use super::file_watch::{ConfigFile, FileWatch};
use super::files::FileRankStore;
use super::follower::{Follower, FollowerEvent};
use super::leader::{Leader, LeaderEvent};
use super::live::Live;
use super::place::{self, Addresses, DirectoryLock, DirectoryPlace};
use super::progress::ProgressLog;
use super::rank_store::{RankStore, SharedRankStore, random_id};
use super::server::{Listeners, Server};
use super::service::ControlService;
use super::status::Sources;
use super::stop::{StopRequest, WantsStop};
use super::token::Token;

/// How long the end of the monitor waits for the threads.
const PATIENCE: Duration = Duration::from_secs(2);

/// The running control threads.
pub struct Control {
    server: Option<Server>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
    locations: Vec<String>,
    /// Released when the threads have ended.
    _place: Option<DirectoryPlace>,
}

/// The parameters of live control.
pub struct ControlStart<'a> {
    /// The config at the start.
    pub config: &'a Config,
    /// The directory of the runs.
    pub base: PathBuf,
    /// Whether the user named the run. A generated name may differ between hosts.
    pub is_named: bool,
    /// The directory of this rank's files, if it has one.
    pub run_directory: Option<PathBuf>,
    /// The file of the config: watched in msprobe's dynamic mode.
    pub config_file: Option<ConfigFile>,
    /// The store through which ranks agree; by default, files in the control directory.
    pub rank_store: Option<SharedRankStore>,
    /// Receives messages about changes and failures.
    pub notices: Notices,
    /// The sources of the status.
    pub sources: Sources,
    /// Whether an alert of this rank requests the end of the training.
    pub wants_stop: WantsStop,
    /// The sender or receiver of messages to rank 0.
    pub relay: Option<Arc<dyn Relay>>,
}

/// Control cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct StartFailure {
    what: String,
    hint: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StartFailure {
    fn new(what: impl Into<String>, hint: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { what: what.into(), hint: hint.to_owned(), source: Some(source.into()) }
    }
}

impl ControlStart<'_> {
    /// Starts live control as configured. A failure is reported, and the training is monitored without live control.
    pub fn start(self) -> Option<Control> {
        let Self { config, sources, .. } = &self;
        let is_single = sources.run.world_size == 1;
        let leads = sources.run.rank.0 == 0;
        let may_stop = !is_single && config.alert.rules.iter().any(|rule| rule.actions.stop);
        let is_idle = config.control.is_none() && config.dynamic_on.is_none() && config.capture.is_none();
        if (is_idle && !may_stop && self.relay.is_none()) || (is_single && !leads) {
            return None;
        }
        let has_messages = self.relay.is_some();
        let notices = self.notices.clone();
        let name = if self.is_named || is_single { &sources.run.run } else { UNNAMED };
        let own = self.run_directory.as_deref().filter(|_| is_single);
        let directory = place::directory(config, &self.base, name, own, is_single);
        // A directory that the user configures belongs to one monitor; a second one gets an error.
        let is_named = config.control.as_ref().is_some_and(|control| control.directory.is_some());
        let place_taken = (!is_named).then(|| DirectoryPlace::take(directory.clone(), sources.run.rank.0));
        let directory = place_taken.as_ref().map_or(directory, DirectoryPlace::directory);
        let started = if leads { self.lead(&directory) } else { self.follow(&directory) };
        started
            .inspect_err(|failure| {
                let stop = if may_stop { "; alerts cannot end the training" } else { "" };
                let apart = if has_messages { "; each rank sends its own alerts" } else { "" };
                let why = with_causes(failure);
                notices.warn(format!("live control is disabled: {why}{stop}{apart}"), Some(failure.hint.clone()));
            })
            .ok()
            .map(|control| Control { _place: place_taken, ..control })
    }

    fn rank_store(&self, directory: &Path, word: &str) -> Box<dyn RankStore> {
        match &self.rank_store {
            Some(rank_store) => Box::new(rank_store.clone()),
            None => Box::new(FileRankStore::new(directory, word)),
        }
    }

    fn follow(self, directory: &Path) -> Result<Control, StartFailure> {
        let word = random_id().map_err(|error| StartFailure::new("cannot read random numbers", "", error))?;
        let Sources { live, run, .. } = &self.sources;
        let follower = Follower::new(run.rank.0, word.clone(), Arc::clone(live), Arc::clone(&self.wants_stop))
            .with_relay(self.relay.clone());
        let rank_store = self.rank_store(directory, &word);
        let (notices, pause) = (self.notices.clone(), between_looks(run.world_size));
        let part = Role::Follows {
            follower,
            rank_store: ReportingRankStore::new(rank_store, notices.clone(), Arc::clone(live)),
            notices,
        };
        let asked = WakeSources { requests: bounded(1).1, woken: self.sources.live.captures().wakes() };
        Control::run(part, asked, pause, None, Vec::new())
    }

    fn lead(self, directory: &Path) -> Result<Control, StartFailure> {
        let word = random_id().map_err(|error| StartFailure::new("no random numbers", "", error))?;
        let Self { config, config_file, sources, wants_stop, notices, .. } = &self;
        let run_directory = self.run_directory.clone();
        let hint = "set `control.directory` to a directory for this run alone, or name the run with TRAINMON_RUN_NAME";
        // A custom store needs no directory unless there is a server in it.
        let is_used = self.rank_store.is_none() || config.control.is_some();
        let claim = is_used.then(|| DirectoryLock::take(directory)).transpose();
        let claim = claim.map_err(|error| StartFailure::new(error.to_string(), hint, Box::new(error)))?;
        let (progress_log, config) = (ProgressLog::default(), Arc::new((*config).clone()));
        let world = sources.run.world_size;
        let leader =
            Leader::new(word.clone(), world, Arc::clone(&config), Arc::clone(&sources.live), progress_log.clone());
        let rank_store =
            ReportingRankStore::new(self.rank_store(directory, &word), notices.clone(), Arc::clone(&sources.live));
        let (requests, incoming) = bounded(MAX_WAITING_CHANGES);
        let numbers = ChangeIds::default();
        let asked = StopRequest::new(Arc::clone(wants_stop), numbers.clone());
        // A single process can end without agreement.
        let leader = if world > 1 { leader.with_stop(asked) } else { leader };
        let mut captures = CaptureRequests::new(&config, numbers.clone());
        if world == 1 {
            captures.schedule_initial(sources.live.step(), sources.live.captures());
        }
        let leader = leader.with_captures(captures).with_relay(self.relay.clone());
        let mut locations = Vec::new();
        let server = match &config.control {
            Some(control) => {
                let service = ControlService::new(
                    sources.clone(),
                    progress_log,
                    requests,
                    numbers.clone(),
                    config.capture.clone(),
                );
                let (server, places) = open(control, service, directory, run_directory.as_deref(), notices)?;
                locations = places;
                Some(server)
            }
            None => None,
        };
        let is_watched = config.dynamic_on.is_some() || config.capture.is_some();
        let watch = config_file.clone().filter(|_| is_watched);
        if config.dynamic_on.is_some() && watch.is_none() {
            let message = "dynamic mode has no effect, because the config was not read from a file";
            notices.warn(message, Some("pass the config as a file".to_owned()));
        }
        let notices = notices.clone();
        let watch = watch
            .map(|file| FileWatch::new(file, Arc::clone(&config), Arc::clone(&sources.live), numbers, notices.clone()));
        let part = Role::Leads { leader: Box::new(leader), rank_store, watch, notices, _claim: claim };
        let asked = WakeSources { requests: incoming, woken: sources.live.captures().wakes() };
        Control::run(part, asked, between_looks(world), server, locations)
    }
}

/// Starts the server and publishes its addresses.
fn open(
    control: &ControlConfig,
    service: ControlService,
    directory: &Path,
    run_directory: Option<&Path>,
    notices: &Notices,
) -> Result<(Server, Vec<String>), StartFailure> {
    let run = service.sources.run.clone();
    let token_file = control.token_file.clone().unwrap_or_else(|| directory.join("control.token"));
    let token = Token::create(&token_file).map_err(|error| {
        let what = format!("cannot write the token file `{}`", token_file.display());
        StartFailure::new(what, "set another path with `control.token_file`", error)
    })?;
    let socket = control.socket.clone().unwrap_or_else(|| directory.join("control.sock"));
    let address = control.port.map(|port| std::net::SocketAddr::new(control.bind, port));
    let listeners = Listeners { socket: &socket, address, token };
    let server = Server::start(listeners, service, notices).map_err(|error| {
        StartFailure::new("the server cannot start", "check the limits on threads and open files", error)
    })?;
    let addresses = Addresses { socket: server.socket(), address: server.address(), token_file: &token_file };
    let places: Vec<&Path> = [Some(directory), run_directory].into_iter().flatten().collect();
    let described = place::describe(&places, &addresses, &run);
    let described = described.map_err(|error| StartFailure::new("cannot write the control addresses", "", error))?;
    let address = server.address().map(|address| format!("http://{address}"));
    let ways = server.socket().map(|path| path.display().to_string()).into_iter().chain(address);
    let locations = ways.chain(described.first().map(|path| path.display().to_string())).collect();
    Ok((server, locations))
}

impl Control {
    fn run(
        part: Role,
        asked: WakeSources,
        pause: Duration,
        server: Option<Server>,
        locations: Vec<String>,
    ) -> Result<Self, StartFailure> {
        let (stop, stopped) = bounded(0);
        let (alive, ended) = bounded(0);
        let thread = std::thread::Builder::new().name("trainmon-agree".to_owned()).spawn(move || {
            // Dropped when the thread ends, in any way.
            let _alive: Sender<()> = alive;
            part.run(asked, &stopped, pause);
        });
        let thread = thread.map_err(|error| StartFailure::new("cannot start a thread", "", error))?;
        Ok(Self { server, stop: Some(stop), ended, thread: Some(thread), locations, _place: None })
    }

    /// The addresses, one line each.
    pub fn locations(&self) -> &[String] {
        &self.locations
    }

    /// Stops accepting requests. The ranks still communicate.
    pub fn close(&mut self, deadline: Instant) {
        if let Some(server) = self.server.take() {
            server.stop(deadline.min(Instant::now() + PATIENCE));
        }
    }

    /// Ends the threads, until the deadline.
    pub fn stop(mut self, deadline: Instant) {
        self.close(deadline);
        let deadline = deadline.min(Instant::now() + PATIENCE);
        drop(self.stop.take());
        // A hanging store is abandoned with its thread: it holds nothing that the training uses.
        let ended = receive_by(&self.ended, deadline) == Err(crossbeam_channel::RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            drop(thread.join());
        }
    }
}

/// A store that reports when it begins to fail and when it works again.
struct ReportingRankStore {
    rank_store: Box<dyn RankStore>,
    notices: Notices,
    live: Arc<Live>,
    fails: bool,
}

impl ReportingRankStore {
    fn new(rank_store: Box<dyn RankStore>, notices: Notices, live: Arc<Live>) -> Self {
        Self { rank_store, notices, live, fails: false }
    }

    fn with<T: Default>(&mut self, work: impl FnOnce(&mut dyn RankStore) -> std::io::Result<T>) -> T {
        let outcome = work(&mut *self.rank_store);
        match (&outcome, std::mem::replace(&mut self.fails, outcome.is_err())) {
            // The store may end before the monitor does.
            (Err(_), false) if self.live.is_over() => {}
            (Err(error), false) => self.notices.warn(
                format!("live control: the ranks cannot communicate: {error}; retrying"),
                Some("make the control directory (`control.directory`) writable for every rank".to_owned()),
            ),
            (Ok(_), true) => self.notices.info("live control: the ranks communicate again"),
            _ => {}
        }
        outcome.unwrap_or_default()
    }
}

/// The channels that wake the thread.
struct WakeSources {
    /// Change requests from the service.
    requests: Receiver<ChangeRequest>,
    /// Alerts that request a capture.
    woken: Receiver<()>,
}

/// The role of the thread.
enum Role {
    Leads {
        leader: Box<Leader>,
        rank_store: ReportingRankStore,
        watch: Option<FileWatch>,
        notices: Notices,
        _claim: Option<DirectoryLock>,
    },
    Follows {
        follower: Follower,
        rank_store: ReportingRankStore,
        notices: Notices,
    },
}

impl Role {
    fn run(mut self, asked: WakeSources, stopped: &Receiver<()>, pause: Duration) {
        let WakeSources { mut requests, mut woken } = asked;
        loop {
            let request = select! {
                recv(stopped) -> _ => {
                    // Publishes the receipts of the last messages.
                    self.tick(None, Instant::now());
                    return;
                }
                recv(woken) -> word => {
                    if word.is_err() {
                        woken = crossbeam_channel::never();
                    }
                    None
                }
                recv(requests) -> request => {
                    // The service may have ended; there are no requests then.
                    if request.is_err() {
                        requests = crossbeam_channel::never();
                    }
                    request.ok()
                }
                default(pause) => None,
            };
            self.tick(request, Instant::now());
        }
    }

    fn tick(&mut self, request: Option<ChangeRequest>, now: Instant) {
        match self {
            Self::Leads { leader, rank_store, watch, notices, _claim } => {
                for request in
                    request.into_iter().chain(watch.as_mut().map(|watch| watch.tick(now)).unwrap_or_default())
                {
                    leader.push(request);
                }
                for said in rank_store.with(|rank_store| leader.tick(now, rank_store)) {
                    say(notices, said);
                }
            }
            Self::Follows { follower, rank_store, notices } => {
                match rank_store.with(|rank_store| follower.tick(now, rank_store)) {
                    Some(FollowerEvent::Missed { agreed, switched }) => {
                        let message =
                            format!("a change agreed for step {agreed} takes effect on this rank at step {switched}");
                        notices.warn(message, Some(LATE_HINT.to_owned()));
                    }
                    Some(FollowerEvent::TakenUp { agreed }) => {
                        notices.info(format!(
                            "live control: adopts the change that the other ranks agreed on for step {agreed}"
                        ));
                    }
                    None => {}
                }
            }
        }
    }
}

/// The name under which the ranks of an unnamed run meet.
const UNNAMED: &str = "trainmon";

const LATE_HINT: &str =
    "this rank received the agreement too late; check that the control directory is on a fast file system";

fn say(notices: &Notices, said: LeaderEvent) {
    match said {
        LeaderEvent::Agreed { what, step } => notices.info(format!("live control: {what}, from step {step} on")),
        LeaderEvent::Withdrawn { what, why } => {
            let message = format!("live control: {what}: withdrawn, {why}");
            notices.warn(message, Some("no rank has changed anything; try again".to_owned()));
        }
        LeaderEvent::Declined { what, why } => {
            let hint = "further alerts and signals are not reported; run `trainmon ctl dump` to capture by hand";
            notices.warn(format!("{what} is declined: {why}"), Some(hint.to_owned()));
        }
        LeaderEvent::Unreadable { ranks, why } => notices.warn(
            format!("live control: cannot read the state of {ranks}: {why}"),
            Some("changes wait until every rank answers; trainmon retries".to_owned()),
        ),
        LeaderEvent::LateSwitch { what, step, late } => notices.warn(
            format!("live control: {what}: rank {} switched at step {} instead of {step}", late.rank, late.step),
            Some(LATE_HINT.to_owned()),
        ),
    }
}
