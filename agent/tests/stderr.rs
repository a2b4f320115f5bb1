//! Standard error on a full disk: the monitor's words are lost, the training is not. A test binary of its own, since it
//! changes the process's standard error.

#![cfg(target_os = "linux")]

mod common;

use std::os::fd::AsRawFd;

use common::config;
use trainmon_agent::core::Kind;
use trainmon_agent::{Monitor, Options, Ranks};

#[test]
#[expect(unsafe_code, reason = "replaces the standard error of this process")]
fn notices_that_cannot_be_printed_stop_nobody() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    // SAFETY: both descriptors are open; the copy of the old one is put back below.
    let old = unsafe { libc::dup(2) };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup2(full.as_raw_fd(), 2) }, 2);
    let survived = std::panic::catch_unwind(|| {
        let monitor = Monitor::open("no/such/config.json".as_ref(), Options::default());
        assert!(!monitor.collecting());
        let options = Options { ranks: Some(Ranks::SINGLE), ..Options::default() };
        let monitor = Monitor::start(config(), options).unwrap();
        monitor.announce(1, 1);
        let tensor = monitor.register("fc.weight", 0);
        monitor.observe_unsupported(tensor, Kind::GradReduced, "its layout is sparse");
        let hook: Option<()> = monitor.guard("broken", || panic!("a broken hook"));
        assert!(hook.is_none());
        assert!(monitor.shutdown().balances());
    });
    // SAFETY: puts the old standard error back.
    unsafe {
        libc::dup2(old, 2);
        libc::close(old);
    }
    assert!(survived.is_ok());
}
