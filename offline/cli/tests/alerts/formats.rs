//! Every format is found by its content, and the spike in it at its step.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{PLANTED, Workspace, begun, data, loss, norm, pairs, table};

#[test]
fn a_table_is_read_with_any_separator() {
    for (name, separator) in [("loss.csv", ","), ("loss.tsv", "\t"), ("loss.txt", ";")] {
        let workspace = Workspace::with(name, table(&["step", "loss", "grad_norm"].join(separator), separator));
        let (report, code) = workspace.json(&[name]);
        assert_eq!((begun(&report), code), (pairs(&PLANTED), Some(1)), "{name}");
        assert_eq!((&report["log"]["format"], &report["log"]["steps"]), (&"csv".into(), &200.into()));
        assert_eq!(report["log"]["path"], name, "the path as it was given");
    }
}

#[test]
fn what_was_read_and_guessed_is_said_before_the_alerts_in_the_words_of_a_training() {
    let workspace = Workspace::with("loss.csv", table("iter,train/loss,gradient norm", ","));
    let said = workspace.alerts(&["loss.csv"]);
    assert_eq!(said.code, Some(1));
    let first: Vec<&str> = said.err.lines().take(5).collect();
    assert_eq!(
        first,
        [
            "read 200 steps of `loss.csv` (CSV), 1 to 200",
            "  loss: `train/loss` (guessed; override with --loss)",
            "  gradient norm: `gradient norm` (guessed; override with --grad-norm)",
            "  learning rate: no column found (name one with --lr)",
            "  step: `iter` (guessed; override with --step)",
        ]
    );
    let alerts: Vec<&str> = said.out.lines().collect();
    assert!(
        alerts[0].starts_with(
            "Spike: loss is 2.9 times its usual value at step 150 on rank 0 (5.97, usually 2.04, alert above "
        ),
        "{alerts:?}"
    );
    assert_eq!(alerts[1], "Spike: loss has been back to normal since step 151 on rank 0, after 1 finding");
    assert!(alerts[2].contains(" at step 170 on rank 0 (40.5, usually "), "{alerts:?}");
    assert_eq!(alerts.len(), 4, "{alerts:?}");
    assert!(said.err.ends_with("2 alerts in 200 steps; findings: Spike 2\n"), "{}", said.err);
}

#[test]
fn json_is_read_by_lines_as_an_array_and_as_columns() {
    let rows: Vec<String> = (1..=200)
        .map(|step| {
            format!("{{\"step\": {step}, \"train\": {{\"loss\": {}}}, \"grad_norm\": {}}}", loss(step), norm(step))
        })
        .collect();
    let column = |value: fn(u64) -> f64| (1..=200).map(|step| value(step).to_string()).collect::<Vec<_>>().join(",");
    let steps = (1..=200).map(|step: u64| step.to_string()).collect::<Vec<_>>().join(",");
    for (name, text) in [
        ("metrics.jsonl", rows.join("\n")),
        ("array.json", format!("[{}]", rows.join(", "))),
        (
            "columns.json",
            format!("{{\"step\": [{steps}], \"loss\": [{}], \"grad_norm\": [{}]}}", column(loss), column(norm)),
        ),
    ] {
        let (report, code) = Workspace::with(name, text).json(&[name]);
        assert_eq!(
            (begun(&report), code, &report["log"]["format"]),
            (pairs(&PLANTED), Some(1), &"json".into()),
            "{name}"
        );
    }
}

