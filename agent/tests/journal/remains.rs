//! Looks at what a process left: the journal's steps against what they must be, and against the CSV files beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use trainmon_agent::core::{Rank, Reading, Record, Scalar, StepBatch, TensorStats};
use trainmon_agent::exporters::{CsvExporter, Exporter as _};
use trainmon_journal::{Fault, Journal, JournalRun, JournalSpec, Part, Recovered, Storage};

use super::training::{Files, config, loss, name, record, run_directory};

/// What was found.
pub(crate) struct Remains {
    pub(crate) steps: Vec<u64>,
    /// Whether a record was being written when the process ended.
    pub(crate) was_writing: bool,
}

/// Every step is as it must be, none is left out, and the journal holds as many as it has room for.
pub(crate) fn assert_whole(run: &Path, records: u32, room: usize, what: &str) -> (Recovered, Remains) {
    let recovered = Recovered::open(&run.join("journal_rank0.tmj")).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut was_writing = false;
    for fault in recovered.faults() {
        // A kill in mid-write is the only thing that may have happened.
        assert!(matches!(fault, Fault::Unfinished { part: Part::Steps | Part::Names, .. }), "{what}: {fault}");
        was_writing = true;
    }
    let mut steps = Vec::new();
    for step in recovered.steps() {
        let batch = step.unwrap_or_else(|fault| panic!("{what}: {fault}")).batch;
        assert_is_genuine(&batch, records, what);
        steps.push(batch.step.0);
    }
    for (index, info) in recovered.names().iter().enumerate() {
        assert_eq!((&*info.name, info.vpp_stage), (name(index as u32).as_str(), 0), "{what}");
    }
    assert!(steps.windows(2).all(|pair| pair[1] == pair[0] + 1), "{what}: {steps:?}");
    // The one that was being written takes the place of older ones.
    let kept = steps.len() + usize::from(was_writing);
    assert!(steps.first().is_none_or(|&first| first == 0) || kept >= room, "{what}: {kept} steps, room for {room}");
    (recovered, Remains { steps, was_writing })
}

fn assert_is_genuine(batch: &StepBatch, records: u32, what: &str) {
    let step = batch.step.0;
    assert_eq!((batch.loss, batch.collected), (Some(loss(step)), true), "{what}: step {step}");
    assert_eq!(batch.records.len(), records as usize, "{what}: step {step}");
    for (found, index) in batch.records.iter().zip(0..) {
        let expected = record(step, index);
        assert!(is_same(found, &expected), "{what}: step {step}: {found:?} is not {expected:?}");
    }
    // What was counted when the step ended: its own records are in it, and nothing was lost before.
    assert_eq!(batch.counts.observed, (step + 1) * u64::from(records), "{what}: step {step}");
    assert_eq!(batch.counts.dropped, [0, 0], "{what}: step {step}");
}

/// Equal to the last bit: to `==` a NaN differs from itself.
fn is_same(one: &Record, other: &Record) -> bool {
    let stats = |record: &Record| record.reading.as_ref().and_then(Reading::tensor).copied();
    let (Some(a), Some(b)) = (stats(one), stats(other)) else { return one == other };
    let bits = |reading: &TensorStats| {
        [reading.min.as_f64(), reading.max.as_f64(), reading.mean, reading.norm, reading.abs_max, reading.std]
            .map(f64::to_bits)
    };
    // What is no float is compared with the floats out of the way.
    let rest = |reading: TensorStats| {
        let none = Scalar::Int(0);
        TensorStats { min: none, max: none, mean: 0.0, norm: 0.0, abs_max: 0.0, std: 0.0, ..reading }
    };
    let kinds = |reading: &TensorStats| [reading.min, reading.max].map(|extreme| std::mem::discriminant(&extreme));
    let (one, other) =
        (Record { reading: Some(rest(a).into()), ..*one }, Record { reading: Some(rest(b).into()), ..*other });
    bits(&a) == bits(&b) && kinds(&a) == kinds(&b) && one == other
}

/// The last step of which `steps.csv` has a whole line.
pub(crate) fn last_step_in_csv(run: &Path) -> Option<u64> {
    let text = fs::read_to_string(run.join("steps.csv")).ok()?;
    let whole = &text[..=text.rfind('\n')?];
    whole.lines().skip(1).last()?.split(',').next()?.parse().ok()
}

/// Files written from the journal are the files the run itself wrote, byte for byte, as far as it came.
pub(crate) fn assert_same_csv(run: &Path, recovered: &Recovered, what: &str) -> u64 {
    let again = tempfile::tempdir().unwrap();
    let place = again.path().join("rank_0");
    let mut csv = CsvExporter::in_directory(&recovered.config(), &recovered.csv(), place);
    for step in recovered.steps() {
        let step = step.unwrap();
        csv.export(&recovered.names()[..step.names_known], &step.batch).unwrap();
    }
    csv.shutdown(Instant::now()).unwrap();
    let Some(last) = last_step_in_csv(run) else { return 0 };
    let first = recovered.step_numbers().next().unwrap().0;
    let directory = run_directory(again.path()).unwrap();
    let mut compared = 0;
    for step in first..=last {
        let file = format!("grad_reduced_{step}-{step}.csv");
        assert_eq!(read(&directory.join(&file)), read(&run.join(&file)), "{what}: {file}");
        compared += 1;
    }
    let lines = |directory: &Path| -> Vec<String> {
        let text = read(&directory.join("steps.csv"));
        let line_of = |step: u64| text.lines().find(|line| line.starts_with(&format!("{step},"))).map(str::to_owned);
        (first..=last).map(|step| line_of(step).unwrap_or_else(|| panic!("{what}: no line of step {step}"))).collect()
    };
    assert_eq!(lines(&directory), lines(run), "{what}");
    compared
}

fn read(path: &PathBuf) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// How many steps of so many records a journal of this config holds once it goes round.
pub(crate) fn room_for(records: u32) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let config = config(Files::Journal);
    let journal = config.journal.as_ref().unwrap();
    let spec = JournalSpec {
        // The run's facts take a page more or less there than here: names of directories differ.
        file_bytes: (journal.size_mb << 20) - 4096,
        run: JournalRun { run: "room".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 1 },
        config: &config,
        csv: &config.csv_layout,
        storage: Storage::Auto,
    };
    let mut journal = Journal::create(&directory.path().join("room.tmj"), &spec).unwrap();
    let names: Vec<_> =
        (0..records).map(|index| trainmon_agent::core::TensorInfo { name: name(index).into(), vpp_stage: 0 }).collect();
    let view = journal.view();
    for step in 0.. {
        let batch = StepBatch {
            step: trainmon_agent::core::Step(step),
            duration: Some(std::time::Duration::from_secs(1)),
            loss: Some(1.0),
            records: (0..records).map(|index| record(step, index)).collect(),
            ..StepBatch::default()
        };
        journal.append(&names, &batch).unwrap();
        if view.held().is_some_and(|(first, _)| first.0 > 2) {
            let (first, last) = view.held().unwrap();
            // One step may be larger than another by a grain or two.
            return (last.0 - first.0 + 1) as usize - 2;
        }
    }
    unreachable!("a ring goes round");
}
