//! One rank of a job, as a launcher starts it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context as _, Result};
use trainmon_integration_tests::{Trainer, get, wait_for};

use crate::support::{EVERYTHING, Scene, assert_csv_complete, assert_unharmed, rank_directory};

const STEPS: u64 = 5;

fn as_rank_1_of_2(trainer: Trainer) -> Trainer {
    trainer.variable("RANK", "1").variable("WORLD_SIZE", "2").variable("LOCAL_RANK", "1")
}

/// A port that is free, and the one before it.
fn free_port() -> Result<(u16, u16)> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    Ok((port, port - 1))
}

#[test]
fn a_rank_names_its_directory_and_listens_on_the_port_after_the_first() -> Result<()> {
    let (port, first_port) = free_port()?;
    let scene = Scene::new(&format!("{EVERYTHING}, \"prometheus\": {{\"port\": {first_port}}}"))?;
    let last = STEPS - 1;
    let trainer = as_rank_1_of_2(scene.trainer(STEPS)).option("--pause-after", last.to_string());
    let mut training = trainer.start()?;
    training.wait_for_step(last)?;
    // The page is written by a thread of its own, after the training has gone on.
    wait_for("a step on this rank's page", || {
        let page = get(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), "/metrics")?;
        Ok(page.contains("# TYPE trainmon_step gauge\n").then_some(()))
    })?;
    let ended = training.end()?;
    assert_unharmed(&ended, STEPS)?;
    assert_csv_complete(&ended, &scene.out(), STEPS)?;
    let directory = rank_directory(&scene.out())?;
    assert_eq!(directory.file_name().context("no name")?, "rank_1");
    assert_eq!(ended.line("place csv")?, directory.to_string_lossy());
    assert!(ended.line("place prometheus")?.contains(&format!(":{port}")), "{:#?}", ended.stdout);
    Ok(())
}

#[test]
fn a_rank_that_is_not_asked_for_reads_and_writes_nothing() -> Result<()> {
    let scene = Scene::new(&format!("{EVERYTHING}, \"module_ranks\": [0]"))?;
    let ended = as_rank_1_of_2(scene.trainer(STEPS)).run()?;
    assert_unharmed(&ended, STEPS)?;
    assert!(!scene.out().exists());
    assert_eq!(ended.figure("counts", "offered")?, 0);
    assert_eq!(ended.figure("counts", "bytes_read")?, 0);
    assert_eq!(ended.stderr, "");
    Ok(())
}

#[test]
fn a_launcher_that_makes_no_sense_costs_the_measurements_and_nothing_else() -> Result<()> {
    let scene = Scene::new(EVERYTHING)?;
    let ended = scene.trainer(STEPS).variable("RANK", "2").variable("WORLD_SIZE", "2").run()?;
    assert_unharmed(&ended, STEPS)?;
    assert!(!scene.out().exists());
    let told = "trainmon: warning: cannot determine the rank of this process: environment variable `RANK`: rank 2 is \
                outside the job of 2 processes: nothing is measured; training continues";
    assert_eq!(ended.stderr, told);
    Ok(())
}
