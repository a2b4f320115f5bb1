//! Recorded steps as `OpenMetrics` text with the steps' own timestamps, for `promtool tsdb create-blocks-from
//! openmetrics`. The points are those sent over OTLP, under their Prometheus names.
//!
//! The format requires all samples of a metric to be consecutive, so each metric is collected in its own file until the
//! end.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, Metric, NumberDataPoint};
use trainmon_core::catalog::{self, GRAD_NORM, GRAD_NORM_INTERVAL_MAX, GRAD_NORM_INTERVAL_MAX_STEP, MetricType};
use trainmon_core::config::Config;
use trainmon_core::{StepBatch, TensorInfo};

use super::step::{StepEncoder, unix_nanoseconds};
use crate::{RunInfo, Sources};

/// The sources of a rank's samples.
pub struct OpenMetricsOpening<'a> {
    /// The config, for the statistics of each kind.
    pub config: &'a Config,
    /// The run and rank, for the labels `run` and `rank`.
    pub run: &'a RunInfo,
    /// Statistics and counters: [`Sources::of_recorded`].
    pub sources: &'a Sources,
    /// Whether to write every measured statistic of every tensor, by name.
    pub per_parameter: bool,
}

/// Writes `OpenMetrics` text, rank after rank, each from its oldest step on.
///
/// Memory: one step. Disk: the text twice, once in `directory` until [`finish`](Self::finish).
pub struct OpenMetricsWriter {
    directory: PathBuf,
    families: Vec<Family>,
    by_otel_name: HashMap<&'static str, usize>,
    rank: Option<RankWriter>,
    written: Written,
}

/// The counts of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of samples.
    pub samples: u64,
    /// The number of metrics with samples.
    pub metrics: usize,
    /// The number of steps whose time was not after that of the previous step. They were moved to one millisecond after
    /// it.
    pub moved: u64,
    /// The times of the first and the last step in Unix milliseconds.
    pub range: Option<(i64, i64)>,
}

struct RankWriter {
    encoder: StepEncoder,
    /// The labels `run="a",rank="0"`.
    target: String,
    /// The time of the previous step in Unix milliseconds.
    last: Option<i64>,
}

/// The collected samples of a metric.
struct Family {
    metric: &'static catalog::Metric,
    file: BufWriter<File>,
}

impl OpenMetricsWriter {
    /// Collects in `directory`, which must exist.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            families: Vec::new(),
            by_otel_name: HashMap::new(),
            rank: None,
            written: Written::default(),
        }
    }

    /// Starts the steps of a rank.
    pub fn begin(&mut self, opening: &OpenMetricsOpening<'_>) {
        let OpenMetricsOpening { config, run, sources, per_parameter } = opening;
        let mut target = String::new();
        push_label(&mut target, "run", &run.run);
        push_label(&mut target, "rank", &run.rank.to_string());
        let encoder = StepEncoder::new(config, *per_parameter, run, sources);
        self.rank = Some(RankWriter { encoder, target, last: None });
    }

    /// Writes a step of the current rank. Does nothing before the first `begin`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> io::Result<()> {
        let Some(rank) = &mut self.rank else { return Ok(()) };
        let metrics = rank.encoder.encode(names, batch);
        let told = i64::try_from(unix_nanoseconds(batch.time) / 1_000_000).unwrap_or(i64::MAX);
        let milliseconds = match rank.last {
            Some(last) if told <= last => {
                self.written.moved += 1;
                last + 1
            }
            _ => told,
        };
        rank.last = Some(milliseconds);
        let (first, last) = self.written.range.unwrap_or((milliseconds, milliseconds));
        self.written.range = Some((first.min(milliseconds), last.max(milliseconds)));
        let step = Sampling { target: rank.target.clone(), time: seconds(milliseconds), step: batch.step.0 };
        for metric in &metrics {
            self.push(metric, &step)?;
        }
        Ok(())
    }

    fn push(&mut self, metric: &Metric, step: &Sampling) -> io::Result<()> {
        let Some(known) = catalog::ALL.iter().find(|known| known.otel_name == metric.name) else { return Ok(()) };
        let mut text = String::new();
        let samples = match &metric.data {
            Some(Data::Gauge(gauge)) => push_numbers(&mut text, known.name, &gauge.data_points, step),
            Some(Data::Sum(sum)) => push_numbers(&mut text, known.name, &sum.data_points, step),
            Some(Data::Histogram(histogram)) => {
                histogram.data_points.iter().map(|point| push_histogram(&mut text, known.name, point, step)).sum()
            }
            _ => 0,
        };
        self.append(known, &text, samples)?;
        if known.name == GRAD_NORM.name {
            // A scrape reports the largest value of a window, so that none is missed; here, no step is missed.
            let value = text.trim_start_matches(GRAD_NORM.name);
            self.append(&GRAD_NORM_INTERVAL_MAX, &format!("{}{value}", GRAD_NORM_INTERVAL_MAX.name), 1)?;
            let of_step = format!(
                "{}{{{}}} {} {}\n",
                GRAD_NORM_INTERVAL_MAX_STEP.name,
                step.target,
                number(step.step as f64),
                step.time
            );
            self.append(&GRAD_NORM_INTERVAL_MAX_STEP, &of_step, 1)?;
        }
        Ok(())
    }

    fn append(&mut self, metric: &'static catalog::Metric, text: &str, samples: u64) -> io::Result<()> {
        if samples == 0 {
            return Ok(());
        }
        let place = if let Some(&place) = self.by_otel_name.get(metric.otel_name) {
            place
        } else {
            let path = self.directory.join(metric.name);
            let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
            self.families.push(Family { metric, file: BufWriter::new(file) });
            self.by_otel_name.insert(metric.otel_name, self.families.len() - 1);
            self.families.len() - 1
        };
        self.written.samples += samples;
        self.families[place].file.write_all(text.as_bytes())
    }

    /// Writes everything collected, and removes the temporary files.
    ///
    /// # Errors
    /// The output or the directory cannot be written.
    pub fn finish(mut self, out: &mut dyn Write) -> io::Result<Written> {
        let mut chunk = vec![0; 1 << 16];
        self.written.metrics = self.families.len();
        for Family { metric, file } in self.families {
            out.write_all(head(metric).as_bytes())?;
            let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.seek(SeekFrom::Start(0))?;
            loop {
                let read = file.read(&mut chunk)?;
                if read == 0 {
                    break;
                }
                out.write_all(&chunk[..read])?;
            }
            drop(file);
            std::fs::remove_file(self.directory.join(metric.name))?;
        }
        out.write_all(b"# EOF\n")?;
        Ok(self.written)
    }
}

