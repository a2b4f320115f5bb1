//! A monitor with a journal that ends in order, or cannot have one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use trainmon_agent::core::config::{Config, FileLayout, Pipeline};
use trainmon_agent::core::{Alert, AlertPhase, SinkSnapshot};
use trainmon_agent::{Monitor, Notices, Options, Ranks, Report};
use trainmon_journal::{Fault, Recovered};

use super::training::{monitor, run_directory, step_once};

/// The training of these tests never waits: the queues take it all.
fn parse(text: &str) -> Config {
    let config = Config::parse(text, "test.json", &|_| None).unwrap().config;
    let pipeline = Pipeline { queue_steps: 64, shutdown_timeout_ms: 60_000 };
    Config { pipeline, ..config }
}

/// Runs so many steps of three records to the end.
fn run(config: &str, directory: &Path, steps: u64) -> (Report, Vec<String>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let options = Options {
        ranks: Some(Ranks::SINGLE),
        output_dir: Some(directory.to_path_buf()),
        layout: FileLayout::Msprobe,
        notices: Notices::new(move |notice| hears.lock().unwrap().push(notice.to_string())),
        ..Options::default()
    };
    let monitor = Monitor::start(parse(config), options).unwrap();
    for index in 0..3 {
        monitor.register(&format!("t{index}"), 0);
    }
    for step in 0..steps {
        step_once(&monitor, step, 3, 60);
    }
    let report = monitor.shutdown();
    assert!(report.balances(), "{report}");
    (report, heard.lock().unwrap().clone())
}

fn journal_books(report: &Report) -> SinkSnapshot {
    report.sinks.iter().find(|sink| sink.name == "journal").unwrap().counts
}

fn journal_of(report: &Report) -> PathBuf {
    let journal = report.sinks.iter().find(|sink| sink.name == "journal").unwrap();
    assert_eq!(journal.locations.len(), 1);
    journal.locations[0].clone().into()
}

#[test]
fn every_record_is_accounted_for_and_the_journal_is_closed_in_order() {
    let base = tempfile::tempdir().unwrap();
    let config = r#"{"wg_distribution": true, "format": ["csv", "journal"], "journal": {"size_mb": 1}}"#;
    let (report, heard) = run(config, base.path(), 50);
    assert!(heard.iter().all(|notice| notice.contains("NonFinite")), "{heard:?}");
    let sinks: Vec<_> =
        report.sinks.iter().map(|sink| (sink.name, sink.counts.accepted, sink.counts.exported)).collect();
    assert_eq!(sinks, [("csv", 150, 150), ("journal", 150, 150)]);
    let path = journal_of(&report);
    assert_eq!(path, run_directory(base.path()).unwrap().join("journal_rank0.tmj"), "beside the CSV files");
    let recovered = Recovered::open(&path).unwrap();
    assert!(recovered.is_closed());
    assert_eq!(recovered.faults(), []);
    assert!(recovered.step_numbers().map(|step| step.0).eq(0..50));
    // Steps 16 and 33 are NaN: each begins an alert that ends some steps later.
    let told: Vec<Alert> = recovered.alerts().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let begun = told.iter().filter(|alert| alert.phase == AlertPhase::Begins).map(|alert| alert.step.0);
    assert_eq!(begun.collect::<Vec<_>>(), [16, 33]);
    assert_eq!(told.len(), heard.len());
}

#[test]
fn the_journal_alone_goes_to_the_output_directory_and_to_dir_where_that_is_set() {
    let base = tempfile::tempdir().unwrap();
    let alone = r#"{"wg_distribution": true, "format": "journal", "ndigits": 3, "step_count_per_record": 7}"#;
    let (report, _) = run(alone, base.path(), 3);
    let path = journal_of(&report);
    assert_eq!(path, base.path().join("journal_rank0.tmj"));
    // 64 MiB is the default, all of it reserved.
    assert_eq!(path.metadata().unwrap().len(), 64 << 20);
    let recovered = Recovered::open(&path).unwrap();
    assert_eq!((recovered.csv().ndigits, recovered.csv().steps_per_file()), (Some(3), 7));
    let elsewhere = base.path().join("fast/disk");
    let text = format!(
        r#"{{"wg_distribution": true, "format": "csv", "journal": {{"size_mb": 1, "dir": "{}"}}}}"#,
        elsewhere.display()
    );
    for expected in ["journal_rank0.tmj", "journal_rank0.2.tmj"] {
        let (report, _) = run(&text, base.path(), 3);
        assert_eq!(journal_of(&report), elsewhere.join(expected));
    }
}

/// A monitor, and what it says.
fn heard_monitor(text: &str, base: &Path) -> (Monitor, Arc<Mutex<Vec<String>>>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = Arc::clone(&heard);
    let options = Options {
        ranks: Some(Ranks::SINGLE),
        output_dir: Some(base.to_path_buf()),
        notices: Notices::new(move |notice| hears.lock().unwrap().push(notice.to_string())),
        ..Options::default()
    };
    (Monitor::start(parse(text), options).unwrap(), heard)
}

