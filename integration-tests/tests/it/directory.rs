//! A run directory that vanishes in mid-run.

use std::fs;

use anyhow::Result;
use trainmon_integration_tests::{CsvTree, wait_for};

use crate::support::{EVERYTHING, Scene, assert_unharmed, rank_directory};

/// The directory is made anew, and nothing after its end is missing.
fn assert_rows_resume(steps_per_file: u64) -> Result<()> {
    let scene = Scene::new(&format!("{EVERYTHING}, \"step_count_per_record\": {steps_per_file}"))?;
    let pause = 9;
    let mut training = scene.trainer(20).option("--pause-after", pause.to_string()).start()?;
    training.wait_for_step(pause)?;
    let out = scene.out();
    let written = || Ok((CsvTree::read_whole_lines(&out)?.steps()?.last() == Some(&pause)).then_some(()));
    wait_for("rows of the last step before the pause", written)?;
    let whole = CsvTree::read(&out)?.rows_by_kind_and_step()?;
    let directory = rank_directory(&out)?;
    fs::remove_dir_all(&directory)?;
    training.resume()?;
    let ended = training.end()?;
    assert_unharmed(&ended, 20)?;
    assert_eq!(ended.stderr, "", "nothing fails");
    assert_eq!(rank_directory(&out)?, directory);
    let csv = CsvTree::read(&out)?;
    assert_eq!(csv.steps()?, (pause + 1..20).collect::<Vec<_>>());
    let rows = csv.rows_by_kind_and_step()?;
    for ((kind, _), count) in whole.iter().filter(|((_, step), _)| *step == pause) {
        for step in pause + 1..20 {
            assert_eq!(rows.get(&(kind.clone(), step)), Some(count), "{kind} in step {step}");
        }
    }
    Ok(())
}

#[test]
fn when_the_run_directory_vanishes_rows_resume_in_a_fresh_one() -> Result<()> {
    assert_rows_resume(1)
}

#[test]
fn when_the_run_directory_vanishes_files_of_many_steps_begin_anew() -> Result<()> {
    assert_rows_resume(100)
}
