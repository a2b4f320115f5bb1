//! Reading along while the journal is written.

use std::sync::atomic::{AtomicBool, Ordering};

use trainmon_core::Step;
use trainmon_journal::{Fault, JournalError, Recovered};

use super::support::{BOTH, Workspace, assert_genuine, batch, names};

const RECORDS: u32 = 40;

fn all() -> std::ops::RangeInclusive<Step> {
    Step(0)..=Step(u64::MAX)
}

#[test]
fn a_view_gives_the_steps_asked_for_that_are_still_there() {
    for storage in BOTH {
        let workspace = Workspace::new();
        let mut journal = workspace.journal(storage);
        let view = journal.view();
        assert_eq!((view.held(), view.read_steps(all()).len()), (None, 0));
        for step in 0..10 {
            journal.append(&names(RECORDS), &batch(step, RECORDS)).unwrap();
        }
        let read = view.read_steps(Step(3)..=Step(5));
        let expected: Vec<_> = (3..=5).map(|step| batch(step, RECORDS)).collect();
        assert_eq!(format!("{read:?}"), format!("{expected:?}"));
        for step in 10..1_000 {
            journal.append(&names(RECORDS), &batch(step, RECORDS)).unwrap();
        }
        assert_eq!(view.read_steps(Step(3)..=Step(5)).len(), 0);
        drop(journal);
        assert_eq!(view.read_steps(Step(999)..=Step(999)).len(), 1, "a view outlives the writer");
        view.flush().unwrap();
    }
}

#[test]
fn whoever_reads_along_sees_whole_steps_only_in_this_process_and_from_another() {
    for storage in BOTH {
        let workspace = Workspace::new();
        let mut journal = workspace.journal(storage);
        journal.append(&names(RECORDS), &batch(0, RECORDS)).unwrap();
        let (view, path) = (journal.view(), workspace.path());
        let is_over = AtomicBool::new(false);
        let (seen, rounds) = std::thread::scope(|scope| {
            let along = scope.spawn(|| {
                let (mut seen, mut rounds) = (0, 0);
                // Ten rounds at least, however late this thread gets its first turn.
                while rounds < 10 || !is_over.load(Ordering::Relaxed) {
                    for read in view.read_steps(all()) {
                        let expected = batch(read.step.0, RECORDS);
                        assert_eq!(format!("{read:?}"), format!("{expected:?}"));
                        seen += 1;
                    }
                    // As `trainmon recover` does while the run goes on: what is overwritten meanwhile is torn or gone.
                    for step in Recovered::open(&path).unwrap().steps().flatten() {
                        let expected = batch(step.batch.step.0, RECORDS);
                        assert_eq!(format!("{:?}", step.batch), format!("{expected:?}"));
                    }
                    rounds += 1;
                }
                (seen, rounds)
            });
            for step in 1..1_500 {
                journal.append(&names(RECORDS), &batch(step, RECORDS)).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            along.join().unwrap()
        });
        assert!(seen > rounds, "{seen} steps in {rounds} rounds");
        assert_eq!(assert_genuine(&workspace.recovered(), RECORDS).last(), Some(&1_499));
    }
}

#[test]
fn a_file_cut_short_in_use_is_an_error_and_no_signal() {
    for storage in BOTH {
        let workspace = Workspace::new();
        let mut journal = workspace.journal(storage);
        journal.append(&names(4), &batch(0, 4)).unwrap();
        std::fs::OpenOptions::new().write(true).open(workspace.path()).unwrap().set_len(50_000).unwrap();
        let error = journal.append(&names(4), &batch(1, 4)).unwrap_err();
        assert!(matches!(error, JournalError::Shrunk { found: 50_000, .. }), "{error}");
        assert!(journal.append_alert(b"x").is_err());
        assert_eq!(journal.view().read_steps(all()).len(), 0);
        assert!(journal.view().flush().is_err());
        assert!(journal.close().is_err());
    }
}

#[test]
fn a_file_deleted_in_use_is_an_error() {
    for storage in BOTH {
        let workspace = Workspace::new();
        let mut journal = workspace.journal(storage);
        journal.append(&names(4), &batch(0, 4)).unwrap();
        std::fs::remove_file(workspace.path()).unwrap();
        let error = journal.append(&names(4), &batch(1, 4)).unwrap_err();
        assert!(matches!(error, JournalError::Deleted { .. }), "{error}");
    }
}

#[test]
fn a_step_overwritten_between_two_looks_is_told_and_the_others_are_read() {
    for storage in BOTH {
        let workspace = Workspace::new();
        let mut journal = workspace.journal(storage);
        for step in 0..20 {
            journal.append(&names(RECORDS), &batch(step, RECORDS)).unwrap();
        }
        let recovered = workspace.recovered();
        assert_eq!(recovered.faults(), []);
        let mut next = 20;
        // Until the ring has gone round and half of what was found is gone.
        while journal.view().held().unwrap().0.0 < 10 {
            journal.append(&names(RECORDS), &batch(next, RECORDS)).unwrap();
            next += 1;
        }
        let (mut gone, mut read) = (Vec::new(), Vec::new());
        for step in recovered.steps() {
            match step {
                Ok(step) => read.push(step.batch.step.0),
                Err(Fault::Overwritten { step }) => gone.push(step.0),
                Err(other) => panic!("{other}"),
            }
        }
        assert!(!gone.is_empty() && gone.len() <= 10, "{gone:?}");
        assert_eq!([gone, read].concat(), (0..20).collect::<Vec<_>>());
    }
}