#[test]
fn a_step_too_large_for_the_journal_counts_as_failed_and_is_said_once() {
    let base = tempfile::tempdir().unwrap();
    let text = r#"{"wg_distribution": true, "format": "journal", "journal": {"size_mb": 1}, "alert": {"rules": []}}"#;
    let (monitor, heard) = heard_monitor(text, base.path());
    let large = 40_000;
    for index in 0..large {
        monitor.register(&format!("t{index}"), 0);
    }
    for (step, records) in [(0, 3), (1, large), (2, large), (3, 3)] {
        step_once(&monitor, step, records, 200_000);
    }
    let report = monitor.shutdown();
    assert!(report.balances());
    let counts = report.sinks[0].counts;
    assert_eq!((counts.accepted, counts.exported, counts.failed), (80_006, 6, 80_000));
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(heard[0].contains("journal: step 1 has ") && heard[0].contains("hint: raise `journal.size_mb`"));
    assert!(heard[1].contains("journal: works again; 80000 records were lost in between"));
    let recovered = Recovered::open(&journal_of(&report)).unwrap();
    assert!(recovered.step_numbers().map(|step| step.0).eq([0, 3]));
    let too_large = |step| Fault::TooLarge { step: trainmon_agent::core::Step(step), records: large };
    assert_eq!(recovered.faults(), [too_large(1), too_large(2)]);
}

#[test]
fn without_a_place_for_the_journal_everything_else_goes_on() {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("file"), "").unwrap();
    let dir = base.path().join("file/below");
    let config = format!(r#"{{"wg_distribution": true, "journal": {{"dir": "{}"}}}}"#, dir.display());
    let (report, heard) = run(&config, base.path(), 5);
    assert_eq!(report.sinks.len(), 1);
    assert_eq!(report.sinks[0].counts.exported, 15);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].contains("no journal: cannot create the journal `"), "{heard:?}");
    assert!(heard[0].contains("all else continues") && heard[0].contains("`journal.dir`"), "{heard:?}");
}

#[test]
fn a_rank_that_does_not_measure_keeps_no_journal() {
    let base = tempfile::tempdir().unwrap();
    let config = parse(r#"{"wg_distribution": true, "format": "journal", "module_ranks": [5]}"#);
    let report = monitor(config, base.path()).shutdown();
    assert_eq!(report.sinks.len(), 0);
    assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
}

#[test]
fn a_journal_that_cannot_be_written_any_more_counts_its_losses_and_says_so_once() {
    let base = tempfile::tempdir().unwrap();
    let text = r#"{"wg_distribution": true, "format": ["csv", "journal"], "journal": {"size_mb": 1, "flush_steps": 0},
        "alert": {"rules": []}}"#;
    let (monitor, heard) = heard_monitor(text, base.path());
    for index in 0..3 {
        monitor.register(&format!("t{index}"), 0);
    }
    step_once(&monitor, 0, 3, 0);
    // Every write is refused from now on.
    let path = journal_of(&monitor.report());
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(100_000).unwrap();
    (1..9).for_each(|step| step_once(&monitor, step, 3, 0));
    let report = monitor.shutdown();
    assert!(report.balances(), "{report}");
    let counts = |name| report.sinks.iter().find(|sink| sink.name == name).unwrap().counts;
    assert_eq!((counts("journal").exported, counts("journal").failed), (3, 24), "{report}");
    assert_eq!(counts("csv").exported, 27, "{report}");
    let heard = heard.lock().unwrap().join("\n");
    assert_eq!(heard.matches("losses are counted, training continues").count(), 1, "{heard}");
}

/// A training of 60 steps whose worker is held up from step 16 on and whose queues have room for four. `goes_on`: then of
/// four more, each waited for.
fn held_up(budget: u32, goes_on: bool, base: &Path) -> (Report, Vec<String>, PathBuf) {
    let gate = Arc::new((Mutex::new(true), Condvar::new()));
    let (heard, held) = (Arc::<Mutex<Vec<String>>>::default(), Arc::clone(&gate));
    let hears = Arc::clone(&heard);
    let notices = Notices::new(move |notice| {
        hears.lock().unwrap().push(notice.to_string());
        // The worker says this one: step 16 is NaN.
        if notice.message.contains("NonFinite") {
            drop(held.1.wait_while(held.0.lock().unwrap(), |is_closed| *is_closed));
        }
    });
    let text = format!(
        r#"{{"wg_distribution": true, "format": ["csv", "journal"],
            "journal": {{"size_mb": 1, "in_step_budget": {budget}}}}}"#
    );
    let pipeline = Pipeline { queue_steps: 4, shutdown_timeout_ms: 60_000 };
    let output_dir = Some(base.to_path_buf());
    let options = Options { ranks: Some(Ranks::SINGLE), output_dir, notices, ..Options::default() };
    let monitor = Monitor::start(Config { pipeline, ..parse(&text) }, options).unwrap();
    for index in 0..3 {
        monitor.register(&format!("t{index}"), 0);
    }
    (0..16).for_each(|step| step_once(&monitor, step, 3, 0));
    step_once(&monitor, 16, 3, u64::MAX);
    while heard.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    (17..60).for_each(|step| step_once(&monitor, step, 3, u64::MAX));
    *gate.0.lock().unwrap() = false;
    gate.1.notify_all();
    for step in if goes_on { 60..64 } else { 0..0 } {
        let exported = || journal_books(&monitor.report()).exported;
        while exported() < 3 * (step - 39) {
            std::thread::yield_now();
        }
        step_once(&monitor, step, 3, u64::MAX);
    }
    let report = monitor.shutdown();
    let heard = heard.lock().unwrap().clone();
    let path = journal_of(&report);
    (report, heard, path)
}

