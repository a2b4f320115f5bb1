//! The demo calls its steps what everything else calls them, and captures one of them.

use std::collections::BTreeMap;
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

/// A place where demos train and are compared.
struct Workspace {
    trainmon: PathBuf,
    directory: tempfile::TempDir,
}

impl Workspace {
    fn new(trainmon: PathBuf) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        // With a monitor, for it names the modules; without the usual port, which another training may have.
        std::fs::write(directory.path().join("monitor.json"), r#"{"wg_distribution": true, "format": "csv"}"#)?;
        Ok(Self { trainmon, directory })
    }

    /// Trains as a visitor does, and gives what was said at the end.
    fn train(&self, arguments: &[&str]) -> Result<String> {
        let mut command = demo()?;
        // Two threads, as on any machine: kernels then use memory that nobody has written yet. They must not wait by spinning,
        // for the cores belong to other tests too.
        command.env("OMP_NUM_THREADS", "2").env("OMP_WAIT_POLICY", "passive");
        command.args(arguments).args(["--config", "monitor.json"]).current_dir(self.directory.path());
        let output = command.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// As [`train`](Self::train), until the gradients that the captured step finds are those that another step found: both
    /// are directories of a step.
    ///
    /// With two threads and all cores taken, one of some hundreds of trainings has other last bits from its second step on.
    /// Such a training is no equal one. What tells are the checksums of the gradients, not the program under test.
    fn train_alike(&self, arguments: &[&str], step: &str, other: &str) -> Result<String> {
        for _attempt in 0..3 {
            let before = self.gradients(other)?;
            let said = self.train(arguments)?;
            if self.gradients(step)? == before {
                return Ok(said);
            }
            if step != other {
                std::fs::remove_dir_all(self.directory.path().join(step))?;
            }
        }
        anyhow::bail!("three trainings in a row come to {step} with other gradients than to {other}")
    }

    /// Checksums of the gradients that the step before left, by the call that drops each.
    fn gradients(&self, step: &str) -> Result<BTreeMap<String, serde_json::Value>> {
        let file = self.directory.path().join(step).join("rank0/dump.json");
        let text = std::fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        // A line is a call. As a whole the file is no JSON where a value is NaN.
        let dropped = text.lines().filter(|line| line.contains("\"Aten.detach_."));
        let sums = dropped.map(|line| {
            let (name, call) = line.split_once(':').context("no call")?;
            let call: serde_json::Value = serde_json::from_str(call.trim_end_matches(','))?;
            Ok((name.trim().to_owned(), call["input_args"][0]["md5"].clone()))
        });
        let found: BTreeMap<_, _> = sums.collect::<Result<_>>()?;
        ensure!(found.len() > 50 && found.values().all(serde_json::Value::is_string), "checksums: {found:?}");
        Ok(found)
    }

    /// The exit code and the answer.
    fn compare(&self, target: &str, golden: &str) -> Result<(Option<i32>, String)> {
        let mut command = Command::new(&self.trainmon);
        let output = command.args(["compare", target, golden]).current_dir(self.directory.path()).output()?;
        Ok((output.status.code(), String::from_utf8(output.stdout)?))
    }
}

/// Equal trainings are the same, and every fault is named by its step and its place.
#[test]
fn every_fault_of_the_demo_is_found_and_nothing_in_clean_runs() -> Result<()> {
    let Some(trainmon) = program("every_fault_of_the_demo_is_found_and_nothing_in_clean_runs")? else { return Ok(()) };
    let workspace = Workspace::new(trainmon)?;
    let short = ["--steps", "3", "--capture", "2"];
    workspace.train(&short)?;
    // The second one in the same place says where the first one's is now, and how both are compared.
    let said = workspace.train_alike(&short, "capture_output/step2", "capture_output/step2")?;
    let command = said.lines().find_map(|line| line.trim().strip_prefix("to compare both: trainmon compare "));
    let command = command.with_context(|| format!("no command in {said}"))?;
    let words = shlex::split(command).context("no command of a shell")?;
    let [now, earlier] = &words[..] else { anyhow::bail!("not two captures: {command}") };
    let step = std::fs::read_dir(workspace.directory.path().join("capture_output/step2"))?;
    let before = step.flatten().filter(|entry| entry.file_name().to_string_lossy().contains(".earlier-")).count();
    assert!(before > 0 && earlier.ends_with(&format!("step2/rank0.earlier-{before}")), "{earlier}");
    let (code, said) = workspace.compare(now, earlier)?;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("No divergence: "), "{said}");
    for (fault, place) in [
        ("spike", ", `Aten.mul.Scalar.0.forward`: only the target makes this call"),
        // The value that is written into the module's result.
        ("nan", ", `Aten.fill_.Scalar.0.forward` in `blocks.1.attn`: only the target makes this call"),
        ("dead", ", `Aten.add.Tensor.6.backward` in `blocks.2.mlp`: only the target makes this call"),
        ("drift", ", `Aten.mul_.Scalar.3.forward`: only the target makes this call, then in `blocks.2.mlp` "),
    ] {
        let inject = format!("{fault}@2");
        let arguments = [&short[..], &["--inject", &inject, "--capture-to", fault]].concat();
        let step = format!("{fault}/step2");
        workspace.train_alike(&arguments, &step, "capture_output/step2")?;
        let (code, said) = workspace.compare(&step, "capture_output/step2")?;
        assert_eq!(code, Some(1), "{fault}: {said}");
        assert!(said.starts_with(&format!("First divergence: step 2, rank 0{place}")), "{fault}: {said}");
    }
    Ok(())
}

/// The README's commands, as they stand there, have the README's answer.
#[test]
fn the_demos_commands_in_the_readme_have_the_answer_that_is_shown() -> Result<()> {
    let Some(trainmon) = program("the_demos_commands_in_the_readme_have_the_answer_that_is_shown")? else {
        return Ok(());
    };
    let workspace = Workspace::new(trainmon)?;
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md"))?;
    let commands = readme.lines().filter(|line| line.contains("--capture") || line.starts_with("trainmon compare "));
    let commands: Vec<Vec<&str>> = commands.map(|line| line.split_whitespace().collect()).collect();
    let [clean, spiked, compare] = &commands[..] else { anyhow::bail!("not three commands: {commands:?}") };
    let start = ["cargo", "xtask", "demo"];
    let [clean, spiked] = [clean, spiked].map(|command| command.strip_prefix(&start));
    let (clean, spiked) = clean.zip(spiked).context("another command")?;
    workspace.train(clean)?;
    let [spiked_step, clean_step] = [2, 3].map(|place| format!("{}/step10", compare[place]));
    workspace.train_alike(spiked, &spiked_step, &clean_step)?;
    let (code, said) = workspace.compare(compare[2], compare[3])?;
    assert_eq!(code, Some(1), "{said}");
    let answer = said.lines().next().context("no answer")?;
    assert!(readme.contains(answer), "the README shows another answer than: {answer}");
    Ok(())
}
