//! Disks that end, and directories that are somebody's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use trainmon_capture::{Direction, Notices, Session, Values};

use crate::support::{Host, PLACE, document, floats, plan, skip};

/// A mounted tmpfs; unmounted when dropped.
struct RamDisk(PathBuf);

impl RamDisk {
    fn mount(parent: &Path, options: &str) -> Option<Self> {
        let path = parent.join("disk");
        std::fs::create_dir(&path).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).output().ok()?;
        mount.status.success().then_some(Self(path))
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).stderr(Stdio::null()).status());
    }
}

/// Fills the disk with entries (or tensors); what was there before is read afterwards.
fn fill(test: &str, keys: &str, size: usize) {
    let root = tempfile::tempdir().unwrap();
    let Some(disk) = RamDisk::mount(root.path(), "size=512k") else { return skip(test, "mounting a tmpfs is refused") };
    let host = Host::on(keys, &disk.0, tempfile::tempdir().unwrap());
    let row = vec![1.0_f32; size];
    let mut calls = 0;
    while host.call("f", |values| floats(values, &row), |_| ()).is_some() {
        calls += 1;
        assert!(calls < 100_000, "the disk has an end");
    }
    assert!(calls > 10);
    for _ in 0..10 {
        host.call("f", |values| floats(values, &row), |_| ());
    }
    assert!(!host.session.is_on() && !host.session.begin("X.0.forward", Direction::Forward));
    let said = host.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("No space left on device"), "{said:?}");
    assert!(host.session.progress().stopped.is_some());
    // With room for the documents everything that was captured is in them.
    assert!(host.session.write_documents().is_err() || size > 1);
    let aside = root.path().join("elsewhere");
    std::fs::create_dir(&aside).unwrap();
    std::fs::copy(host.directory.join("capture.records"), aside.join("capture.records")).unwrap();
    let made = trainmon_capture_files::recover(&aside).unwrap();
    assert_eq!((document(&aside).operators.len(), made.torn), (made.entries, 0), "no half record is left");
    assert!(made.entries + 1 >= calls && made.entries <= calls, "{} of {calls}", made.entries);
}

