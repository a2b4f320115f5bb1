//! Which exporters a config asks for, and how each is opened.

use std::sync::Arc;

use trainmon_core::config::Config;
use trainmon_exporters::{CsvExporter, Exporter, RunInfo};

use crate::options::{Options, environment};
use crate::sink::SinkShared;

/// An exporter and the books it will be run with.
pub(crate) struct Output {
    pub(crate) exporter: Box<dyn Exporter>,
    pub(crate) shared: Arc<SinkShared>,
}

impl Output {
    fn new(exporter: Box<dyn Exporter>, config: &Config) -> Self {
        let shared = Arc::new(SinkShared::new(exporter.name(), config.pipeline.queue_steps));
        Self { exporter, shared }
    }
}

/// Opens what the config asks for, and the caller's own exporters. A rank that does not measure writes no CSV.
pub(crate) fn open_outputs(
    config: &Config,
    options: &Options,
    run: &RunInfo,
    own: Vec<Box<dyn Exporter>>,
    rank_measures: bool,
) -> Vec<Output> {
    let mut outputs: Vec<Output> = own.into_iter().map(|exporter| Output::new(exporter, config)).collect();
    if let Some(csv) = config.csv.as_ref().filter(|_| rank_measures) {
        let base = csv
            .output_dir
            .clone()
            .or_else(|| options.output_dir.clone())
            .unwrap_or_else(|| environment::default_output_dir(config.dialect));
        outputs.push(Output::new(Box::new(CsvExporter::new(config, csv, &base, run)), config));
    }
    outputs
}
