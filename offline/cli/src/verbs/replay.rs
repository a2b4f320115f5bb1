//! The command line of `trainmon replay` and its output.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use trainmon_core::config::OtlpProtocol;
use trainmon_report::{Outcome, Printer, shown};
use trainmon_runs::replay::{
    MadeUpTimes, OtlpOptions, PrometheusOptions, ReplayError, Replayed, as_json, to_otlp, to_prometheus,
};
use trainmon_runs::steps::RankChoice;

use super::log_columns::LogColumnArguments;
use super::what_was_read::say_what_was_read;

pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon replay monitor_output --to prometheus -o old --blocks      the newest run as blocks to move into the data\n",
    "                                                                      directory of Prometheus\n",
    "  trainmon replay monitor_output/train-1123-043812 --to prometheus    OpenMetrics text for promtool\n",
    "  trainmon replay monitor_output --to otlp --endpoint http://collector:4318\n",
    "  trainmon replay rescued/journal_rank0.tmj --to otlp --endpoint http://collector:4317 --protocol grpc\n",
    "  trainmon replay wandb/offline-run-20261120_160509-x1y2z3 --to prometheus    another tool's log\n",
    "  trainmon replay msprobe_out --to prometheus --start 2026-11-20T16:05:09Z --step-seconds 1.5\n",
    "\n",
    "Every step keeps its time from steps.csv or the journal. Prometheus removes blocks that are older than its retention ",
    "(15 days unless --storage.tsdb.retention.time sets it), and many OTLP receivers refuse old times."
);

/// The run and the destination.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Arguments {
    /// The run: its directory, one rank's directory, a directory of runs (the newest is used), a journal, or another
    /// tool's log
    run: PathBuf,
    /// The destination
    #[arg(long)]
    to: Target,
    /// Only this rank [default: all]
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// otlp: the receiver's address [default: `OTEL_EXPORTER_OTLP_ENDPOINT`, else port 4318 of this machine]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// otlp: the protocol [default: `OTEL_EXPORTER_OTLP_PROTOCOL`, else http/protobuf]
    #[arg(long)]
    protocol: Option<Protocol>,
    /// otlp: seconds without progress after which the receiver counts as unreachable
    #[arg(long, value_name = "S", default_value_t = 30)]
    patience: u64,
    /// otlp: send no alerts, for a receiver that only accepts metrics
    #[arg(long)]
    no_alerts: bool,
    /// prometheus: the directory to create [default: <run>-prometheus]
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// prometheus: create blocks with promtool
    #[arg(long)]
    blocks: bool,
    /// Export every measured statistic of every tensor, by name: many series
    #[arg(long)]
    per_parameter: bool,
    /// The time of the first step, for files without times (msprobe's): 2026-11-20T16:05:09Z
    #[arg(long, value_name = "TIME", requires = "step_seconds")]
    start: Option<Timestamp>,
    /// Seconds from one step to the next, with --start
    #[arg(long, value_name = "S", requires = "start", value_parser = positive)]
    step_seconds: Option<f64>,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    columns: LogColumnArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    /// Text with timestamps for `promtool`, and blocks created from it
    Prometheus,
    /// An OpenTelemetry receiver
    Otlp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Protocol {
    /// gRPC
    Grpc,
    /// Protobuf over HTTP/1.1
    #[value(name = "http/protobuf")]
    HttpProtobuf,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds.is_finite() => Ok(seconds),
        _ => Err("expected a number greater than 0".to_owned()),
    }
}

/// Replays the run and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let replayed = replay(arguments);
    if let (Ok(replayed), false) = (&replayed, arguments.json) {
        say_what_was_read(printer, "replaying", &replayed.newest, replayed.log.as_deref(), &replayed.warnings);
    }
    printer.answer(&replayed, arguments.json.then(|| as_json(&replayed)), Replayed::in_words)?;
    Ok(Outcome::of_work(&replayed))
}

fn replay(arguments: &Arguments) -> Result<Replayed, ReplayError> {
    let Arguments { run, to, rank, endpoint, protocol, patience, output, blocks, per_parameter, .. } = arguments;
    let ranks = rank.map_or(RankChoice::All, RankChoice::Only);
    let columns = &arguments.columns.names();
    let times = arguments.start.zip(arguments.step_seconds);
    let times = times.map(|(start, step_seconds)| MadeUpTimes { start, step_seconds });
    match to {
        Target::Prometheus => {
            let (per_parameter, blocks, output) = (*per_parameter, *blocks, output.as_deref());
            let options = PrometheusOptions { ranks, columns, times, per_parameter, blocks, output };
            shown("replaying", |progress| to_prometheus(run, options, progress))
        }
        Target::Otlp => {
            let protocol = protocol.map(|protocol| match protocol {
                Protocol::Grpc => OtlpProtocol::Grpc,
                Protocol::HttpProtobuf => OtlpProtocol::HttpProtobuf,
            });
            let options = OtlpOptions {
                ranks,
                columns,
                times,
                per_parameter: *per_parameter,
                endpoint: endpoint.as_deref(),
                protocol,
                logs: !arguments.no_alerts,
                patience: Some(Duration::from_secs((*patience).max(1))),
                environment: &|name| std::env::var(name).ok(),
            };
            shown("replaying", |progress| to_otlp(run, options, progress))
        }
    }
}
