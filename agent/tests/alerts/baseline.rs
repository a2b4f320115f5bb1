//! The rule that holds a run against a golden one.

use std::path::{Path, PathBuf};

use trainmon_agent::StepFacts;
use trainmon_agent::core::config::{Config, Pipeline};
use trainmon_agent::core::{Alert, AlertPhase, AlertRule, AlertScope, AlertSignal, Kind, Statistic};

use crate::run::Run;

const NO_FILES: &str = r#""format": [],"#;
const STEPS: u64 = 300;
/// Where faults are planted.
const PLANTED: u64 = 150;
/// `h.1.mlp.weight`.
const TENSOR: usize = 3;

/// What one training does.
#[derive(Clone, Copy)]
struct Training {
    /// Of dropout, so to say: gradients scatter by a twentieth from seed to seed, parameters drift apart.
    seed: u64,
    steps: u64,
    first: u64,
    /// The factor on one layer's weight, from the planted step on.
    weight: f64,
    /// As above on the learning rate, of every step.
    rate: fn(u64) -> f64,
    /// Whether the loss is told in a step.
    tells_loss: fn(u64) -> bool,
}

const CLEAN: Training = Training { seed: 1, steps: STEPS, first: 0, weight: 1.0, rate: |_| 1.0, tells_loss: |_| true };

