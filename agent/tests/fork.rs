//! A forked child shares the monitor's memory but not its threads: it must go inert, and the parent must not notice.

#![cfg(unix)]

mod common;

use common::config;
use trainmon_agent::core::{Kind, MicroStep, TensorView};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StepFacts};

#[test]
#[expect(unsafe_code, reason = "the test forks for real")]
fn a_forked_child_measures_nothing_and_ends_without_waiting_for_threads_it_has_not() {
    let options = Options { ranks: Some(Ranks::SINGLE), notices: Notices::new(|_| {}), ..Options::default() };
    let monitor = Monitor::start(config(), options).unwrap();
    let tensor = monitor.register("fc.weight", 0);
    let data = [3.0f32, 4.0];
    let view = TensorView::from_slice(&data, &[2]).unwrap();
    let use_monitor = || {
        let reading = monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &view);
        monitor.end_step(StepFacts::default());
        reading.map(|reading| reading.norm)
    };
    assert_eq!(use_monitor(), Some(5.0));
    // SAFETY: the child touches only memory, then leaves without running the test harness's exit code.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let inert = use_monitor().is_none() && !monitor.collecting();
        monitor.shutdown();
        // SAFETY: leaves the child at once.
        unsafe { libc::_exit(i32::from(!inert)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was not inert");
    assert_eq!(use_monitor(), Some(5.0));
    let report = monitor.shutdown();
    assert_eq!(report.counts.observed, 2);
    assert!(report.balances());
}
