//! The warning of both fronts about targets that match nothing in the model.

use trainmon_core::config::{TargetRule, UnmatchedTarget, unmatched_targets};

use crate::monitor::Monitor;

/// The maximum number of targets in the warning.
const MAX_NAMED: usize = 3;

impl Monitor {
    /// Warns of targets that match nothing in the model, with similar names. `parameters` are all names of each parameter
    /// with its chunk of the model, `modules` those of the modules that can be measured.
    ///
    /// No warning on a rank that measures nothing. With several ranks, none if any target matches, because another rank,
    /// such as a pipeline stage, may hold the rest. Cost: that of
    /// [`unmatched_targets`](trainmon_core::config::unmatched_targets).
    pub fn warn_of_targets(&self, parameters: &[(String, u32)], modules: &[(String, u32)]) {
        let (plan, config, ranks) = (self.plan(), self.config(), self.ranks());
        let measures = plan.ranks.is_empty() || plan.ranks.contains(&ranks.rank.0);
        let unmatched = unmatched_targets(config, &plan, parameters, modules);
        let is_elsewhere = ranks.world_size > 1 && unmatched.len() < plan.targets.len();
        if unmatched.is_empty() || !measures || is_elsewhere {
            return;
        }
        let quoted = |name: &String| format!("`{name}`");
        let named = &unmatched[..unmatched.len().min(MAX_NAMED)];
        let targets: Vec<String> = named.iter().map(|one| quoted(&one.target)).collect();
        let mut nearest: Vec<String> = Vec::new();
        for name in named.iter().flat_map(|UnmatchedTarget { nearest, .. }| nearest).map(quoted) {
            if !nearest.contains(&name) {
                nearest.push(name);
            }
        }
        let more = unmatched.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let verb = if unmatched.len() > 1 { "match" } else { "matches" };
        let on_rank = if ranks.world_size > 1 { format!(" on rank {}", ranks.rank) } else { String::new() };
        let what = match config.targets.rule {
            TargetRule::Prefix => "the beginning of a parameter's name or the full name of a module",
            TargetRule::Substring => "a part of a module's name",
        };
        let nearest =
            if nearest.is_empty() { String::new() } else { format!("similar names: {}; ", nearest.join(", ")) };
        self.warn(
            format!("`targets`: {}{more} {verb} nothing in the model{on_rank}", targets.join(", ")),
            Some(format!("{nearest}a target is {what}")),
        );
    }
}
