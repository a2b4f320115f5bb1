//! msprobe's dynamic mode: the config file is edited while the training runs.

use std::path::Path;

use trainmon_agent::core::Kind;
use trainmon_agent::core::config::{Config, DYNAMIC_VARIABLE};
use trainmon_agent::{Options, Ranks};

use crate::training::{Training, options, steps_of, wait_until};

/// The dynamic mode as the environment switches it on.
fn dynamic(text: &str) -> Config {
    let env = |name: &str| (name == DYNAMIC_VARIABLE).then(|| "True".to_owned());
    Config::parse(text, "test.json", &env).unwrap().config
}

fn start(file: &Path, base: &Path) -> Training {
    let config = dynamic(&std::fs::read_to_string(file).unwrap());
    let options = Options { ranks: Some(Ranks::SINGLE), config_file: Some(file.to_path_buf().into()), ..options(base) };
    Training::start_with(config, options)
}

/// Replaces the file as editors do, and waits until the change is on its way.
fn edit(training: &Training, file: &Path, text: &str) {
    let agreed = || training.said().iter().filter(|said| said.contains("live control")).count();
    let before = agreed();
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, file).unwrap();
    wait_until("the change of the file", || agreed() > before);
}

#[test]
fn measuring_begins_where_the_file_says_so_and_ends_after_collect_times() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("config.json");
    let config = |on: bool, rest: &str| format!(r#"{{"dynamic_on": {on}, "wg_distribution": true{rest}}}"#);
    std::fs::write(&file, config(false, "")).unwrap();
    let mut training = start(&file, base.path());
    training.steps(3);
    edit(&training, &file, &config(true, r#", "collect_times": 2, "start_step": 100"#));
    training.steps(6);
    edit(&training, &file, &config(true, r#", "collect_times": 1, "ops": ["max"]"#));
    training.steps(4);
    // A faulty file is told with its fault; what was measured is measured further.
    std::fs::write(&file, r#"{"dynamic_on": true, "wg_distribution": 7}"#).unwrap();
    wait_until("the fault", || training.said().iter().any(|said| said.contains("wg_distribution")));
    training.steps(2);
    edit(&training, &file, &config(true, r#", "collect_times": 9"#));
    training.steps(3);
    edit(&training, &file, &config(false, r#", "collect_times": 9"#));
    training.steps(3);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, config(false, r#", "collect_times": 9"#), "the file is its owner's");
    let directory = training.directory();
    training.finish();
    // Switches at 4, 10, 16 and 19.
    assert_eq!(steps_of(&directory, Kind::GradReduced), [4, 5, 10, 16, 17, 18]);
    let header = std::fs::read_to_string(directory.join("grad_reduced_10-10.csv")).unwrap();
    assert!(header.starts_with("vpp_stage,name,step,max,shape,dtype\n"), "{header}");
}
