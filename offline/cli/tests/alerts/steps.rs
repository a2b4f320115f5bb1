//! Steps that come again, gaps, values that are no numbers.

use std::fmt::Write as _;

use super::{PLANTED, Workspace, begun, loss, norm, pairs};

fn rows(steps: impl Iterator<Item = u64>, factor: f64) -> String {
    steps.fold(String::new(), |mut text, step| {
        writeln!(text, "{step},{},{}", factor * loss(step), norm(step)).expect("text");
        text
    })
}

const HEADER: &str = "step,loss,grad_norm\n";

#[test]
fn of_a_run_that_was_resumed_what_came_first_is_read() {
    let text = HEADER.to_owned() + &rows(1..=160, 1.0) + &rows(141..=200, 1.01);
    let (report, code) = Workspace::with("a.csv", text).json(&["a.csv"]);
    assert_eq!((begun(&report), code), (pairs(&PLANTED), Some(1)));
    assert_eq!(report["log"]["steps"], 200);
    assert_eq!(
        report["warnings"],
        serde_json::json!([
            "steps 141 to 160 occur again, as in a resumed run: kept the first value of each step, ignored 20 rows"
        ])
    );
}

#[test]
fn a_step_that_counts_within_an_epoch_is_said_to_be_none() {
    let text = HEADER.to_owned() + &rows(1..=50, 1.0) + &rows(1..=50, 1.1) + &rows(1..=50, 1.2);
    let workspace = Workspace::with("a.csv", text);
    let (report, _) = workspace.json(&["a.csv"]);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("(in 2 places)") && warnings.contains("number the rows with `--step row`"), "{warnings}");
    let (report, _) = workspace.json(&["a.csv", "--step", "row"]);
    assert_eq!((&report["log"]["steps"], &report["warnings"]), (&150.into(), &serde_json::json!([])));
}

#[test]
fn gaps_and_the_distance_of_steps_are_said() {
    let steps = (1..=200_u64).filter(|step| !(50..80).contains(step)).map(|step| step * 10);
    let text = steps.fold(HEADER.to_owned(), |text, step| text + &format!("{step},{},1.0\n", loss(step / 10)));
    let said = Workspace::with("a.csv", text).alerts(&["a.csv"]);
    assert!(
        said.err.contains("logged every 10 steps: a rule counts logged values, so 64 samples are 640 steps"),
        "{}",
        said.err
    );
    assert!(said.err.contains("no value between steps 490 and 800"), "{}", said.err);
}

#[test]
fn every_spelling_of_nan_and_infinity_is_one_and_null_is_said() {
    let mut text = HEADER.to_owned();
    for step in 1..=60_u64 {
        let value = match step {
            10 => "NaN".to_owned(),
            25 => "-inf".to_owned(),
            40 => "Infinity".to_owned(),
            55 => "null".to_owned(),
            56 => "oops".to_owned(),
            57 => String::new(),
            step => loss(step).to_string(),
        };
        writeln!(text, "{step},{value},1").expect("text");
    }
    let workspace = Workspace::with("a.csv", text);
    let (report, _) = workspace.json(&["a.csv"]);
    assert_eq!(begun(&report), pairs(&[("NonFinite", 10), ("NonFinite", 25), ("NonFinite", 40)]));
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("column `loss`: ignored 1 cell that is null, which some loggers write for NaN"),
        "{warnings}"
    );
    assert!(
        warnings.contains("column `loss`: ignored 1 cell that is not a number, first `oops` in row 57"),
        "{warnings}"
    );
    let lines = "{\"step\": 1, \"loss\": \"2.5\"}\n{\"step\": 2, \"loss\": \"nan\"}\n{\"step\": 3, \"loss\": null}\n{\"step\": 4, \"loss\": -Infinity}\n";
    workspace.write("a.jsonl", lines);
    let (report, _) = workspace.json(&["a.jsonl"]);
    assert_eq!(report["findings"]["NonFinite"], 2, "{report}");
    assert_eq!(report["log"]["columns"]["loss"]["values"], 3);
}

