//! A watched run without a training: readings made up, everything behind them real.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use trainmon_agent::core::config::Config;
use trainmon_agent::core::{Dtype, Kind, MicroStep, Rank, Reading, Record, Scalar, Shape, TensorId, TensorStats};
use trainmon_agent::{Monitor, Notices, Options, Ranks, Report, StepFacts};

use crate::receiver::{Log, Point};

/// A directory, a monitor that writes CSV files and sends, and what it said.
pub(crate) struct Run {
    directory: TempDir,
    pub(crate) monitor: Monitor,
    tensors: Vec<TensorId>,
    step: u64,
    notices: Arc<Mutex<Vec<String>>>,
}

pub(crate) const NAMES: [&str; 3] = ["blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.weight", "blocks.1.mlp.fc1.weight"];

impl Run {
    /// A run whose `otlp` object has these members, and whose file has these members besides.
    pub(crate) fn start(otlp: &str, members: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), otlp, members, 0)
    }

    /// As [`start`](Self::start), from a step on: a run that was ended and goes on.
    pub(crate) fn start_in(directory: TempDir, otlp: &str, members: &str, first_step: u64) -> Self {
        let text = format!(
            r#"{{"wg_distribution": true, "mv_distribution": true, "update": true, "ops": ["norm", "mean", "nans"],
                "format": ["csv", "otlp"], "step_count_per_record": 1000, "output_dir": "{}", "queue_steps": 4096,
                "otlp": {{{otlp}}}{members}}}"#,
            directory.path().join("out").display()
        );
        let parsed = Config::parse(&text, "run.json", &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
        let notices: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&notices);
        let options = Options {
            ranks: Some(Ranks { rank: Rank(3), local_rank: Rank(1), world_size: 8 }),
            run: Some("run-a".to_owned()),
            start_iteration: first_step,
            notices: Notices::new(move |notice| heard.lock().unwrap().push(notice.to_string())),
            ..Options::default()
        };
        let monitor = Monitor::start(parsed.config, options).unwrap();
        let tensors = NAMES.iter().map(|name| monitor.register(name, 0)).collect();
        Self { directory, monitor, tensors, step: first_step, notices }
    }

    /// Makes so many steps. The queues have room for all of them: what is tested is behind the queues.
    pub(crate) fn steps(&mut self, count: u64) {
        for _ in 0..count {
            for (index, &tensor) in self.tensors.iter().enumerate() {
                let seed = (self.step * 10 + index as u64) as f64;
                for kind in [Kind::GradUnreduced, Kind::GradReduced, Kind::ExpAvg, Kind::ExpAvgSq] {
                    self.monitor.record(record(tensor, kind, seed + kind as u64 as f64), Duration::ZERO, 64);
                }
                let ratio = Reading::of_values(&[1e-3 / (seed + 1.0)]);
                let reading = Some(ratio);
                let record = Record { tensor, kind: Kind::UpdateRatio, micro_step: MicroStep(0), reading };
                self.monitor.record(record, Duration::ZERO, 0);
            }
            let loss = Some(3.0 / (self.step as f64 + 1.0));
            self.monitor.scalar("accuracy", 0.5);
            self.monitor.end_step(StepFacts { loss, learning_rate: Some(1e-4), ..StepFacts::default() });
            self.step += 1;
        }
    }

    /// Makes a step with a gradient that is not a number.
    pub(crate) fn nan_step(&mut self) {
        let nan = Record {
            reading: Some(TensorStats { nans: 3, ..TensorStats::of_value(f64::NAN) }.into()),
            ..record(self.tensors[0], Kind::GradReduced, 1.0)
        };
        self.monitor.record(nan, Duration::ZERO, 64);
        self.monitor.end_step(StepFacts::default());
        self.step += 1;
    }

    /// Waits until every step so far is in the CSV files: a short deadline is for the export alone.
    fn wait_for_csv(&self) {
        crate::receiver::wait_for("the CSV files", || {
            let report = self.monitor.report();
            let csv = report.sinks.iter().find(|sink| sink.name == "csv").unwrap().counts;
            (csv.exported == report.counts.offered).then_some(())
        });
    }

    pub(crate) fn report(&self) -> Report {
        self.monitor.report()
    }

    /// Waits until the monitor has said this.
    pub(crate) fn wait_for_notice(&self, words: &str) {
        crate::receiver::wait_for(words, || self.notices().contains(words).then_some(()));
    }

    pub(crate) fn notices(&self) -> String {
        self.notices.lock().unwrap().join("\n")
    }

    /// Ends the run; whatever became of the export, the counts balance and the CSV files are whole.
    pub(crate) fn end(self) -> Ended {
        self.wait_for_csv();
        let report = self.monitor.shutdown();
        assert!(report.balances(), "{report}");
        let csv = counts(&report, "csv");
        assert_eq!((csv.exported, csv.lost()), (csv.accepted, 0), "{report}");
        let notices = self.notices();
        Ended { directory: self.directory, steps: self.step, report, notices }
    }
}

/// One exporter's counts.
pub(crate) fn counts(report: &Report, sink: &str) -> trainmon_agent::core::SinkSnapshot {
    report.sinks.iter().find(|found| found.name == sink).unwrap().counts
}

