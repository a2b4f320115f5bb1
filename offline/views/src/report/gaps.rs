//! The gaps in a run's measurements.

use std::collections::BTreeSet;

use trainmon_history::curves;
use trainmon_report::{counted, first_of};
use trainmon_runs::steps::StepTimes;

use super::evidence::Evidence;
use crate::rank_history::RankHistory;

/// The measurements a run can contain, with their description and config key.
const KINDS: [(&[&str], &str); 7] = [
    (&["grad_unreduced", "grad_reduced"], "weight gradients (`wg_distribution`)"),
    (&["grad_unreduced"], "gradients before reduction and clipping"),
    (&["actv"], "activations (`xy_distribution` with `forward_only`)"),
    (&["actv_grad"], "gradients of activations (`xy_distribution`)"),
    (
        &["exp_avg", "exp_avg_sq", "momentum_buffer", "optimizer_state", "sum", "square_avg"],
        "optimizer moments (`mv_distribution`)",
    ),
    (&["param_origin", "param_updated"], "parameters (`param_distribution`)"),
    (&["update", "update_ratio"], "updates and update ratios (`update`)"),
];
/// The number of names listed in a sentence.
const SHOWN: usize = 8;

/// The coverage of all ranks together.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    kinds: BTreeSet<&'static str>,
    curves: BTreeSet<String>,
    steps: u64,
    measured_steps: u64,
    sampled_steps: u64,
    dropped: u64,
    without_times: bool,
    /// Ranks that did not record alerts and have none in any other file.
    without_alert_record: Vec<u32>,
    too_short: u64,
    series: u64,
    rows_left_out: u64,
    ranks: Vec<u32>,
    /// Ranks with a series that moved.
    moved_ranks: Vec<u32>,
    tensor_bins: u64,
}

impl Coverage {
    pub(super) fn add(&mut self, history: &RankHistory, evidence: &Evidence) {
        self.kinds.extend(&history.kinds);
        self.curves.extend(evidence.curves.iter().map(|curve| curve.name.clone()));
        self.steps += history.steps;
        self.measured_steps += history.measured_steps;
        self.sampled_steps += history.sampled_steps;
        self.dropped += history.dropped();
        self.without_times |= history.times == StepTimes::OfFiles;
        let is_unknown = !history.alerts_are_recorded && history.alerts.is_empty();
        self.without_alert_record.extend(is_unknown.then_some(history.run.rank.0));
        self.too_short += evidence.too_short;
        self.series += evidence.series;
        self.rows_left_out += evidence.rows_left_out;
        self.ranks.push(history.run.rank.0);
        self.moved_ranks.extend((evidence.summary.moved > 0).then_some(history.run.rank.0));
        self.tensor_bins = self.tensor_bins.max(evidence.steps_per_tensor_value);
    }

    /// The sentence for a run without alerts; empty if a rank did not record alerts.
    pub(super) fn without_alert(&self) -> String {
        if self.without_alert_record.is_empty() { "No alert. ".to_owned() } else { String::new() }
    }

    /// The number of ranks that were read.
    pub(super) fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// The only rank with a series that moved, if there is exactly one.
    pub(super) fn moved_alone(&self) -> Option<u32> {
        if let [only] = self.moved_ranks[..] { Some(only) } else { None }
    }

    /// Whether any rank has a step.
    pub(super) fn has_steps(&self) -> bool {
        self.steps > 0
    }

    /// Whether any of these kinds was measured.
    pub(super) fn has(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.kinds.contains(kind))
    }

    /// The number of examined series.
    pub(super) fn series(&self) -> u64 {
        self.series
    }

    /// The gaps, one sentence each.
    pub(super) fn gaps(&self, world_size: u32, is_log: bool) -> Vec<String> {
        let mut gaps = Vec::new();
        let missing: Vec<&str> = KINDS.iter().filter(|(kinds, _)| !self.has(kinds)).map(|(_, words)| *words).collect();
        if !missing.is_empty() {
            gaps.push(format!("Not measured: {}.", missing.join(", ")));
        }
        for (curve, what) in [
            (curves::LOSS, "the loss was not logged (`watch.log(loss=…)`)"),
            (curves::LEARNING_RATE, "the learning rate was not logged"),
            (curves::GRAD_NORM, "the gradient norm was not measured"),
            (curves::STEP_SECONDS, "step durations were not recorded"),
        ] {
            let is_named = is_log && curve == curves::LOSS;
            if is_named && !self.curves.contains(curve) {
                gaps.push("No column was found for the loss (name one with `--loss`).".to_owned());
            } else if !self.curves.contains(curve) {
                gaps.push(format!("{}.", capitalised(what)));
            }
        }
        let ranks = self.ranks.len() as u64;
        if ranks < u64::from(world_size) {
            let shown = first_of(self.ranks.iter().map(u32::to_string), SHOWN);
            gaps.push(format!("{ranks} of {world_size} ranks were read: {shown}."));
        }
        if self.measured_steps < self.steps {
            let (steps, measured) = (self.steps, self.measured_steps);
            gaps.push(format!("Tensors were measured in {measured} of {steps} steps (sum over all ranks)."));
        }
        for (count, (one, several), rest) in [
            (
                self.sampled_steps,
                ("step measured only a part of the layers", "steps measured only a part of the layers"),
                ", to keep the overhead budget",
            ),
            (self.dropped, ("record was dropped", "records were dropped"), " because a queue was full"),
            (self.rows_left_out, ("tensor was", "tensors were"), " not examined because there are too many"),
            (
                self.too_short,
                ("series has", "series have"),
                " too few values for a usual level: only non-finite values are reported",
            ),
        ] {
            if count > 0 {
                gaps.push(format!("{}{rest}.", counted(count, one, several)));
            }
        }
        if self.tensor_bins > 1 {
            gaps.push(format!(
                "Of each {} measured steps only the largest value of a tensor is kept: a fall in some of these steps is not \
                 detected.",
                self.tensor_bins
            ));
        }
        if self.without_times {
            gaps.push("The times of steps are unknown: the files do not contain them.".to_owned());
        }
        match &self.without_alert_record[..] {
            [] => {}
            [only] => gaps.push(format!("Rank {only} has no `alerts.jsonl`: its alerts are unknown.")),
            ranks => {
                let shown = first_of(ranks.iter().map(u32::to_string), SHOWN);
                gaps.push(format!("{} ranks have no `alerts.jsonl` ({shown}): their alerts are unknown.", ranks.len()));
            }
        }
        gaps
    }
}

pub(super) fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}
