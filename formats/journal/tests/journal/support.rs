//! Steps whose every number follows from the step's: what comes out of a journal is compared with them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use trainmon_core::config::Config;
use trainmon_core::{
    Dtype, GradNorm, Kind, LedgerSnapshot, MicroStep, Phase, PhaseTimes, Rank, Record, Scalar, Shape, Statistic, Step,
    StepBatch, TensorId, TensorInfo, TensorStats,
};
use trainmon_journal::{Journal, JournalRun, JournalSpec, MIN_FILE_BYTES, Recovered, Storage};

pub(crate) const BOTH: [Storage; 2] = [Storage::Mapped, Storage::Calls];

/// A workspace with room for one journal.
pub(crate) struct Workspace {
    directory: TempDir,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("journal_rank0.tmj")
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A new journal of the smallest size.
    pub(crate) fn journal(&self, storage: Storage) -> Journal {
        self.journal_of(MIN_FILE_BYTES, storage)
    }

    pub(crate) fn journal_of(&self, file_bytes: u64, storage: Storage) -> Journal {
        let config = config();
        Journal::create(&self.path(), &spec(&config, file_bytes, storage)).unwrap()
    }

    pub(crate) fn recovered(&self) -> Recovered {
        Recovered::open(&self.path()).unwrap()
    }
}

pub(crate) fn config() -> Config {
    Config::parse(r#"{"wg_distribution": true, "step_count_per_record": 10}"#, "t", &|_| None).unwrap().config
}

pub(crate) fn spec(config: &Config, file_bytes: u64, storage: Storage) -> JournalSpec<'_> {
    let run = JournalRun { run: "test".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 2 };
    JournalSpec { file_bytes, run, config, csv: config.csv.as_ref().unwrap(), storage }
}

pub(crate) fn names(count: u32) -> Vec<TensorInfo> {
    (0..count).map(|id| TensorInfo { name: format!("blocks.{id}.weight").into(), vpp_stage: id % 2 }).collect()
}

/// The step's batch of this many records. Every field has a value of its own, some have none.
pub(crate) fn batch(step: u64, records: u32) -> StepBatch {
    let even = step.is_multiple_of(2);
    let mut cost = PhaseTimes::default();
    cost.add(Phase::Measure, Duration::from_nanos(step + 1));
    StepBatch {
        step: Step(step),
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + step),
        duration: even.then(|| Duration::from_micros(step)),
        collected: true,
        skipped_steps: step % 3,
        loss: even.then_some(1.0 / (step as f64 + 1.0)),
        learning_rate: Some(1e-3),
        grad_norm: if even { GradNorm::OfRecords } else { GradNorm::Known(step as f64) },
        ops: step.is_multiple_of(5).then(|| Arc::from([Statistic::Norm, Statistic::Min])),
        records: (0..records).map(|index| record(step, index)).collect(),
        cost,
        bytes_read: step * 100,
        counts: LedgerSnapshot { observed: step, offered: step + 1, dropped: [step, 2], ..LedgerSnapshot::default() },
        ..StepBatch::default()
    }
}

fn record(step: u64, index: u32) -> Record {
    let value = (step as f64 + 0.1) * f64::from(index + 1).sqrt();
    let reading = TensorStats {
        min: if index % 7 == 6 { Scalar::Int(-5) } else { Scalar::Float(-value) },
        norm: value,
        mean: if index.is_multiple_of(5) { f64::INFINITY } else { value / 3.0 },
        nans: u64::from(index) % 3,
        count: 12,
        crc32: index,
        ..TensorStats::empty(Dtype::Bf16, Shape::new(&[3, 4]).unwrap())
    };
    let reading = (index % 11 != 10).then_some(reading.into());
    Record { tensor: TensorId(index), kind: Kind::GradReduced, micro_step: MicroStep(index % 2), reading }
}

/// Says that a test could not run: on standard output, and in the file that `TRAINMON_SKIP_LOG` names.
#[expect(clippy::print_stdout, reason = "shown by `cargo test -- --nocapture`")]
pub(crate) fn skip(test: &str, reason: &str) {
    use std::io::Write as _;
    println!("SKIPPED {test}: {reason}");
    if let Some(log) = std::env::var_os("TRAINMON_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{test}: {reason}").unwrap();
    }
}

/// Reads every step and compares it, to the last digit and name, with what was written. Gives the steps' numbers.
#[track_caller]
pub(crate) fn assert_genuine(recovered: &Recovered, records: u32) -> Vec<u64> {
    let names = names(records);
    let steps: Vec<u64> = recovered
        .steps()
        .map(|step| {
            let step = step.unwrap();
            let number = step.batch.step.0;
            assert_eq!(format!("{:?}", step.batch), format!("{:?}", batch(number, records)), "step {number}");
            assert_eq!(step.names_known, records as usize);
            number
        })
        .collect();
    assert_eq!(steps, recovered.step_numbers().map(|step| step.0).collect::<Vec<_>>());
    for (id, info) in recovered.names().iter().enumerate() {
        assert!(*info == names[id] || *info.name == *format!("unnamed_tensor_{id}"), "{info:?}");
    }
    steps
}
