//! Measures several tensors in parallel.

use std::sync::OnceLock;

use trainmon_core::{TensorStats, TensorView};

use crate::measure::measure;
use crate::pool;
use crate::{Request, pool::LARGE};

/// The number of elements from which a tensor is split among the threads. If one thread read it alone, the others could
/// wait about 4 ms for it at the end.
const HUGE: usize = 32 << 20;

/// Measures tensors in parallel. The results are in order and bitwise equal to those of [`measure`].
///
/// Each thread reads a whole tensor at a time, so the threads are woken once. Measuring one tensor after the other would
/// wake them for every large tensor and read the small ones on one thread. Use it for tensors that are not written
/// meanwhile and not expected in the cache. Cost: one pass over their memory, two allocations.
pub fn measure_all(tensors: &[(TensorView<'_>, Request)]) -> Vec<TensorStats> {
    side_by_side(tensors, |(view, _)| view.elements(), |(view, request)| measure(view, *request))
}

/// Calls `read` for each tensor in parallel and returns the results in order.
pub(crate) fn side_by_side<T: Sync, R: Send + Sync>(
    tensors: &[T],
    elements_of: impl Fn(&T) -> usize,
    read: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let size = |&place: &usize| elements_of(&tensors[place]);
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    // The largest first, so that the threads finish at about the same time.
    order.sort_unstable_by_key(|place| std::cmp::Reverse(size(place)));
    let found: Vec<OnceLock<R>> = tensors.iter().map(|_| OnceLock::new()).collect();
    let read_one = |&place: &usize| {
        found[place].get_or_init(|| read(&tensors[place]));
    };
    let (huge, others) = order.split_at(order.partition_point(|place| size(place) >= HUGE));
    huge.iter().for_each(read_one);
    let elements: usize = others.iter().map(size).sum();
    if elements < LARGE {
        others.iter().for_each(read_one);
    } else {
        pool::share_out(others.len(), elements, &|at| read_one(&others[at]));
    }
    let unread = |(place, found): (usize, OnceLock<R>)| found.into_inner().unwrap_or_else(|| read(&tensors[place]));
    found.into_iter().enumerate().map(unread).collect()
}

#[cfg(test)]
mod tests {
    use trainmon_core::{Statistic, StatisticSet};

    use super::*;

    #[test]
    fn tensors_side_by_side_are_measured_as_one_by_one() {
        let request = Request { statistics: Statistic::ALL.into_iter().collect(), eps: 0.1 };
        let other = Request { statistics: StatisticSet::EMPTY.with(Statistic::Norm), eps: 0.0 };
        let noise: Vec<f32> = (0..3 * LARGE + 5).map(|at| ((at * 7919) % 10_007) as f32 - 5000.5).collect();
        let sizes = [0, 1, 3 * LARGE + 5, 17, LARGE, LARGE - 1, 4096, 300_000];
        let tensors: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(at, &size)| {
                (
                    TensorView::from_slice(&noise[..size], &[size as i64]).unwrap(),
                    if at % 2 == 0 { request } else { other },
                )
            })
            .collect();
        for count in 0..=tensors.len() {
            let expected: Vec<TensorStats> =
                tensors[..count].iter().map(|(view, request)| measure(view, *request)).collect();
            let found = measure_all(&tensors[..count]);
            // A NaN is no equal of itself; its text is.
            assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        }
    }
}
