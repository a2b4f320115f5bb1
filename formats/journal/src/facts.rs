//! The run's description in a journal: enough to write the files that the run's own exporters would have written.

use serde::{Deserialize, Serialize};
use trainmon_core::config::{
    Activations, AttentionOrder, Collectives, Config, Csv, Dialect, Features, Signal, Signals, TargetRule, Targets,
    WeightGrad, Window,
};
use trainmon_core::{Kind, RunInfo, Statistic};

use super::number_names::StoredNames;

/// The run's description as stored in the file, one JSON object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Facts {
    /// The version of trainmon that wrote the file.
    pub(super) trainmon: String,
    /// The Unix time of its creation.
    pub(super) created_seconds: u64,
    pub(super) run: RunInfo,
    /// The effective config, as `trainmon check-config` prints it.
    pub(super) config: serde_json::Value,
    pub(super) files: FileFacts,
    #[serde(rename = "legend")]
    pub(super) number_names: StoredNames,
}

/// The part of a config that the CSV files depend on, in its own form: other parts of a config may change without
/// making old journals unreadable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FileFacts {
    dialect: DialectName,
    start_step: u64,
    every_micro_batch: bool,
    ndigits: Option<u32>,
    step_count_per_record: u64,
    /// The measured statistics of each measured kind of tensor, by the kind's name.
    signals: Vec<SignalFacts>,
    /// The measured features, by their kinds' names.
    features: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DialectName {
    V1,
    V2,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SignalFacts {
    kind: String,
    ops: Vec<Statistic>,
    eps: f64,
}

impl FileFacts {
    /// The facts of a config and its CSV settings.
    pub(super) fn of(config: &Config, csv: &Csv) -> Self {
        let signal = |kind: Kind| {
            let Signal { ops, eps } = config.signal(kind)?;
            Some(SignalFacts { kind: kind.name().to_owned(), ops: ops.clone(), eps: *eps })
        };
        let is_feature = |kind: &Kind| config.features.as_ref().is_some_and(|all| all.modules(*kind).is_some());
        Self {
            dialect: match config.dialect {
                Dialect::V1 => DialectName::V1,
                Dialect::V2 => DialectName::V2,
            },
            start_step: config.window.start_step,
            every_micro_batch: config.signals.weight_grad.as_ref().is_some_and(|grad| grad.every_micro_batch),
            ndigits: csv.ndigits,
            step_count_per_record: csv.steps_per_file(),
            signals: Kind::ALL.into_iter().filter_map(signal).collect(),
            features: Kind::ALL.into_iter().filter(is_feature).map(|kind| kind.name().to_owned()).collect(),
        }
    }

    /// The settings of the CSV files.
    pub(super) fn csv(&self) -> Csv {
        Csv {
            output_dir: None,
            layout: None,
            ndigits: self.ndigits,
            step_count_per_record: Some(self.step_count_per_record),
            budget_mib: None,
            repeats_rows: true,
            append_output: None,
        }
    }

    /// A config that measures the same kinds with the same statistics; it has no targets or other outputs.
    pub(super) fn config(&self) -> Config {
        let signal = |kind: Kind| {
            let facts = self.signals.iter().find(|signal| signal.kind == kind.name())?;
            Some(Signal { ops: facts.ops.clone(), eps: facts.eps })
        };
        let (forward, backward) = (signal(Kind::Actv), signal(Kind::ActvGrad));
        let (is_forward, is_backward) = (forward.is_some(), backward.is_some());
        let v1 = self.dialect == DialectName::V1;
        Config {
            dialect: if v1 { Dialect::V1 } else { Dialect::V2 },
            window: Window { start_step: self.start_step, ..Window::default() },
            targets: Targets { names: Vec::new(), rule: if v1 { TargetRule::Prefix } else { TargetRule::Substring } },
            signals: Signals {
                weight_grad: signal(Kind::GradReduced).map(|signal| WeightGrad {
                    signal,
                    every_micro_batch: self.every_micro_batch,
                    micro_batches: None,
                }),
                moments: signal(Kind::ExpAvg),
                param: signal(Kind::ParamOrigin),
                activations: forward.or(backward).map(|signal| Activations {
                    signal,
                    forward: is_forward,
                    backward: is_backward,
                    all: true,
                }),
                mg_direction: signal(Kind::MgDirection),
                update: signal(Kind::Update),
            },
            adhoc: signal(Kind::Adhoc),
            collectives: signal(Kind::Comm).map(|signal| Collectives { before: true, ..Collectives::of(signal) }),
            features: self.features(),
            csv: Some(self.csv()),
            csv_layout: self.csv(),
            prometheus: None,
            ..Config::default()
        }
    }

    fn features(&self) -> Option<Features> {
        let modules = |kind: Kind| self.features.iter().any(|name| name == kind.name()).then(Vec::new);
        (!self.features.is_empty()).then(|| Features {
            attention: modules(Kind::AttentionHook),
            linear: modules(Kind::LinearHook),
            router_weight: modules(Kind::MoeRouterWeightHook),
            router_logit: modules(Kind::MoeRouterLogitHook),
            order: AttentionOrder::SequenceFirst,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse(text, "test.json", &|_| None).unwrap().config
    }

    #[test]
    fn a_config_out_of_a_journal_measures_what_the_runs_did() {
        let everything = r#"{"wg_distribution": true, "mv_distribution": true, "param_distribution": true,
            "xy_distribution": true, "mg_direction": true, "update": true, "monitor_mbs_grad": true, "start_step": 7,
            "ops": ["min", "norm", "crc32"], "eps": 0.25, "ndigits": 5, "step_count_per_record": 3,
            "recording_l2_features": true, "l2_targets": {"linear_hook": [], "attention_hook": ["a"]}}"#;
        let backward_only = r#"{"xy_distribution": true, "backward_only": true}"#;
        let v2 = r#"{"monitors": {"weight_grad": {"enabled": true, "ops": ["max"]}, "module": {"enabled": true},
            "optimizer": {"enabled": true, "mv_distribution": true}, "update": {"enabled": true}}, "start_step": 2}"#;
        for text in [everything, backward_only, v2, "{}"] {
            let config = parse(text);
            let csv = config.csv.clone().unwrap();
            let json = serde_json::to_string(&FileFacts::of(&config, &csv)).unwrap();
            let facts: FileFacts = serde_json::from_str(&json).unwrap();
            let restored = facts.config();
            for kind in Kind::ALL {
                assert_eq!(restored.signal(kind), config.signal(kind), "{kind} of {text}");
                assert_eq!(restored.measures(kind), config.measures(kind), "{kind} of {text}");
            }
            assert_eq!(restored.dialect, config.dialect);
            assert_eq!(restored.window.start_step, config.window.start_step);
            let every_micro_batch =
                |config: &Config| config.signals.weight_grad.as_ref().map(|grad| grad.every_micro_batch);
            assert_eq!(every_micro_batch(&restored), every_micro_batch(&config));
            let files = |config: &Config| config.csv.as_ref().map(|csv| (csv.ndigits, csv.steps_per_file()));
            assert_eq!(files(&restored), files(&config));
        }
    }
}