#[test]
fn a_worker_that_is_held_up_costs_the_journal_no_step() {
    let base = tempfile::tempdir().unwrap();
    let (report, heard, path) = held_up(100, false, base.path());
    assert!(report.balances(), "{report}");
    // One in the worker's hands, four in its queue.
    assert_eq!((report.steps.offered, report.steps.dropped), (60, 39));
    assert_eq!((journal_books(&report).accepted, journal_books(&report).exported), (180, 180), "{report}");
    let recovered = Recovered::open(&path).unwrap();
    assert_eq!(recovered.faults(), []);
    assert!(recovered.step_numbers().map(|step| step.0).eq(0..60));
    // Once at the time, once at the end, with what to change.
    let told: Vec<&String> = heard.iter().filter(|notice| notice.contains("the worker is too slow")).collect();
    assert_eq!(told.len(), 1, "{heard:?}");
    assert!(
        told[0].contains("1 of 22 steps (4.5 %) dropped and counted so far") && told[0].contains("raise `queue_steps`")
    );
    let words = "the queue to the worker dropped 39 of 60 steps (65.0 %): raise `step_interval`, measure less, or";
    assert_eq!(report.to_string().matches(words).count(), 1, "{report}");
}

#[test]
fn steps_that_only_the_journals_own_thread_may_write_are_lost_with_the_queue_and_named() {
    let base = tempfile::tempdir().unwrap();
    let (report, _, path) = held_up(0, true, base.path());
    assert!(report.balances(), "{report}");
    assert_eq!((journal_books(&report).accepted, journal_books(&report).exported), (75, 75), "{report}");
    let recovered = Recovered::open(&path).unwrap();
    assert!(recovered.step_numbers().map(|step| step.0).eq((0..21).chain(60..64)));
    let [first, last] = [21, 59].map(trainmon_agent::core::Step);
    assert_eq!(recovered.faults(), [Fault::NeverWritten { first, last }]);
}

#[test]
fn appending_that_takes_too_much_of_the_step_is_said_once_and_left_to_the_journals_thread() {
    let base = tempfile::tempdir().unwrap();
    let text = r#"{"wg_distribution": true, "format": "journal", "alert": {"rules": []},
        "journal": {"size_mb": 1, "in_step_budget": 0.001}}"#;
    let (monitor, heard) = heard_monitor(text, base.path());
    // More than a tenth of a millisecond, and than a hundred-thousandth of any step.
    let many = 10_000;
    for index in 0..many {
        monitor.register(&format!("t{index}"), 0);
    }
    let mut steps = 0;
    while heard.lock().unwrap().is_empty() {
        // The first step has no length, and 64 after it are judged together.
        assert!(steps <= 64, "not told");
        assert_eq!(monitor.report().sinks[0].steps.offered, 0, "step {steps}: so far all in the training thread");
        step_once(&monitor, steps, many, 0);
        steps += 1;
    }
    (steps..steps + 10).for_each(|step| step_once(&monitor, step, many, 0));
    let report = monitor.shutdown();
    assert!(report.balances(), "{report}");
    let delivered = (steps + 10) * u64::from(many);
    assert_eq!((report.sinks[0].steps.offered, report.sinks[0].counts.exported), (10, delivered), "{report}");
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(
        heard[0].contains("journal: appending a step takes ") && heard[0].contains(" more than 0.001 % of the step")
    );
    assert!(
        heard[0].contains("hint: measure less, raise `step_interval`, or raise `journal.in_step_budget`"),
        "{heard:?}"
    );
}

#[test]
fn a_fixed_directory_keeps_so_many_journals_of_earlier_runs() {
    let base = tempfile::tempdir().unwrap();
    let config = format!(
        r#"{{"wg_distribution": true, "journal": {{"size_mb": 1, "dir": "{}", "keep": 2}}, "alert": {{"rules": []}}}}"#,
        base.path().join("fixed").display()
    );
    let said: Vec<String> = (0..5).flat_map(|_| run(&config, base.path(), 1).1).collect();
    let mut left: Vec<_> =
        std::fs::read_dir(base.path().join("fixed")).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["journal_rank0.3.tmj", "journal_rank0.4.tmj", "journal_rank0.5.tmj"]);
    assert_eq!(said.iter().filter(|notice| notice.contains("journal: deleted `")).count(), 2, "{said:?}");
}
