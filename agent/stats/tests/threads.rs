//! The pool: same bits for any number of threads, no hang after a fork or beside another call.
#![expect(unsafe_code, reason = "views of strided memory, and a fork")]

use trainmon_core::{Dtype, Statistic, StatisticSet, TensorStats, TensorView};
use trainmon_stats::{Request, difference, measure, set_threads, sign_agreement, threads};

/// Not a multiple of anything the shards are cut by.
const ELEMENTS: usize = (3 << 20) + 12345;

fn everything() -> Request {
    Request { statistics: Statistic::ALL.into_iter().collect::<StatisticSet>(), eps: 1e-3 }
}

fn memory() -> Vec<f32> {
    (0..ELEMENTS as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 8) as f32 * 1e-6 - 7.3).collect()
}

/// Every statistic's bits, and the two pair functions'.
fn bits(memory: &[f32]) -> Vec<u64> {
    let flat = TensorView::from_slice(memory, &[ELEMENTS as i64]).expect("a view");
    // SAFETY: 1100 x 1200 elements at strides 2 and 2300 end before element 2.6 Mi.
    let strided = unsafe {
        TensorView::from_raw_parts(memory.as_ptr().cast(), Dtype::F32, &[1100, 1200], &[2300, 2]).expect("a view")
    };
    let of = |reading: TensorStats| Statistic::ALL.map(|statistic| reading.value(statistic).to_bits());
    let mut bits: Vec<u64> = [of(measure(&flat, everything())), of(measure(&strided, everything()))].concat();
    bits.extend(difference(&strided, &strided, everything()).map(of).expect("two floats"));
    bits.push(sign_agreement(&flat, &flat).expect("two floats").to_bits());
    bits
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let memory = memory();
    set_threads(1);
    assert_eq!(threads(), 1);
    let alone = bits(&memory);
    for count in [2, 3, 7] {
        set_threads(count);
        assert_eq!(threads(), count);
        assert_eq!(bits(&memory), alone, "with {count} threads");
    }
    set_threads(0);
    assert!((1..=4).contains(&threads()));
}

#[test]
fn calls_at_the_same_time_do_not_disturb_each_other() {
    let memory = memory();
    let expected = bits(&memory);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(bits(&memory), expected);
                }
            });
        }
    });
}

#[cfg(unix)]
#[test]
fn a_forked_child_measures_without_the_parents_threads() {
    let memory = memory();
    let expected = bits(&memory);
    // SAFETY: the child calls nothing but the measurement, which takes no lock another thread could hold, and `_exit`.
    let status = unsafe {
        match libc::fork() {
            0 => {
                let view = TensorView::from_slice(&memory, &[ELEMENTS as i64]);
                let is_same = view.is_ok_and(|view| measure(&view, everything()).norm.to_bits() == expected[3]);
                libc::_exit(i32::from(!is_same));
            }
            child => {
                assert!(child > 0, "fork");
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            }
        }
    };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
}
