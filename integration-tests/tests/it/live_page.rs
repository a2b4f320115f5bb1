//! The live page of a real training in a real browser; the pages are what their sources make.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use trainmon_integration_tests::{Training, get, skip, wait_for};

use crate::support::{Scene, TRAINER};

const STEPS: u64 = 90;
const SPIKE: u64 = 60;
/// The training rests after this step, with the spike's alert behind it, until the browser has seen all it wants at rest.
const PAUSE: u64 = 79;

pub(crate) fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards/web")
}

/// Why the programs of `dashboards/web` cannot run here.
pub(crate) fn missing() -> Option<String> {
    if Command::new("node").arg("--version").output().is_err() {
        return Some("no node on PATH (Debian: nodejs npm)".to_owned());
    }
    let modules = web().join("node_modules/esbuild");
    (!modules.is_dir()).then(|| "no dashboards/web/node_modules: `cargo xtask provision` fetches it".to_owned())
}

/// The whole path: the driver looks nothing up.
pub(crate) fn chromium() -> Option<PathBuf> {
    let directories: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find_map(|name| directories.iter().map(|path| path.join(name)).find(|program| program.is_file()))
}

fn node(arguments: &[&str]) -> Result<()> {
    let ended = Command::new("node").args(arguments).current_dir(web()).output()?;
    let said = || format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    ensure!(ended.status.success(), "node {}: {}", arguments.join(" "), said());
    Ok(())
}

#[test]
fn the_committed_pages_are_what_their_sources_make() -> Result<()> {
    if let Some(reason) = missing() {
        return Ok(skip("the_committed_pages_are_what_their_sources_make", &reason)?);
    }
    let fresh = tempfile::tempdir()?;
    node(&["build.mjs", fresh.path().to_str().context("no text")?])?;
    let names = ["run.html", "run.csp", "report.css", "compare.js", "compare.csp", "checkpoint.js", "checkpoint.csp"];
    for name in names {
        let (committed, made) =
            (std::fs::read(web().join("dist").join(name))?, std::fs::read(fresh.path().join(name))?);
        ensure!(committed == made, "dashboards/web/dist/{name} lags behind: run `npm run build` there and commit it");
    }
    Ok(())
}

#[test]
fn the_pages_sources_satisfy_types_and_format() -> Result<()> {
    if let Some(reason) = missing() {
        return Ok(skip("the_pages_sources_satisfy_types_and_format", &reason)?);
    }
    node(&["node_modules/typescript/bin/tsc", "--noEmit"])?;
    node(&["node_modules/prettier/bin/prettier.cjs", "--check", "."])
}

/// A training of twelve layers whose loss jumps, with a rule that speaks early.
fn start(scene: &Scene) -> Result<(Training, SocketAddr)> {
    let targets = scene.path().join("targets.json");
    let config = serde_json::json!({
        "wg_distribution": true, "update": true, "ops": ["norm", "zeros"], "format": ["prometheus"], "queue_steps": STEPS,
        "prometheus": {"port": 0, "target_file": targets},
        "alert": {"rules": [{"rule_name": "Spike", "args": {"min_samples": 16, "window": 32}}]},
    });
    std::fs::write(scene.config(), config.to_string())?;
    let trainer = scene.trainer(STEPS).option("--layers", "12").option("--spike-at", SPIKE.to_string());
    // At the end too: with the training the page ends.
    let trainer = trainer.option("--pause-after", PAUSE.to_string()).option("--pause-after", (STEPS - 1).to_string());
    let mut training = trainer.start()?;
    training.wait_for_step(PAUSE)?;
    let targets: Value = serde_json::from_str(&std::fs::read_to_string(scene.path().join("targets.rank0.json"))?)?;
    let address: SocketAddr = targets[0]["targets"][0].as_str().context("no target")?.parse()?;
    wait_for("alert of the spike", || {
        let overview: Value = serde_json::from_str(&get(address, "/api/overview")?)?;
        let is_there = overview["status"]["step"] == PAUSE && overview["overview"]["alerts_seen"].as_u64() > Some(0);
        Ok(is_there.then_some(()))
    })?;
    Ok((training, address))
}

