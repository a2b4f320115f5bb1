//! The order of causes within a step, and the series that are no evidence about the training's numbers.

use trainmon_core::AlertSignal;

use super::document::Moved;

/// After everything that has a place in a step.
const LAST: usize = usize::MAX;

/// The place of a signal or curve within a step: that of the signal whose name is its prefix.
pub(super) fn place_of(signal: &str) -> usize {
    let named = AlertSignal::all().filter(|known| signal.starts_with(known.name()));
    named.max_by_key(|known| known.name().len()).map_or(LAST, AlertSignal::place_in_step)
}

/// Sorts the earliest first. Within a step: non-finite values, then causes before effects, numbers of the run before
/// its tensors, the farthest first.
pub(super) fn sort(moved: &mut [Moved]) {
    let key = |one: &Moved| (one.step, !one.deviations.is_infinite(), place_of(&one.signal), one.tensor.is_some());
    moved.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| b.deviations.total_cmp(&a.deviations)));
}

/// Whether a curve describes trainmon itself or holds rank numbers: neither describes the training.
pub(super) fn is_no_evidence(curve: &str) -> bool {
    let of_itself = ["collect_seconds", "launch_seconds", "offer_seconds", "measure_seconds"];
    of_itself.contains(&curve) || curve.starts_with("straggler_rank")
}

/// The place of an alert's series within a step.
pub(super) fn place_of_series(series: &str) -> usize {
    match series.split_whitespace().next() {
        Some("gradient") => place_of("grad_norm"),
        Some("learning") => place_of("learning_rate"),
        Some(signal) => place_of(signal),
        None => LAST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_stand_before_effects() {
        let signals = ["learning_rate", "actv", "loss", "grad_unreduced", "grad_reduced", "exp_avg_sq", "update_ratio"];
        assert!(signals.map(place_of).is_sorted());
        assert!(place_of_series("loss") < place_of_series("gradient norm of layer h.1"));
        assert!(place_of_series("gradient norm") < place_of_series("update norm"));
        assert!(is_no_evidence("collect_seconds") && is_no_evidence("straggler_rank/world") && !is_no_evidence("loss"));
    }
}
