//! `trainmon recover` as a person and as a program see it: its files against those the exporter wrote at the time.

mod support;
#[path = "support/transcript.rs"]
mod transcript;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use trainmon_capture_files::{EntryRecord, Frames, Header, RankDirectory, RankName, Recorder};
use trainmon_core::config::{Config, Plan, PlanChange};
use trainmon_core::{
    Dtype, Kind, MicroStep, Rank, Reading, Record, Scalar, Shape, Statistic, Step, StepBatch, TensorId, TensorInfo,
    TensorStats,
};
use trainmon_exporters::{CsvExporter, Exporter as _};
use trainmon_journal::{Journal, JournalRun, JournalSpec, MIN_FILE_BYTES, Storage};

use support::{ProgramOutput, trainmon};
use transcript::Transcript;

const V1: &str = r#"{"wg_distribution": true, "mv_distribution": true, "xy_distribution": true, "mg_direction": true,
    "update": true, "monitor_mbs_grad": true, "ops": ["norm", "min", "zeros"], "step_count_per_record": 4, "ndigits": 7,
    "recording_l2_features": true, "l2_targets": {"linear_hook": []}}"#;
const V2: &str = r#"{"monitors": {"weight_grad": {"enabled": true, "ops": ["max", "nans"]}, "module": {"enabled": true},
    "optimizer": {"enabled": true, "mv_distribution": true}}, "start_step": 2, "step_count_per_record": 3}"#;
const TENSORS: u32 = 5;

struct Workspace {
    dir: TempDir,
}

impl Workspace {
    fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn recover(&self, arguments: &[&str]) -> ProgramOutput {
        trainmon(self.dir.path(), &[&["recover"], arguments].concat())
    }

    /// Writes these steps to the journal of a rank and, as the run would have, to CSV files in `csv`.
    fn run(&self, config: &str, rank: u32, journal: &str, steps: impl IntoIterator<Item = u64>) {
        let config = Config::parse(config, "t", &|_| None).expect("a good config").config;
        let settings = config.csv.as_ref().expect("CSV is the default");
        let run = JournalRun { run: "run-a".to_owned(), rank: Rank(rank), local_rank: Rank(rank), world_size: 2 };
        // A page more than the smallest: room for all steps, beside facts that fill their page.
        let file_bytes = MIN_FILE_BYTES + 4096;
        let spec = JournalSpec { file_bytes, run, config: &config, csv: settings, storage: Storage::Auto };
        let mut journal = Journal::create(&self.path(journal), &spec).expect("room");
        let mut csv = CsvExporter::in_directory(&config, settings, self.path("csv"));
        for (index, step) in steps.into_iter().enumerate() {
            let batch = batch(&config, step);
            // As in a run: its first step has no duration.
            let batch = StepBatch { duration: batch.duration.filter(|_| index > 0), ..batch };
            // The second half of the names comes late, and with it a second model chunk.
            let known = if step < 4 { 3 } else { TENSORS };
            let batch = StepBatch { records: only(&batch.records, known), ..batch };
            journal.append(&names()[..known as usize], &batch).expect("room");
            csv.export(&names()[..known as usize], &batch).expect("room");
        }
        journal.append_alert(br#"{"rule":"Spike","step":3}"#).expect("room");
        journal.append_alert(br#"{"rule":"Drift","step":4}"#).expect("room");
        journal.close().expect("room");
    }

    /// Flips a bit of a step's content.
    fn tear(&self, journal: &str, step: u64) {
        let mut bytes = fs::read(self.path(journal)).expect("readable");
        let is_frame = |at: &usize| bytes[*at..].starts_with(b"TMJf") && bytes[at + 4] == 3;
        let is_step = |at: &usize| bytes[at + 40..at + 48] == step.to_le_bytes();
        let at = (0..bytes.len() - 64).step_by(64).filter(is_frame).find(is_step).expect("there");
        bytes[at + 90] ^= 4;
        fs::write(self.path(journal), bytes).expect("writable");
    }

    /// Every file below this directory with its content.
    fn files(&self, name: &str) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut left = vec![self.path(name)];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(&directory).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    left.push(path);
                } else {
                    let text = fs::read_to_string(&path).expect("text");
                    found.insert(path.strip_prefix(self.path(name)).expect("below").to_path_buf(), text);
                }
            }
        }
        found
    }

    fn names_in(&self, name: &str) -> Vec<String> {
        self.files(name).into_keys().map(|path| path.display().to_string()).collect()
    }
}

fn names() -> Vec<TensorInfo> {
    (0..TENSORS)
        .map(|id| TensorInfo { name: format!("l{id}.fc,1.weight").into(), vpp_stage: u32::from(id > 3) })
        .collect()
}