/// The browser's driver; killed when dropped.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What the driver saw; `resume` is called when it wants the training to go on.
fn drive(chromium: &Path, address: SocketAddr, resume: impl FnOnce() -> Result<()>) -> Result<Value> {
    let mut command = Command::new("node");
    command.arg("tests/drive.mjs").arg(chromium).arg(format!("http://{address}/")).current_dir(web());
    // Pictures to look at, for who asks for them.
    command.args(std::env::var_os("TRAINMON_SCREENSHOTS"));
    let mut driver = Driver(command.stdout(Stdio::piped()).spawn()?);
    let mut lines = BufReader::new(driver.0.stdout.take().context("stdout")?).lines();
    let report = if lines.next().transpose()?.as_deref() == Some("resume") {
        resume()?;
        lines.next().transpose()?
    } else {
        None
    };
    Ok(serde_json::from_str(&report.context("the browser's driver failed; its own words are above")?)?)
}

#[test]
fn a_browser_shows_a_running_training_and_its_alert() -> Result<()> {
    const TEST: &str = "a_browser_shows_a_running_training_and_its_alert";
    if let Some(reason) = missing() {
        return Ok(skip(TEST, &reason)?);
    }
    let Some(chromium) = chromium() else { return Ok(skip(TEST, "no Chromium on PATH (Debian: chromium)")?) };
    let scene = Scene::new("")?;
    let (mut training, address) = start(&scene)?;
    let seen = drive(&chromium, address, || training.resume())?;
    let views = seen["views"].as_array().context("no views")?;
    assert_eq!(views.len(), 4, "two sizes in two themes");
    for view in views {
        assert_drawn(view);
    }
    assert_ne!(views[0]["background"], views[1]["background"], "dark is another colour than light");
    assert!(seen["hover"].as_str().is_some_and(|said| said.contains(&format!("Spike step {SPIKE}"))), "{seen}");
    assert_keys(&seen["keys"]);
    assert_ne!(seen["steps"][0], seen["steps"][1], "a step made while the page is open is shown");
    assert!(seen["hovered"][0].as_str().is_some_and(|said| said.contains("step ")), "{seen}");
    assert_eq!(seen["hovered"][0], seen["hovered"][1], "a step more does not take away what the pointer is at: {seen}");
    assert_zoom(&seen["zoom"]);
    assert_reconnect(&seen["reconnect"]);

    // The same numbers as without anyone watching.
    training.resume()?;
    let ended = training.end()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
    let unwatched = trainmon_integration_tests::Trainer::unwatched(TRAINER, STEPS);
    let unwatched = unwatched.option("--layers", "12").option("--spike-at", SPIKE.to_string()).run()?;
    for line in ["parameters", "final loss"] {
        assert_eq!(ended.line(line)?, unwatched.line(line)?, "{line}");
    }
    Ok(())
}

/// Curves, the alert's mark and the heat map are there, and nothing went wrong behind them.
fn assert_drawn(view: &Value) {
    assert_eq!((&view["said"], &view["foreign"]), (&serde_json::json!([]), &serde_json::json!([])), "{view}");
    assert_eq!(view["isOverflowing"], false, "{view}");
    let panels = view["panels"].as_array().map_or(&[][..], Vec::as_slice);
    for title in ["Loss", "Gradient norm", "Update ratio", "Update norm", "Step time"] {
        let panel = panels.iter().find(|panel| panel["title"] == title);
        let pixels = |of: &str| panel.and_then(|panel| panel[of].as_u64()).unwrap_or(0);
        assert!(pixels("curve") > 100, "no curve of {title}: {view}");
        assert!(pixels("marks") > 20, "no mark on {title}: {view}");
    }
    assert!(view["heatColors"].as_u64() > Some(20), "{view}");
}

