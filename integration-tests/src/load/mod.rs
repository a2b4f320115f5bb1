//! Load: what a Prometheus server has to bear that scrapes a large job.

mod pages;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::prometheus::Prometheus;
use pages::ServedRanks;

/// How long a server may take until it has scraped every rank as often as asked: it starves before it is this late.
const PATIENCE_IN_SCRAPES: u32 = 6;

/// A job to be served, and how it is scraped.
#[derive(Clone, Debug)]
pub struct Load {
    /// Ranks, each with a page of its own.
    pub ranks: u32,
    /// Layers of the model whose statistics each page has.
    pub layers: usize,
    /// How often the pages get new values.
    pub step: Duration,
    /// How often each page is scraped.
    pub scrape: Duration,
    /// Scrapes of every page before the measurement.
    pub scrapes: u32,
    /// The recording and alert rules that the server evaluates; a directory with `*.rules.yml`.
    pub rules: PathBuf,
}

/// What the server took.
#[derive(Clone, Copy, Debug)]
pub struct Borne {
    /// Ranks whose last scrape was complete.
    pub answered: f64,
    /// Series in the server's memory.
    pub series: f64,
    /// Samples of one page.
    pub samples_per_page: f64,
    /// Bytes of one page.
    pub page_bytes: usize,
    /// Seconds for one page, as the server measured: mean and largest.
    pub scrape_seconds: (f64, f64),
    /// The server's resident memory in bytes.
    pub resident_bytes: f64,
    /// Cores the server kept busy.
    pub cores: f64,
    /// Seconds for the slowest group of rules.
    pub rule_seconds: f64,
}

impl Load {
    /// Serves, scrapes and measures; `None` if Prometheus is not installed. Everything lies in `directory`, which must be
    /// there; rules and pages are gone afterwards, the server's data stay.
    ///
    /// # Errors
    /// The machine cannot serve so many ranks, or the server does not come to scrape them all.
    pub fn run(&self, directory: &Path) -> Result<Option<Borne>> {
        let targets = directory.join("targets");
        let mut pages = ServedRanks::serve(self.ranks, self.layers, &targets.join("rank.json"))?;
        pages.step(self.step)?;
        let Some(server) = Prometheus::start_with(directory, &self.config(&targets))? else { return Ok(None) };
        let borne = self.measure(&mut pages, &server);
        pages.close();
        borne.map(Some)
    }

    fn config(&self, targets: &Path) -> String {
        format!(
            "global: {{scrape_interval: {scrape}s, evaluation_interval: {scrape}s}}\n\
             rule_files: ['{rules}/*.rules.yml']\n\
             scrape_configs:\n\
             - job_name: trainmon\n  file_sd_configs: [{{files: ['{targets}/*.json']}}]\n\
             - job_name: prometheus\n  static_configs: [{{targets: ['ADDRESS']}}]\n",
            scrape = self.scrape.as_secs(),
            rules = self.rules.display(),
            targets = targets.display(),
        )
    }

    fn measure(&self, pages: &mut ServedRanks, server: &Prometheus) -> Result<Borne> {
        let patience = self.scrape * self.scrapes * PATIENCE_IN_SCRAPES;
        let deadline = Instant::now() + patience;
        let enough = format!("count(count_over_time(up{{run=\"load\"}}[1h])>={})", self.scrapes);
        let number = |expression: &str| number(server, expression);
        loop {
            let began = Instant::now();
            pages.step(self.step)?;
            if number(&enough)? >= f64::from(self.ranks) {
                break;
            }
            ensure!(Instant::now() < deadline, "not {} scrapes of each rank within {patience:?}", self.scrapes);
            std::thread::sleep(self.step.saturating_sub(began.elapsed()));
        }
        let window = self.scrape.as_secs() * 3;
        Ok(Borne {
            answered: number("sum(up{run=\"load\"})")?,
            series: number("prometheus_tsdb_head_series")?,
            samples_per_page: number("avg(scrape_samples_scraped{run=\"load\"})")?,
            page_bytes: pages.page_bytes(),
            scrape_seconds: (
                number(&format!("avg(avg_over_time(scrape_duration_seconds{{run=\"load\"}}[{window}s]))"))?,
                number(&format!("max(max_over_time(scrape_duration_seconds{{run=\"load\"}}[{window}s]))"))?,
            ),
            resident_bytes: number(&format!(
                "max_over_time(process_resident_memory_bytes{{job=\"prometheus\"}}[{window}s])"
            ))?,
            cores: number(&format!("rate(process_cpu_seconds_total{{job=\"prometheus\"}}[{window}s])"))?,
            rule_seconds: number("max(prometheus_rule_group_last_duration_seconds)")?,
        })
    }
}

/// The number that an expression gives; 0 where it has no series yet.
fn number(server: &Prometheus, expression: &str) -> Result<f64> {
    let results = server.query(expression)?;
    let Some(series) = results.first() else { return Ok(0.0) };
    ensure!(results.len() == 1, "{expression}: {} series", results.len());
    Ok(series["value"][1].as_str().context("no value")?.parse()?)
}

impl fmt::Display for Borne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mean, largest) = self.scrape_seconds;
        let per_series = self.resident_bytes / self.series;
        writeln!(f, "ranks that answered    {:>12.0}", self.answered)?;
        writeln!(f, "series                 {:>12.0}", self.series)?;
        writeln!(f, "samples of a page      {:>12.0}", self.samples_per_page)?;
        writeln!(f, "a page                 {:>9.2} MB", self.page_bytes as f64 / 1e6)?;
        writeln!(f, "scrape, mean           {:>9.1} ms", mean * 1e3)?;
        writeln!(f, "scrape, slowest        {:>9.1} ms", largest * 1e3)?;
        writeln!(f, "resident memory        {:>9.2} GB", self.resident_bytes / 1e9)?;
        writeln!(f, "memory of a series     {per_series:>10.0} B")?;
        writeln!(f, "cores busy             {:>12.2}", self.cores)?;
        write!(f, "slowest group of rules {:>9.1} ms", self.rule_seconds * 1e3)
    }
}
