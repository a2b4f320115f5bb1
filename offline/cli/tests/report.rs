//! `trainmon report` as a person, a program and a language model see it.

#[path = "support/run_files.rs"]
mod run_files;
mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use run_files::{MadeRun, TENSORS};
use support::{ProgramOutput, trainmon};

struct Workspace {
    dir: TempDir,
}

impl Workspace {
    fn with(run: &MadeRun, ranks: u32) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        run.write_run(&dir.path().join("out/run-a"), ranks);
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn report(&self, arguments: &[&str]) -> ProgramOutput {
        trainmon(self.dir.path(), &[&["report"], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let said = self.report(&[arguments, &["--json"]].concat());
        (serde_json::from_str(&said.out).expect("JSON"), said.code)
    }
}

#[test]
fn a_run_without_a_step_is_said_to_have_none() {
    let workspace = Workspace::with(&MadeRun { steps: 0, spike: None, not_finite: None }, 1);
    let (report, code) = workspace.json(&["out"]);
    assert_eq!(code, Some(0));
    assert_eq!(report["summary"], "The run has no steps yet.");
}

#[test]
fn a_spike_on_one_rank_is_told_with_step_layer_rank_and_how_sure() {
    let workspace = Workspace::with(&MadeRun { steps: 80, spike: Some(50), not_finite: None }, 2);
    MadeRun::write_finding(&workspace.path("out/run-a"), 1, 50, "Spike", TENSORS[1]);
    let (report, code) = workspace.json(&["out"]);
    assert_eq!(code, Some(1), "there is an alert");
    let moved = report["moved"].as_array().expect("a list");
    let tensor = moved.iter().find(|moved| moved["tensor"] == TENSORS[1]).expect("the tensor that was changed");
    assert_eq!((&tensor["step"], &tensor["rank"], &tensor["layer"]), (&50.into(), &1.into(), &"blocks.1".into()));
    assert_eq!((&tensor["direction"], &tensor["returned"]), (&"rises".into(), &true.into()));
    assert_eq!(tensor["certainty"], "very_likely");
    assert!(moved.iter().all(|moved| moved["rank"] == 1 && moved["step"] == 50), "{moved:#?}");
    let alert = &report["alerts"][0];
    assert_eq!((&alert["rule"], &alert["step"], &alert["rank"]), (&"Spike".into(), &50.into(), &1.into()));
    let only_rank = report["next"]
        .as_array()
        .expect("a list")
        .iter()
        .any(|next| next["question"] == "Why is only rank 1 affected?");
    assert!(only_rank, "{}", report["next"]);
    let said = workspace.report(&["out"]);
    insta::assert_snapshot!(said.out);
}

#[test]
fn nan_is_certain_and_asks_for_a_capture_before_it() {
    let workspace = Workspace::with(&MadeRun { steps: 40, spike: None, not_finite: Some(30) }, 1);
    let (report, code) = workspace.json(&["out"]);
    assert_eq!(code, Some(0), "no rule looked");
    let summary = report["summary"].as_str().expect("a sentence");
    assert!(
        summary.starts_with("It is certain that ") && summary.contains("is not finite at step 30 on rank 0"),
        "{summary}"
    );
    let next = report["next"].to_string();
    assert!(next.contains("Capture steps 25 to 30") && next.contains("trainmon overflow"), "{next}");
    assert!(report["not_measured"].to_string().contains("its alerts are unknown"));
    insta::assert_snapshot!(workspace.report(&["out"]).out);
}

#[test]
fn a_run_that_is_well_says_so_and_exits_with_zero() {
    let workspace = Workspace::with(&MadeRun { steps: 200, spike: None, not_finite: None }, 2);
    let (report, code) = workspace.json(&["out"]);
    assert_eq!((code, report["moved"].as_array().map(Vec::len)), (Some(0), Some(0)), "{}", report["moved"]);
    assert_eq!((&report["version"], &report["left_out"]["moved"]), (&1.into(), &0.into()));
    insta::assert_snapshot!(workspace.report(&["out"]).out);
}

#[test]
fn a_huge_run_stays_within_256_kb_and_says_what_was_left_out() {
    const TENSORS: usize = 1_500;
    let dir = TempDir::new().expect("a temporary directory");
    let mut rows = "vpp_stage,name,step,norm,shape,dtype\n".to_owned();
    let mut findings = serde_json::Map::new();
    for step in 0..24 {
        for tensor in 0..TENSORS {
            let norm = if step == 20 && tensor % 2 == 0 { 1e6 } else { 1.0 };
            let name = format!("model.{}.layers.{tensor}.{}.weight", "deep".repeat(60), "`|<b>*".repeat(4));
            writeln!(rows, "0,{name},{step},{norm:?},\"[2, 2]\",torch.float32").expect("text");
            if step == 20 {
                let tag = format!("0:{name}/rank0/post_grad");
                let message = format!(
                    "Rule Spike reports anomaly signal in ('{tag}', 'norm') at step 20, current value 1000000.0, history mean 1.0."
                );
                let finding = serde_json::json!({
                    "rank": 0, "step": 20, "micro_step": 0, "pp_stage": 0, "vpp_stage": 0, "call_id": 0, "tag_name": tag,
                    "message": message, "group_mates": [0],
                });
                findings.insert(format!("{tag}_step_20_call_0"), finding);
            }
        }
    }
    for (name, text) in [
        ("big/rank_0/grad_reduced_0-99.csv", rows),
        ("big/anomaly_detected/rank0/anomaly.json", Value::Object(findings).to_string()),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, text).expect("writable");
    }
    let workspace = Workspace { dir };
    for format in ["markdown", "json"] {
        let said = workspace.report(&["big", "--format", format]);
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.out.len() <= 256_000, "{format}: {} bytes", said.out.len());
        assert!(said.out.len() > 20_000, "{format}: {} bytes say too little", said.out.len());
    }
    let (report, _) = workspace.json(&["big"]);
    let count = |list: &str| {
        report[list].as_array().map_or(0, Vec::len) as u64 + report["left_out"][list].as_u64().expect("a count")
    };
    // Half of the tensors, and the gradient norm over all of them.
    assert_eq!((count("moved"), count("alerts")), (TENSORS as u64 / 2 + 1, TENSORS as u64));
    assert!(report["left_out"]["shortened"].as_u64() > Some(0));
    assert_eq!(report["method"]["series"], TENSORS as u64 + 1);
}

