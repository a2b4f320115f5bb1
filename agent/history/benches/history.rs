//! Filling a history, and reading it: `cargo bench -p trainmon-history`. It prints medians; it asserts nothing about time.
#![expect(clippy::print_stdout, reason = "a benchmark's output is its result")]

use std::time::{Duration, Instant};

use trainmon_history::{Cursor, History, Limits, RowId};

const TENSORS: u64 = 2000;
const STEPS: u64 = 2000;
const ROUNDS: usize = 15;

fn main() {
    let mut history = History::new(Limits::default());
    let row = |index: u64| format!("model.layers.{}.mlp.{}.weight", index / 10, index % 10);
    let rows: Vec<RowId> = (0..TENSORS).filter_map(|index| history.row("grad_reduced", &row(index))).collect();
    let mut steps = Vec::new();
    for step in 0..STEPS {
        let started = Instant::now();
        fill(&mut history, &rows, step);
        steps.push(started.elapsed());
    }
    let longest = steps.iter().max().copied().unwrap_or_default();
    let per_record = median(&mut steps) / TENSORS as u32;
    println!("set          {per_record:>10.1?} per record; the longest step of {TENSORS} records {longest:.1?}");
    println!("overview     {:>10.1?}", time(|| history.overview()));
    println!("heat map     {:>10.1?}", time(|| history.heat_map("grad_reduced", "norm", 0)));
    let cursor = history.overview().cursor;
    println!("since        {:>10.1?}", time(|| history.since(Cursor { bins: cursor.bins - 1, ..cursor })));
}

fn fill(history: &mut History, rows: &[RowId], step: u64) {
    history.step(step, step as f64, true);
    for (index, &row) in rows.iter().enumerate() {
        let norm = 1.0 / (index as f32 + step as f32 + 1.0);
        history.set(row, step, [norm, norm, 0.0]);
    }
}

fn time<T>(mut work: impl FnMut() -> T) -> Duration {
    let round = |_| {
        let started = Instant::now();
        std::hint::black_box(work());
        started.elapsed()
    };
    median(&mut (0..ROUNDS).map(round).collect::<Vec<_>>())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
