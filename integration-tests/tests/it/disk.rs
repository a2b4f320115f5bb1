//! A disk that is full or cannot be written.

use std::fs;

use anyhow::{Context as _, Result};
use trainmon_integration_tests::{CsvTree, Ended, RamDisk, skip};

use crate::support::{EVERYTHING, Scene, assert_unharmed};

const STEPS: u64 = 60;
/// Enough for the first steps of every file, not for all of them.
const SMALL: &str = "size=64k";

fn scene() -> Result<Scene> {
    Scene::new(&format!("{EVERYTHING}, \"step_count_per_record\": 100, \"queue_steps\": 1000"))
}

/// The disk, or a word to the log that this test cannot run.
fn mount(scene: &Scene, options: &str, test: &str) -> Result<Option<RamDisk>> {
    match RamDisk::mount(scene.path(), options) {
        Ok(disk) => Ok(Some(disk)),
        Err(why) => {
            skip(test, &format!("{why:#}"))?;
            Ok(None)
        }
    }
}

/// Every record is in a file or counted as failed, and the user was told once, with the file and a way out.
fn assert_losses_told(ended: &Ended, csv: &CsvTree) -> Result<()> {
    let sink = |name| ended.figure("sink csv", name);
    assert!(sink("failed")? > 0 && sink("exported")? > 0, "{:#?}", ended.stdout);
    assert_eq!(sink("exported")? + sink("failed")?, ended.figure("counts", "offered")?);
    assert_eq!(csv.tensor_rows(), sink("exported")?, "what counts as delivered is in the files");
    assert_eq!(ended.notices("No space left on device"), 1, "{}", ended.stderr);
    let notice = ended.stderr.lines().find(|line| line.contains("No space left")).context("no notice")?;
    assert!(notice.starts_with("trainmon: warning: csv: cannot write `"), "{notice}");
    assert!(notice.contains(".csv`") && notice.ends_with("losses are counted, training continues"), "{notice}");
    assert_eq!(ended.notices("hint: free space on that disk; trainmon resumes writing with the next step"), 1);
    Ok(())
}

#[test]
fn on_a_full_disk_training_goes_on_no_line_is_torn_and_losses_are_counted() -> Result<()> {
    let scene = scene()?;
    let test = "on_a_full_disk_training_goes_on_no_line_is_torn_and_losses_are_counted";
    let Some(disk) = mount(&scene, SMALL, test)? else { return Ok(()) };
    let ended = scene.homeless_trainer(STEPS).variable("MONITOR_OUTPUT_DIR", disk.path()).run()?;
    assert_unharmed(&ended, STEPS)?;
    assert_losses_told(&ended, &CsvTree::read(disk.path())?)?;
    assert_eq!(ended.notices("works again"), 0, "{}", ended.stderr);
    Ok(())
}

#[test]
fn when_space_is_freed_rows_resume_and_the_monitor_says_so() -> Result<()> {
    let scene = scene()?;
    let test = "when_space_is_freed_rows_resume_and_the_monitor_says_so";
    // The ballast takes three quarters; without it there is room for all.
    let Some(disk) = mount(&scene, "size=160k", test)? else { return Ok(()) };
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![0; 120 << 10])?;
    let last_before = 24;
    let training = scene.homeless_trainer(STEPS / 2).option("--pause-after", last_before.to_string());
    let training = training.variable("MONITOR_OUTPUT_DIR", disk.path()).variable("TRAINMON_QUIET", "0");
    let mut training = training.start()?;
    training.wait_for_step(last_before)?;
    training.wait_for_notice("No space left")?;
    // The exporter may still be busy with steps before the pause; those fail as well.
    fs::remove_file(&ballast)?;
    training.resume()?;
    let ended = training.end()?;
    assert_unharmed(&ended, STEPS / 2)?;
    let csv = CsvTree::read(disk.path())?;
    assert_losses_told(&ended, &csv)?;
    assert_eq!(ended.notices("trainmon: csv: works again; "), 1, "{}", ended.stderr);
    let last = STEPS / 2 - 1;
    let kinds = csv.rows_by_kind_and_step()?.into_keys().filter(|(_, step)| *step == last).count();
    assert_eq!(kinds, 8, "all kinds of the last step are there");
    assert_eq!(csv.steps()?.last(), Some(&last));
    Ok(())
}

#[test]
fn a_read_only_disk_is_named_and_every_record_counted_as_lost() -> Result<()> {
    let scene = scene()?;
    let test = "a_read_only_disk_is_named_and_every_record_counted_as_lost";
    let Some(disk) = mount(&scene, "size=64k,ro", test)? else { return Ok(()) };
    let ended = scene.homeless_trainer(10).variable("MONITOR_OUTPUT_DIR", disk.path()).run()?;
    assert_unharmed(&ended, 10)?;
    assert_nothing_delivered(&ended, disk.path(), "Read-only file system")
}

#[test]
fn a_file_where_the_directory_should_be_is_named_and_every_record_counted_as_lost() -> Result<()> {
    let scene = scene()?;
    fs::write(scene.out(), "a file")?;
    let ended = scene.trainer(10).run()?;
    assert_unharmed(&ended, 10)?;
    assert_nothing_delivered(&ended, &scene.out(), "Not a directory")
}

fn assert_nothing_delivered(ended: &Ended, base: &std::path::Path, why: &str) -> Result<()> {
    assert_eq!(ended.figure("sink csv", "exported")?, 0);
    assert_eq!(ended.figure("sink csv", "failed")?, ended.figure("counts", "offered")?);
    assert!(ended.figure("sink csv", "failed")? > 0);
    assert_eq!(ended.notices(why), 1, "said once: {}", ended.stderr);
    let notice = ended.stderr.lines().next().unwrap_or_default();
    let beginning = format!("trainmon: warning: csv: cannot create directory `{}/", base.display());
    assert!(notice.starts_with(&beginning) && notice.contains(why), "{notice}");
    let hint = "  hint: make the directory writable, or set another one with MONITOR_OUTPUT_DIR or `output_dir`";
    assert_eq!(ended.stderr.lines().nth(1), Some(hint));
    Ok(())
}