/// The common parts of all samples of a step.
struct Sampling {
    target: String,
    /// The time in the format's notation.
    time: String,
    step: u64,
}

/// Formats `# TYPE`, `# UNIT` and `# HELP`. There, a counter's name has no `_total`, and a unit must end the name.
fn head(metric: &catalog::Metric) -> String {
    let family = metric.name.trim_end_matches("_total");
    let unit = ["seconds", "bytes", "ratio"].into_iter().find(|unit| family.ends_with(&format!("_{unit}")));
    let mut text = format!("# TYPE {family} {}\n", metric.metric_type.name());
    if let Some(unit) = unit.filter(|_| metric.metric_type != MetricType::Counter || family.ends_with("_bytes")) {
        // Writing to a String cannot fail.
        writeln!(text, "# UNIT {family} {unit}").unwrap_or_default();
    }
    writeln!(text, "# HELP {family} {}", escaped(metric.help)).unwrap_or_default();
    text
}

fn push_numbers(text: &mut String, name: &str, points: &[NumberDataPoint], step: &Sampling) -> u64 {
    let mut samples = 0;
    for point in points {
        let value = match point.value {
            Some(Value::AsInt(value)) => value.to_string(),
            Some(Value::AsDouble(value)) => number(value),
            None => continue,
        };
        push_sample(text, name, &labels(step, &point.attributes), &value, step);
        samples += 1;
    }
    samples
}

fn push_histogram(text: &mut String, name: &str, point: &HistogramDataPoint, step: &Sampling) -> u64 {
    let own = labels(step, &point.attributes);
    let mut up_to = 0;
    for (place, count) in point.bucket_counts.iter().enumerate() {
        up_to += count;
        // As on the metrics page, so that old and new samples belong to one series.
        let bound = point.explicit_bounds.get(place).map_or_else(|| "+Inf".to_owned(), ToString::to_string);
        let mut with_bound = own.clone();
        push_label(&mut with_bound, "le", &bound);
        push_sample(text, &format!("{name}_bucket"), &with_bound, &up_to.to_string(), step);
    }
    push_sample(text, &format!("{name}_count"), &own, &point.count.to_string(), step);
    push_sample(text, &format!("{name}_sum"), &own, &number(point.sum.unwrap_or(0.0)), step);
    point.bucket_counts.len() as u64 + 2
}

fn push_sample(text: &mut String, name: &str, labels: &str, value: &str, step: &Sampling) {
    writeln!(text, "{name}{{{labels}}} {value} {}", step.time).unwrap_or_default();
}

