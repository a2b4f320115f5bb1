//! `trainmon ctl` against a training: what it orders happens at the step it names, and nobody else is let in.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use trainmon_integration_tests::{CsvTree, Training, wait_for};

use crate::support::{Scene, assert_unharmed, program, rank_directory};

const CONFIG: &str =
    r#""layout": "msprobe", "wg_distribution": true, "ops": ["norm"], "control": {"port": 0}, "queue_steps": 4096"#;
/// More steps than any of these tests lets pass; the training waits after each of them.
const STEPS: u64 = 400;

/// A training that makes a step when it is told to, and the command to speak to it.
struct Watched {
    scene: Scene,
    program: PathBuf,
    training: Training,
    /// The steps it has made; the number of the one in progress.
    made: u64,
}

impl Watched {
    fn start(program: PathBuf) -> Result<Self> {
        let scene = Scene::new(CONFIG)?;
        let pauses = (0..STEPS).map(|step| step.to_string());
        let trainer = pauses.fold(scene.trainer(STEPS), |trainer, step| trainer.option("--pause-after", step));
        let mut training = trainer.start()?;
        training.wait_for_step(0)?;
        Ok(Self { scene, program, training, made: 1 })
    }

    fn run(&self) -> Result<PathBuf> {
        rank_directory(&self.scene.out())
    }

    /// `control.json`.
    fn description(&self) -> Result<Value> {
        Ok(serde_json::from_str(&fs::read_to_string(self.run()?.join("control.json"))?)?)
    }

