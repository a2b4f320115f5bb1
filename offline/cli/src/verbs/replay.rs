//! The command line of `trainmon replay`, and what it says.

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
    "  trainmon replay monitor_output --to prometheus -o old --blocks      the newest run as blocks: move them into the data\n",
    "                                                                      directory of Prometheus\n",
    "  trainmon replay monitor_output/train-1123-043812 --to prometheus    OpenMetrics text, for promtool elsewhere\n",
    "  trainmon replay monitor_output --to otlp --endpoint http://collector:4318\n",
    "  trainmon replay rescued/journal_rank0.tmj --to otlp --endpoint http://collector:4317 --protocol grpc\n",
    "  trainmon replay wandb/offline-run-20261120_160509-x1y2z3 --to prometheus    the log of another tool\n",
    "  trainmon replay msprobe_out --to prometheus --start 2026-11-20T16:05:09Z --step-seconds 1.5\n",
    "\n",
    "Every step keeps its own time, that of steps.csv or of the journal. Prometheus removes blocks that are older than its\n",
    "retention (15 days unless --storage.tsdb.retention.time says otherwise), and many OTLP receivers refuse old times."
);

/// What to replay, and where to.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Arguments {
    /// The run: its directory, that of one of its ranks, the one that holds all runs (the newest is taken), a journal, or the log of
    /// another tool
    run: PathBuf,
    /// Where to
    #[arg(long)]
    to: Target,
    /// This rank only [default: all]
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// otlp: the receiver's address [default: `OTEL_EXPORTER_OTLP_ENDPOINT`, else port 4318 of this machine]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// otlp: how requests travel [default: `OTEL_EXPORTER_OTLP_PROTOCOL`, else http/protobuf]
    #[arg(long)]
    protocol: Option<Protocol>,
    /// otlp: seconds the receiver may take nothing before it counts as unreachable
    #[arg(long, value_name = "S", default_value_t = 30)]
    patience: u64,
    /// otlp: send no alerts, for a receiver that takes metrics only
    #[arg(long)]
    no_alerts: bool,
    /// prometheus: the directory to make [default: <run>-prometheus]
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// prometheus: have promtool make blocks
    #[arg(long)]
    blocks: bool,
    /// Every measured statistic of every tensor, by name: many series
    #[arg(long)]
    per_parameter: bool,
    /// When the first step was, for files that do not tell (msprobe's): 2026-11-20T16:05:09Z
    #[arg(long, value_name = "TIME", requires = "step_seconds")]
    start: Option<Timestamp>,
    /// Seconds from a step to the next, with --start
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
    /// Text with timestamps for `promtool`, and blocks made of it
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
        _ => Err("expected a number above 0".to_owned()),
    }
}

/// Replays, and says what came of it.
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
            shown("replaying", |tell| to_prometheus(run, options, tell))
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
            shown("replaying", |tell| to_otlp(run, options, tell))
        }
    }
}