fn record(tensor: TensorId, kind: Kind, seed: f64) -> Record {
    let noise = (seed + 2.0).sqrt().fract() + 1e-3;
    let reading = TensorStats {
        min: Scalar::Float(-noise),
        max: Scalar::Float(noise),
        mean: noise * 1e-6,
        norm: noise * 3.0,
        abs_max: noise,
        count: 64,
        ..TensorStats::empty(Dtype::F32, Shape::new(&[8, 8]).unwrap())
    };
    Record { tensor, kind, micro_step: MicroStep(0), reading: Some(reading.into()) }
}

/// A run that is over.
pub(crate) struct Ended {
    pub(crate) directory: TempDir,
    pub(crate) steps: u64,
    pub(crate) report: Report,
    pub(crate) notices: String,
}

type Row = BTreeMap<String, String>;

impl Ended {
    /// The rows of one kind of tensor, or of the steps.
    fn rows(&self, kind: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut directories = vec![self.directory.path().join("out")];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path: PathBuf = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                // `exp_avg_0-999.csv`; `steps.csv` has no range.
                let found = name.rsplit_once('_').map_or(name.as_str(), |(kind, _)| kind);
                if path.is_dir() {
                    directories.push(path);
                } else if found == kind {
                    let mut reader = csv::Reader::from_path(path).unwrap();
                    rows.extend(reader.deserialize().map(|row| row.unwrap()));
                }
            }
        }
        rows.sort_by_key(|row: &Row| row["step"].parse::<u64>().unwrap());
        rows
    }

    /// Every step's points are in the log exactly once, in order, with the time and the values of the CSV files.
    pub(crate) fn assert_arrived_exactly_once(&self, log: &Log) {
        assert_eq!(log.steps(), (0..self.steps).collect::<Vec<_>>());
        let mut seen = std::collections::HashSet::new();
        for point in &log.points {
            assert!(seen.insert(point.identity()), "twice: {point:?}");
        }
        self.assert_values(log);
        let otlp = counts(&self.report, "otlp");
        assert_eq!((otlp.exported, otlp.lost()), (otlp.accepted, 0), "{}", self.report);
    }

    /// What arrived has the values of the CSV files, every one of them.
    pub(crate) fn assert_values(&self, log: &Log) {
        let times = step_times(log);
        let steps = self.rows("steps");
        assert_eq!(steps.len() as u64, self.steps);
        for (metric, column) in [("training.loss", "loss"), ("training.grad.norm", "grad_norm")] {
            let found = by_time(log.of(metric));
            for row in &steps {
                let time = times[&row["step"].parse::<u64>().unwrap()];
                assert_eq!(found[&time], row[column].parse::<f64>().unwrap(), "{metric} of step {}", row["step"]);
            }
            assert_eq!(found.len(), steps.len());
        }
        for row in &steps {
            let seconds = times[&row["step"].parse::<u64>().unwrap()] as f64 / 1e9;
            assert!((seconds - row["unix_seconds"].parse::<f64>().unwrap()).abs() < 1e-5, "{row:?}");
        }
    }

    /// Per-parameter detail: as many points as the CSV files have cells, with equal values.
    pub(crate) fn assert_detail(&self, log: &Log) {
        let times = step_times(log);
        let mut cells = 0;
        let statistics = ["norm", "mean", "nans"];
        let points = |metric: String| {
            let of_metric = log.points.iter().filter(move |point| point.metric == metric);
            let key = |point: &Point| {
                (
                    point.label("name").to_owned(),
                    point.label("tensor").to_owned(),
                    point.label("scope").to_owned(),
                    point.time,
                )
            };
            of_metric.map(move |point| (key(point), point.value)).collect::<BTreeMap<_, _>>()
        };
        let by_statistic = statistics.map(|statistic| points(format!("training.parameter.{statistic}")));
        for (kind, tensor, scope) in [
            ("grad_unreduced", "grad", "unreduced"),
            ("grad_reduced", "grad", "reduced"),
            ("exp_avg", "exp_avg", ""),
            ("exp_avg_sq", "exp_avg_sq", ""),
        ] {
            for row in self.rows(kind) {
                let time = times[&row["step"].parse::<u64>().unwrap()];
                for (statistic, found) in statistics.iter().zip(&by_statistic) {
                    let key = (row["name"].clone(), tensor.to_owned(), scope.to_owned(), time);
                    assert_eq!(found[&key], row[*statistic].parse::<f64>().unwrap(), "{statistic} {row:?}");
                    cells += 1;
                }
            }
        }
        assert!(cells > 0);
        assert_eq!(by_statistic.iter().map(BTreeMap::len).sum::<usize>(), cells);
    }
}

/// When each step was, by what arrived.
fn step_times(log: &Log) -> BTreeMap<u64, u64> {
    log.of("training.step").iter().map(|point| (point.value as u64, point.time)).collect()
}

fn by_time(points: Vec<&Point>) -> BTreeMap<u64, f64> {
    points.into_iter().map(|point| (point.time, point.value)).collect()
}
