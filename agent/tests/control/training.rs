//! A training that is no more than its hooks.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use trainmon_agent::core::config::{Config, FileLayout, squash_name};
use trainmon_agent::core::{Kind, MicroStep, TensorId, TensorView};
use trainmon_agent::{Monitor, Notices, Options, Ranks, Report, StepFacts};

use crate::client::ControlAddresses;

pub(crate) const NAMES: [&str; 4] = ["h.0.fc.weight", "h.1.fc.weight", "h.2.fc.weight", "head.weight"];
/// Whatever a loaded machine needs; nothing is asserted about time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Four parameters with gradient and values, as a front shows them.
pub(crate) struct Training {
    pub(crate) monitor: Monitor,
    said: Arc<Mutex<Vec<String>>>,
    tensors: Vec<(&'static str, TensorId)>,
    watched: Vec<bool>,
    version: u64,
}

impl Training {
    /// Watched with a config's text, the output below `base`.
    pub(crate) fn start(base: &Path, config: &str) -> Self {
        let config = Config::parse(config, "test.json", &|_| None).unwrap().config;
        Self::start_with(config, Options { ranks: Some(Ranks::SINGLE), ..options(base) })
    }

    pub(crate) fn start_with(config: Config, options: Options) -> Self {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let notices = Notices::new(move |notice| heard.lock().unwrap().push(notice.to_string()));
        let monitor = Monitor::start(config, Options { notices, ..options }).unwrap();
        monitor.follow_targets();
        let tensors = NAMES.map(|name| (name, monitor.register(name, 0))).to_vec();
        let mut training = Self { monitor, said, tensors, watched: Vec::new(), version: 0 };
        training.look_up_targets();
        training
    }

    fn look_up_targets(&mut self) {
        let targets = trainmon_agent::core::config::Targets {
            names: self.monitor.plan().targets.clone(),
            rule: self.monitor.config().targets.rule,
        };
        let watched = |name: &str| targets.matches_parameter(name, squash_name(name), 0);
        self.watched = self.tensors.iter().map(|(name, _)| watched(name)).collect();
        self.version = self.monitor.plan_version();
    }

    /// One step: every parameter is shown once per kind. `cost` goes by while a tensor is read.
    pub(crate) fn step(&mut self) {
        let data = [1.0f32, -2.0, 0.5];
        let view = TensorView::from_slice(&data, &[3]).unwrap();
        for (&(_, tensor), _) in self.tensors.iter().zip(&self.watched).filter(|(_, is_watched)| **is_watched) {
            for kind in [Kind::GradReduced, Kind::ExpAvg, Kind::ParamOrigin] {
                self.monitor.observe(tensor, kind, MicroStep(0), &view);
            }
        }
        self.monitor.end_step(StepFacts::default());
        if self.monitor.plan_version() != self.version {
            self.look_up_targets();
        }
    }

    pub(crate) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.locations("csv")
    }

    fn locations(&self, sink: &str) -> PathBuf {
        let all = self.monitor.locations();
        all.iter().find(|(name, _)| *name == sink).unwrap().1[0].clone().into()
    }

    pub(crate) fn addresses(&self) -> ControlAddresses {
        ControlAddresses::of(&self.directory())
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// The closing account; it balances.
    pub(crate) fn finish(self) -> Report {
        let report = self.monitor.shutdown();
        assert!(report.balances(), "{report}");
        assert_eq!(report.lost(), 0, "{report}");
        report
    }
}

pub(crate) fn options(base: &Path) -> Options {
    // Files of one step are there when the step is over: they tell which steps were measured.
    Options { output_dir: Some(base.to_path_buf()), layout: FileLayout::Msprobe, ..Options::default() }
}

/// The state of a change, once `condition` holds.
pub(crate) fn wait_for_change(addresses: &ControlAddresses, id: u64, condition: impl Fn(&Value) -> bool) -> Value {
    let found = std::cell::RefCell::new(Value::Null);
    wait_until(&format!("change {id}"), || {
        let status = addresses.get("/status").body;
        let change = status["changes"].as_array().unwrap().iter().find(|change| change["id"] == id).cloned();
        *found.borrow_mut() = change.unwrap_or_default();
        condition(&found.borrow())
    });
    found.into_inner()
}

/// Fails the test if `condition` does not come true.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `(step, name)` of every row of the CSV files whose names begin with a kind.
pub(crate) fn rows(directory: &Path, kind: Kind) -> Vec<(u64, String)> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_ours = name.strip_prefix(kind.name()).is_some_and(|rest| {
            rest.strip_prefix('_').is_some_and(|steps| steps.starts_with(|first: char| first.is_ascii_digit()))
        });
        if is_ours {
            let mut reader = csv::Reader::from_path(&path).unwrap();
            let header = reader.headers().unwrap().clone();
            let column = |wanted: &str| header.iter().position(|name| name == wanted).unwrap();
            let (step, tensor) = (column("step"), column("name"));
            for row in reader.records() {
                let row = row.unwrap();
                rows.push((row[step].parse().unwrap(), row[tensor].to_owned()));
            }
        }
    }
    rows.sort();
    rows
}

/// The steps that have a row of a kind.
pub(crate) fn steps_of(directory: &Path, kind: Kind) -> Vec<u64> {
    let mut steps: Vec<u64> = rows(directory, kind).into_iter().map(|(step, _)| step).collect();
    steps.dedup();
    steps
}
