//! A real Prometheus server finds the page by its target file and stores what it says.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::support::{PATIENCE, config, gradient, names, request, run, sources, step, wait_for};
use trainmon_exporters::{Exporter, PrometheusExporter};

/// Killed when the test ends, however it ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        drop(self.0.wait());
    }
}

/// `None`, and a line that says so, when Prometheus is not installed.
fn start_prometheus(directory: &Path) -> Option<(Server, SocketAddr)> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let file = directory.join("prometheus.yml");
    let targets = directory.join("targets.rank*.json");
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: trainmon\n  file_sd_configs:\n  - files: ['{}']\n",
        targets.display()
    );
    std::fs::write(&file, config).unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match child {
        Ok(child) => Some((Server(child), address)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: no prometheus on PATH (Debian: prometheus)");
            None
        }
        Err(error) => panic!("prometheus: {error}"),
    }
}

#[test]
fn a_real_prometheus_finds_the_page_and_stores_its_series() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config();
    config.target_file = Some(directory.path().join("targets.json"));
    let mut exporter = PrometheusExporter::start(&config, run(), sources()).unwrap();
    let tensors = names(&["blocks.0.attn.qkv.weight"]);
    exporter.export(&tensors, &step(41, vec![gradient(0, f64::INFINITY)])).unwrap();
    exporter.export(&tensors, &step(42, vec![gradient(0, 0.5)])).unwrap();
    let Some((mut server, address)) = start_prometheus(directory.path()) else { return };
    wait_for("Prometheus", || {
        assert!(server.0.try_wait().unwrap().is_none(), "Prometheus ended");
        TcpStream::connect(address).ok()?;
        (request(address, "GET", "/-/ready").status == 200).then_some(())
    });
    let query = |expression: &str| {
        let answer = request(address, "GET", &format!("/api/v1/query?query={expression}"));
        let mut results = answer.json()["data"]["result"].as_array().cloned().unwrap_or_default();
        results.pop()
    };
    let sample = wait_for("trainmon_step in Prometheus", || query("trainmon_step"));
    assert_eq!(sample["value"][1], "42");
    assert_eq!((sample["metric"]["run"].as_str(), sample["metric"]["rank"].as_str()), (Some("run-a"), Some("3")));
    let layer = query("trainmon_layer_norm").unwrap();
    assert_eq!(layer["metric"]["layer"], "blocks.0");
    assert_eq!(query("trainmon_grad_norm_interval_max").unwrap()["value"][1], "+Inf");
    assert_eq!(query("trainmon_grad_norm_interval_max_step").unwrap()["value"][1], "41");
    let up = wait_for("up in Prometheus", || query("up"));
    assert_eq!(up["value"][1], "1");
    exporter.shutdown(Instant::now() + PATIENCE).unwrap();
}
