//! Starts a monitor: from a config, from a file, or one that measures nothing.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use jiff::Zoned;
use trainmon_alerts::{AlertManager, Opening as AlertOpening, RequestCapture};
use trainmon_control::{CaptureSchedule, Control, ControlStart, Live, SinkStatus, Sources, WantsStop};
use trainmon_core::config::{Alerting, Config, Plan, Signals, Window};
use trainmon_core::{AlertTotals, CollectiveTotals, Ledger, PartTable, RunInfo, Step, TensorTable, with_causes};
use trainmon_exporters::Exporter;
use trainmon_journal::JournalView;
use trainmon_service::{ForkGuard, Notices, environment};

use crate::baseline::{BaselineSink, baseline_shared};
use crate::captures::{RecentSteps, RequestFiles, StepsBefore};
use crate::clock::StepClock;
use crate::cost::CostTotals;
use crate::guard::HookGuard;
use crate::inner::{Inner, SoFar};
use crate::journal::{InStepJournal, JOURNAL, OpenJournal};
use crate::monitor::Monitor;
use crate::options::Options;
use crate::outputs::{Opening, Outputs};
use crate::queue::{BatchQueue, batch_queue};
use crate::rank::{RankError, Ranks};
use crate::recorder::Recorder;
use crate::requests::Requests;
use crate::run_place::{RunNameError, RunPlace, run_info};
use crate::shortage::{THREADS_HINT, Threadless, worker_thread};
use crate::sink::{Sink, SinkContext};
use crate::sink_shared::{Output, SinkShared};
use crate::throttle::Throttle;
use crate::worker::{Worker, WorkerSinks, WorkerThread};

