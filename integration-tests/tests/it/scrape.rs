//! A real Prometheus scrapes a running training.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use trainmon_integration_tests::{CsvTree, Prometheus, check_metrics, get, skip, wait_for};

use crate::support::{EVERYTHING, Scene, assert_csv_complete, assert_unharmed};

const STEPS: u64 = 25;
/// The training rests after these steps, so that what is scraped is known.
const PAUSES: [u64; 2] = [9, 19];

fn scene() -> Result<Scene> {
    let scene = Scene::new("")?;
    let targets = scene.path().join("targets.json");
    let prometheus = format!(r#""prometheus": {{"port": 0, "target_file": "{}"}}"#, targets.display());
    std::fs::write(scene.config(), format!("{{{EVERYTHING}, \"step_count_per_record\": 100, {prometheus}}}"))?;
    Ok(scene)
}

/// `steps.csv` has a line of this step: the exporters are done with it, or as good as.
fn gradient_norm_in_csv(scene: &Scene, step: u64) -> Result<f64> {
    wait_for("line in steps.csv", || {
        let csv = CsvTree::read_whole_lines(&scene.out())?;
        let mut rows = csv.files.iter().filter(|file| file.prefix == "steps").flat_map(|file| &file.rows);
        Ok(rows.find(|row| row["step"] == step.to_string()).map(|row| row["grad_norm"].parse()).transpose()?)
    })
}

#[test]
fn prometheus_finds_a_running_training_and_stores_what_csv_has() -> Result<()> {
    let scene = scene()?;
    let trainer =
        PAUSES.iter().fold(scene.trainer(STEPS), |trainer, step| trainer.option("--pause-after", step.to_string()));
    let mut training = trainer.start()?;
    let Some(server) = Prometheus::start(scene.path(), &scene.path().join("targets.rank*.json"))? else {
        let reason = "no prometheus on PATH (Debian: prometheus)";
        return Ok(skip("prometheus_finds_a_running_training_and_stores_what_csv_has", reason)?);
    };
    for step in PAUSES {
        training.wait_for_step(step)?;
        let expected = gradient_norm_in_csv(&scene, step)?;
        wait_for(&format!("step {step} in Prometheus"), || {
            Ok((server.value("trainmon_step")? == Some(step as f64)).then_some(()))
        })?;
        assert_eq!(server.value("trainmon_steps_total")?, Some((step + 1) as f64));
        assert_eq!(server.value("trainmon_grad_norm")?, Some(expected));
        wait_for("up", || Ok((server.value("up")? == Some(1.0)).then_some(())))?;
        training.resume()?;
    }
    let ended = training.end()?;
    assert_unharmed(&ended, STEPS)?;
    assert_csv_complete(&ended, &scene.out(), STEPS)?;
    assert_eq!(ended.figure("sink prometheus", "exported")?, ended.figure("counts", "offered")?);
    Ok(())
}

#[test]
fn promtool_finds_no_fault_with_the_page_of_a_training() -> Result<()> {
    let scene = scene()?;
    let [pause, _] = PAUSES;
    let mut training = scene.trainer(STEPS).option("--pause-after", pause.to_string()).start()?;
    training.wait_for_step(pause)?;
    let targets = std::fs::read_to_string(scene.path().join("targets.rank0.json"))?;
    let targets: serde_json::Value = serde_json::from_str(&targets)?;
    let address: SocketAddr = targets[0]["targets"][0].as_str().context("no target")?.parse()?;
    let page = wait_for("page", || {
        let page = get(address, "/metrics")?;
        Ok(page.contains("\ntrainmon_grad_norm ").then_some(page))
    })?;
    let Some(said) = check_metrics(&page)? else {
        let reason = "no promtool on PATH (Debian: prometheus)";
        return Ok(skip("promtool_finds_no_fault_with_the_page_of_a_training", reason)?);
    };
    assert_eq!(said, "", "{page}");
    assert_unharmed(&training.end()?, STEPS)
}