#[test]
fn a_trainer_state_is_read_as_a_file_in_its_checkpoint_and_in_the_directory_of_all() {
    let workspace = Workspace::new();
    let text = fs::read_to_string(data("trainer_state.json")).expect("data");
    workspace.write("out/checkpoint-180/trainer_state.json", &text);
    workspace.write("out/checkpoint-20/trainer_state.json", "{\"log_history\": []}");
    for path in ["out", "out/checkpoint-180", "out/checkpoint-180/trainer_state.json"] {
        let (report, code) = workspace.json(&[path]);
        assert_eq!((begun(&report), code), (pairs(&[("Spike", 152)]), Some(1)), "{path}");
        assert_eq!((&report["run"], &report["log"]["steps"]), (&"out".into(), &90.into()), "{path}");
        let columns = &report["log"]["columns"];
        for (role, name) in
            [("loss", "loss"), ("grad_norm", "grad_norm"), ("learning_rate", "learning_rate"), ("step", "step")]
        {
            assert_eq!((&columns[role]["name"], &columns[role]["is_guessed"]), (&name.into(), &false.into()), "{role}");
        }
    }
    let said = workspace.alerts(&["out"]);
    assert!(said.err.contains("read the last of 2 checkpoints: checkpoint-180"), "{}", said.err);
    assert!(said.err.contains("logged every 2 steps: a rule counts logged values"), "{}", said.err);
}

