//! `trainmon plot` as a person sees it.

#[path = "support/golden.rs"]
mod golden;
#[path = "support/run_files.rs"]
mod run_files;
mod support;

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use golden::{golden, skip};
use run_files::{MadeRun, TENSORS};
use support::{ProgramOutput, program, trainmon};

struct Workspace {
    dir: TempDir,
}

impl Workspace {
    /// A run of two ranks with a spike on the second, and the alert of it.
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let run = MadeRun { steps: 60, spike: Some(40), not_finite: None };
        run.write_run(&dir.path().join("out/run-a"), 2);
        MadeRun::write_finding(&dir.path().join("out/run-a"), 1, 40, "Spike", TENSORS[1]);
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn plot(&self, arguments: &[&str]) -> ProgramOutput {
        trainmon(self.dir.path(), &[&["plot"], arguments].concat())
    }
}

/// The data in a page.
fn data_of(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="run-data">"#).expect("a place for data");
    let (data, _) = rest.split_once("</script>").expect("an end");
    serde_json::from_str(data).expect("JSON")
}

fn first_lines(text: &str, count: usize) -> String {
    text.split_inclusive('\n').take(count).collect()
}

#[test]
fn the_end_of_an_alert_is_none() {
    use trainmon_core::{
        Alert, AlertPhase, AlertRule, AlertSeries, AlertSeverity, AlertSignal, Expectation, Rank, Step,
    };

    let workspace = Workspace::new();
    let alert = |phase, step| Alert {
        rule: AlertRule::Spike,
        severity: AlertSeverity::Warning,
        phase,
        findings: 1,
        step: Step(step),
        rank: Rank(0),
        time: std::time::SystemTime::UNIX_EPOCH,
        series: AlertSeries::global(AlertSignal::Loss, None),
        value: 9.0,
        expected: Expectation::default(),
        message: "loss is 9".to_owned(),
        moved_first: None,
        incident: None,
    };
    let lines = [alert(AlertPhase::Begins, 40), alert(AlertPhase::Ends, 51)].map(|alert| {
        let text = serde_json::to_string(&alert).expect("JSON");
        text + "\n"
    });
    fs::write(workspace.path("out/run-a/rank_0/alerts.jsonl"), lines.concat()).expect("writable");
    let said = workspace.plot(&["out", "--rank", "0"]);
    assert!(said.out.contains("60 steps, 0 to 59, 1 alert;"), "{}", said.out);
    let data = data_of(&fs::read_to_string(workspace.path("run-a.html")).expect("there"));
    assert_eq!((&data["overview"]["alerts_seen"], &data["overview"]["alerts_begun"]), (&2.into(), &1.into()));
}