fn only(records: &[Record], tensors: u32) -> Vec<Record> {
    records.iter().filter(|record| record.tensor.0 < tensors).copied().collect()
}

/// A step with every kind the config measures. The columns change in mid-run, and so does what is measured.
fn batch(config: &Config, step: u64) -> StepBatch {
    let kinds = Kind::ALL.into_iter().filter(|&kind| config.measures(kind));
    let records = kinds.flat_map(|kind| (0..TENSORS).map(move |tensor| record(step, kind, tensor))).collect();
    let change = PlanChange::parse(r#"{"kinds": {"weight_grad": false}}"#, "request").expect("a change");
    let plan = (step >= 12).then(|| Arc::new(change.applied_to(&Plan::of(config), config)));
    StepBatch {
        step: Step(step),
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123 + 1000 * step),
        duration: (step > 0).then(|| Duration::from_micros(1_000_000 + step)),
        collected: true,
        loss: Some(1.0 / (step as f64 + 3.0)),
        ops: (step >= 9).then(|| Arc::from([Statistic::Mean, Statistic::Crc32])),
        plan,
        records,
        bytes_read: 12 * step,
        ..StepBatch::default()
    }
}

fn record(step: u64, kind: Kind, tensor: u32) -> Record {
    let value = (step as f64 + 0.1).powi(kind as i32 % 5) / 3.0;
    let reading = TensorStats {
        min: if tensor == 2 { Scalar::Int(-9_007_199_254_740_993) } else { Scalar::Float(-value) },
        norm: if step == 5 { f64::NAN } else { value },
        mean: value * 1e-9,
        abs_max: f64::INFINITY,
        nans: step,
        zeros: 3,
        count: 12,
        crc32: tensor,
        ..TensorStats::empty(Dtype::F16, Shape::new(&[3, 4]).expect("a shape"))
    };
    let reading = (tensor != 1).then_some(Reading::of_kind(kind, reading));
    Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(tensor % 2), reading }
}

#[test]
fn the_files_are_those_the_run_wrote_byte_for_byte_in_both_dialects() {
    for (config, kinds) in [(V1, 10), (V2, 3)] {
        let workspace = Workspace::new();
        workspace.run(config, 0, "journal_rank0.tmj", 2..17);
        let said = workspace.recover(&["journal_rank0.tmj", "-o", "rescued"]);
        assert_eq!(said.err, "");
        let mut expected = workspace.files("csv");
        let steps: usize = expected.len();
        assert!(steps > kinds, "{steps} files: {:?}", expected.keys());
        let alerts = "{\"rule\":\"Spike\",\"step\":3}\n{\"rule\":\"Drift\",\"step\":4}\n";
        expected.insert("alerts.jsonl".into(), alerts.to_owned());
        assert_eq!(workspace.files("rescued"), expected);
        assert!(said.out.starts_with("rescued: rank 0, 15 steps, 2 to 16, "), "{}", said.out);
        assert!(said.out.ends_with(" records, 2 alerts\n"), "{}", said.out);
        assert_eq!(said.code, Some(0));
    }
}

#[test]
fn a_torn_step_is_left_out_with_a_word_and_the_exit_code_says_so() {
    let workspace = Workspace::new();
    workspace.run(V2, 0, "journal_rank0.tmj", 2..9);
    workspace.tear("journal_rank0.tmj", 5);
    let said = workspace.recover(&["journal_rank0.tmj", "--output", "rescued"]);
    assert_eq!(said.err, "warning: `journal_rank0.tmj`: step 5 is damaged: its checksum does not match\n");
    assert!(said.out.contains("6 steps, 2 to 8"), "{}", said.out);
    assert!(said.out.ends_with("; 1 part torn or missing\n"), "{}", said.out);
    assert_eq!(said.code, Some(1));
    let (rescued, written) = (workspace.files("rescued"), workspace.files("csv"));
    let of = |files: &BTreeMap<PathBuf, String>| -> Vec<String> {
        files[Path::new("steps.csv")].lines().map(str::to_owned).collect()
    };
    let without: Vec<String> = of(&written).into_iter().filter(|line| !line.starts_with("5,")).collect();
    assert_eq!(of(&rescued), without);
}

