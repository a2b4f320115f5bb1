//! What a monitor says at the beginning and the end, and who is spared it.

mod common;

use std::sync::{Arc, Mutex};

use common::config;
use trainmon_agent::core::{Kind, MicroStep, Rank, TensorView};
use trainmon_agent::{Monitor, Notice, Notices, Options, Ranks, Severity, StepFacts};

/// Every notice of a run of one step.
#[expect(clippy::unwrap_used, reason = "a test")]
fn said(ranks: Ranks, quiet: bool, is_announced: bool) -> Vec<Notice> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&heard);
    let notices = Notices::new(move |notice: &Notice| listener.lock().unwrap().push(notice.clone()));
    let options = Options { ranks: Some(ranks), notices, quiet, ..Options::default() };
    let monitor = Monitor::start(config(), options).unwrap();
    if is_announced {
        monitor.announce(1, 2);
        monitor.announce(1, 2);
    }
    let tensor = monitor.register("fc.weight", 0);
    let data = [3.0f32, 4.0];
    monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &TensorView::from_slice(&data, &[2]).unwrap());
    monitor.end_step(StepFacts::default());
    monitor.warn("something is lost", None);
    monitor.shutdown();
    monitor.shutdown();
    std::mem::take(&mut *heard.lock().unwrap())
}

fn warnings(notices: &[Notice]) -> usize {
    notices.iter().filter(|notice| notice.severity == Severity::Warning).count()
}

#[test]
fn the_first_rank_says_once_how_it_begins_and_once_how_it_ended() {
    let notices = said(Ranks::SINGLE, false, true);
    let [opening, warning, closing] = &notices[..] else { panic!("{notices:?}") };
    assert!(opening.message.starts_with("measures "), "{opening}");
    assert!(opening.message.contains(" of 1 of 2 parameters; "), "{opening}");
    assert_eq!(warning.severity, Severity::Warning);
    assert!(closing.message.starts_with("ended before step 1: observed 1 tensor: 1 measured"), "{closing}");
    assert!(closing.message.lines().skip(1).all(|line| line.starts_with("  ")), "{closing}");
}

#[test]
fn a_monitor_that_announced_nothing_says_nothing_at_the_end() {
    assert_eq!(said(Ranks::SINGLE, false, false).len(), 1);
}

#[test]
fn a_quiet_monitor_and_other_ranks_say_warnings_only() {
    let other = Ranks { rank: Rank(1), local_rank: Rank(1), world_size: 2 };
    for notices in [said(Ranks::SINGLE, true, true), said(other, false, true)] {
        assert_eq!((notices.len(), warnings(&notices)), (1, 1), "{notices:?}");
    }
}