#[test]
fn the_example_of_the_guide_is_what_the_command_says() {
    let guide = include_str!("../../../../docs/alerts.md");
    let workspace = Workspace::new();
    let text = fs::read_to_string(data("trainer_state.json")).expect("data");
    workspace.write("out/checkpoint-180/trainer_state.json", &text);
    workspace.write("out/checkpoint-90/trainer_state.json", &text);
    let said = workspace.alerts(&["out"]);
    let (_, example) = guide.split_once("$ trainmon alerts out\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let mut lines: Vec<&str> = said.err.lines().collect();
    let sum = lines.split_off(lines.len() - 3);
    let expected = lines.into_iter().chain(said.out.lines()).chain(sum);
    assert_eq!(example.lines().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let help = workspace.alerts(&["--help"]);
    for option in ["--config", "--loss", "--grad-norm", "--lr", "--step"] {
        assert!(help.out.contains(option) && guide.contains(option), "{option}");
    }
}

#[test]
fn event_files_of_a_real_training_are_read_as_tensorboard_shows_them() {
    let here = Workspace::new();
    let path = data("tensorboard");
    let file = fs::read_dir(&path).expect("data").next().expect("a file").expect("data").path();
    for path in [&path, &file] {
        let (report, code) = here.json(&[&path.to_string_lossy()]);
        assert_eq!((begun(&report), code), (pairs(&[("Spike", 152)]), Some(1)));
        let log = &report["log"];
        assert_eq!(
            (&log["format"], &log["steps"], &log["columns"]["loss"]["values"]),
            (&"tensor_board".into(), &90.into(), &90.into())
        );
        assert!(log["remarks"].to_string().contains("`args/text_summary`"), "{log}");
    }
}

/// What the Trainer logged at once to both.
#[test]
fn two_logs_of_one_training_lead_to_the_same_alerts() {
    let here = Workspace::new();
    let (state, _) = here.json(&[&data("trainer_state.json").to_string_lossy()]);
    let (events, _) = here.json(&[&data("tensorboard").to_string_lossy()]);
    let values = |report: &serde_json::Value| {
        let alerts = report["alerts"].as_array().expect("a list").clone();
        alerts.iter().map(|alert| (alert["step"].clone(), alert["phase"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(values(&state), values(&events));
    let loss = |report: &serde_json::Value| report["alerts"][0]["value"].as_f64().expect("a number");
    assert!((loss(&state) / loss(&events) - 1.0).abs() < 1e-6, "float32 beside float64");
}

#[test]
fn an_offline_run_of_wandb_is_found_in_its_directory_and_in_that_of_all_runs() {
    let workspace = Workspace::new();
    let bytes = fs::read(data("tiny.wandb")).expect("data");
    workspace.write("wandb/offline-run-20261128_113404-sde285mq/run-sde285mq.wandb", &bytes);
    workspace.write("wandb/run-20251128_113404-aaaaaaaa/run-aaaaaaaa.wandb", &bytes[..7]);
    for path in [".", "wandb", "wandb/offline-run-20261128_113404-sde285mq"] {
        let (report, code) = workspace.json(&[path]);
        assert_eq!((begun(&report), code), (pairs(&[("NonFinite", 700), ("Spike", 780)]), Some(1)), "{path}");
        let log = &report["log"];
        assert_eq!(
            (&log["steps"], &log["columns"]["step"]["name"]),
            (&84.into(), &"train/global_step".into()),
            "{path}"
        );
        assert_eq!(log["other_columns"].to_string(), r#"["_runtime","_step","eval/loss","nested.a"]"#);
    }
    assert!(workspace.alerts(&["."]).err.contains("read the newest of 2 wandb runs"));
    let (report, _) = workspace.json(&["wandb", "--step", "_step"]);
    assert_eq!(begun(&report), pairs(&[("NonFinite", 70), ("Spike", 78)]));
}

#[test]
fn the_lines_of_an_old_offline_run_of_wandb_are_read() {
    let rows = (0..100).fold(String::new(), |mut text, step| {
        let value = if step == 80 { "NaN".to_owned() } else { loss(step).to_string() };
        writeln!(text, "{{\"loss\": {value}, \"_step\": {step}, \"_timestamp\": {}.5}}", 1_795_190_400 + step)
            .expect("text");
        text
    });
    let workspace = Workspace::with("wandb/run-20201128_113404-aaaaaaaa/wandb-history.jsonl", rows);
    let (report, _) = workspace.json(&["wandb/run-20201128_113404-aaaaaaaa"]);
    assert_eq!(begun(&report), pairs(&[("NonFinite", 80)]));
    assert_eq!(report["alerts"][0]["time"], "2026-11-20T16:01:20.5Z", "{}", report["alerts"][0]);
}

#[test]
fn a_run_of_mlflow_is_found_in_its_store() {
    let workspace = Workspace::new();
    copy(&data("mlruns"), &workspace.path("mlruns"));
    for path in [".", "mlruns", "mlruns/1"] {
        let (report, code) = workspace.json(&[path]);
        assert_eq!((begun(&report), code), (pairs(&[("NonFinite", 70), ("Spike", 78)]), Some(1)), "{path}");
        assert_eq!((&report["run"], &report["log"]["format"]), (&"tiny".into(), &"ml_flow".into()), "{path}");
        assert_eq!(report["log"]["columns"]["grad_norm"]["name"], "train/grad_norm");
    }
}

#[test]
fn the_text_of_megatron_is_read_among_other_lines() {
    let (report, code) = Workspace::new().json(&[&data("megatron.log").to_string_lossy()]);
    assert_eq!((begun(&report), code), (pairs(&[("Spike", 900), ("NonFinite", 950)]), Some(1)));
    let log = &report["log"];
    assert_eq!(
        (&log["steps"], &log["columns"]["loss"]["name"], &log["columns"]["grad_norm"]["name"]),
        (&100.into(), &"lm loss".into(), &"grad norm".into())
    );
    assert!(log["other_columns"].to_string().contains("validation lm loss value"), "{log}");
}

/// The samples of real pretraining runs, where they are: as many spikes as the rule finds in them.
#[test]
fn a_public_series_of_losses_is_read_whole() {
    let Some(series) = super::golden::root().parent().map(|shared| shared.join("cases/series/pretraining_c.csv"))
    else {
        return;
    };
    if !series.is_file() {
        super::golden::skip(
            "a_public_series_of_losses_is_read_whole",
            &format!("`{}` does not exist", series.display()),
        );
        return;
    }
    let (report, _) = Workspace::new().json(&[&series.to_string_lossy()]);
    let lines = fs::read_to_string(&series).expect("text").lines().count() as u64;
    assert_eq!(report["log"]["steps"], lines - 1);
    assert!(report["warnings"].as_array().is_some_and(Vec::is_empty), "{}", report["warnings"]);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("writable");
    for entry in fs::read_dir(from).expect("data") {
        let entry = entry.expect("data").path();
        let target = to.join(entry.file_name().expect("a name"));
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, &target).expect("writable");
        }
    }
}
