//! Which steps are measured.

use anyhow::Result;
use trainmon_integration_tests::{CsvTree, Ended};

use crate::support::{Scene, assert_unharmed};

const STEPS: u64 = 20;

/// Gradients: the same memory is read on every step. (Parameters after one step are not read again before the next.)
fn trained(window: &str) -> Result<(Ended, CsvTree)> {
    let members = format!("\"wg_distribution\": true, \"queue_steps\": 100{window}");
    let scene = Scene::new(&members)?;
    let ended = scene.trainer(STEPS).run()?;
    assert_unharmed(&ended, STEPS)?;
    Ok((ended, CsvTree::read(&scene.out())?))
}

#[test]
fn exactly_the_steps_of_the_window_are_written_and_only_they_are_read() -> Result<()> {
    let (every, every_csv) = trained("")?;
    let (some, some_csv) = trained(", \"start_step\": 3, \"step_interval\": 2, \"collect_times\": 4")?;
    let mut measured: Vec<u64> = some_csv.rows_by_kind_and_step()?.into_keys().map(|(_, step)| step).collect();
    measured.sort_unstable();
    measured.dedup();
    assert_eq!(measured, [3, 5, 7, 9]);
    assert_eq!(some_csv.steps()?, (0..STEPS).collect::<Vec<_>>(), "steps.csv tells of every step");
    assert_eq!(some_csv.tensor_rows() * STEPS, every_csv.tensor_rows() * 4);
    let (read, read_of_all) = (some.figure("counts", "bytes_read")?, every.figure("counts", "bytes_read")?);
    assert!(read > 0);
    assert_eq!(read * STEPS, read_of_all * 4, "bytes read in 4 steps of 20");
    Ok(())
}
