//! What both fronts say of targets that name nothing of the model.

use trainmon_core::config::{TargetRule, UnmatchedTarget, unmatched_targets};

use crate::monitor::Monitor;

/// So many targets are named.
const MAX_NAMED: usize = 3;

impl Monitor {
    /// Warns of targets that name nothing of the model, with the nearest names. `parameters` are the names each parameter
    /// goes by, with its chunk of the model; `modules` those of the modules that can be measured.
    ///
    /// Silent on a rank that measures nothing, and on one of several that has something of what is asked for: another may
    /// hold the rest, as another stage of a pipeline does. Cost: that of
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
        let verb = if unmatched.len() > 1 { "name" } else { "names" };
        let on_rank = if ranks.world_size > 1 { format!(" on rank {}", ranks.rank) } else { String::new() };
        let what = match config.targets.rule {
            TargetRule::Prefix => "the beginnings of parameters' names, and whole names of modules",
            TargetRule::Substring => "parts of the names of modules",
        };
        let nearest =
            if nearest.is_empty() { String::new() } else { format!("the nearest names are {}; ", nearest.join(", ")) };
        self.warn(
            format!("`targets`: {}{more} {verb} nothing of the model{on_rank}", targets.join(", ")),
            Some(format!("{nearest}targets are {what}")),
        );
    }
}