/// Steps dragged over are shown on all curves, stay so when the run goes on, and all come back.
fn assert_zoom(zoom: &Value) {
    assert!(zoom["whole"].as_array().is_some_and(|first| first.iter().all(|step| step.as_u64() < Some(5))), "{zoom}");
    let zoomed = zoom["zoomed"][0].as_u64();
    assert!((Some(20)..Some(50)).contains(&zoomed), "{zoom}");
    assert_eq!(zoom["zoomed"][1], zoom["zoomed"][0], "all curves show the same steps: {zoom}");
    assert_eq!(zoom["later"], zoom["zoomed"], "a step more does not move what the reader chose: {zoom}");
    assert_eq!(zoom["reset"], zoom["whole"], "{zoom}");
}

/// While the agent is away the page says so and shows what it has; when it answers again, the page goes on by itself.
fn assert_reconnect(reconnect: &Value) {
    assert_eq!(reconnect["lost"]["state"], "disconnected, reconnecting", "{reconnect}");
    assert_eq!(reconnect["back"]["state"], "live", "{reconnect}");
    for state in ["lost", "back"] {
        assert!(reconnect[state]["curve"].as_u64() > Some(100), "{reconnect}");
    }
}

fn assert_keys(keys: &Value) {
    assert_eq!(keys["focus"], "filter", "`/` goes to the filter: {keys}");
    assert_eq!(keys["before"]["rows"], "12 layers, 24 tensors", "twelve weights and biases: {keys}");
    assert_eq!(keys["filtered"], "3 layers, 3 of 24 tensors", "weights of layers 1, 10 and 11: {keys}");
    assert_eq!(keys["cleared"], keys["before"]["rows"], "Escape clears the filter: {keys}");
    let marks = |of: &Value| of["panels"][0]["marks"].as_u64();
    assert!(marks(&keys["chosen"]) > marks(&keys["before"]), "the chosen alert stands out: {keys}");
    assert_eq!(keys["grouped"], "24 tensors", "`g` shows tensors: {keys}");
    assert!(keys["legend"].as_str().is_some_and(|legend| legend.contains("logarithmic")), "`c` shows values: {keys}");
    assert_ne!(keys["toggled"], keys["before"]["background"], "`t` changes the theme: {keys}");
    assert_eq!((&keys["help"], &keys["helpClosed"]), (&Value::Bool(true), &Value::Bool(true)), "{keys}");
}

#[test]
fn a_browser_shows_the_range_of_steps_that_share_a_bin() -> Result<()> {
    const TEST: &str = "a_browser_shows_the_range_of_steps_that_share_a_bin";
    if let Some(reason) = missing() {
        return Ok(skip(TEST, &reason)?);
    }
    let Some(chromium) = chromium() else { return Ok(skip(TEST, "no Chromium on PATH (Debian: chromium)")?) };
    let ended = Command::new("node").arg("tests/merged.mjs").arg(chromium).current_dir(web()).output()?;
    ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let seen: Value = serde_json::from_slice(&ended.stdout)?;
    let (calm, spiked) = (&seen["calm"], &seen["spiked"]);
    assert_eq!((&calm["said"], &spiked["said"]), (&serde_json::json!([]), &serde_json::json!([])));
    // One spike of one step among 400 bins of four: a thin line where the others have room no more.
    let above = |of: &Value| of["above"].as_u64().unwrap_or(0);
    assert!((5..200).contains(&above(spiked)) && above(calm) > 4 * above(spiked), "{seen}");
    assert_eq!(calm["broken"], 0, "{seen}");
    assert!(spiked["broken"].as_u64() > Some(20), "a NaN within a bin has its mark: {seen}");
    assert!(calm["readout"].as_str().is_some_and(|said| said.contains("step 796–799")), "{seen}");
    Ok(())
}
