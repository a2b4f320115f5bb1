//! The layout `run`: what a run is called, and where its files go.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trainmon_agent::core::config::{Config, FileLayout};
use trainmon_agent::core::{Kind, MicroStep, Rank, RunFile, TensorView};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StartError, StepFacts};

const GRADIENTS: &str = r#"{"wg_distribution": true, "param_distribution": true, "ops": ["norm"]"#;
/// In the processes that this test starts: where the ranks' files go.
const BASE: &str = "TRAINMON_TEST_RUN_LAYOUT";
/// What a training of ours waits for at most.
const PATIENCE: Duration = Duration::from_mins(1);

fn options(base: &Path) -> Options {
    Options {
        ranks: Some(Ranks::SINGLE),
        run: Some("baseline".to_owned()),
        output_dir: Some(base.to_path_buf()),
        notices: Notices::new(|_| {}),
        ..Options::default()
    }
}

fn start(keys: &str, options: Options) -> Monitor {
    let config = Config::parse(&format!("{GRADIENTS}{keys}}}"), "test.json", &|_| None).unwrap().config;
    Monitor::start(config, options).unwrap()
}

/// Some steps of a training, from its start to its end.
fn train(monitor: &Monitor, steps: usize) {
    let tensor = monitor.register("w", 0);
    for _ in 0..steps {
        for kind in [Kind::GradReduced, Kind::ParamOrigin] {
            monitor.observe(tensor, kind, MicroStep(0), &TensorView::from_slice(&[3.0_f32, 4.0], &[2]).unwrap());
        }
        monitor.end_step(StepFacts::default());
    }
    let report = monitor.shutdown();
    assert!(report.balances() && report.lost() == 0, "{report}");
}

/// Every file below a directory, by its path; links as what they lead to.
fn files(base: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![base.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.strip_prefix(base).unwrap().display().to_string();
            if entry.is_symlink() {
                found.insert(name, format!("-> {}", std::fs::read_link(&entry).unwrap().display()));
            } else if entry.is_dir() {
                open.push(entry);
            } else {
                found.insert(name, std::fs::read_to_string(&entry).unwrap());
            }
        }
    }
    found
}

fn names(base: &Path) -> Vec<String> {
    files(base).into_keys().collect()
}

#[test]
fn ten_steps_make_one_file_per_kind_in_a_directory_called_like_the_run() {
    let base = tempfile::tempdir().unwrap();
    let monitor = start("", options(base.path()));
    assert_eq!(monitor.run_name(), "baseline");
    assert_eq!(monitor.run_directory(), Some(&*base.path().join("baseline")));
    assert_eq!(monitor.rank_directory(), Some(&*base.path().join("baseline/rank_0")));
    assert!(base.path().join("baseline/rank_0").is_dir(), "the directory is taken when the monitor has started");
    train(&monitor, 10);
    let files = files(base.path());
    let expected = [
        "baseline/rank_0/alerts.jsonl",
        "baseline/rank_0/grad_reduced_0-9999.csv",
        "baseline/rank_0/param_origin_0-9999.csv",
        "baseline/rank_0/steps.csv",
        "baseline/run.json",
        "latest",
    ];
    assert_eq!(files.keys().collect::<Vec<_>>(), expected);
    assert_eq!(files["baseline/rank_0/grad_reduced_0-9999.csv"].lines().count(), 11);
    assert_eq!(files["latest"], "-> baseline");
    let run: RunFile = serde_json::from_str(&files["baseline/run.json"]).unwrap();
    assert_eq!((run.run.as_str(), run.world_size), ("baseline", 1));
}

#[test]
fn a_second_run_of_a_name_has_a_directory_of_its_own_and_is_the_latest() {
    let base = tempfile::tempdir().unwrap();
    train(&start("", options(base.path())), 2);
    let before = files(&base.path().join("baseline"));
    let second = start("", options(base.path()));
    // A training with two optimizers has two monitors at once.
    let third = start("", options(base.path()));
    assert_eq!((second.run_name(), third.run_name()), ("baseline", "baseline"), "the label stays");
    train(&second, 2);
    train(&third, 2);
    assert_eq!(files(&base.path().join("baseline")), before);
    assert_eq!(second.run_directory(), Some(&*base.path().join("baseline-2")));
    assert_eq!(third.run_directory(), Some(&*base.path().join("baseline-3")));
    assert_eq!(std::fs::read_link(base.path().join("latest")).unwrap(), Path::new("baseline-3"));
}

