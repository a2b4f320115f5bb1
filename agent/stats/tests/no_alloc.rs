//! After its first use a measurement allocates nothing.
#![expect(unsafe_code, reason = "a counting allocator, and views of strided memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use trainmon_core::{Dtype, Statistic, StatisticSet, TensorView};
use trainmon_stats::{Request, copy_contiguous, difference, measure, measure_and_copy, set_threads, sign_agreement};

/// Counts every allocation of the process, the pool's threads included.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    const ELEMENTS: usize = 1 << 21;
    set_threads(3);
    let memory: Vec<f32> = (0..ELEMENTS).map(|index| index as f32 - 7.0).collect();
    let mut copy = vec![0u8; 4 * ELEMENTS / 2];
    let small = TensorView::from_slice(&memory[..1000], &[10, 100]).expect("a view");
    let large = TensorView::from_slice(&memory, &[ELEMENTS as i64]).expect("a view");
    // SAFETY: 1024 x 1024 elements, every other one of the 2 Mi.
    let strided = unsafe {
        TensorView::from_raw_parts(memory.as_ptr().cast(), Dtype::F32, &[1024, 1024], &[2, 2048]).expect("a view")
    };
    let request = Request { statistics: Statistic::ALL.into_iter().collect::<StatisticSet>(), eps: 1e-8 };
    let mut everything = || {
        for view in [&small, &large, &strided] {
            assert_eq!(measure(view, request).count, view.elements() as u64);
        }
        assert!(sign_agreement(&large, &large).is_some());
        assert!(difference(&strided, &strided, request).is_some());
        copy_contiguous(&strided, &mut copy);
        measure_and_copy(&strided, request, &mut copy);
    };
    everything();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..20 {
        everything();
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!(allocations, 0, "small, large, strided and checksummed calls after the first");
}