#[test]
fn a_full_disk_ends_the_capture_politely_and_keeps_what_is_there() {
    fill("disk::a_full_disk_ends_the_capture_politely_and_keeps_what_is_there", r#""task": "statistics""#, 1);
}

#[test]
fn a_disk_that_tensors_fill_ends_the_capture_too() {
    let test = "disk::a_disk_that_tensors_fill_ends_the_capture_too";
    let root = tempfile::tempdir().unwrap();
    let Some(disk) = RamDisk::mount(root.path(), "size=512k") else { return skip(test, "mounting a tmpfs is refused") };
    let host = Host::on(r#""task": "tensor", "pool_mib": 1"#, &disk.0, tempfile::tempdir().unwrap());
    let row = vec![1.0_f32; 10_000];
    let mut calls = 0;
    while host.call("f", |values| floats(values, &row), |_| ()).is_some() {
        calls += 1;
        assert!(calls < 10_000, "the disk has an end");
    }
    assert_eq!(host.said().len(), 1, "{:?}", host.said());
    // Waits for the writers; there is no room for the documents yet.
    drop(host.session.write_documents());
    // Whoever makes room gets them.
    let tensors = host.directory.join("dump_tensor_data");
    let files: Vec<PathBuf> = std::fs::read_dir(&tensors).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 5 && files.len() <= calls);
    assert!(files.iter().all(|file| file.extension().is_some_and(|end| end == "pt")), "nothing half: {files:?}");
    std::fs::remove_file(&files[0]).unwrap();
    let document = host.document();
    let named = document.tensors().filter(|tensor| tensor.data_name.is_some()).count();
    assert!(named + 1 >= files.len() && named <= files.len(), "{named} of {}", files.len());
}

#[test]
fn tensors_that_cannot_be_written_when_the_step_ends_are_told() {
    let test = "disk::tensors_that_cannot_be_written_when_the_step_ends_are_told";
    let root = tempfile::tempdir().unwrap();
    let Some(disk) = RamDisk::mount(root.path(), "size=512k") else { return skip(test, "mounting a tmpfs is refused") };
    let host = Host::on(r#""task": "tensor""#, &disk.0, tempfile::tempdir().unwrap());
    // All of it waits, or is under way, when the step ends.
    let row = vec![1.0_f32; 250_000];
    host.call("f", |values| floats(values, &row), |_| ());
    drop(host.session.finish());
    let (said, progress) = (host.said(), host.session.progress());
    assert!(said.len() == 1 && said[0].contains("cannot write a tensor file"), "{said:?}");
    assert!(progress.stopped.is_some_and(|why| why.contains("cannot write a tensor file")));
}

#[test]
fn a_budget_ends_the_capture_politely() {
    let host = Host::new(r#""task": "tensor", "disk_budget_mib": 1"#);
    let mut calls = 0;
    while host.call("f", |values| floats(values, &vec![calls as f32; 50_000]), |_| ()).is_some() {
        calls += 1;
        // The writers are behind by what may wait.
        host.session.write_documents().unwrap();
        assert!(calls < 100);
    }
    assert!((5..=7).contains(&calls), "{calls}: 200 kB each");
    assert!(host.said().len() == 1 && host.said()[0].contains("disk_budget_mib"), "{:?}", host.said());
    let document = host.document();
    assert!(document.tensors().all(|tensor| tensor.data_name.is_some()), "what was shown is there");
}

#[test]
fn a_call_that_spends_the_budget_is_captured_whole() {
    let host = Host::new(r#""task": "tensor", "disk_budget_mib": 1"#);
    let rows = [1.0_f32, 2.0].map(|value| vec![value; 300_000]);
    let first = |values: &mut Values<'_>| {
        floats(values, &rows[0]);
        // Its file alone is more than the budget, and there before the call has gone on.
        assert!(host.session.wait_for_files(Duration::from_mins(1)));
        assert!(!host.session.is_on());
    };
    host.call("f", first, |values| floats(values, &rows[1])).unwrap();
    assert_eq!(host.call("g", |_| (), |_| ()), None, "what begins afterwards is dropped");
    let document = host.document();
    assert_eq!(document.operators.len(), 1);
    assert_eq!(document.tensors().filter(|tensor| tensor.data_name.is_some()).count(), 2);
    assert_eq!(host.session.progress().files, 2);
}

#[test]
fn the_record_file_goes_when_the_step_ends_and_more_may_come_before() {
    let host = Host::new(r#""task": "statistics""#);
    host.call("f", |values| floats(values, &[1.0]), |_| ()).unwrap();
    assert_eq!(host.document().operators.len(), 1);
    assert!(host.directory.join("capture.records").exists(), "start() may follow stop() in one step");
    host.call("f", |values| floats(values, &[1.0]), |_| ()).unwrap();
    let made = host.session.finish().unwrap().unwrap();
    assert_eq!((made.entries, document(&host.directory).operators.len()), (2, 2));
    assert!(!host.directory.join("capture.records").exists());
    assert_eq!(host.session.finish().unwrap(), None, "the second end does nothing");
    assert_eq!(host.call("f", |_| (), |_| ()), None, "what comes after is dropped");
}

#[test]
fn an_earlier_run_is_set_aside_and_told() {
    let root = tempfile::tempdir().unwrap();
    for run in 0..2 {
        let host = Host::on(r#""task": "statistics""#, root.path(), tempfile::tempdir().unwrap());
        host.call(if run == 0 { "first" } else { "second" }, |_| (), |_| ()).unwrap();
        let said = host.said();
        assert_eq!(said.len(), run);
        assert!(said.iter().all(|said| said.contains("rank0.earlier-1")), "{said:?}");
    }
    let [now, earlier] = ["rank0", "rank0.earlier-1"].map(|name| document(&root.path().join("step0").join(name)));
    assert_eq!((&*now.operators[0].name, now.operators.len()), ("Functional.second.0.forward", 1));
    assert_eq!((&*earlier.operators[0].name, earlier.operators.len()), ("Functional.first.0.forward", 1));
}

#[test]
fn two_processes_of_one_rank_are_refused_and_the_first_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let keys = r#""task": "statistics""#;
    let host = Host::on(keys, root.path(), tempfile::tempdir().unwrap());
    let refused = Session::open(plan(keys, root.path()), PLACE, Notices::new(|_| ())).unwrap_err();
    assert!(refused.to_string().contains("another process"), "{refused}");
    host.call("f", |_| (), |_| ()).unwrap();
    assert_eq!(host.document().operators.len(), 1);
}
