//! The cost of a measurement as a ratio to a read-only pass over the same memory in the same run.
//!
//! `cargo bench -p trainmon-stats`. Every figure is a median over interleaved repetitions with its spread. A missed
//! target is printed but is not a failure, because the machine may be busy.
#![expect(clippy::print_stdout, reason = "the figures are this program's output")]

use std::hint::black_box;
use std::time::Instant;

use trainmon_core::{Dtype, Statistic, StatisticSet, TensorView};
use trainmon_stats::{Request, difference, fingerprint, measure, read_only_pass, set_threads, sign_agreement, threads};

/// 128 MiB of float32: beyond every cache.
const LARGE: usize = 32 << 20;
const REPETITIONS: usize = 31;
/// Small tensors are timed in groups, because a clock reading takes a good part of one call.
const GROUP: usize = 1000;

const CORE: [Statistic; 5] = [Statistic::Min, Statistic::Max, Statistic::Mean, Statistic::Norm, Statistic::Nans];
const TEN: [Statistic; 10] = [
    Statistic::Min,
    Statistic::Max,
    Statistic::Mean,
    Statistic::Norm,
    Statistic::AbsMax,
    Statistic::Std,
    Statistic::Nans,
    Statistic::Infs,
    Statistic::Zeros,
    Statistic::Count,
];
const CHECKSUMS: [Statistic; 2] = [Statistic::Crc32, Statistic::Xor64];

fn request(statistics: impl IntoIterator<Item = Statistic>) -> Request {
    Request { statistics: statistics.into_iter().collect::<StatisticSet>(), eps: 1e-8 }
}

/// Seconds of one repetition each.
struct Times(Vec<f64>);

impl Times {
    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    fn spread(&self) -> (f64, f64) {
        self.0.iter().fold((f64::INFINITY, 0.0), |(low, high), &time| (low.min(time), high.max(time)))
    }
}

type Work<'w> = &'w dyn Fn();

/// Runs all workloads in turn, repeatedly, so that all run under the same conditions.
fn interleave(works: &[Work<'_>], group: usize) -> Vec<Times> {
    let mut times: Vec<Times> = works.iter().map(|_| Times(Vec::new())).collect();
    for repetition in 0..=REPETITIONS {
        for (work, times) in works.iter().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..group {
                work();
            }
            let time = start.elapsed().as_secs_f64() / group as f64;
            // The first round warms caches and threads.
            if repetition > 0 {
                times.0.push(time);
            }
        }
    }
    times
}

fn verdict(value: f64, target: Option<f64>) -> String {
    match target {
        None => String::new(),
        Some(target) if value <= target => format!("PASS (<= {target})"),
        Some(target) => format!("over (<= {target})"),
    }
}

/// Prints each workload's time and its ratio to the first: of medians, and of the least times, which a busy machine
/// affects less.
fn against_floor(bytes: usize, works: &[(&str, Work<'_>, Option<f64>)]) {
    let times = interleave(&works.iter().map(|&(_, work, _)| work).collect::<Vec<_>>(), 1);
    let floor = (times[0].median(), times[0].spread().0);
    for ((name, _, target), times) in works.iter().zip(&times) {
        let (low, high) = times.spread();
        let (median, ratio) = (times.median(), times.median() / floor.0);
        println!(
            "  {name:<34} {:8.3} ms  [{:.3} .. {:.3}]  {:6.1} GB/s  x{ratio:.2} (least x{:.2})  {}",
            median * 1e3,
            low * 1e3,
            high * 1e3,
            bytes as f64 / median / 1e9,
            low / floor.1,
            verdict(ratio, *target)
        );
    }
}

/// A cache line, torch's own alignment of tensors.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Pseudo-random bytes that are finite in every float format: the top exponent bit of each 16-bit word is clear.
fn noise(bytes: usize) -> Vec<Line> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state & 0xbfff_bfff_bfff_bfff
    };
    (0..bytes / 64).map(|_| Line(std::array::from_fn(|_| word()))).collect()
}

fn view(dtype: Dtype, lines: &[Line], elements: usize) -> TensorView<'_> {
    let dims = [elements as i64];
    assert!(elements * dtype.size() <= size_of_val(lines), "the memory holds the elements");
    #[expect(unsafe_code, reason = "the same memory seen as another dtype")]
    // SAFETY: the elements lie inside the slice, whose alignment is the largest any dtype needs.
    unsafe { TensorView::from_raw_parts(lines.as_ptr().cast(), dtype, &dims, &[1]) }.expect("a shape of one size")
}

