//! SIGKILL in mid-run.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use anyhow::{Context as _, Result};
use trainmon_integration_tests::{CsvTree, Ended};

use crate::support::{EVERYTHING, Scene, assert_csv_complete, assert_unharmed};

const KILLS: u64 = 5;
/// So many announced steps may still be on their way to the files: half of a queue. The training waits for them, so that none
/// overflows on a machine that starves the exporter.
const LEAD: u64 = 8;
/// The first step at which the kill may come: beyond the lead, so that something must have been written.
const FIRST_DEADLY_STEP: u64 = LEAD + 4;
/// A training killed as planned does not get there; one whose test went away ends by itself.
const STEPS: u64 = 2000;

/// A random moment: a step, and a while after it.
fn random_moment() -> (u64, Duration) {
    let bits = RandomState::new().hash_one("moment");
    (FIRST_DEADLY_STEP + bits % 40, Duration::from_micros((bits >> 32) % 6000))
}

fn killed(scene: &Scene, layers: &str) -> Result<(Ended, (u64, Duration))> {
    let (step, while_after) = random_moment();
    let training = scene.trainer(STEPS).option("--lead", LEAD.to_string());
    let mut training = training.option("--layers", layers).start()?;
    training.wait_for_step(step)?;
    std::thread::sleep(while_after);
    Ok((training.kill()?, (step, while_after)))
}

/// Files of a step or five of this model stay within a page of memory. A write within a page is not interrupted, so
/// whatever moment the kill takes, no line is torn.
fn assert_kills_leave_a_whole_prefix(steps_per_file: u64) -> Result<()> {
    let config = format!("{EVERYTHING}, \"step_count_per_record\": {steps_per_file}");
    let whole = Scene::new(&config)?;
    let ended = whole.trainer(10).run()?;
    assert_unharmed(&ended, 10)?;
    assert_csv_complete(&ended, &whole.out(), 10)?;
    let rows_of_whole = CsvTree::read(&whole.out())?.rows_by_kind_and_step()?;
    let kinds: Vec<&String> = rows_of_whole.keys().filter(|(_, step)| *step == 1).map(|(kind, _)| kind).collect();
    assert_eq!(kinds.len(), 8, "{kinds:?}");
    for _kill in 0..KILLS {
        let scene = Scene::new(&config)?;
        let (ended, moment) = killed(&scene, "2")?;
        let csv = CsvTree::read(&scene.out()).with_context(|| format!("killed at {moment:?}"))?;
        let steps = csv.steps()?;
        let written = steps.len() as u64;
        assert_eq!(steps, (0..written).collect::<Vec<_>>(), "a prefix without gaps, killed at {moment:?}");
        let announced = ended.last_step()? + 1;
        assert!(written > 1 && written + LEAD >= announced, "{written} of {announced} steps, {moment:?}");
        let rows = csv.rows_by_kind_and_step()?;
        for step in 0..written {
            for kind in &kinds {
                // The optimizer has no moments before its first step; every later step is like the second.
                let like = step.min(1);
                let expected = rows_of_whole.get(&((*kind).clone(), like));
                assert_eq!(rows.get(&((*kind).clone(), step)), expected, "{kind} in step {step}, {moment:?}");
            }
        }
        // `steps.csv` is written last: the step after its end may have some of its files, each with all its rows.
        for ((kind, step), count) in rows.iter().filter(|((_, step), _)| *step >= written) {
            assert_eq!((*step, Some(count)), (written, rows_of_whole.get(&(kind.clone(), 1))), "{kind}, {moment:?}");
        }
    }
    Ok(())
}

#[test]
fn killed_at_any_moment_a_run_leaves_whole_steps_in_files_of_one_step() -> Result<()> {
    assert_kills_leave_a_whole_prefix(1)
}

#[test]
fn killed_at_any_moment_a_run_leaves_whole_steps_in_files_of_five_steps() -> Result<()> {
    assert_kills_leave_a_whole_prefix(5)
}

/// A longer write ends early when the kill falls into it. What it leaves is one torn line at the end.
#[test]
fn a_kill_within_a_large_write_tears_no_line_but_the_last_of_a_file() -> Result<()> {
    for _kill in 0..3 {
        let scene = Scene::new(&format!("{EVERYTHING}, \"step_count_per_record\": 1000"))?;
        let (_, moment) = killed(&scene, "60")?;
        let csv = CsvTree::read_whole_lines(&scene.out()).with_context(|| format!("killed at {moment:?}"))?;
        assert!(csv.tensor_rows() > 0);
    }
    Ok(())
}
