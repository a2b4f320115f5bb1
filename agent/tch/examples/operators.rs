//! Compares torch's separate operators with one fused pass over the same memory in the same process. A read-only pass
//! is the lower limit. `cargo bench -p trainmon-stats` runs this example if it finds libtorch.
#![expect(clippy::print_stdout, reason = "this program prints its measurements")]

use std::hint::black_box;
use std::time::Instant;

use tch::{Device, Kind, Tensor};
use trainmon_agent::core::{Statistic, StatisticSet, TensorView};
use trainmon_agent::stats::{Request, measure, read_only_pass, set_threads};

/// 128 MiB of float32, as in the benchmark of `trainmon-stats`.
const ELEMENTS: i64 = 32 << 20;
const REPETITIONS: usize = 9;

fn main() {
    tch::manual_seed(1);
    let _no_grad = tch::no_grad_guard();
    println!("torch's operators on {} Mi elements, medians of {REPETITIONS} interleaved repetitions", ELEMENTS >> 20);
    for threads in [1, 2] {
        tch::set_num_threads(threads);
        set_threads(threads as usize);
        compare(Kind::Float, threads);
        compare(Kind::BFloat16, threads);
    }
}

/// Prints the time of each method, and its ratio to the read-only pass.
fn compare(kind: Kind, threads: i32) {
    let tensor = Tensor::randn([ELEMENTS], (Kind::Float, Device::Cpu)).to_kind(kind);
    let view = view(&tensor, kind);
    let statistics: StatisticSet =
        [Statistic::Min, Statistic::Max, Statistic::Mean, Statistic::Norm, Statistic::Nans].into_iter().collect();
    let request = Request { statistics, eps: 1e-8 };
    let floor = || {
        black_box(read_only_pass(&view));
    };
    let fused = || {
        black_box(&measure(&view, request));
    };
    let nans = || tensor.isnan().sum(None::<Kind>);
    let own_dtype = || {
        let found = (tensor.min(), tensor.max(), tensor.mean(None::<Kind>), tensor.norm(), nans());
        black_box(&found);
    };
    // msprobe computes mean and norm of a float64 copy.
    let as_msprobe = || {
        let double = || tensor.to_kind(Kind::Double);
        let found = (tensor.min(), tensor.max(), double().mean(None::<Kind>), double().norm(), nans());
        black_box(&found);
    };
    println!("{kind:?}, threads: {threads}: min max mean norm nans");
    let ways: [(&str, &dyn Fn()); 4] = [
        ("read-only pass", &floor),
        ("trainmon, one pass", &fused),
        ("torch, five operators", &own_dtype),
        ("torch as msprobe calls it (float64)", &as_msprobe),
    ];
    let mut times = ways.map(|_| Vec::with_capacity(REPETITIONS));
    for repetition in 0..=REPETITIONS {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            let start = Instant::now();
            way();
            // The first round warms caches and threads.
            if repetition > 0 {
                times.push(start.elapsed().as_secs_f64());
            }
        }
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    for ((name, _), sorted) in ways.iter().zip(&times) {
        let median = sorted[REPETITIONS / 2];
        println!(
            "  {name:<36} {:9.2} ms  [{:.2} .. {:.2}]  x{:.2}",
            1e3 * median,
            1e3 * sorted[0],
            1e3 * sorted[REPETITIONS - 1],
            median / times[0][REPETITIONS / 2]
        );
    }
}

/// Returns a view of the tensor's own memory.
fn view(tensor: &Tensor, kind: Kind) -> TensorView<'_> {
    use trainmon_agent::core::Dtype;
    let dtype = if kind == Kind::Float { Dtype::F32 } else { Dtype::Bf16 };
    #[expect(unsafe_code, reason = "the tensor is contiguous and lives longer than the view")]
    // SAFETY: the tensor is new, contiguous and never written to, and has this many elements of this dtype.
    unsafe { TensorView::from_raw_parts(tensor.data_ptr().cast_const().cast(), dtype, &[ELEMENTS], &[1]) }
        .expect("a contiguous tensor has a view")
}