    fn steps(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.training.resume()?;
            self.training.wait_for_step(self.made)?;
            self.made += 1;
        }
        Ok(())
    }

    fn ctl(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.arg("ctl").args(arguments).current_dir(self.scene.path()).env("NO_COLOR", "1");
        Ok(command.output()?)
    }

    /// Orders something of this run, over its socket, and gives the answer.
    fn order(&self, arguments: &[&str]) -> Result<Value> {
        let run = self.run()?;
        let arguments = [&[run.to_str().context("a path")?], arguments, &["--json"]].concat();
        let output = self.ctl(&arguments)?;
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Orders a change and gives the step it takes effect at: the one after that in progress.
    fn change(&self, arguments: &[&str]) -> Result<u64> {
        let answer = self.order(arguments)?;
        assert_eq!(answer["stage"], "agreed", "{answer}");
        let step = answer["step"].as_u64().context("no step")?;
        assert_eq!(step, self.made + 1, "{answer}");
        Ok(step)
    }

    /// What the command says and where, when it is refused.
    fn refused(&self, arguments: &[&str], words: &str) -> Result<()> {
        let output = self.ctl(arguments)?;
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{arguments:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(words), "{arguments:?}: {said}");
        assert!(said.lines().last().is_some_and(|line| line.starts_with("hint: ")), "{arguments:?}: {said}");
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_ctl_orders_happens_at_the_step_it_names() -> Result<()> {
    let Some(program) = program("what_ctl_orders_happens_at_the_step_it_names")? else { return Ok(()) };
    let mut watched = Watched::start(program)?;
    watched.steps(3)?;
    let mut expected: Vec<u64> = (0..=watched.made).collect();

    let set = watched.change(&["set", "--every", "3", "--ops", "norm,max"])?;
    watched.steps(7)?;
    expected.extend([set, set + 3, set + 6]);

    watched.change(&["pause"])?;
    watched.steps(4)?;
    let resumed = watched.change(&["resume"])?;
    watched.steps(6)?;
    expected.extend((resumed..watched.made).filter(|step| (step - set).is_multiple_of(3)));

    let status = watched.order(&["status"])?;
    assert_eq!(
        status["plan"]["window"],
        json!({
            "start_step": set, "stop_step": null, "step_interval": 3, "collect_times": status["plan"]["window"]["collect_times"],
        })
    );
    wait_for("report of the last switch", || {
        let status = watched.order(&["status"])?;
        let changes = status["changes"].as_array().context("changes")?;
        assert_eq!(changes.len(), 3);
        let is_told = changes.iter().all(|change| change["stage"] == "switched");
        // Steps are told of by the thread behind the training: the last of them maybe after the training made it.
        Ok((is_told && status["step"] == watched.made).then_some(()))
    })?;

    // What was measured until now is in the files when `flush` returns.
    let flushed = watched.order(&["flush"])?;
    let csv = CsvTree::read(&watched.scene.out())?;
    assert_eq!(csv.tensor_rows(), flushed["records"].as_u64().context("records")?);
    let measured: Vec<u64> = csv
        .rows_by_kind_and_step()?
        .into_keys()
        .filter(|(kind, _)| kind == "grad_reduced")
        .map(|(_, step)| step)
        .collect();
    assert_eq!(measured, expected);
    let ended = watched.training.end()?;
    assert_unharmed(&ended, STEPS)
}

#[test]
fn nobody_is_let_in_without_the_token_and_nothing_leads_elsewhere() -> Result<()> {
    let Some(program) = program("nobody_is_let_in_without_the_token_and_nothing_leads_elsewhere")? else {
        return Ok(());
    };
    let watched = Watched::start(program)?;
    let description = watched.description()?;
    let (url, token_file) = (
        description["url"].as_str().context("url")?,
        PathBuf::from(description["token_file"].as_str().context("token")?),
    );
    let socket = PathBuf::from(description["socket"].as_str().context("socket")?);
    for path in [&token_file, &socket] {
        assert_eq!(fs::metadata(path)?.permissions().mode() & 0o777, 0o600, "{}", path.display());
    }

    let wrong = watched.scene.path().join("wrong");
    fs::write(&wrong, fs::read_to_string(&token_file)?.chars().rev().collect::<String>())?;
    let (right, wrong) = (token_file.to_str().context("a path")?, wrong.to_str().context("a path")?);
    for order in [&["status"][..], &["pause"], &["set", "--every", "2"], &["flush"]] {
        watched.refused(&[&["--url", url, "--token-file", wrong], order].concat(), "the token is missing or wrong")?;
    }
    let served = watched.ctl(&["--url", url, "--token-file", right, "status", "--json"])?;
    assert_eq!(served.status.code(), Some(0), "{}", text(&served.stderr));

    // A path is a path of the server's, whatever is put before or into it.
    fs::write(watched.run()?.join("secret"), "not for you")?;
    fs::write(watched.scene.path().join("secret"), "not for you")?;
    for path in ["/secret", "/../../secret", "/%2e%2e/%2e%2e/secret", "//control.token", "/status/../../secret"] {
        let answer = http(url, &format!("GET {path} HTTP/1.1"), right)?;
        assert!(answer.starts_with("HTTP/1.1 404 ") && !answer.contains("not for you"), "{path}: {answer}");
    }
    let run = watched.run()?;
    let run = run.to_str().context("a path")?;
    let large = format!(r#"{{"targets": ["{}"]}}"#, "x".repeat(80 << 10));
    watched.refused(&[run, "set", "--json-change", &large], "65536 bytes")?;
    watched.refused(&[run, "set", "--json-change", r#"{"output_dir": "/tmp"}"#], "output_dir")?;
    watched.refused(&[run, "set", "--from", "9", "--until", "9"], "no step would be measured")?;
    watched.refused(&[run, "set", "--every", "0"], "step_interval")?;

    let status = watched.order(&["status"])?;
    assert_eq!((&status["changes"], &status["plan"]["window"]["step_interval"]), (&json!([]), &json!(1)));
    assert_unharmed(&watched.training.end()?, STEPS)?;
    wait_for("the end of the socket", || Ok((!socket.exists()).then_some(())))
}

/// The answer to a request with the token.
fn http(url: &str, request_line: &str, token_file: &str) -> Result<String> {
    use std::io::{Read as _, Write as _};
    let address = url.strip_prefix("http://").context("a url")?;
    let token = fs::read_to_string(token_file)?;
    let mut stream = std::net::TcpStream::connect(address)?;
    let head = format!("{request_line}\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\r\n", token.trim());
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