#[test]
fn a_step_with_a_fraction_or_without_a_number_is_left_out_and_counted() {
    let text = "step,loss\n1,2.5\n-3,2.4\n,2.3\n4,2.2\n";
    let (report, _) = Workspace::with("a.csv", text).json(&["a.csv", "--step", "row"]);
    assert_eq!(report["log"]["steps"], 4);
    let said = Workspace::with("a.csv", text).alerts(&["a.csv"]);
    assert!(said.err.contains("step: the number of the row"), "no column of steps: {}", said.err);
    let why = "warning: numbering the rows instead: `a.csv`: column `step` holds no steps: -3 in row 3";
    assert!(said.err.contains(why), "{}", said.err);
}

#[test]
fn too_few_values_for_a_rule_are_said() {
    let text = HEADER.to_owned() + &rows(1..=40, 1.0);
    let said = Workspace::with("a.csv", text).alerts(&["a.csv"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""));
    assert!(said.err.contains("Spike on loss (needs 64 values, found 40)"), "{}", said.err);
    assert!(said.err.contains("not recorded, so not judged: tensors of the model (Spike, NonFinite)"), "{}", said.err);
    assert!(said.err.contains("judged only during training: Stall, ReplicaMismatch"), "{}", said.err);
    assert!(said.err.ends_with("no alert in 40 steps\n"), "{}", said.err);
}

#[test]
fn rows_of_one_step_that_hold_different_columns_are_one_step() {
    let mut text = "epoch,step,train_loss_step,val_loss\n".to_owned();
    for step in 1..=200_u64 {
        writeln!(text, "0,{step},{},", loss(step)).expect("text");
        if step % 50 == 0 {
            writeln!(text, "0,{step},,{}", loss(step) + 0.1).expect("text");
        }
    }
    let (report, _) = Workspace::with("metrics.csv", text).json(&["metrics.csv"]);
    assert_eq!((begun(&report), &report["log"]["steps"]), (pairs(&PLANTED[..1]), &200.into()));
    assert_eq!(report["warnings"], serde_json::json!([]), "nothing is there twice");
}

#[test]
fn a_trainer_state_with_nan_is_read_though_json_has_none() {
    let entries: Vec<String> = (1..=20)
        .map(|step| format!("{{\"loss\": {}, \"step\": {step}}}", if step == 9 { "NaN" } else { "2.5" }))
        .collect();
    let text = format!("{{\"global_step\": 20, \"log_history\": [{}]}}", entries.join(", "));
    let (report, _) = Workspace::with("trainer_state.json", text).json(&["trainer_state.json"]);
    assert_eq!(begun(&report), pairs(&[("NonFinite", 9)]));
}

#[test]
fn times_are_read_as_numbers_and_as_text_and_seconds_since_the_start_are_no_times() {
    let row = |step: u64| {
        format!(
            "{step},{},2026-11-20 16:00:{:02},{}\n",
            if step == 9 { "nan".to_owned() } else { "2.5".to_owned() },
            step,
            step
        )
    };
    let text = (1..=20).fold("step,loss,datetime,time\n".to_owned(), |text, step| text + &row(step));
    let (report, _) = Workspace::with("a.csv", text).json(&["a.csv"]);
    assert_eq!(report["log"]["other_columns"], serde_json::json!(["time"]), "a number like any other");
    let text = (1..=20).fold("step,loss,datetime\n".to_owned(), |text, step| {
        text + row(step).rsplit_once(',').expect("cells").0 + "\n"
    });
    let (report, _) = Workspace::with("a.csv", text).json(&["a.csv"]);
    assert_eq!(
        (&report["alerts"][0]["time"], &report["log"]["other_columns"]),
        (&"2026-11-20T16:00:09Z".into(), &serde_json::json!([]))
    );
}
