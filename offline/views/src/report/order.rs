//! The order of causes within a step, and which series say nothing of the training's numbers.

use super::document::Moved;

/// As a step touches them: settings, forward, loss, backward, reduction, optimizer.
const ORDER: [&str; 12] = [
    "learning_rate",
    "scalar",
    "actv",
    "loss",
    "grad_unreduced",
    "grad_norm",
    "grad_reduced",
    "actv_grad",
    "exp_avg",
    "exp_avg_sq",
    "update",
    "param",
];

/// Where a signal stands within a step.
pub(super) fn place_of(signal: &str) -> usize {
    let exact = ORDER.iter().position(|known| *known == signal);
    let by_beginning = || ORDER.iter().rposition(|known| signal.starts_with(known));
    exact.or_else(by_beginning).unwrap_or(ORDER.len())
}

/// The earliest first; of one step what is not finite, then causes before effects, a number of the run before its tensors, the
/// farthest first.
pub(super) fn sort(moved: &mut [Moved]) {
    let key = |one: &Moved| (one.step, !one.deviations.is_infinite(), place_of(&one.signal), one.tensor.is_some());
    moved.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| b.deviations.total_cmp(&a.deviations)));
}

/// Whether a curve tells of trainmon itself, or numbers ranks: neither says how the training goes.
pub(super) fn is_no_evidence(curve: &str) -> bool {
    let of_itself = ["collect_seconds", "launch_seconds", "offer_seconds", "measure_seconds"];
    of_itself.contains(&curve) || curve.starts_with("straggler_rank")
}

/// Where an alert's series stands within a step.
pub(super) fn place_of_series(series: &str) -> usize {
    match series.split_whitespace().next() {
        Some("gradient") => place_of("grad_norm"),
        Some("learning") => place_of("learning_rate"),
        Some(signal) => place_of(signal),
        None => ORDER.len(),
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