fn large(dtype: Dtype, lines: &[Line], targets: [Option<f64>; 2]) {
    let view = view(dtype, lines, LARGE);
    let bytes = LARGE * dtype.size();
    let (five, ten) = (request(CORE), request(TEN));
    let all = request(TEN.into_iter().chain(CHECKSUMS));
    let (crc, xor) = (request([Statistic::Crc32]), request([Statistic::Xor64]));
    let run = |request: Request| {
        move || {
            black_box(&measure(&view, request));
        }
    };
    println!("{dtype}, {} Mi elements, {} thread(s)", LARGE >> 20, threads());
    let floor = || {
        black_box(read_only_pass(&view));
    };
    against_floor(
        bytes,
        &[
            ("read-only pass", &floor, None),
            ("min max mean norm nans", &run(five), targets[0]),
            ("all ten", &run(ten), targets[1]),
            ("all ten + crc32 + xor64", &run(all), None),
            ("crc32 alone", &run(crc), None),
            ("fingerprint", &|| _ = black_box(fingerprint(black_box(&view))), None),
            ("xor64 alone", &run(xor), None),
        ],
    );
}

fn pairs(lines: &[Line]) {
    const ELEMENTS: usize = LARGE / 2;
    let (a, b) =
        (view(Dtype::F32, &lines[..ELEMENTS / 16], ELEMENTS), view(Dtype::F32, &lines[ELEMENTS / 16..], ELEMENTS));
    println!("two float32 tensors of {} Mi elements, {} thread(s)", ELEMENTS >> 20, threads());
    let floor = || {
        black_box((read_only_pass(&a), read_only_pass(&b)));
    };
    let sign = || {
        black_box(sign_agreement(&a, &b));
    };
    let change = || {
        black_box(difference(&a, &b, request(CORE)));
    };
    against_floor(
        2 * ELEMENTS * size_of::<f32>(),
        &[
            ("read-only pass", &floor, None),
            ("sign agreement", &sign, None),
            ("difference: min max mean norm nans", &change, None),
        ],
    );
}

fn small(lines: &[Line]) {
    let view = view(Dtype::F32, lines, 1024);
    let (five, ten) = (request(CORE), request(TEN));
    let run = |request: Request| {
        move || {
            black_box(&measure(black_box(&view), request));
        }
    };
    println!("float32, 1024 elements in the cache");
    let times = interleave(&[&run(five), &run(ten)], GROUP);
    for (name, times) in ["min max mean norm nans", "all ten"].into_iter().zip(times) {
        let (low, high) = times.spread();
        println!(
            "  {name:<34} {:8.1} ns  [{:.1} .. {:.1}]  {}",
            times.median() * 1e9,
            low * 1e9,
            high * 1e9,
            verdict(times.median() * 1e9, Some(200.0))
        );
    }
}

fn processor() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("model name").map(str::to_owned)))
        .map_or_else(|| "unknown processor".to_owned(), |rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let isa = trainmon_stats::Isa::current();
    println!("{}, {cores} cores, {isa:?}; medians of {REPETITIONS} interleaved repetitions", processor());
    let lines = noise(LARGE * Dtype::F64.size());
    small(&lines);
    for wanted in [1, 0] {
        set_threads(wanted);
        large(Dtype::F32, &lines, [Some(1.2), Some(1.7)]);
        large(Dtype::Bf16, &lines, [Some(1.4), None]);
        large(Dtype::F16, &lines, [Some(1.4), None]);
        large(Dtype::F64, &lines, [Some(1.4), None]);
        pairs(&lines);
    }
    torch_operators();
}

/// torch's separate operators on the same memory: a program of the crate that links libtorch, which this one must not.
fn torch_operators() {
    if std::env::var_os("LIBTORCH").is_none() {
        println!("torch's separate operators: LIBTORCH is not set; `cargo xtask bench stats` provides it");
        return;
    }
    let program = ["run", "--release", "--quiet", "--package", "trainmon-tch", "--example", "operators"];
    let ended = std::process::Command::new(env!("CARGO")).args(program).status();
    if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
        println!("torch's separate operators: {program:?} ended with {ended:?}");
    }
}