#[test]
fn a_report_goes_to_a_new_file_in_the_format_of_its_name() {
    let workspace = Workspace::with(&MadeRun { steps: 20, spike: None, not_finite: None }, 1);
    let said = workspace.report(&["out", "-o", "r.json"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""));
    let text = fs::read_to_string(workspace.path("r.json")).expect("there");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["run"], "run-a");
    let again = workspace.report(&["out", "-o", "r.json"]);
    assert_eq!((again.code, again.err.lines().next()), (Some(2), Some("error: `r.json` already exists")));
    let failed = workspace.report(&["nowhere", "--json"]);
    let answer: Value = serde_json::from_str(&failed.out).expect("JSON");
    assert_eq!((failed.code, answer["error"]["message"].as_str()), (Some(2), Some("`nowhere` does not exist")));
    let said = workspace.report(&["out", "-o", "r.md"]);
    assert!(
        said.err.starts_with("r.md: ")
            && fs::read_to_string(workspace.path("r.md")).expect("there").starts_with("# Run `run-a`")
    );
}

#[test]
fn the_examples_of_the_guide_are_what_the_commands_say() {
    let guide = include_str!("../../../docs/views.md");
    let workspace = Workspace::with(&MadeRun { steps: 80, spike: Some(50), not_finite: None }, 2);
    MadeRun::write_finding(&workspace.path("out/run-a"), 1, 50, "Spike", TENSORS[1]);
    for (arguments, lines) in [
        (&["plot", "out"][..], 0..1),
        (&["report", "out"], 2..3),
        (&["replay", "out", "--to", "prometheus", "-o", "old"], 0..2),
    ] {
        let said = trainmon(workspace.dir.path(), arguments);
        let said: Vec<&str> = said.out.lines().collect();
        for line in &said[lines] {
            assert!(guide.contains(&format!("\n{line}\n")), "the guide lacks what {arguments:?} says:\n{line}");
        }
    }
    for verb in ["plot", "report", "top", "replay"] {
        let help = trainmon(workspace.dir.path(), &[verb, "--help"]);
        assert!(help.out.contains("Examples:\n") && guide.contains(&format!("trainmon {verb} ")), "{verb}");
    }
}