fn labels(step: &Sampling, attributes: &[KeyValue]) -> String {
    let mut labels = step.target.clone();
    for KeyValue { key, value, .. } in attributes {
        let value = match value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Attribute::StringValue(text)) => text.clone(),
            Some(Attribute::IntValue(number)) => number.to_string(),
            Some(Attribute::DoubleValue(value)) => number(*value),
            _ => continue,
        };
        push_label(&mut labels, key, &value);
    }
    labels
}

fn push_label(labels: &mut String, name: &str, value: &str) {
    let comma = if labels.is_empty() { "" } else { "," };
    write!(labels, "{comma}{name}=\"{}\"", escaped(value)).unwrap_or_default();
}

/// Escapes a label's value or a help text.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => format!("{value:?}"),
    }
}

/// Formats Unix seconds with three decimals.
fn seconds(milliseconds: i64) -> String {
    let sign = if milliseconds < 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", (milliseconds / 1000).abs(), (milliseconds % 1000).abs())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use trainmon_core::{Kind, MicroStep, Rank, Record, Step, TensorId, TensorStats};

    use super::*;
    use crate::MeasuredStatistics;

    fn step(number: u64, milliseconds: u64, norm: f64) -> StepBatch {
        let reading = TensorStats { norm, ..TensorStats::of_value(norm) }.into();
        let record =
            Record { tensor: TensorId(0), kind: Kind::GradReduced, micro_step: MicroStep(0), reading: Some(reading) };
        StepBatch {
            step: Step(number),
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds),
            duration: Some(Duration::from_secs(1)),
            loss: Some(0.5),
            records: vec![record],
            ..StepBatch::default()
        }
    }

    fn text_of(steps: &[StepBatch], run: &str) -> (String, Written) {
        let directory = std::env::temp_dir().join(format!("trainmon-openmetrics-{}-{run}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let run = RunInfo { run: run.to_owned(), rank: Rank(1), local_rank: Rank(0), world_size: 2 };
        let sources = Sources::of_recorded(MeasuredStatistics::everything(), Arc::default(), true);
        let mut writer = OpenMetricsWriter::new(&directory);
        let config = Config::default();
        writer.begin(&OpenMetricsOpening { config: &config, run: &run, sources: &sources, per_parameter: false });
        let names = [TensorInfo { name: "blocks.0.attn.weight".into(), vpp_stage: 0 }];
        for step in steps {
            writer.export(&names, step).unwrap();
        }
        let mut out = Vec::new();
        let written = writer.finish(&mut out).unwrap();
        std::fs::remove_dir(&directory).expect("empty");
        (String::from_utf8(out).unwrap(), written)
    }

    #[test]
    fn samples_of_a_metric_stand_together_with_the_times_of_their_steps() {
        let (text, written) = text_of(&[step(1, 1_500, 2.0), step(2, 2_500, f64::INFINITY)], "a \"b\"");
        let labels = r#"run="a \"b\"",rank="1""#;
        let expected = format!(
            "# TYPE trainmon_grad_norm gauge\n# HELP trainmon_grad_norm {}\n\
             trainmon_grad_norm{{{labels}}} 2.0 1.500\ntrainmon_grad_norm{{{labels}}} +Inf 2.500\n",
            GRAD_NORM.help
        );
        assert!(text.contains(&expected), "{text}");
        let steps = format!(
            "# TYPE trainmon_steps counter\n# HELP trainmon_steps {}\n\
             trainmon_steps_total{{{labels}}} 1 1.500\ntrainmon_steps_total{{{labels}}} 2 2.500\n",
            catalog::STEPS.help
        );
        assert!(text.contains(&steps), "{text}");
        assert!(
            text.contains(&format!("trainmon_step_duration_seconds_bucket{{{labels},le=\"1\"}} 2 2.500\n")),
            "{text}"
        );
        assert!(text.contains("# UNIT trainmon_step_duration_seconds seconds\n"), "{text}");
        assert!(text.contains(&format!("trainmon_grad_norm_interval_max_step{{{labels}}} 2.0 2.500\n")), "{text}");
        assert!(text.ends_with("# EOF\n"));
        assert!(!text.contains("trainmon_queue"), "a recorded run has no queue");
        let samples = text.lines().filter(|line| !line.starts_with('#')).count() as u64;
        assert_eq!((written.samples, written.moved, written.range), (samples, 0, Some((1_500, 2_500))));
    }

    #[test]
    fn a_step_that_is_not_behind_the_one_before_is_moved_and_counted() {
        let (text, written) = text_of(&[step(1, 1_500, 1.0), step(2, 1_500, 2.0), step(3, 900, 3.0)], "moved");
        let times: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("trainmon_loss{"))
            .filter_map(|line| line.rsplit(' ').next())
            .collect();
        assert_eq!(times, ["1.500", "1.501", "1.502"]);
        assert_eq!(written.moved, 2);
    }
}