/// The monitor could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The launcher's environment does not determine the rank.
    #[error("cannot determine the rank of this process")]
    Rank(#[from] RankError),
    /// The caller's name for the run is invalid.
    #[error(transparent)]
    RunName(#[from] RunNameError),
}

impl Monitor {
    /// Starts a monitor.
    ///
    /// An exporter that cannot start, for example because its port is taken, is reported and skipped; the others run. If no
    /// thread can be started at all, the monitor warns and measures nothing.
    ///
    /// # Errors
    /// The rank cannot be determined, or the run's name is invalid.
    pub fn start(config: Config, options: Options) -> Result<Self, StartError> {
        Self::start_with(config, options, Vec::new())
    }

    /// Starts a monitor from a config file and never fails. If the file is unreadable or invalid, or the monitor cannot
    /// start, it warns of every fault and returns a monitor that measures nothing, so that training continues.
    pub fn open(file: &Path, options: Options) -> Self {
        let notices = options.notices.clone();
        let Some(config) = read_config(file, &notices) else { return Self::inert(notices) };
        let options =
            Options { config_file: options.config_file.or_else(|| Some(file.to_path_buf().into())), ..options };
        Self::start(config, options).unwrap_or_else(|error| {
            notices.warn(format!("{}: nothing is measured; training continues", with_causes(&error)), None);
            Self::inert(notices)
        })
    }

    /// Creates a monitor that measures nothing and writes nothing.
    pub fn inert(notices: Notices) -> Self {
        let window = Window { collect_times: 0, ..Window::default() };
        let config = Config {
            window,
            signals: Signals::default(),
            adhoc: None,
            collectives: None,
            features: None,
            print_struct: false,
            stack_info: false,
            csv: None,
            prometheus: None,
            journal: None,
            alert: Alerting { rules: Vec::new(), ..Alerting::default() },
            ..Config::default()
        };
        let clock = StepClock::new(window, false, Step(0));
        let recorder = Recorder::new(clock, None, None, None);
        let live = Arc::new(Live::new(Step(0), false, Plan::of(&config)));
        let costs = Arc::new(CostTotals::new());
        let ledger = Arc::default();
        let tensors = TensorTable::default();
        let alerts = AlertManager::open(AlertOpening {
            config: &config,
            rank: Ranks::SINGLE.rank,
            world_size: 1,
            run: String::new(),
            base: Path::new(""),
            directory: None,
            tensors: tensors.clone(),
            totals: Arc::default(),
            notices: notices.clone(),
            capture: Arc::new(|_, _| {}),
        });
        Self::assemble(Inner {
            requests: Requests::none(),
            config,
            ranks: Ranks::SINGLE,
            run: String::new(),
            place: RunPlace::default(),
            tensors,
            recorder: Mutex::new(recorder),
            live,
            rotation: Arc::default(),
            captures: RequestFiles::default(),
            control: Mutex::default(),
            alerts: Arc::new(alerts),
            worker: Mutex::default(),
            sinks: Vec::new(),
            ledger,
            collectives: Arc::default(),
            part_table: Arc::default(),
            costs,
            guard: HookGuard::new(notices.clone()),
            fork: ForkGuard::of_this_process(),
            so_far: SoFar::default(),
            notices,
        })
    }

    /// Starts a monitor with the caller's own exporters in addition to the configured ones.
    ///
    /// # Errors
    /// As [`Monitor::start`].
    pub fn start_with(config: Config, options: Options, own: Vec<Box<dyn Exporter>>) -> Result<Self, StartError> {
        let options = options.with_quiet_heeded();
        let ranks = options.ranks.map_or_else(|| Ranks::from_environment(environment::variable), Ok)?;
        let now = Zoned::now();
        let (run, is_named) = run_info(&options, ranks, &now)?;
        match worker_thread() {
            Ok(thread) => Ok(Self::start_on(&thread, config, Beginning { options, ranks, now, run, is_named }, own)),
            Err(why) => {
                let message = format!("{why}: nothing is measured; training continues");
                options.notices.warn(message, Some(THREADS_HINT.to_owned()));
                Ok(Self::inert(options.notices))
            }
        }
    }

    fn start_on(thread: &WorkerThread, mut config: Config, begins: Beginning, own: Vec<Box<dyn Exporter>>) -> Self {
        let Beginning { options, ranks, now, run, is_named } = begins;
        config.settle_layout(options.layout);
        let mut place = RunPlace::open(&config, &options, &run, &now);
        warn_of_tasks_left_undone(&config, &options);
        let rank_measures = config.ranks.is_empty() || config.ranks.contains(&ranks.rank.0);
        let (queue, source) = batch_queue(config.pipeline.queue_steps);
        let (ledger, costs) = (Arc::<Ledger>::default(), Arc::new(CostTotals::new()));
        let alert_totals = Arc::<AlertTotals>::default();
        let (collectives, parts) = (Arc::<CollectiveTotals>::default(), Arc::<PartTable>::default());
        let requests = Requests::of(&config);
        let baseline = baseline_shared(&config, rank_measures);
        let opening = Opening {
            config: &config,
            options: &options,
            run: &run,
            place: &mut place,
            rank_measures,
            ledger: &ledger,
            waiting: source.waiting(),
            requests: &requests,
            alerts: &alert_totals,
            collectives: &collectives,
            parts: &parts,
            baseline: baseline.as_ref(),
        };
        let outputs = opening.open(own);
        let mut kept = outputs.locations();
        let context = SinkContext {
            tensors: TensorTable::default(),
            returns: source.returns.clone(),
            costs: Arc::clone(&costs),
            alerts: Arc::clone(&alert_totals),
            notices: options.notices.clone(),
        };
        let mut threadless = Threadless::default();
        let StartedSinks { journal, in_step, view, sinks } = start_sinks(outputs, &context, &mut threadless);
        let captures = Arc::<CaptureSchedule>::default();
        let alerts = open_alerts(&config, ranks, &run, &place, &context, asks_for_capture(&captures));
        trainmon_stats::start_threads();
        let baseline =
            baseline.map(|shared| BaselineSink::output(&config, ranks.rank, &place, &alerts, &options.notices, shared));
        kept.extend(baseline.iter().map(Output::locations));
        let baseline = baseline.and_then(|output| start_sink(output, &context, &mut threadless));
        threadless.tell(&options.notices);
        let (files, recent) = request_files(&config, view, &context.tensors);
        let worker_sinks =
            WorkerSinks { journal, sinks, baseline, alerts: alert_totals, ledger: Arc::clone(&ledger), recent };
        kept.retain(|(shared, _)| worker_sinks.has(shared));
        let (recorder, live) =
            first_step(&config, (rank_measures, Step(options.start_iteration)), queue, in_step, captures);
        let sources = Sources {
            run: run.clone(),
            live: Arc::clone(&live),
            ledger: Arc::clone(&ledger),
            tensors: context.tensors.clone(),
            collectives: Arc::clone(&collectives),
            sinks: kept.iter().map(sink_status).collect(),
            waiting: source.waiting(),
            capacity: config.pipeline.queue_steps,
            overhead_budget: config.overhead_budget,
            started: Instant::now(),
        };
        let worker = Worker::start(thread, source, worker_sinks, Arc::clone(&alerts));
        let start = ControlStart {
            config: &config,
            base: place.base.clone(),
            is_named,
            run_directory: place.described_in(&config),
            config_file: options.config_file,
            rank_store: options.rank_store,
            notices: options.notices.clone(),
            sources,
            wants_stop: wants_stop(&alerts),
            relay: alerts.relay(),
        };
        let control = start.start().or_else(|| without_control(&alerts));
        Self::assemble(Inner {
            config,
            ranks,
            run: run.run,
            place,
            tensors: context.tensors,
            requests,
            recorder: Mutex::new(recorder),
            live,
            rotation: Arc::default(),
            captures: files,
            control: Mutex::new(control),
            alerts,
            worker: Mutex::new(Some(worker)),
            sinks: kept,
            ledger,
            collectives,
            part_table: parts,
            costs,
            guard: HookGuard::new(options.notices.clone()),
            fork: ForkGuard::of_this_process(),
            so_far: SoFar::default(),
            notices: options.notices,
        })
    }
}

/// The inputs of a start, before any thread runs.
struct Beginning {
    options: Options,
    ranks: Ranks,
    now: Zoned,
    run: RunInfo,
    is_named: bool,
}

/// The recorder at the first step, and the state that it shares with live control.
fn first_step(
    config: &Config,
    (rank_measures, first): (bool, Step),
    queue: BatchQueue,
    in_step: Option<InStepJournal>,
    captures: Arc<CaptureSchedule>,
) -> (Recorder, Arc<Live>) {
    let plan = Plan::of(config);
    let mut clock = StepClock::new(config.window, rank_measures, first);
    clock.set_paused(plan.paused);
    let recorder = Recorder::new(clock, Some(queue), in_step, config.overhead_budget.map(Throttle::new));
    let live = Arc::new(Live::new(clock.step(), recorder.collecting(), plan).with_captures(captures));
    (recorder, live)
}

fn open_alerts(
    config: &Config,
    ranks: Ranks,
    run: &RunInfo,
    place: &RunPlace,
    context: &SinkContext,
    capture: RequestCapture,
) -> Arc<AlertManager> {
    Arc::new(AlertManager::open(AlertOpening {
        config,
        rank: ranks.rank,
        world_size: ranks.world_size,
        run: run.run.clone(),
        base: &place.shared,
        directory: place.rank_directory.as_deref(),
        tensors: context.tensors.clone(),
        totals: Arc::clone(&context.alerts),
        notices: context.notices.clone(),
        capture,
    }))
}

fn warn_of_tasks_left_undone(config: &Config, options: &Options) {
    for task in config.front_tasks().filter(|task| !options.front_tasks.contains(task)) {
        let message = format!("`{}` has no effect: this front does not support it", task.key());
        options.notices.warn(message, Some("remove the key, or watch the training with another front".to_owned()));
    }
}

struct StartedSinks {
    journal: Option<Sink>,
    in_step: Option<InStepJournal>,
    /// Reads the journal while it is being written.
    view: Option<JournalView>,
    sinks: Vec<Sink>,
}

/// Starts the threads of the journal and of each exporter. Skips outputs whose thread cannot be started.
fn start_sinks(outputs: Outputs, context: &SinkContext, threadless: &mut Threadless) -> StartedSinks {
    let view = outputs.journal.as_ref().map(|open| open.journal.view());
    let start_journal = |open: OpenJournal| {
        let (output, in_step) = open.start(context.tensors.clone(), &context.notices)?;
        Ok((Sink::start(output, context.clone())?, in_step))
    };
    let journal = outputs.journal.and_then(|open| threadless.keep(JOURNAL, start_journal(open)));
    let view = view.filter(|_| journal.is_some());
    let (journal, in_step) = journal.map_or((None, None), |(sink, in_step)| (Some(sink), in_step));
    let sinks = outputs.exporters.into_iter().filter_map(|output| start_sink(output, context, threadless)).collect();
    StartedSinks { journal, in_step, view, sinks }
}

fn start_sink(output: Output, context: &SinkContext, threadless: &mut Threadless) -> Option<Sink> {
    threadless.keep(output.shared.name, Sink::start(output, context.clone()))
}

fn sink_status((shared, places): &(Arc<SinkShared>, Vec<String>)) -> SinkStatus {
    SinkStatus {
        name: shared.name,
        ledger: Arc::clone(&shared.ledger),
        queued: Arc::clone(&shared.queued),
        capacity: shared.capacity,
        places: places.clone(),
    }
}

/// Creates the writer of the files beside captures and, if captures can be requested, the list of latest steps for it.
fn request_files(
    config: &Config,
    view: Option<JournalView>,
    tensors: &TensorTable,
) -> (RequestFiles, Option<Arc<RecentSteps>>) {
    let recent = Arc::<RecentSteps>::default();
    let files = RequestFiles::new(StepsBefore::new(view, Arc::clone(&recent), tensors.clone()));
    (files, config.capture.is_some().then_some(recent))
}

/// Requests a capture for an alert with the action `dump` or `replay`.
fn asks_for_capture(captures: &Arc<CaptureSchedule>) -> RequestCapture {
    let captures = Arc::clone(captures);
    Arc::new(move |alert, actions| captures.ask_by_alert(alert, actions.replay))
}

/// Without live control, this rank has no thread that communicates with the others.
fn without_control(alerts: &AlertManager) -> Option<Control> {
    alerts.stand_alone();
    None
}

fn wants_stop(alerts: &Arc<AlertManager>) -> WantsStop {
    let alerts = Arc::clone(alerts);
    Arc::new(move || alerts.stop_requested())
}

/// Reads a config file and warns of every fault in it.
fn read_config(file: &Path, notices: &Notices) -> Option<Config> {
    let name = file.display().to_string();
    let off = "nothing is measured; training continues";
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            notices.warn(format!("cannot read `{name}`: {error}: {off}"), Some("check the path".to_owned()));
            return None;
        }
    };
    match Config::parse_for_training(&text, &name, &environment::variable) {
        Ok(parsed) => {
            for warning in &parsed.warnings {
                notices.warn(warning.to_string(), warning.hint.clone());
            }
            Some(parsed.config)
        }
        Err(errors) => {
            let hint = format!("run `trainmon check-config {name}` to see the line in the file");
            notices.warn(format!("{errors}\n{off}"), Some(hint));
            None
        }
    }
}