#[test]
fn everything_a_run_writes_is_in_its_directory() {
    let base = tempfile::tempdir().unwrap();
    let keys = r#", "format": ["tensorboard", "journal"], "journal": {"size_mb": 1}, "control": {},
        "alert": {"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 1}}], "dump": true}"#;
    let monitor = start(keys, options(base.path()));
    let tensor = monitor.register("w", 0);
    for value in [0.5_f32, 0.5, 8.0] {
        monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &TensorView::from_slice(&[value], &[1]).unwrap());
        monitor.end_step(StepFacts::default());
    }
    let described = base.path().join("baseline/rank_0/control.json");
    assert!(described.is_file());
    monitor.shutdown();
    let mut top: Vec<_> = std::fs::read_dir(base.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    top.sort();
    assert_eq!(top, ["baseline", "latest"]);
    for part in ["rank_0/journal_rank0.tmj", "rank_0/tensorboard", "anomaly_detected/rank0/anomaly.json"] {
        assert!(base.path().join("baseline").join(part).exists(), "{part}");
    }
}

#[test]
fn what_writes_no_files_makes_no_directory() {
    let base = tempfile::tempdir().unwrap();
    let no_files = r#", "format": "prometheus", "prometheus": {"port": 0}, "alert": {"dump": false}"#;
    let monitor = start(no_files, options(base.path()));
    assert_eq!((monitor.run_directory(), monitor.rank_directory()), (None, None));
    train(&monitor, 1);
    let unmeasured = start(r#", "module_ranks": [1]"#, options(base.path()));
    assert_eq!(unmeasured.run_directory(), None);
    unmeasured.shutdown();
    assert_eq!(names(base.path()), [""; 0]);
}

#[test]
fn the_output_directory_of_the_config_holds_without_csv_files_too() {
    let (base, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keys = format!(r#", "format": "journal", "journal": {{"size_mb": 1}}, "output_dir": {:?}"#, base.path());
    for layout in [FileLayout::Run, FileLayout::Msprobe] {
        start(&keys, Options { layout, ..options(other.path()) }).shutdown();
    }
    let mut top: Vec<_> = std::fs::read_dir(base.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    top.sort();
    assert_eq!(top, ["baseline", "journal_rank0.tmj", "latest"]);
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
}

#[test]
fn journals_of_earlier_runs_are_kept_up_to_a_number_over_all_runs() {
    let base = tempfile::tempdir().unwrap();
    let keys = r#", "format": "journal", "journal": {"size_mb": 1, "keep": 2}"#;
    for number in 0..4 {
        train(&start(keys, Options { run: Some(format!("run{number}")), ..options(base.path()) }), 1);
    }
    let left = |number: usize| base.path().join(format!("run{number}/rank_0/journal_rank0.tmj")).exists();
    assert_eq!([0, 1, 2, 3].map(left), [false, true, true, true]);
}

#[test]
fn msprobes_keys_and_fronts_have_msprobes_layout_and_the_key_decides() {
    let is_msprobes = |directory: &str| directory.contains("-rank0-");
    let v2 = r#"{"monitors": {"weight_grad": {"enabled": true}, "param": {"enabled": true}}"#;
    let v1 = GRADIENTS;
    for (keys, layout, expected) in [
        (format!("{v1}}}"), FileLayout::Run, "baseline/rank_0 grad_reduced_0-9999.csv"),
        (format!("{v1}}}"), FileLayout::Msprobe, "- grad_reduced_0-0.csv grad_reduced_1-1.csv"),
        (format!("{v1}, \"step_count_per_record\": 4}}"), FileLayout::Run, "- grad_reduced_0-3.csv"),
        (
            format!("{v1}, \"append_output\": [\"Jan01_00-00-00\", \"Jan01_00-00-00\"]}}"),
            FileLayout::Run,
            "- grad_reduced_0-0.csv grad_reduced_1-1.csv",
        ),
        (
            format!("{v1}, \"layout\": \"run\", \"step_count_per_record\": 1}}"),
            FileLayout::Msprobe,
            "baseline/rank_0 grad_reduced_0-0.csv grad_reduced_1-1.csv",
        ),
        (format!("{v1}, \"layout\": \"msprobe\"}}"), FileLayout::Run, "- grad_reduced_0-0.csv grad_reduced_1-1.csv"),
        (format!("{v2}}}"), FileLayout::Run, "rank_0 weight_grad_step0-0.csv weight_grad_step1-1.csv"),
        (format!("{v2}, \"layout\": \"run\"}}"), FileLayout::Run, "baseline/rank_0 weight_grad_step0-9999.csv"),
    ] {
        let base = tempfile::tempdir().unwrap();
        let config = Config::parse(&keys, "test.json", &|_| None).unwrap().config;
        train(&Monitor::start(config, Options { layout, ..options(base.path()) }).unwrap(), 2);
        let gradients = names(base.path()).into_iter().filter(|name| name.contains("grad"));
        let (mut directories, files): (Vec<String>, Vec<String>) =
            gradients.map(|name| name.rsplit_once('/').map(|(d, f)| (d.to_owned(), f.to_owned())).unwrap()).unzip();
        directories.dedup();
        assert_eq!(directories.len(), 1);
        let directory = if is_msprobes(&directories[0]) { "-" } else { directories[0].as_str() };
        assert_eq!(format!("{directory} {}", files.join(" ")), expected, "{keys}");
        assert_eq!(base.path().join("latest").is_symlink(), directory == "baseline/rank_0", "{keys}");
    }
}

#[test]
fn a_name_that_is_no_directory_is_an_error_of_the_start_with_a_hint() {
    let base = tempfile::tempdir().unwrap();
    for name in ["", "a/b", "latest", ".."] {
        let error = Monitor::start(Config::default(), Options { run: Some(name.to_owned()), ..options(base.path()) });
        match error.err() {
            Some(StartError::RunName(error)) => assert!(!error.hint().is_empty()),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
}

/// What a monitor of a rank is started with whose launcher gave no id.
fn train_if_asked() {
    let Some(base) = std::env::var_os(BASE) else { return };
    let base = PathBuf::from(base);
    let rank: u32 = std::env::var("RANK").unwrap().parse().unwrap();
    let deadline = Instant::now() + PATIENCE;
    // The second rank starts in another second than the first: only the launcher's time is the same.
    while rank == 1 && !is_past_the_second_of_rank_0(&base) {
        assert!(Instant::now() < deadline, "no directory of rank 0");
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let options = Options {
        run: None,
        ranks: None,
        program: Some("train".to_owned()),
        notices: Notices::new(move |notice| heard.lock().unwrap().push(notice.to_string())),
        ..options(&base)
    };
    let monitor = start(r#", "control": {}"#, options);
    assert_eq!(monitor.ranks().rank, Rank(rank));
    std::fs::write(base.join(format!("name{rank}")), monitor.run_name()).unwrap();
    train(&monitor, 1);
    std::fs::write(base.join(format!("said{rank}")), said.lock().unwrap().join("\n")).unwrap();
    std::process::exit(0);
}

fn is_past_the_second_of_rank_0(base: &Path) -> bool {
    let written = std::fs::metadata(base.join("said0")).and_then(|file| file.modified());
    written.is_ok_and(|time| time.elapsed().is_ok_and(|since| since > Duration::from_millis(1_100)))
}

/// Starts two ranks as a launcher does, the second one behind a wrapper script of its own.
fn launch(base: &Path, variables: &[(&str, &str)]) {
    let script = r#"RANK=0 LOCAL_RANK=0 "$0" "$@" & RANK=1 LOCAL_RANK=1 sh -c '"$0" "$@"; true' "$0" "$@" & wait"#;
    let own = std::env::current_exe().unwrap();
    let test = "ranks_of_one_launcher_agree_on_a_name_without_speaking";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(own).args([test, "--exact", "--nocapture"]).env(BASE, base);
    for name in ["TRAINMON_RUN_NAME", "TRAINMON_RUN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"].into_iter().chain([
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    ]) {
        command.env_remove(name);
    }
    command.env("WORLD_SIZE", "2").envs(variables.iter().copied());
    assert!(command.status().unwrap().success());
}

#[test]
fn ranks_of_one_launcher_agree_on_a_name_without_speaking() {
    train_if_asked();
    let made_up = [("TORCHELASTIC_RUN_ID", "0b2f4c1e-93d7-4a55-8f0e-6c1d2a3b4c5d"), ("LOCAL_WORLD_SIZE", "2")];
    let nodes = [("LOCAL_WORLD_SIZE", "1"), ("MASTER_ADDR", "node-0"), ("MASTER_PORT", "29500")];
    for (variables, expected, meeting) in [
        (&[][..], None, "trainmon"),
        (&made_up[..], None, "trainmon"),
        (&made_up[..1], Some(made_up[0].1), made_up[0].1),
        (&nodes[..], Some("train-node-0-29500"), "trainmon-29500"),
        (&[("TORCHELASTIC_RUN_ID", "none"), ("SLURM_JOB_ID", "4711")][..], Some("4711"), "4711"),
        (&[("TRAINMON_RUN_NAME", "a/b")][..], Some("a_b"), "a_b"),
    ] {
        let base = tempfile::tempdir().unwrap();
        launch(base.path(), variables);
        let name = std::fs::read_to_string(base.path().join("name0")).unwrap();
        if let Some(expected) = expected {
            assert_eq!(name, expected);
        } else {
            let stamp = name.strip_prefix("train-").unwrap();
            assert!(stamp.len() == 11 && stamp.chars().all(|c| c.is_ascii_digit() || c == '-'), "{name}");
        }
        assert_eq!(std::fs::read_to_string(base.path().join("name1")).unwrap(), name);
        // Where the ranks agree on changes: nodes that make up names of their own meet all the same.
        assert!(base.path().join(format!("control-{meeting}")).is_dir(), "{:?}", names(base.path()));
        for rank in 0..2 {
            assert!(base.path().join(format!("{name}/rank_{rank}/steps.csv")).is_file(), "{:?}", names(base.path()));
            let said = std::fs::read_to_string(base.path().join(format!("said{rank}"))).unwrap();
            assert_eq!(said.contains("`TRAINMON_RUN_NAME`"), expected == Some("a_b"), "{said}");
        }
    }
}
