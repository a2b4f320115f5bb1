//! The metrics page: current values and counters of one rank, rendered when scraped.
//!
//! [`PrometheusExporter::export`] summarizes the batch (`metric_table`, with `crate::summary`), sets the table
//! (`series`, `tier_series`), the counters (`counters`) and the interval's maximum (`interval_max`), and publishes. For
//! a scrape, `server` answers, and `page` renders the published snapshot and the live counters (`crate::sources`).
//! `live` provides the live page's data: the history of the run.
//!
//! Samples have neither `run` nor `rank`: these are labels of the target, which `target_file` passes to a Prometheus
//! server. On the page itself, they would clash with those, and Prometheus would rename them to `exported_run`.

mod collectives;
mod connections;
mod counters;
mod hosts;
mod interval_max;
mod live;
mod metric_table;
mod page;
mod responses;
mod run_gauges;
mod scalar_series;
mod series;
mod server;
mod target_file;
mod tier_series;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use trainmon_core::{Alert, StepBatch, TensorInfo, config};

use self::counters::Counters;
use self::hosts::KnownHosts;
use self::live::{HistoryWriter, LiveRun};
use self::metric_table::MetricTable;
use self::page::PageSource;
use self::responses::PageHandler;
use self::run_gauges::RunGauge;
use self::server::Server;
use self::target_file::TargetFile;
use crate::{ExportError, ExportFailure, Exporter, RunInfo, Sources};

/// Serves the live page, `/metrics`, `/healthz` and `/top` over HTTP on its own thread.
///
/// A step costs the exporter's thread about 50 ns per record without the live page. A scrape costs the server's thread
/// about 40 ns per series and waits for no step. Memory: about 600 bytes per series with the longest labels (measured
/// by `benches/scrape.rs`, which also adds steps to the live page). For the live page's memory, see
/// [`trainmon_history::History`].
#[derive(Debug)]
pub struct PrometheusExporter {
    metric_table: MetricTable,
    page_source: Arc<PageSource>,
    /// `None` without the live page.
    history: Option<HistoryWriter>,
    server: Server,
    target_file: Option<TargetFile>,
}

impl PrometheusExporter {
    /// Listens on `bind` and `port + local_rank` (or a port that the system chooses if `port` is 0), writes the target
    /// file if one is configured, and starts to serve.
    ///
    /// # Errors
    /// The port is taken or not allowed; the target file cannot be written; the system is out of threads. Nothing is
    /// left behind then.
    pub fn start(config: &config::Prometheus, run: RunInfo, sources: Sources) -> Result<Self, ExportError> {
        let address = listening_address(config, &run)?;
        let counters = Arc::new(Counters::new()?);
        let overhead_budget = sources.overhead_budget;
        let statistics = sources.statistics;
        let mut metric_table =
            MetricTable::new(config, statistics, &sources.parts, Arc::clone(&counters), Instant::now());
        let page_source = Arc::new(PageSource {
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            run,
            series_limit: config.max_series,
            sources,
            counters,
            current: metric_table.current(),
            last_bytes: AtomicUsize::new(0),
        });
        let reserved = page_source.own_series() + RunGauge::most_series(config.top_k);
        metric_table.set_overhead_budget(overhead_budget);
        metric_table.allow_series(config.max_series.saturating_sub(reserved));
        let live = config.page.then(|| Arc::new(LiveRun::new()));
        let history = live.clone().map(|live| HistoryWriter::new(live, statistics, overhead_budget));
        let hosts = KnownHosts::new(&page_source.host, &config.hosts);
        let server = Server::start(address, PageHandler { page: Arc::clone(&page_source), live, hosts })?;
        let target = target(server.address(), &page_source.host);
        let target_file = match &config.target_file {
            Some(path) => Some(TargetFile::write(path, &target, &page_source.run)?),
            None => None,
        };
        Ok(Self { metric_table, page_source, history, server, target_file })
    }

    /// The address of the page.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The current page, for a program with its own server.
    pub fn page(&self) -> String {
        self.page_source.metrics(Instant::now())
    }
}

impl Exporter for PrometheusExporter {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        let now = Instant::now();
        let figures = self.metric_table.export(names, batch, now);
        if let Some(history) = &mut self.history {
            history.export(names, batch, &figures, now);
        }
        Ok(())
    }

    fn alert(&mut self, alert: &Alert) -> Result<(), ExportError> {
        if let Some(history) = &self.history {
            history.alert(alert);
        }
        Ok(())
    }

    /// Only the live page shows alerts.
    fn takes_alerts(&self) -> bool {
        self.history.is_some()
    }

    fn shutdown(&mut self, deadline: Instant) -> Result<(), ExportError> {
        // The target is removed first, so that no server scrapes a page that is about to close.
        let removed = self.target_file.take().map_or(Ok(()), |file| file.remove());
        self.server.shutdown(deadline);
        removed
    }

    fn locations(&self) -> Vec<String> {
        let target = target(self.address(), &self.page_source.host);
        let mut lines = Vec::new();
        if self.history.is_some() {
            lines.push(format!("http://{target}/"));
        }
        lines.push(format!("http://{target}/metrics"));
        lines.extend(self.target_file.as_ref().map(|file| file.path().display().to_string()));
        lines
    }
}

fn listening_address(config: &config::Prometheus, run: &RunInfo) -> Result<SocketAddr, ExportError> {
    let first = SocketAddr::new(config.bind, config.port);
    if config.port == 0 {
        return Ok(first);
    }
    let port = u16::try_from(run.local_rank.0).ok().and_then(|rank| config.port.checked_add(rank));
    port.map(|port| SocketAddr::new(config.bind, port))
        .ok_or(ExportError::NoSuchPort { port: config.port, local_rank: run.local_rank.0 })
}

/// The address for other hosts: with the host's name if the server listens on all addresses.
fn target(address: SocketAddr, host: &str) -> String {
    if address.ip().is_unspecified() { format!("{host}:{}", address.port()) } else { address.to_string() }
}
