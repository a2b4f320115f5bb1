//! The demo calls its steps what everything else calls them, and captures one of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use trainmon_integration_tests::CsvTree;

use crate::support::{TRAINER, program};

/// The demo's program. Cargo builds it beside the trainer.
fn demo() -> Result<Command> {
    let demo = Path::new(TRAINER).with_file_name("examples").join("gpt");
    ensure!(demo.is_file(), "{}: build it with `--examples`", demo.display());
    let mut command = Command::new(demo);
    // One thread: the tests run several trainings at once.
    command.env("OMP_NUM_THREADS", "1");
    Ok(command)
}

#[test]
fn the_demo_counts_its_steps_as_the_files_do() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let config = directory.path().join("monitor.json");
    std::fs::write(&config, r#"{"wg_distribution": true, "format": "csv", "queue_steps": 100}"#)?;
    let mut command = demo()?;
    command.args(["--steps", "3", "--inject", "spike@1", "--config"]).arg(&config);
    let output = command.arg("--out").arg(directory.path().join("out")).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout)?;
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("step ")).collect();
    let shown: Vec<&str> = lines.iter().filter_map(|line| line.split("  ").next()).collect();
    // The first, the injected and the last one.
    assert_eq!(shown, ["step 0/2", "step 1/2", "step 2/2"], "{said}");
    let csv = CsvTree::read(&directory.path().join("out"))?;
    let steps = csv.files.iter().find(|file| file.prefix == "steps").context("no steps.csv")?;
    let spike = lines.iter().find(|line| line.contains("injected: the loss times 50")).context("no spike")?;
    let spike = spike.trim_start_matches("step ").split('/').next().context("no step")?;
    let loss = |step: &str| -> Result<f64> {
        let row = steps.rows.iter().find(|row| row["step"] == step).with_context(|| format!("no step {step}"))?;
        Ok(row["loss"].parse()?)
    };
    assert!(loss(spike)? > 20.0 * loss("0")?, "step {spike} of steps.csv has the loss of the spike");
    Ok(())
}

/// docs/capture-files.md: a step captured twice is the same, and a step that went wrong is not.
#[test]
fn the_demo_captures_a_step_and_two_runs_agree() -> Result<()> {
    let Some(trainmon) = program("the_demo_captures_a_step_and_two_runs_agree")? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let capture = |to: &str, more: &[&str]| -> Result<PathBuf> {
        let captured = directory.path().join(to);
        let mut command = demo()?;
        command.args(["--no-monitor", "--steps", "2", "--capture", "1", "--capture-to"]).arg(&captured).args(more);
        let output = command.current_dir(directory.path()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(captured)
    };
    let (once, twice, wrong) =
        (capture("once", &[])?, capture("twice", &[])?, capture("wrong", &["--inject", "nan@1"])?);
    let compare = |target: &Path| -> Result<(Option<i32>, String)> {
        let output = Command::new(&trainmon).arg("compare").arg(target).arg(&once).output()?;
        Ok((output.status.code(), String::from_utf8(output.stdout)?))
    };
    let (code, said) = compare(&twice)?;
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = compare(&wrong)?;
    assert_eq!(code, Some(1), "{said}");
    Ok(())
}