#[test]
fn a_run_becomes_one_page_with_curves_heat_maps_and_alerts() {
    let workspace = Workspace::new();
    let said = workspace.plot(&["out", "--rank", "1"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_eq!(said.out, "run-a.html: run-a rank 1, 60 steps, 0 to 59, 1 alert; `--rank 0` shows the other rank\n");
    let page = fs::read_to_string(workspace.path("run-a.html")).expect("there");
    let data = data_of(&page);
    assert_eq!((&data["status"]["run"], &data["status"]["rank"]), (&"run-a".into(), &1.into()));
    assert_eq!(data["status"]["ledger"]["observed"], 360);
    let curves = data["overview"]["curves"].as_array().expect("a list");
    let norm = curves.iter().find(|curve| curve["name"] == "grad_norm").expect("the gradient norm");
    assert!(norm["last"][40].as_f64().expect("a number") > 50.0, "the spike is in it");
    let maps: Vec<String> = data["heat_maps"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|map| format!("{}/{} {}", map["kind"], map["statistic"], map["rows"]).replace('"', ""))
        .collect();
    let expected =
        ["grad_reduced/norm 3", "update_ratio/update_ratio 3", "grad_reduced/absmax 3", "grad_reduced/zeros 3"];
    assert_eq!(maps, expected);
    assert_eq!(data["overview"]["alerts"][0]["step"], 40);
    assert!(!page.contains("http://127") && !page.contains("src=\"http"), "it asks nobody");
}

#[test]
fn pictures_are_drawn_without_fonts_and_show_the_curves() {
    let workspace = Workspace::new();
    for name in ["run.svg", "run.png"] {
        // A machine without fonts: neither a directory of them nor a configuration.
        let mut command = program(workspace.dir.path(), ["plot", "out", "--rank", "1", "-o", name]);
        command.env("HOME", workspace.dir.path()).env("FONTCONFIG_FILE", "/nowhere").env("XDG_DATA_DIRS", "/nowhere");
        let said = ProgramOutput::by(&mut command);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{name}");
    }
    let svg = fs::read_to_string(workspace.path("run.svg")).expect("there");
    assert!(svg.starts_with("<svg width=\"1200\" height=\"800\""), "{}", &svg[..80]);
    for text in [
        "run-a, rank 1, steps 0 to 59",
        "loss",
        "gradient norm (log scale)",
        "step time (s)",
        "learning rate",
        "alert in 1 step",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(svg.matches("<polyline").count() >= 4, "a curve in each of four panels");
    let png = fs::read(workspace.path("run.png")).expect("there");
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("a picture");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let frame = reader.next_frame(&mut pixels).expect("whole");
    assert_eq!((frame.width, frame.height), (1200, 800));
    let count = |colour: [u8; 3]| pixels.chunks(3).filter(|pixel| **pixel == colour).count();
    // A curve in each panel, the red of the mark, and ink enough for letters.
    assert!(count([0x1f, 0x6f, 0xb2]) > 1500, "{}", count([0x1f, 0x6f, 0xb2]));
    assert!(count([0xc2, 0x3b, 0x22]) > 100, "{}", count([0xc2, 0x3b, 0x22]));
    assert!(count([0x22, 0x26, 0x2b]) > 1000, "{}", count([0x22, 0x26, 0x2b]));
}

#[test]
fn a_run_that_is_at_work_is_drawn_as_far_as_it_got() {
    let workspace = Workspace::new();
    let file = workspace.path("out/run-a/rank_0/steps.csv");
    let text = fs::read_to_string(&file).expect("there");
    fs::write(&file, first_lines(&text, 2) + "1,17951904").expect("writable");
    let rows = workspace.path("out/run-a/rank_0/grad_reduced_0-9999.csv");
    let text = fs::read_to_string(&rows).expect("there");
    fs::write(&rows, first_lines(&text, 2)).expect("writable");
    fs::remove_file(workspace.path("out/run-a/rank_0/update_ratio_0-9999.csv")).expect("there");
    for out in ["first.html", "first.svg", "first.png"] {
        let said = workspace.plot(&["out", "--rank", "0", "-o", out]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(said.out.starts_with(&format!("{out}: run-a rank 0, 1 step, 0 to 0")), "{}", said.out);
        assert!(said.err.contains("line 3: ignored the truncated last line"), "{}", said.err);
    }
}

#[test]
fn the_recorded_runs_of_the_real_msprobe_are_drawn() {
    let Some(golden) = golden("01_monitor", "golden monitor runs drawn") else { return };
    let workspace = Workspace::new();
    let mut drawn = 0;
    let entries = fs::read_dir(&golden).expect("readable").map(|entry| entry.expect("readable").path());
    let runs = entries.map(|case| case.join("msprobe_out")).filter(|run| trainmon_runs::compare::is_run(run));
    let mut runs: Vec<PathBuf> = runs.collect();
    runs.sort();
    // `trainmon replay` reads all of them in its tests.
    for run in runs.into_iter().step_by(3) {
        let out = format!("{drawn}.{}", ["html", "svg", "png"][drawn % 3]);
        let said = workspace.plot(&[&run.display().to_string(), "-o", &out]);
        assert_eq!(said.code, Some(0), "{}: {}", run.display(), said.err);
        if out.ends_with("html") {
            let data = data_of(&fs::read_to_string(workspace.path(&out)).expect("there"));
            assert!(!data["heat_maps"].as_array().expect("a list").is_empty(), "{}", run.display());
        }
        drawn += 1;
    }
    if drawn < 7 {
        skip("golden monitor runs drawn", &format!("only {drawn} runs in `{}`", golden.display()));
    }
}

#[test]
fn what_cannot_be_drawn_is_told_and_leaves_nothing() {
    let workspace = Workspace::new();
    fs::write(workspace.path("taken.html"), "mine").expect("writable");
    for (arguments, expected) in [
        (&["nowhere"][..], "error: `nowhere` does not exist\n"),
        (&["out", "-o", "run.pdf"], "error: `run.pdf` does not end with `.html`, `.svg` or `.png`\n"),
        (&["out", "-o", "taken.html"], "error: `taken.html` already exists\n"),
        (&["out", "--rank", "9"], "error: `out` has no rank 9: found 0, 1\n"),
    ] {
        let said = workspace.plot(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(said.err.starts_with(expected), "{arguments:?}: {}", said.err);
    }
    assert_eq!(fs::read_to_string(workspace.path("taken.html")).expect("there"), "mine");
    let said = workspace.plot(&["nowhere", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((said.code, &answer["ok"]), (Some(2), &false.into()));
}
