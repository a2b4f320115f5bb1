//! What the journal costs the training thread per step, beside a copy of the same bytes into memory in the same run.
//!
//! `cargo bench -p trainmon-journal --bench journal`. It prints medians and their ratio; it asserts nothing about time. The
//! files lie in the directory `TMPDIR` names, else in /tmp; a run maps its file on tmpfs (/dev/shm) only.
#![expect(clippy::print_stdout, reason = "a benchmark's output is its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run may stop")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use trainmon_core::config::Config;
use trainmon_core::{
    Dtype, Kind, MicroStep, Rank, Record, Scalar, Shape, Step, StepBatch, TensorId, TensorInfo, TensorStats,
};
use trainmon_journal::{Journal, JournalRun, JournalSpec, Recovered, Storage};

const FILE_BYTES: u64 = 64 << 20;
const STEPS: usize = 400;

/// A way of writing, measured.
struct Figures {
    append: Vec<Duration>,
    bytes: u64,
    flushes: u64,
}

fn main() {
    let directory = tempfile::tempdir().unwrap();
    println!("a journal of 64 MiB, {STEPS} steps, medians; files in {}", directory.path().display());
    println!(
        "{:>8} {:<5} {:>20} {:>9} {:>11} {:>11} {:>7} {:>10} {:>10}",
        "records", "stats", "way", "B/record", "append", "copy", "ratio", "99th", "flushes"
    );
    for records in [2_000, 10_000] {
        for (statistics, is_full) in [("norm", false), ("ten", true)] {
            let names = names(records);
            let mut batch = batch(records, is_full);
            for (way, storage, flushing) in [
                ("mapped", Storage::Mapped, false),
                ("mapped, flushing", Storage::Mapped, true),
                ("calls", Storage::Calls, false),
                ("calls, flushing", Storage::Calls, true),
            ] {
                let path = directory.path().join(format!("{records}-{statistics}-{way}.tmj"));
                let mut figures = measure(&path, storage, flushing, &names, &mut batch);
                let copy = copy_of(figures.bytes as usize);
                let append = median(&mut figures.append);
                println!(
                    "{records:>8} {statistics:<5} {way:>20} {:>9.1} {append:>11.1?} {copy:>11.1?} {:>6.1}x {:>10.1?} {:>10}",
                    figures.bytes as f64 / records as f64,
                    append.as_secs_f64() / copy.as_secs_f64(),
                    figures.append[figures.append.len() * 99 / 100],
                    figures.flushes,
                );
                if way == "mapped" {
                    tell_reading(&path, records, statistics);
                }
                std::fs::remove_file(&path).unwrap();
            }
        }
    }
}

fn measure(path: &Path, storage: Storage, flushing: bool, names: &[TensorInfo], batch: &mut StepBatch) -> Figures {
    let config = Config::default();
    let spec = JournalSpec {
        file_bytes: FILE_BYTES,
        run: JournalRun { run: "bench".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 1 },
        config: &config,
        csv: config.csv.as_ref().unwrap(),
        storage,
    };
    let mut journal = Journal::create(path, &spec).unwrap();
    let view = journal.view();
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_over);
    let flusher = std::thread::Builder::new().name("flush".to_owned()).spawn(move || {
        let mut flushes = 0;
        while flushing && !stop.load(Ordering::Relaxed) {
            view.flush().unwrap();
            flushes += 1;
        }
        flushes
    });
    let flusher = flusher.unwrap();
    // The names and the first pages are written once in a run: not measured.
    journal.append(names, batch).unwrap();
    let mut bytes = 0;
    let append = (0..STEPS)
        .map(|step| {
            batch.step = Step(step as u64 + 1);
            let start = Instant::now();
            bytes = journal.append(names, batch).unwrap();
            start.elapsed()
        })
        .collect();
    is_over.store(true, Ordering::Relaxed);
    Figures { append, bytes, flushes: flusher.join().unwrap() }
}

/// The median time of copying so many bytes to ever new places of 64 MiB of memory, as the ring is filled.
fn copy_of(bytes: usize) -> Duration {
    let source = vec![7u8; bytes];
    let mut ring = vec![1u8; FILE_BYTES as usize];
    let places = ring.len() / bytes;
    let mut times: Vec<Duration> = (0..STEPS)
        .map(|step| {
            let place = &mut ring[step % places * bytes..][..bytes];
            let start = Instant::now();
            place.copy_from_slice(black_box(&source));
            black_box(&mut *place);
            start.elapsed()
        })
        .collect();
    median(&mut times)
}

fn tell_reading(path: &Path, records: usize, statistics: &str) {
    let start = Instant::now();
    let recovered = Recovered::open(path).unwrap();
    let opened = start.elapsed();
    assert_eq!(recovered.faults(), []);
    let steps = recovered.step_numbers().len();
    let start = Instant::now();
    let read: usize = recovered.steps().map(|step| step.unwrap().batch.records.len()).sum();
    assert_eq!(read, steps * records);
    println!(
        "{records:>8} {statistics:<5} {:>20} {steps} steps found and checked in {opened:.0?}, read again in {:.0?}",
        "recovery:",
        start.elapsed()
    );
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn names(count: usize) -> Vec<TensorInfo> {
    let name = |i: usize| format!("decoder.layers.{}.mlp.linear_fc{}.weight", i / 40, i % 40);
    (0..count).map(|i| TensorInfo { name: name(i).into(), vpp_stage: 0 }).collect()
}

/// A step of this many weight gradients with the norm alone, or with ten statistics.
fn batch(records: usize, is_full: bool) -> StepBatch {
    let shape = Shape::new(&[4096, 1024]).unwrap();
    let record = |i: usize| {
        let noise = (i as f64 + 1.0).sqrt().fract() + 1e-3;
        let norm_only =
            TensorStats { norm: noise * 3.0, count: shape.elements() as u64, ..TensorStats::empty(Dtype::Bf16, shape) };
        let full = TensorStats {
            min: Scalar::Float(-noise),
            max: Scalar::Float(noise * 1.1),
            mean: noise * 1e-6,
            abs_max: noise * 1.1,
            std: noise / 7.0,
            zeros: 3,
            ..norm_only
        };
        let reading = Some(if is_full { full } else { norm_only }.into());
        Record { tensor: TensorId(i as u32), kind: Kind::GradReduced, micro_step: MicroStep(0), reading }
    };
    StepBatch {
        step: Step(0),
        time: SystemTime::now(),
        duration: Some(Duration::from_secs(1)),
        collected: true,
        loss: Some(2.5),
        records: (0..records).map(record).collect(),
        ..StepBatch::default()
    }
}