#[test]
fn steps_that_never_were_in_the_journal_are_named_and_the_exit_code_says_so() {
    let workspace = Workspace::new();
    let dropped = |step: &u64| !(17..=43).contains(step) && *step != 45 && *step < 60;
    workspace.run(V2, 0, "journal_rank0.tmj", (15..80).filter(dropped));
    let said = workspace.recover(&["journal_rank0.tmj", "-o", "rescued"]);
    let warnings = "warning: `journal_rank0.tmj`: steps 17 to 43 are missing: they were never written to the journal\n\
        warning: `journal_rank0.tmj`: step 45 is missing: it was never written to the journal\n";
    assert_eq!((said.err.as_str(), said.code), (warnings, Some(1)));
    assert!(
        said.out.contains("17 steps, 15 to 59") && said.out.ends_with("; 2 parts torn or missing\n"),
        "{}",
        said.out
    );
    let csv = workspace.files("csv");
    assert!(csv.iter().all(|(path, text)| workspace.files("rescued").get(path) == Some(text)), "the rest is written");
    // Every second step: not a line for each.
    workspace.run(r#"{"wg_distribution": true}"#, 0, "half.tmj", (0..100).step_by(2));
    let said = workspace.recover(&["half.tmj", "-o", "half"]);
    assert_eq!((said.err.lines().count(), said.code), (21, Some(1)), "{}", said.err);
    assert!(said.err.ends_with("warning: `half.tmj`: 29 more; to list all, use `--json`\n"), "{}", said.err);
}

#[test]
fn a_journal_that_begins_after_its_run_did_says_so() {
    let workspace = Workspace::new();
    let config = Config::parse(V1, "t", &|_| None).expect("a good config").config;
    let csv = config.csv.as_ref().expect("CSV is the default");
    let run = JournalRun { run: "run-a".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 1 };
    let spec = JournalSpec { file_bytes: MIN_FILE_BYTES, run, config: &config, csv, storage: Storage::Auto };
    let mut journal = Journal::create(&workspace.path("late.tmj"), &spec).expect("room");
    // A step that knows how long it took had one before it in its process.
    journal.append(&names(), &batch(&config, 5)).expect("room");
    let said = workspace.recover(&["late.tmj", "-o", "rescued"]);
    let warning = "warning: `late.tmj`: the steps before 5 are missing: they were never written to the journal\n";
    assert_eq!((said.err.as_str(), said.code), (warning, Some(1)));
}

#[test]
fn the_journals_of_all_ranks_go_to_directories_of_their_own() {
    let workspace = Workspace::new();
    for (rank, path) in [
        (0, "run/Nov20_16-05-09-rank0-1f0a9c42/journal_rank0.tmj"),
        (1, "run/Nov20_16-05-09-rank1-0a1b2c3d/journal_rank1.tmj"),
        (2, "run/journal_rank2.tmj"),
        (2, "run/journal_rank2.2.tmj"),
        (2, "run/journal_rank2-kept.tmj"),
    ] {
        workspace.run(V1, rank, path, 0..3);
    }
    fs::write(workspace.path("run/notes.txt"), "").expect("writable");
    let said = workspace.recover(&["run", "-o", "rescued"]);
    assert_eq!((said.err.as_str(), said.code), ("", Some(0)));
    let lines: Vec<&str> = said.out.lines().map(|line| line.split(", 3 steps").next().expect("a part")).collect();
    let mut sorted = lines.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            "rescued/Nov20_16-05-09-rank0-1f0a9c42: rank 0",
            "rescued/Nov20_16-05-09-rank1-0a1b2c3d: rank 1",
            "rescued/rank2-2: rank 2",
            "rescued/rank2-3: rank 2",
            "rescued/rank2: rank 2",
        ]
    );
    assert_eq!(workspace.names_in("rescued").iter().filter(|name| name.ends_with("/steps.csv")).count(), 5);
}

