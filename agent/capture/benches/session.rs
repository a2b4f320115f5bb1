//! Measures the cost of capturing a call on the training thread: a small operator with three tensors, and a tensor of 4 MB.
//! For comparison, it measures a read-only pass over that tensor and a plain write of its bytes.
//!
//! `cargo bench -p trainmon-capture --bench session` prints medians; it asserts nothing about time. It writes the files to
//! the directory `TMPDIR`, or to /tmp if that is not set.
#![expect(clippy::print_stdout, reason = "a benchmark's output is its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run may stop")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trainmon_capture::{
    CaptureConfig, CaptureDialect, CapturePlace, CapturePlan, Content, Direction, Notices, Part, Session, Tensor,
};
use trainmon_core::TensorView;
use trainmon_stats::read_only_pass;

const SMALL_CALLS: usize = 20_000;
const LARGE_CALLS: usize = 60;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    println!("microseconds per call on the training thread, medians; files in {}", directory.path().display());
    println!("{:<24} {:>14} {:>14}", "", "3 of 4x4", "1 of 4 MB");
    let large: Vec<f32> = (0..1_u32 << 20).map(|index| (index % 251) as f32).collect();
    for (name, keys) in [
        ("statistics", r#""task": "statistics""#),
        ("statistics, md5", r#""task": "statistics", "statistics": {"summary_mode": "md5"}"#),
        ("xor", r#""task": "statistics", "statistics": {"summary_mode": "xor"}"#),
        ("structure", r#""task": "structure""#),
        ("tensor", r#""task": "tensor""#),
    ] {
        let calls = if name == "tensor" { SMALL_CALLS / 10 } else { SMALL_CALLS };
        let [small, large] =
            [(calls, &large[..16], 3), (LARGE_CALLS, &large[..], 1)].map(|(calls, elements, tensors)| {
                let path = directory.path().join(format!("{name}{}", elements.len()));
                let session = open(keys, &path);
                let times = (0..calls).map(|_| capture(&session, elements, tensors));
                let median = median(times.collect());
                session.finish().unwrap();
                std::fs::remove_dir_all(path).unwrap();
                median
            });
        println!("{name:<24} {:>14.2} {:>14.1}", micros(small), micros(large));
    }
    let view = TensorView::from_slice(&large, &[large.len() as i64]).unwrap();
    let read = median((0..LARGE_CALLS).map(|_| timed(|| read_only_pass(&view))).collect());
    let bytes: Vec<u8> = large.iter().flat_map(|number| number.to_le_bytes()).collect();
    let file = directory.path().join("floor");
    let write = median((0..LARGE_CALLS).map(|_| timed(|| std::fs::write(&file, &bytes).unwrap())).collect());
    println!("{:<24} {:>14} {:>14.1}", "a pass over the bytes", "", micros(read));
    println!("{:<24} {:>14} {:>14.1}", "a write of the bytes", "", micros(write));
}

fn open(keys: &str, directory: &Path) -> Session {
    let text = format!("{{\"dump_path\": {:?}, \"level\": \"L1\", {keys}}}", directory.to_str().unwrap());
    let parsed = CaptureConfig::parse(&text, "bench", CaptureDialect::Trainmon).map_err(|errors| errors.to_string());
    let plan = Arc::new(CapturePlan::new(parsed.unwrap().config));
    Session::open(plan, CapturePlace { step: 0, rank: Some(0) }, Notices::new(|_| ())).unwrap()
}

/// Captures one call, its inputs before and its output after, like the fronts.
fn capture(session: &Session, elements: &[f32], tensors: usize) -> Duration {
    let dims = [elements.len() as i64];
    let content = Content::Host(TensorView::from_slice(elements, &dims).unwrap());
    let tensor = Tensor {
        kind: "",
        dtype: "torch.float32",
        shape: &dims,
        requires_grad: Some(true),
        spread: None,
        is_from_empty: false,
        content,
    };
    timed(|| {
        let name = session.begin_call("Torch", "add").forward;
        session.begin(&name, Direction::Forward);
        for (part, count) in [(Part::InputArgs, tensors - 1), (Part::Output, 1)] {
            let mut entry = session.entry(&name);
            if entry.wants(part) && count > 0 {
                let values = entry.part(part);
                values.begin_list();
                for _ in 0..count {
                    values.tensor(&tensor);
                }
                values.end_list();
            }
            entry.append();
        }
        session.end(&name);
    })
}

fn timed<R>(body: impl FnOnce() -> R) -> Duration {
    let begin = Instant::now();
    std::hint::black_box(body());
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
