//! A journal nothing happened to.

use std::os::unix::fs::PermissionsExt as _;

use trainmon_core::config::Config;
use trainmon_core::{Rank, Step};
use trainmon_journal::{Fault, Journal, JournalError, MIN_FILE_BYTES, Recovered, Storage, prune};

use super::support::{BOTH, Workspace, assert_genuine, batch, config, names, spec};

#[test]
fn what_was_written_is_read_to_the_last_bit_and_nothing_is_wrong_with_it() {
    for storage in BOTH {
        let workspace = Workspace::new();
        let mut journal = workspace.journal(storage);
        for step in 0..5 {
            journal.append(&names(20), &batch(step, 20)).unwrap();
        }
        journal.append_alert(br#"{"rule":"Spike"}"#).unwrap();
        assert!(!workspace.recovered().is_closed());
        journal.close().unwrap();
        let recovered = workspace.recovered();
        assert_eq!(assert_genuine(&recovered, 20), [0, 1, 2, 3, 4]);
        assert_eq!(recovered.names(), names(20));
        assert_eq!(recovered.alerts(), [r#"{"rule":"Spike"}"#]);
        assert_eq!(recovered.faults(), []);
        assert!(recovered.is_closed());
        assert_eq!((recovered.run().run.as_str(), recovered.run().world_size), ("test", 2));
        assert_eq!(recovered.csv().steps_per_file(), 10);
        assert_eq!(recovered.config_as_written()["dialect"], "v1");
    }
}

#[test]
fn the_ring_keeps_the_newest_steps_and_neither_names_nor_alerts_make_room() {
    for storage in BOTH {
        let workspace = Workspace::new();
        let mut journal = workspace.journal(storage);
        journal.append_alert(b"the first").unwrap();
        let steps = 2_000;
        let mut step_bytes = 0;
        for step in 0..steps {
            // A step now and then is larger: frames begin at ever other places of the ring.
            let records = if step % 7 == 0 { 33 } else { 20 };
            step_bytes = journal.append(&names(33), &batch(step, records)).unwrap();
        }
        assert!(step_bytes > 500);
        let (first, last) = journal.view().held().unwrap();
        drop(journal);
        let recovered = workspace.recovered();
        assert_eq!(recovered.faults(), []);
        assert_eq!(recovered.alerts(), ["the first"]);
        assert_eq!(recovered.names(), names(33));
        let numbers: Vec<u64> = recovered.step_numbers().map(|step| step.0).collect();
        assert_eq!((numbers[0], *numbers.last().unwrap()), (first.0, last.0));
        assert_eq!(numbers, (first.0..steps).collect::<Vec<_>>());
        // The ring has at least half of the smallest file.
        assert!(numbers.len() as u64 > MIN_FILE_BYTES / 2 / (2 * step_bytes), "{}", numbers.len());
    }
}

#[test]
fn alerts_make_room_for_newer_alerts() {
    let workspace = Workspace::new();
    let mut journal = workspace.journal(Storage::Auto);
    for number in 0..3_000 {
        journal.append_alert(format!("alert {number}").as_bytes()).unwrap();
    }
    drop(journal);
    let recovered = workspace.recovered();
    assert_eq!(recovered.faults(), []);
    let kept = recovered.alerts().len();
    assert!(kept > 50, "{kept}");
    let expected: Vec<String> = (3_000 - kept..3_000).map(|number| format!("alert {number}")).collect();
    assert_eq!(recovered.alerts(), expected);
}

#[test]
fn a_step_larger_than_the_ring_is_an_error_and_noted_and_the_next_one_is_kept() {
    let workspace = Workspace::new();
    let mut journal = workspace.journal(Storage::Auto);
    journal.append(&names(5), &batch(0, 5)).unwrap();
    let error = journal.append(&names(9_000), &batch(1, 9_000)).unwrap_err();
    assert!(matches!(error, JournalError::TooLarge { step: Step(1), .. }), "{error}");
    assert_eq!(error.hint(), "raise `journal.size_mb`");
    journal.append(&names(9_000), &batch(2, 5)).unwrap();
    drop(journal);
    let recovered = workspace.recovered();
    assert_eq!(recovered.step_numbers().map(|step| step.0).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(recovered.faults(), [Fault::TooLarge { step: Step(1), records: 9_000 }]);
}

#[test]
fn names_the_log_has_no_room_for_come_with_the_steps_that_use_them() {
    let workspace = Workspace::new();
    let mut journal = workspace.journal(Storage::Auto);
    let count = 1_500;
    let few = batch(0, 3);
    journal.append(&names(count), &few).unwrap();
    let mut last = batch(1, 3);
    last.records[2].tensor = trainmon_core::TensorId(count - 1);
    journal.append(&names(count), &last).unwrap();
    drop(journal);
    let recovered = workspace.recovered();
    assert_eq!(recovered.faults(), []);
    assert_eq!(recovered.names().len(), count as usize);
    let expected = names(count);
    assert_eq!(recovered.names()[count as usize - 1], expected[count as usize - 1]);
    assert_eq!(recovered.names()[..100], expected[..100]);
    // Nobody measured this one: nothing is lost with its name.
    assert_eq!(&*recovered.names()[count as usize - 2].name, format!("unnamed_tensor_{}", count - 2));
}

#[test]
fn an_earlier_runs_journal_stays_and_the_new_one_takes_the_next_name() {
    let workspace = Workspace::new();
    let config = config();
    for (number, expected) in ["journal_rank0.tmj", "journal_rank0.2.tmj", "journal_rank0.3.tmj"].iter().enumerate() {
        let mut journal =
            Journal::create_in(workspace.directory(), &spec(&config, MIN_FILE_BYTES, Storage::Auto)).unwrap();
        journal.append(&names(1), &batch(number as u64, 1)).unwrap();
        assert_eq!(journal.path(), workspace.directory().join(expected));
    }
    assert_eq!(assert_genuine(&workspace.recovered(), 1), [0]);
    let error = Journal::create(&workspace.path(), &spec(&config, MIN_FILE_BYTES, Storage::Auto)).unwrap_err();
    assert!(matches!(&error, JournalError::Create { .. }), "{error}");
    assert_eq!(assert_genuine(&workspace.recovered(), 1), [0]);
}

#[test]
fn a_journal_without_a_step_is_whole() {
    let workspace = Workspace::new();
    drop(workspace.journal(Storage::Auto));
    let recovered = workspace.recovered();
    assert_eq!((recovered.step_numbers().len(), recovered.faults().len()), (0, 0));
    assert!(Recovered::open(workspace.directory()).unwrap_err().to_string().ends_with("is a directory, not a journal"));
}

#[test]
fn only_its_owner_may_read_the_file_and_no_secret_is_in_it() {
    let workspace = Workspace::new();
    let text = r#"{"wg_distribution": true, "format": ["csv", "otlp"],
        "otlp": {"endpoint": "http://collector:4318/s3cret?key=s3cret", "headers": {"x-key": "s3cret"}},
        "alert": {"webhook": {"url": "https://u:s3cret@hooks.example/T0/s3cret?token=s3cret"}, "actions": ["webhook"]}}"#;
    let config = Config::parse(text, "t", &|_| None).unwrap().config;
    assert!(config.alert.webhook.is_some() && config.otlp.is_some());
    drop(Journal::create(&workspace.path(), &spec(&config, MIN_FILE_BYTES, Storage::Auto)).unwrap());
    assert_eq!(workspace.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = std::fs::read(workspace.path()).unwrap();
    assert!(!bytes.windows(6).any(|window| window == b"s3cret"));
    let written = workspace.recovered().config_as_written().to_string();
    assert!(written.contains("https://hooks.example/(hidden)") && written.contains("http://collector:4318/(hidden)"));
}

#[test]
fn the_oldest_journals_make_room_but_never_one_that_is_being_written() {
    let workspace = Workspace::new();
    let config = config();
    let make = || Journal::create_in(workspace.directory(), &spec(&config, MIN_FILE_BYTES, Storage::Auto)).unwrap();
    let live = make();
    for _ in 0..11 {
        drop(make());
    }
    // Names that are not this rank's, or nobody's.
    let others = ["journal_rank1.tmj", "journal_rank0.x.tmj", "journal_rank0.02.tmj", "journal_rank0.tmj.bak"];
    for other in others {
        std::fs::write(workspace.directory().join(other), "kept").unwrap();
    }
    let pruned = prune(workspace.directory(), Rank(0), 3);
    assert!(pruned.failed.is_empty(), "{pruned:?}");
    let removed: Vec<_> =
        (2..=9).map(|number| workspace.directory().join(format!("journal_rank0.{number}.tmj"))).collect();
    assert_eq!(pruned.removed, removed);
    assert!(live.path().exists() && others.iter().all(|other| workspace.directory().join(other).exists()));
    // What was deleted leaves no gap to fill: the newest number is the newest run.
    assert_eq!(make().path(), workspace.directory().join("journal_rank0.13.tmj"));
    drop(live);
    assert_eq!(
        prune(workspace.directory(), Rank(0), 3).removed.first(),
        Some(&workspace.directory().join("journal_rank0.tmj"))
    );
    assert!(prune(&workspace.directory().join("nowhere"), Rank(0), 0).removed.is_empty());
}
