//! Real configs: the samples of this repository, and those the incumbent was run with.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use trainmon_core::Statistic::{Max, Mean, Min, Nans, Norm, Zeros};
use trainmon_core::config::{Config, ConfigErrors, DiagnosticKind, Dialect, Parsed, squash_name};

fn parse(text: &str, file: &str) -> Result<Parsed, ConfigErrors> {
    Config::parse(text, file, &|_| None)
}

fn sample(name: &str) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(name);
    let text = fs::read_to_string(&path).expect("readable");
    let parsed = parse(&text, name).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(parsed.warnings, [], "{name}");
    parsed.config
}

#[test]
fn every_sample_is_accepted_without_a_warning() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("readable")
        .filter_map(|entry| entry.expect("readable").file_name().into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "json"))
        // The schema is no config; dump-*.json are the configs of captures.
        .filter(|name| !name.ends_with(".schema.json") && !name.starts_with("dump"))
        .collect();
    names.sort();
    for name in &names {
        sample(name);
    }
    for expected in ["demo.json", "full.json", "minimal.json", "v2.json"] {
        assert!(names.iter().any(|name| name == expected), "{expected} of {names:?}");
    }
}

#[test]
fn the_full_sample_has_every_key_of_its_dialect() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/full.json");
    let text = fs::read_to_string(path).expect("readable");
    let schema = trainmon_core::config::json_schema();
    let keys = schema["$defs"]["V1File"]["properties"].as_object().expect("an object").keys();
    let missing: Vec<&String> = keys.filter(|key| !text.contains(&format!("\"{key}\":"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_demo_measures_all_signals_into_both_outputs() {
    let config = sample("demo.json");
    let ops = vec![Min, Max, Mean, Norm, Nans, Zeros];
    assert_eq!(config.dialect, Dialect::V1);
    assert_eq!(config.signals.weight_grad.expect("on").signal.ops, ops);
    assert_eq!(config.signals.moments.expect("on").ops, ops);
    assert_eq!(config.signals.param.expect("on").ops, ops);
    let activations = config.signals.activations.expect("on");
    assert!(activations.all && activations.forward && activations.backward);
    assert_eq!(config.csv.expect("on").layout, None, "the front's: a directory per run");
    let page = config.prometheus.expect("on");
    assert_eq!((page.bind.to_string().as_str(), page.port), ("127.0.0.1", 9464));
}

/// The recorded runs of the incumbent; `None`, and why, where they are not at hand.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn golden() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden");
    let directory = std::env::var_os("TRAINMON_GOLDEN").map_or_else(default, PathBuf::from).join("01_monitor");
    if directory.is_dir() {
        return Some(directory);
    }
    println!("skipped: no recorded runs at {}; set TRAINMON_GOLDEN to their directory", directory.display());
    None
}

/// Name and config of every recorded run.
fn golden_configs(directory: &Path) -> Vec<(String, String)> {
    let mut cases: Vec<(String, String)> = fs::read_dir(directory)
        .expect("readable")
        .filter_map(|entry| {
            let path = entry.expect("readable").path();
            let case: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(path.join("case.json")).ok()?).expect("JSON");
            Some((path.file_name()?.to_str()?.to_owned(), case["config"].to_string()))
        })
        .collect();
    cases.sort();
    cases
}

#[test]
fn the_incumbents_configs_are_accepted_or_refused_by_name() {
    let Some(directory) = golden() else { return };
    let mut refused = Vec::new();
    let cases = golden_configs(&directory);
    assert!(cases.len() > 20, "{}", cases.len());
    for (name, config) in &cases {
        match parse(config, name) {
            Ok(parsed) => {
                assert_eq!(parsed.warnings, [], "{name}");
                assert_eq!(parsed.config.dialect, if name.starts_with("v2") { Dialect::V2 } else { Dialect::V1 });
            }
            Err(errors) => {
                refused.extend(errors.errors.into_iter().map(|error| (name.as_str(), error.key, error.kind)));
            }
        }
    }
    let expected = [
        // The incumbent drops an unknown statistic and measures the norm instead.
        ("v1_mlp_ops_default", "ops[0]".to_owned(), DiagnosticKind::UnknownValue),
    ];
    assert_eq!(refused, expected);
}

/// The distinct names in the third-party CSV `file` of a recorded run's first step, in its order.
fn names_in(directory: &Path, case: &str, file: &str) -> Vec<String> {
    let run = fs::read_dir(directory.join(case).join("msprobe_out")).expect("readable").next().expect("a run");
    let text = fs::read_to_string(run.expect("readable").path().join(file)).expect("readable");
    text.lines().skip(1).filter_map(|line| line.split(',').nth(1)).map(str::to_owned).collect()
}

/// `blocks.0.attn` of `blocks.0.attn.input_1`.
fn module_of(row: &str) -> &str {
    row.rsplit_once('.').map_or(row, |(module, _)| module)
}

#[test]
fn targets_select_what_the_incumbent_selected() {
    let Some(directory) = golden() else { return };
    let cases = golden_configs(&directory);
    let (_, text) = cases.iter().find(|(name, _)| name == "v1_block_targets").expect("recorded");
    let config = parse(text, "v1_block_targets").expect("accepted").config;
    let activations = config.signals.activations.as_ref().expect("on");

    // The same network with and without targets.
    let mut parameters = names_in(&directory, "v1_block_squash", "grad_reduced_0-0.csv");
    parameters.retain(|name| config.targets.matches_parameter(name, squash_name(name), 0));
    assert_eq!(parameters, names_in(&directory, "v1_block_targets", "grad_reduced_0-0.csv"));

    let mut rows = names_in(&directory, "v1_block_squash", "actv_0-0.csv");
    rows.retain(|row| activations.matches_module(&config.targets, module_of(row), 0));
    assert_eq!(rows, names_in(&directory, "v1_block_targets", "actv_0-0.csv"));
}

#[test]
fn substring_targets_select_what_the_incumbent_selected() {
    let Some(directory) = golden() else { return };
    let cases = golden_configs(&directory);
    let (_, text) = cases.iter().find(|(name, _)| name == "v2_block_targets_manual").expect("recorded");
    let config = parse(text, "v2_block_targets_manual").expect("accepted").config;
    let activations = config.signals.activations.as_ref().expect("on");
    let modules = |case: &str| -> BTreeSet<String> {
        let text = fs::read_to_string(directory.join(case)).expect("readable");
        // vpp_stage,step,module_name,scope,…; the name ends with .input.0, .grad_output.1 and the like.
        let names = text.lines().skip(1).filter_map(|line| line.split(',').nth(2));
        names.map(|name| module_of(module_of(name)).to_owned()).collect()
    };
    let mut all = modules("v2_block_adamw_r3/msprobe_out/rank_0/module_step0-2.csv");
    all.retain(|name| activations.matches_module(&config.targets, name, 0));
    assert_eq!(all, modules("v2_block_targets_manual/msprobe_out/rank_0/module_step0-0.csv"));
}
