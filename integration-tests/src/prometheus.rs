//! A real Prometheus server, found on PATH.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::http::get;
use crate::wait::wait_for;

/// A server on a port of its own; killed when dropped.
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts a server that scrapes the targets of `target_files` (a pattern) every second and keeps its data in
    /// `directory`; `None` if Prometheus is not installed.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(directory: &Path, target_files: &Path) -> Result<Option<Self>> {
        let scrape = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: trainmon\n  file_sd_configs:\n  - files: ['{}']\n",
            target_files.display()
        );
        Self::start_with(directory, &scrape)
    }

    /// Starts a server with this configuration, in which `ADDRESS` stands for its own; as [`start`](Self::start) else.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_with(directory: &Path, configuration: &str) -> Result<Option<Self>> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let config = directory.join("prometheus.yml");
        std::fs::write(&config, configuration.replace("ADDRESS", &address.to_string()))?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            child => child.context("cannot start prometheus")?,
        };
        let mut server = Self { child, address };
        wait_for("Prometheus", || {
            ensure!(server.child.try_wait()?.is_none(), "Prometheus ended");
            Ok(get(address, "/-/ready").ok())
        })?;
        Ok(Some(server))
    }

    /// The results of an instant query.
    ///
    /// # Errors
    /// The server does not answer as it should.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let body = get(self.address, &format!("/api/v1/query?query={}", escaped(expression)))?;
        let answer: Value = serde_json::from_str(&body)?;
        Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
    }

    /// The newest value of a metric that has exactly one series; `None` if it has none yet.
    ///
    /// # Errors
    /// As [`query`](Self::query); or the metric has several series.
    pub fn value(&self, metric: &str) -> Result<Option<f64>> {
        let results = self.query(metric)?;
        ensure!(results.len() <= 1, "{metric}: {results:?}");
        results.first().map(|series| Ok(series["value"][1].as_str().context("no value")?.parse()?)).transpose()
    }
}

/// For a URL: what is neither letter nor digit by its code.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        drop(self.child.wait());
    }
}

/// What `promtool check metrics` has to say about a page: nothing, if all is well. `None` if promtool is not installed.
///
/// # Errors
/// It cannot be run.
pub fn check_metrics(page: &str) -> Result<Option<String>> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        child => child.context("cannot start promtool")?,
    };
    child.stdin.take().context("no standard input")?.write_all(page.as_bytes())?;
    let output = child.wait_with_output()?;
    let mut said = String::from_utf8(output.stdout)? + std::str::from_utf8(&output.stderr)?;
    if !output.status.success() {
        said.push_str(&output.status.to_string());
    }
    Ok(Some(said))
}
