//! Targets that match nothing in the model, with similar names.

use super::effective::{Config, TargetRule, Targets};
use super::plan::Plan;
use super::similar::similarity;

/// The maximum number of names shown.
const MOST_SHOWN: usize = 3;
/// The minimum share of equal letters for a similar name.
const LEAST_SIMILARITY: f64 = 0.5;

/// A target that matches nothing in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedTarget {
    /// The target's spelling in the config.
    pub target: String,
    /// Names of the model that may have been meant, the most similar first; some of the model's names if none is similar.
    pub nearest: Vec<String>,
}

/// The active targets that match nothing that a plan measures. `parameters` are the names of each parameter with its chunk (a
/// parameter may be listed under several); `modules` are those of the modules.
///
/// Cost: every target is compared with every name once; unmatched ones once more, for their similarity.
pub fn unmatched_targets(
    config: &Config,
    plan: &Plan,
    parameters: &[(String, u32)],
    modules: &[(String, u32)],
) -> Vec<UnmatchedTarget> {
    let signals = &plan.signals;
    let measures_parameters = signals.weight_grad.is_some()
        || signals.moments.is_some()
        || signals.param.is_some()
        || signals.mg_direction.is_some()
        || signals.update.is_some();
    let rule = config.targets.rule;
    // In the other dialect, targets apply only to modules.
    let parameters = if measures_parameters && rule == TargetRule::Prefix { parameters } else { &[] };
    let modules = if signals.activations.as_ref().is_some_and(|wanted| !wanted.all) { modules } else { &[] };
    if parameters.is_empty() && modules.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = parameters.iter().chain(modules).map(|(name, _)| name.as_str()).collect();
    let is_matched = |target: &String| {
        let one = Targets { names: vec![target.clone()], rule };
        parameters.iter().any(|(name, chunk)| one.matches_parameter(name, name, *chunk))
            || modules.iter().any(|(name, chunk)| one.matches_module(name, *chunk))
    };
    let unmatched = plan.targets.iter().filter(|target| !is_matched(target));
    unmatched.map(|target| UnmatchedTarget { target: target.clone(), nearest: nearest(target, &names) }).collect()
}

/// The names most similar to a target, each cut to as many parts as the target has.
fn nearest(target: &str, names: &[&str]) -> Vec<String> {
    let (_, bare) = target.split_once(':').unwrap_or(("", target));
    let parts = bare.split('.').count();
    let mut found: Vec<(f64, &str)> = Vec::new();
    for &name in names {
        // A name that contains the target was almost certainly meant.
        let (score, shown) = if !bare.is_empty() && name.contains(bare) {
            (1.0, name)
        } else {
            let head = name.match_indices('.').nth(parts - 1).map_or(name, |(end, _)| &name[..end]);
            (similarity(bare, head), head)
        };
        if !shown.is_empty() && !found.iter().any(|(_, known)| *known == shown) {
            found.push((score, shown));
        }
    }
    // The sort is stable: names of equal score keep the model's order.
    found.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    let similar = found.iter().filter(|(score, _)| *score >= LEAST_SIMILARITY).count();
    let shown = if similar == 0 { MOST_SHOWN } else { similar.min(MOST_SHOWN) };
    found.into_iter().take(shown).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(config: &str) -> Vec<(String, Vec<String>)> {
        let config = Config::parse(config, "test", &|_| None).unwrap().config;
        let named = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 0)).collect::<Vec<_>>();
        let parameters = named(&["embed.weight", "layers.0.mlp.weight", "layers.0.mlp.bias", "layers.1.mlp.weight"]);
        let modules = named(&["", "embed", "layers", "layers.0", "layers.0.mlp", "layers.1", "layers.1.mlp"]);
        let found = unmatched_targets(&config, &Plan::of(&config), &parameters, &modules);
        found.into_iter().map(|UnmatchedTarget { target, nearest }| (target, nearest)).collect()
    }

    fn one(target: &str, nearest: &[&str]) -> Vec<(String, Vec<String>)> {
        vec![(target.to_owned(), nearest.iter().map(ToString::to_string).collect())]
    }

    #[test]
    fn a_target_that_names_nothing_is_found_with_the_names_most_like_it() {
        let config = |target: &str| format!(r#"{{"wg_distribution": true, "targets": {{"{target}": {{}}}}}}"#);
        assert_eq!(found(&config("layer.0")), one("layer.0", &["layers.0", "layers.1"]));
        assert_eq!(found(&config("mlp.bias")), one("mlp.bias", &["layers.0.mlp.bias"]), "targets are beginnings");
        assert_eq!(found(&config("zzz")), one("zzz", &["embed", "layers"]), "what there is, where nothing is similar");
        for target in ["layers.0", "layers.0.mlp.w", "0:embed", ""] {
            assert_eq!(found(&config(target)), [], "{target}");
        }
        assert_eq!(found(&config("1:embed")).len(), 1, "there is no such chunk");
    }

    #[test]
    fn a_target_may_name_a_parameter_or_a_module_that_is_measured() {
        let both =
            r#"{"wg_distribution": true, "xy_distribution": true, "targets": {"layers.0.mlp": {}, "embed.w": {}}}"#;
        assert_eq!(found(both), []);
        let modules = r#"{"xy_distribution": true, "targets": {"layers.0.mlp": {}, "embed.weight": {}}}"#;
        assert_eq!(found(modules)[0].0, "embed.weight", "a module matches by its whole name");
        assert_eq!(found(r#"{"xy_distribution": true, "all_xy": true, "targets": {"nothing": {}}}"#), []);
        assert_eq!(found(r#"{"targets": {"nothing": {}}}"#), [], "nothing is measured of either");
    }

    #[test]
    fn in_the_other_dialect_targets_are_parts_of_the_names_of_modules() {
        let config = |target: &str| {
            format!(
                r#"{{"monitors": {{"weight_grad": {{"enabled": true}}, "module": {{"enabled": true, "targets": ["{target}"]}}}}}}"#
            )
        };
        assert_eq!(found(&config("mlp")), []);
        assert_eq!(found(&config("attn")).len(), 1);
    }
}
