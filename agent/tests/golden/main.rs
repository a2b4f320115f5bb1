//! The walk over msprobe's own answers: every recorded tensor goes through agent, stats and csv, and the files are held
//! against those the real msprobe wrote, cell by cell.
//!
//! `TRAINMON_GOLDEN` names the data (default: `shared/golden` beside the checkout); a second folder, with nets and options
//! of our own, is in the repository (`tests/data/golden`, made by its `make.py`). Each way in which ours may differ is
//! a [`Deviation`](deviations::Deviation) with its reason, listed in `docs/msprobe-compatibility.md`; everything else
//! fails the test.

#![expect(clippy::unwrap_used, reason = "a golden file that cannot be read fails the test")]
#![expect(clippy::print_stdout, reason = "the walk prints what it compared")]

mod anomalies;
mod case;
mod cell;
mod compare;
mod deviations;
mod left_out;
mod order;
mod replay;
#[path = "../common/skipping.rs"]
mod skipping;
mod table;

use std::path::{Path, PathBuf};

use crate::case::{Case, Skipped};
use crate::compare::Tally;
use crate::skipping::skip;

fn golden_root() -> PathBuf {
    std::env::var_os("TRAINMON_GOLDEN")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden"), PathBuf::from)
}

#[test]
fn every_monitor_case_gives_msprobes_cells_apart_from_the_listed_deviations() {
    let root = golden_root().join("01_monitor");
    if !root.is_dir() {
        skip("golden monitor cases", &format!("`{}` does not exist; TRAINMON_GOLDEN names the data", root.display()));
        return;
    }
    walk(&root);
}

/// Listed deviations that fit the other folder's cases alone fail here.
#[test]
fn the_cases_of_our_own_give_msprobes_cells_apart_from_the_listed_deviations() {
    let archive = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden/cases.tar.gz");
    let unpacked = tempfile::tempdir().unwrap();
    let packed = flate2::read::GzDecoder::new(std::fs::File::open(archive).unwrap());
    tar::Archive::new(packed).unpack(unpacked.path()).unwrap();
    walk(&unpacked.path().join("01_monitor"));
}

fn walk(root: &Path) {
    let mut directories: Vec<PathBuf> = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    directories.sort();
    let mut total = Tally::default();
    let mut walked = 0;
    for directory in directories.into_iter().filter(|path| path.join("case.json").is_file()) {
        let case = Case::load(&directory);
        let output = tempfile::tempdir().unwrap();
        match case.check_replayable().and_then(|()| replay::run(&case, output.path())) {
            Ok(played) => {
                let mut tally = compare::run(&case, &played, output.path());
                anomalies::compare(&case, output.path(), &mut tally);
                println!("{:<32} {tally}", case.name);
                total.add(&tally);
                walked += 1;
            }
            Err(Skipped(reason)) => skip(&format!("golden {}", case.name), &reason),
        }
    }
    println!("{walked} cases: {total}");
    for (deviation, count) in total.deviations() {
        println!("{count:>8}  {} ({})", deviation.name(), deviation.reason());
    }
    assert!(total.faults.is_empty(), "{} unlisted differences:\n{}", total.faults.len(), total.faults.join("\n"));
    assert!(walked > 0 && total.cells > 0, "no case was walked");
}

#[test]
fn every_deviation_is_explained_in_the_compatibility_document() {
    let document = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/msprobe-compatibility.md");
    let text = std::fs::read_to_string(&document).unwrap();
    for deviation in deviations::Deviation::ALL {
        let name = format!("`{}`", deviation.name());
        assert!(text.contains(&name), "{} does not explain {name}: {}", document.display(), deviation.reason());
    }
}