#[test]
fn of_several_runs_the_newest_is_recovered_and_that_is_said() {
    let workspace = Workspace::new();
    for (run, started) in [("train", 11), ("train-2", 10)] {
        for rank in 0..2 {
            fs::create_dir_all(workspace.path(&format!("out/{run}/rank_{rank}"))).expect("writable");
            workspace.run(V1, rank, &format!("out/{run}/rank_{rank}/journal_rank{rank}.tmj"), 0..3);
        }
        let facts = format!(r#"{{"run": "train", "world_size": 2, "started": "2026-11-23T04:38:{started}Z"}}"#);
        fs::write(workspace.path(&format!("out/{run}/run.json")), facts).expect("writable");
    }
    let said = workspace.recover(&["out", "-o", "rescued"]);
    assert_eq!((said.err.as_str(), said.code), ("`out` contains 2 runs; recovering the newest, train\n", Some(0)));
    assert!(said.out.starts_with("rescued/rank_0: rank 0, 3 steps"), "{}", said.out);
    assert!(workspace.names_in("rescued").iter().all(|name| name.starts_with("rank_")));
    let said = workspace.recover(&["out", "-o", "again", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(found["newest"]["taken"], "out/train");
    assert_eq!(found["journals"][1]["journal"], "out/train/rank_1/journal_rank1.tmj");
    let said = workspace.recover(&["out/train-2", "-o", "older"]);
    assert_eq!((said.err.as_str(), said.code), ("", Some(0)));
}

#[test]
fn one_journal_of_several_that_cannot_be_read_is_an_error_and_the_others_are_recovered() {
    let workspace = Workspace::new();
    workspace.run(V1, 0, "run/journal_rank0.tmj", 0..3);
    fs::write(workspace.path("run/journal_rank1.tmj"), "").expect("writable");
    let said = workspace.recover(&["run", "-o", "rescued"]);
    assert!(said.err.starts_with("error: `run/journal_rank1.tmj` is empty\nhint: "), "{}", said.err);
    assert!(said.out.starts_with("rescued/rank0: rank 0, 3 steps"), "{}", said.out);
    assert_eq!(said.code, Some(2));
}

#[test]
fn what_is_no_journal_is_refused_and_nothing_is_left_behind() {
    let workspace = Workspace::new();
    workspace.run(V1, 0, "good.tmj", 0..3);
    let good = fs::read(workspace.path("good.tmj")).expect("readable");
    fs::create_dir_all(workspace.path("nothing/here")).expect("writable");
    fs::write(workspace.path("empty.tmj"), "").expect("writable");
    fs::write(workspace.path("text.tmj"), "step,loss\n").expect("writable");
    fs::write(workspace.path("short.tmj"), &good[..9000]).expect("writable");
    let mut later = good.clone();
    later[16] = 9;
    fs::write(workspace.path("later.tmj"), later).expect("writable");
    let mut transcript = Transcript::default();
    for path in ["missing.tmj", "empty.tmj", "text.tmj", "short.tmj", "later.tmj", "nothing"] {
        let said = workspace.recover(&[path, "-o", "rescued"]);
        assert_eq!((said.out.as_str(), said.code), ("", Some(2)), "{path}");
        assert!(!workspace.path("rescued").exists(), "{path}");
        transcript.add(path, &said);
    }
    insta::assert_snapshot!(transcript);
    let left = fs::read_dir(workspace.path(".")).expect("readable").map(|entry| entry.expect("readable").file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("unfinished")));
}

#[test]
fn an_existing_output_is_refused_and_an_empty_directory_is_taken() {
    let workspace = Workspace::new();
    workspace.run(V1, 0, "journal_rank0.tmj", 0..3);
    let said = workspace.recover(&["journal_rank0.tmj", "-o", "csv"]);
    assert_eq!(
        said.err,
        "error: `csv` already exists\nhint: pass another directory with `--output`, or remove this one\n"
    );
    assert_eq!(said.code, Some(2));
    fs::create_dir(workspace.path("rescued")).expect("writable");
    assert_eq!(workspace.recover(&["journal_rank0.tmj", "-o", "rescued"]).code, Some(0));
}

#[test]
fn a_journal_cut_short_gives_what_is_left_of_it() {
    let workspace = Workspace::new();
    workspace.run(V2, 0, "journal_rank0.tmj", 2..9);
    let bytes = fs::read(workspace.path("journal_rank0.tmj")).expect("readable");
    fs::write(workspace.path("cut.tmj"), &bytes[..60_000]).expect("writable");
    let said = workspace.recover(&["cut.tmj", "-o", "rescued"]);
    let expected = format!("warning: `cut.tmj`: the file is truncated: it has 60000 of {} bytes\n", bytes.len());
    assert!(said.err.starts_with(&expected), "{}", said.err);
    assert_eq!(said.code, Some(1));
}

#[test]
fn the_json_form_has_the_same_shape_for_success_and_failure() {
    let workspace = Workspace::new();
    workspace.run(V1, 1, "journal_rank1.tmj", 0..3);
    workspace.tear("journal_rank1.tmj", 1);
    let shape = |said: &ProgramOutput| {
        let value: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
        assert_eq!(said.err, "");
        let keys: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
        (keys, value)
    };
    let (keys, good) = shape(&workspace.recover(&["journal_rank1.tmj", "-o", "rescued", "--json"]));
    let journal = &good["journals"][0];
    assert_eq!(
        (good["ok"].as_bool(), journal["steps"].as_u64(), journal["rank"].as_u64()),
        (Some(false), Some(2), Some(1))
    );
    assert_eq!(journal["range"], serde_json::json!([0, 2]));
    assert_eq!(journal["faults"], serde_json::json!(["step 1 is damaged: its checksum does not match"]));
    assert_eq!((journal["ended_in_order"].as_bool(), journal["run"].as_str()), (Some(true), Some("run-a")));
    let (same, bad) = shape(&workspace.recover(&["missing.tmj", "-o", "other", "--json"]));
    assert_eq!(keys, same);
    assert_eq!(bad["errors"][0]["message"], "cannot read `missing.tmj`");
    assert!(bad["errors"][0]["hint"].is_string() && bad["errors"][0]["causes"][0].is_string());
}

#[test]
fn the_output_is_asked_for() {
    let workspace = Workspace::new();
    assert_eq!(workspace.recover(&["journal_rank0.tmj"]).code, Some(2));
}

#[test]
fn a_journal_whose_run_goes_on_and_wraps_is_recovered_but_for_the_steps_it_overwrote() {
    let workspace = Workspace::new();
    let config = Config::parse(V1, "t", &|_| None).expect("a good config").config;
    let csv = config.csv.as_ref().expect("CSV is the default");
    let run = JournalRun { run: "run-a".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 1 };
    let spec = JournalSpec { file_bytes: MIN_FILE_BYTES, run, config: &config, csv, storage: Storage::Auto };
    let mut journal = Journal::create(&workspace.path("live.tmj"), &spec).expect("room");
    let mut append = |step: u64| journal.append(&names(), &batch(&config, step)).map(drop).expect("room");
    (0..6).for_each(&mut append);
    let mut next = 6;
    // The run makes a few hundred steps while the first is being written out: the ring goes round.
    let recovery = trainmon_runs::recover::recover(&workspace.path("live.tmj"), &workspace.path("out"), &mut |_| {
        if next == 6 {
            (next..next + 400).for_each(&mut append);
            next += 400;
        }
    });
    let recovery = recovery.expect("what is left is recovered");
    let [journal] = &recovery.journals[..] else { panic!("{recovery:?}") };
    assert!(!recovery.is_whole());
    assert_eq!(journal.steps + journal.faults.len(), 6, "{journal:?}");
    assert!(journal.steps >= 1 && journal.faults.iter().all(|fault| fault.contains("was overwritten")), "{journal:?}");
    assert!(workspace.path("out").is_dir());
}

/// A rank's directory with the record file of a capture that was cut short.
fn cut_short(root: &Path, rank: u64, entries: usize, torn: usize) {
    let directory = RankDirectory::create(root, 3, RankName::Rank(rank)).expect("made").directory;
    let text = |text: &str| text.to_owned();
    let header = Header { task: text("statistics"), level: text("L1"), framework: text("pytorch"), extra_info: true };
    let mut recorder = Recorder::create(&directory, &header).expect("made");
    for number in 0..entries {
        let mut frames = Frames::new();
        let name = format!("Tensor.add.{number}.forward");
        let parts: [(&str, &[u8]); 1] = [("output", b"[]")];
        frames.entry(&EntryRecord { name: &name, moves_to_end: false, node: None, stack: None, parts: &parts });
        recorder.append(&frames).expect("room");
    }
    // Where the file is memory it is longer than what is in it.
    recorder.trim().expect("trimmed");
    drop(recorder);
    let mut records =
        fs::OpenOptions::new().append(true).open(directory.path().join("capture.records")).expect("there");
    std::io::Write::write_all(&mut records, &vec![7; torn]).expect("room");
}

#[test]
fn captures_that_were_cut_short_get_their_documents_where_they_lie() {
    let workspace = Workspace::new();
    let root = workspace.path("dump");
    cut_short(&root, 0, 3, 0);
    cut_short(&root, 1, 1, 5);
    let said = workspace.recover(&["dump"]);
    assert_eq!((said.err.as_str(), said.code), ("", Some(1)));
    let [first, second] =
        ["dump/step3/rank0", "dump/step3/rank1"].map(|name| workspace.path(name).canonicalize().expect("there"));
    let expected = format!(
        "{}/dump.json: 3 entries\n{}/dump.json: 1 entry; 5 bytes of one more are incomplete\n",
        first.display(),
        second.display()
    );
    assert_eq!(said.out, expected);
    assert_eq!(workspace.names_in("dump/step3/rank0"), ["construct.json", "dump.json", "stack.json"]);
    // Nothing is left to recover.
    let said = workspace.recover(&["dump", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((&shown["ok"], said.code), (&serde_json::Value::Bool(false), Some(2)));
    assert!(shown["errors"][0]["hint"].as_str().is_some_and(|hint| hint.contains("-o DIR")), "{shown}");
}