/// A number between -1 and 1 that hangs on all of these.
fn random(seed: u64, step: u64, index: usize, kind: Kind) -> f64 {
    let mut state = seed ^ (step << 20) ^ ((index as u64) << 50) ^ ((kind as u64) << 56);
    for _ in 0..3 {
        state = (state ^ (state >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

impl Training {
    fn factor(self, step: u64, index: usize, kind: Kind) -> f64 {
        let random = random(self.seed, step, index, kind);
        if kind != Kind::ParamUpdated {
            return (0.1 * random).exp();
        }
        let is_planted = index == TENSOR && step >= PLANTED;
        // Parameters differ by what was added up.
        let drift = 1e-5 * (step as f64) * ((self.seed * 7 + index as u64) % 5) as f64;
        (drift + 1e-5 * random).exp() * if is_planted { self.weight } else { 1.0 }
    }

    /// Trains with this config, and gives the run when it is over.
    fn run(self, config: Config, output: &Path) -> Run {
        let mut run = Run::with_exporters(config, self.first, None, Some(output));
        for step in self.first..self.steps {
            let rate = 1e-3 * (self.rate)(step);
            let loss = 2.0 * (0.01 * random(self.seed, step, 99, Kind::Adhoc)).exp();
            let facts = StepFacts {
                loss: (self.tells_loss)(step).then_some(loss),
                learning_rate: Some(rate),
                ..StepFacts::default()
            };
            run.step_with(facts, |index, kind| self.factor(step, index, kind));
        }
        run.finish();
        run
    }

    /// Trains, held against a golden run; the alerts of the rule.
    fn held_against(self, golden: &[&Path]) -> (Run, Vec<Alert>) {
        let directory = tempfile::tempdir().unwrap();
        let run = self.run(config(NO_FILES, &rule(golden, "")), directory.path());
        let alerts = run.keeper.alerts();
        (run, alerts)
    }
}

/// A config with outputs and rules as they are given.
fn config(outputs: &str, rules: &str) -> Config {
    let text = format!(
        r#"{{"wg_distribution": true, "mv_distribution": true, "update": true, "param_distribution": true,
            "ops": ["norm", "mean"], {outputs} "alert": {{"rules": [{rules}]}}}}"#
    );
    let parsed = Config::parse(&text, "baseline.json", &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
    let pipeline = Pipeline { queue_steps: 4_096, shutdown_timeout_ms: 60_000 };
    Config { prometheus: None, pipeline, ..parsed.config }
}

fn rule(golden: &[&Path], more: &str) -> String {
    format!(r#"{{"rule_name": "Baseline", "golden": {}{more}}}"#, serde_json::json!(golden))
}

/// The golden run: its rank's directory with CSV files, and its journal.
fn golden(directory: &Path, training: Training) -> [PathBuf; 2] {
    let config = config(r#""format": "csv", "journal": {"enabled": true},"#, "");
    let run = training.run(config, directory);
    assert!(run.heard.containing("no journal") == 0, "{}", run.heard.all());
    let rank = directory.join("a-run").join("rank_0");
    let journal = std::fs::read_dir(&rank).unwrap().map(|entry| entry.unwrap().path());
    let journal = journal.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "tmj"));
    [rank, journal.unwrap()]
}

#[test]
fn another_seed_is_silent_and_a_weight_or_rate_that_changes_is_named_with_its_step() {
    let directory = tempfile::tempdir().unwrap();
    for golden in golden(directory.path(), CLEAN) {
        let golden = golden.as_path();
        for seed in [2, 3] {
            let (run, alerts) = Training { seed, ..CLEAN }.held_against(&[golden]);
            assert!(alerts.is_empty(), "{alerts:?}");
            assert_eq!(run.monitor.alert_totals().findings_of(AlertRule::Baseline), 0);
            assert_eq!(
                run.heard.containing("this run and the golden run differ by more than rounding"),
                1,
                "{}",
                run.heard.all()
            );
        }
        let (run, alerts) = Training { seed: 2, weight: 1.5, ..CLEAN }.held_against(&[golden]);
        let alert = &alerts[0];
        assert_eq!((alert.rule, alert.phase, alert.step.0), (AlertRule::Baseline, AlertPhase::Begins, PLANTED));
        assert_eq!((alert.series.name.as_str(), alert.series.scope), ("h.1.mlp.weight", AlertScope::Tensor));
        assert_eq!(alert.series.layer.as_deref(), Some("h.1"));
        assert_eq!(alert.series.signal, AlertSignal::Kind(Kind::ParamUpdated));
        assert_eq!(alert.series.statistic, Some(Statistic::Norm));
        assert!(alert.value > alert.expected.upper.unwrap() && alert.value > 1.4 * alert.expected.typical.unwrap());
        let words = "param_updated norm of `h.1.mlp.weight` at step 150 is 1.5";
        assert!(alert.message.contains(words), "{}", alert.message);
        let is_of_rule = alerts.iter().filter(|alert| alert.phase == AlertPhase::Begins).count();
        assert_eq!(is_of_rule, 1, "one for a fault, not one per step: {alerts:?}");
        assert!(run.heard.containing(words) >= 1, "{}", run.heard.all());
        let rate = |step| if step < PLANTED { 1.0 } else { 2.0 };
        let (_, alerts) = Training { seed: 2, rate, ..CLEAN }.held_against(&[golden]);
        assert_eq!((alerts[0].step.0, alerts[0].series.signal), (PLANTED, AlertSignal::LearningRate), "{alerts:?}");
        assert_eq!(alerts[0].series.scope, AlertScope::Global);
    }
}

#[test]
fn a_run_that_is_the_golden_one_to_the_last_bit_is_held_to_it_and_several_golden_runs_measure_the_spread() {
    let directory = tempfile::tempdir().unwrap();
    let [first, _] = golden(&directory.path().join("1"), CLEAN);
    let (_, alerts) = CLEAN.held_against(&[&first]);
    assert!(alerts.is_empty(), "{alerts:?}");
    let (run, alerts) = Training { weight: 1.001, ..CLEAN }.held_against(&[&first]);
    let [alert] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!((alert.step.0, alert.series.name.as_str()), (PLANTED, "h.1.mlp.weight"));
    assert!(alert.message.contains("equal to the last digit until then"), "{}", alert.message);
    assert_eq!(run.heard.containing("by more than rounding"), 0, "{}", run.heard.all());
    let [second, _] = golden(&directory.path().join("2"), Training { seed: 4, ..CLEAN });
    for weight in [1.0, 1.5] {
        let (_, alerts) = Training { seed: 5, weight, ..CLEAN }.held_against(&[&first, &second]);
        let steps: Vec<u64> = alerts.iter().map(|alert| alert.step.0).collect();
        assert_eq!(steps.first(), Some(&PLANTED).filter(|_| weight > 1.0), "{alerts:?}");
    }
}

#[test]
fn a_loss_that_one_of_the_runs_was_not_told_is_no_departure() {
    let directory = tempfile::tempdir().unwrap();
    let seldom = |step: u64| step.is_multiple_of(10);
    let all = golden(&directory.path().join("1"), CLEAN);
    let few = golden(&directory.path().join("2"), Training { tells_loss: seldom, ..CLEAN });
    for seed in [1, 2] {
        for golden in &all {
            let (_, alerts) = Training { seed, tells_loss: seldom, ..CLEAN }.held_against(&[golden]);
            assert!(alerts.is_empty(), "{alerts:?}");
        }
        for golden in &few {
            let (_, alerts) = Training { seed, ..CLEAN }.held_against(&[golden]);
            assert!(alerts.is_empty(), "{alerts:?}");
        }
    }
}

#[test]
fn a_resumed_run_begins_where_the_golden_one_is_then_and_its_end_is_said_once() {
    let directory = tempfile::tempdir().unwrap();
    let [golden, _] = golden(directory.path(), Training { steps: 250, ..CLEAN });
    let (run, alerts) = Training { seed: 2, first: 60, weight: 1.5, ..CLEAN }.held_against(&[&golden]);
    assert_eq!(alerts[0].step.0, PLANTED, "{alerts:?}");
    let said = "the golden run ends with step 249; the comparison stops at step 250";
    assert_eq!(run.heard.containing(said), 1, "{}", run.heard.all());
    let (run, alerts) = Training { seed: 2, first: 260, ..CLEAN }.held_against(&[&golden]);
    assert!(alerts.is_empty() && run.heard.containing("; the comparison stops at step ") == 1);
}

#[test]
fn what_is_no_golden_run_is_said_with_its_path_and_training_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path();
    let [rank, _] = golden(&base.join("golden"), Training { steps: 5, ..CLEAN });
    // Of other ranks.
    let others = base.join("others");
    for other in ["rank_1", "rank_2"] {
        std::fs::create_dir_all(others.join(other)).unwrap();
        std::fs::copy(rank.join("steps.csv"), others.join(other).join("steps.csv")).unwrap();
    }
    std::fs::create_dir(base.join("empty")).unwrap();
    let missing = base.join("nowhere");
    for (path, words) in [
        (missing.as_path(), "does not exist"),
        (&base.join("empty"), "the directory is empty"),
        (&rank.join("steps.csv"), "it is a file, but not a journal"),
        (&others, "has no rank 0; its ranks: 1, 2"),
    ] {
        let (run, alerts) = Training { steps: 5, ..CLEAN }.held_against(&[path]);
        assert!(alerts.is_empty(), "{alerts:?}");
        assert_eq!(run.heard.containing("the rule `Baseline` is off: "), 1, "{}", run.heard.all());
        assert_eq!(run.heard.containing(words), 1, "{}", run.heard.all());
        assert_eq!(run.heard.containing(&path.display().to_string()), 1, "{}", run.heard.all());
    }
    // The directory of all runs means the newest, and that is the one that is written.
    let output = base.join("output");
    let own = config(r#""format": "csv","#, &rule(&[&output], ""));
    let run = Training { steps: 5, ..CLEAN }.run(own, &output);
    assert_eq!(run.heard.containing("is this run itself or contains it"), 1, "{}", run.heard.all());
    // So does the link to the newest, wherever it leads at this moment: another rank may have moved it, or not yet.
    let runs = base.join("runs");
    golden_beside(&runs, &rank);
    let link = runs.join("latest");
    let own = config(r#""format": "csv","#, &rule(&[&link], ""));
    let run = Training { steps: 5, ..CLEAN }.run(own, &runs);
    assert_eq!(run.heard.containing("is this run itself or contains it"), 1, "{}", run.heard.all());
}

/// A finished run among others, to which the link leads.
fn golden_beside(runs: &Path, rank: &Path) {
    let old = runs.join("old").join("rank_0");
    std::fs::create_dir_all(&old).unwrap();
    std::fs::copy(rank.join("steps.csv"), old.join("steps.csv")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("old", runs.join("latest")).unwrap();
}

#[test]
fn what_only_one_of_the_runs_measures_is_said_once_and_a_damaged_row_ends_the_comparison() {
    let directory = tempfile::tempdir().unwrap();
    let [golden, _] = golden(directory.path(), CLEAN);
    std::fs::remove_file(golden.join("update_0-9999.csv")).unwrap();
    let file = golden.join("exp_avg_0-9999.csv");
    let text = std::fs::read_to_string(&file).unwrap();
    let damaged: Vec<String> = text
        .lines()
        .map(
            |line| if line.contains("h.0.mlp.weight,200,") { line.replace(",200,", ",200,x") } else { line.to_owned() },
        )
        .collect();
    std::fs::write(&file, damaged.join("\n") + "\n").unwrap();
    let (run, alerts) = Training { seed: 2, weight: 1.5, ..CLEAN }.held_against(&[&golden]);
    assert_eq!(alerts[0].step.0, PLANTED, "{alerts:?}");
    let said = "not compared, because the golden run has none: update";
    assert_eq!(run.heard.containing(said), 1, "{}", run.heard.all());
    assert_eq!(run.heard.containing("; the comparison ends here"), 1, "{}", run.heard.all());
    assert_eq!(run.heard.containing("exp_avg_0-9999.csv` line"), 1, "{}", run.heard.all());
}

#[test]
fn its_alert_stops_the_training_is_in_the_file_and_is_over_once_the_run_is_as_usual_again() {
    let directory = tempfile::tempdir().unwrap();
    let [golden, _] = golden(&directory.path().join("golden"), CLEAN);
    let rules = rule(&[&golden], r#", "severity": "critical", "actions": ["log", "stop"]"#);
    let mut own = config(NO_FILES, &rules);
    own.alert.dump = true;
    let output = directory.path().join("output");
    let rate = |step| if (PLANTED..PLANTED + 5).contains(&step) { 2.0 } else { 1.0 };
    let run = Training { seed: 2, rate, ..CLEAN }.run(own, &output);
    assert!(run.monitor.stop_requested());
    let alerts = run.keeper.alerts();
    let [begins, ends] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!((begins.phase, ends.phase), (AlertPhase::Begins, AlertPhase::Ends));
    assert!((PLANTED + 10..PLANTED + 20).contains(&ends.step.0), "{ends:?}");
    assert!(ends.message.contains("no difference from the golden run remains"), "{}", ends.message);
    let written = std::fs::read_dir(output.join("a-run")).unwrap().map(|entry| entry.unwrap().path());
    let found = written.into_iter().find(|path| path.ends_with("anomaly_detected")).unwrap();
    let text = std::fs::read_to_string(found.join("rank0").join("anomaly.json")).unwrap();
    assert!(
        text.contains("Rule Baseline reports anomaly signal in ('0:global/rank0/learning_rate', 'value')"),
        "{text}"
    );
}
