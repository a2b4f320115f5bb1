//! A rank's directory: nobody else's is touched, no link is followed.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use trainmon_capture_files::{RankDirectory, RankName, Recorder, WriteError, documents_of, find, recover};

use crate::support::{Capture, header};

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_are_for_their_owner_and_the_group() {
    let mut capture = Capture::begin(&header("mix"));
    capture.entry("A.0.forward", &[("output", b"[]")]);
    capture.directory.tensors().unwrap();
    capture.directory.append_to_error_log(b"x").unwrap();
    documents_of(&capture.directory).unwrap();
    let path = capture.path();
    for directory in [path.clone(), path.parent().unwrap().to_path_buf(), path.join("dump_tensor_data")] {
        assert_eq!(mode(&directory) & !0o750, 0, "{}", directory.display());
    }
    for file in ["dump.json", "stack.json", "construct.json", "capture.records", "dump_error_info.log"] {
        assert_eq!(mode(&path.join(file)) & !0o640, 0, "{file}");
    }
}

#[test]
fn no_link_is_followed_wherever_it_stands() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("target");
    std::fs::write(&target, "untouched").unwrap();
    let is_untouched = || {
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "untouched");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    };
    // In the place of the step, and of the rank.
    let root = tempfile::tempdir().unwrap();
    symlink(outside.path(), root.path().join("step0")).unwrap();
    let refused = RankDirectory::create(root.path(), 0, RankName::Rank(0)).unwrap_err();
    assert!(matches!(&refused, WriteError::NotADirectory { path } if path.ends_with("step0")), "{refused}");
    std::fs::create_dir(root.path().join("step1")).unwrap();
    symlink(outside.path(), root.path().join("step1/rank0")).unwrap();
    let refused = RankDirectory::create(root.path(), 1, RankName::Rank(0)).unwrap_err();
    assert!(matches!(&refused, WriteError::NotADirectory { path } if path.ends_with("step1/rank0")), "{refused}");
    is_untouched();
    // In the place of a file: a document replaces the link, everything else is refused.
    let mut capture = Capture::begin(&header("L1"));
    capture.entry("A.0.forward", &[("output", b"[]")]);
    for file in ["dump.json", "stack.json", ".dump.json.tmp", "dump_error_info.log"] {
        symlink(&target, capture.path().join(file)).unwrap();
    }
    symlink(outside.path(), capture.path().join("dump_tensor_data")).unwrap();
    assert!(matches!(capture.directory.tensors(), Err(WriteError::NotADirectory { .. })));
    assert!(capture.directory.append_to_error_log(b"x").is_err());
    documents_of(&capture.directory).unwrap();
    is_untouched();
    assert!(std::fs::symlink_metadata(capture.path().join("dump.json")).unwrap().is_file());
}

#[test]
fn a_used_directory_is_set_aside_whole() {
    let root = tempfile::tempdir().unwrap();
    for earlier in 0..3 {
        let opened = RankDirectory::create(root.path(), 4, RankName::Rank(1)).unwrap();
        let aside = opened.set_aside.as_deref();
        match earlier {
            0 => assert_eq!(aside, None),
            _ => assert!(aside.unwrap().ends_with(format!("step4/rank1.earlier-{earlier}")), "{aside:?}"),
        }
        let mut recorder = Recorder::create(&opened.directory, &header("L1")).unwrap();
        let mut frames = trainmon_capture_files::Frames::new();
        let name = format!("Run.{earlier}.forward");
        let parts: [(&str, &[u8]); 1] = [("output", b"[]")];
        frames.entry(&trainmon_capture_files::EntryRecord {
            name: &name,
            moves_to_end: false,
            node: None,
            stack: None,
            parts: &parts,
        });
        recorder.append(&frames).unwrap();
        // The first run is cut short, and leaves its record file only.
        if earlier > 0 {
            documents_of(&opened.directory).unwrap();
        }
    }
    let step = root.path().join("step4");
    let text = |name: &str| std::fs::read_to_string(step.join(name).join("dump.json")).unwrap();
    recover(&step.join("rank1.earlier-1")).unwrap();
    for (directory, run) in [("rank1.earlier-1", 0), ("rank1.earlier-2", 1), ("rank1", 2)] {
        let others =
            (0..3).filter(|other| *other != run).any(|other| text(directory).contains(&format!("Run.{other}.")));
        assert!(text(directory).contains(&format!("Run.{run}.forward")) && !others, "{directory}");
    }
    let found = find(root.path()).unwrap();
    assert_eq!(found.steps[0].ranks.len(), 1, "readers see the last run only: {found:?}");
}

#[test]
fn a_directory_that_somebody_writes_is_refused() {
    let capture = Capture::begin(&header("L1"));
    let refused = RankDirectory::create(capture.root.path(), 0, RankName::Rank(0)).unwrap_err();
    assert!(matches!(refused, WriteError::InUse { .. }), "{refused}");
    assert!(matches!(recover(&capture.path()), Err(WriteError::InUse { .. })));
    assert!(capture.path().join("capture.records").exists());
}

#[test]
fn a_process_becomes_a_rank_and_never_takes_anothers_place() {
    let mut capture = Capture::begin(&header("L1"));
    let other = RankDirectory::create(capture.root.path(), 0, RankName::Process(42)).unwrap();
    let mut other = other.directory;
    assert!(!other.rename(RankName::Rank(0)).unwrap(), "rank0 is there");
    assert!(other.path().ends_with("step0/proc42") && other.path().is_dir());
    assert!(other.rename(RankName::Rank(7)).unwrap());
    assert!(other.path().ends_with("step0/rank7") && other.path().is_dir());
    capture.entry("A.0.forward", &[("output", b"[]")]);
    capture.directory.tensors().unwrap();
    assert!(capture.directory.rename(RankName::Rank(3)).unwrap());
    let text = capture.text("dump.json");
    let expected = capture.root.path().join("step0/rank3/dump_tensor_data");
    assert!(text.contains(&format!("\"dump_data_dir\":\"{}\"", expected.display())), "{text}");
}
