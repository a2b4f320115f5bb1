//! `trainmon compare-runs` as a person and as a program see it: real trainings, golden files of the real msprobe, and made-up
//! runs whose first divergence is known.

#![expect(clippy::print_stdout, reason = "a skip is said")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;
use trainmon_core::config::Config;
use trainmon_core::{
    Dtype, Kind, MicroStep, Rank, Reading, Record, Scalar, Shape, Step, StepBatch, TensorId, TensorInfo,
};
use trainmon_dump::journal::{Journal, JournalRun, JournalSpec, MIN_FILE_BYTES, Storage};
use trainmon_exporters::{CsvExporter, Exporter as _};

const RUN: &str = "Nov20_16-05-09-rank0-1f0a9c42";
const STEPS: u64 = 40;

/// A directory to work in.
struct Desk {
    dir: TempDir,
}

/// Exit code, stdout, stderr.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Desk {
    fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn compare(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainmon"));
        command.arg("compare-runs").args(arguments).current_dir(self.dir.path());
        let output = command.output().expect("starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The comparison as JSON, and the exit code.
    fn json(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let said = self.compare(&[arguments, &["--json"]].concat());
        assert_eq!(said.err, "");
        (serde_json::from_str(&said.out).expect("JSON"), said.code)
    }

    /// Answer, step, kind, name and statistic of what parts first.
    fn first(&self, target: &str, golden: &[&str]) -> (String, Option<(u64, String, String)>) {
        let (found, _) = self.json(&[&[target], golden].concat());
        let answer = found["verdict"]["answer"].as_str().expect("an answer").to_owned();
        let first = &found["first"];
        let text = |key: &str| first[key].as_str().unwrap_or("").to_owned();
        (answer, first["step"].as_u64().map(|step| (step, text("kind"), text("name"))))
    }

    /// Writes a made-up run.
    fn make(&self, name: &str, run: &Made) {
        for (kind, header) in [
            ("actv", "vpp_stage,name,step,micro_step,norm,max,shape,dtype"),
            ("grad_reduced", "vpp_stage,name,step,norm,max,shape,dtype"),
            ("param_updated", "vpp_stage,name,step,norm,max,shape,dtype"),
        ] {
            let mut text = format!("{header}\n");
            for step in run.first..run.first + STEPS {
                for tensor in 0..8 {
                    let (tensor_name, micro) = match kind {
                        "actv" => (format!("layers.{tensor}.output"), "0,"),
                        _ => (format!("layers.{tensor}.weight"), ""),
                    };
                    let [norm, max] = [0, 1].map(|statistic| run.value(kind, tensor, step, statistic));
                    writeln!(text, "0,{tensor_name},{step},{micro}{norm},{max},\"[64, 64]\",torch.float32")
                        .expect("text");
                }
            }
            self.write(&format!("{name}/{RUN}/{kind}_0-999.csv"), &text);
        }
    }

    /// The recorded trainings of the repository: `offline/tests/scripts/make_monitor_runs.py --bundle` makes them.
    fn recorded() -> Self {
        let desk = Self::new();
        let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/monitor_runs.json.gz");
        let mut text = String::new();
        let file = fs::File::open(packed).expect("there");
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("whole");
        let runs: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(&text).expect("JSON");
        for (run, files) in runs {
            for (file, content) in files {
                desk.write(&format!("{run}/{RUN}/{file}"), &content);
            }
        }
        desk
    }
}

/// A run whose noise grows along the training.
#[derive(Clone, Copy)]
struct Made {
    seed: u64,
    first: u64,
    /// Noise in the first step, and what it grows by from step to step.
    noise: f64,
    growth: f64,
    /// Decimals that are printed.
    decimals: Option<usize>,
    /// From this step on gradients of the third layer are off by this factor.
    fault: Option<(u64, f64)>,
    /// Whether those of all layers are.
    is_broad: bool,
    start: f64,
}

impl Made {
    const GOLDEN: Self =
        Self { seed: 1, first: 0, noise: 1e-6, growth: 1.12, decimals: None, fault: None, is_broad: false, start: 1.0 };

    fn value(&self, kind: &str, tensor: u64, step: u64, statistic: u64) -> String {
        let place = step * 1000 + tensor * 10 + statistic + kind.len() as u64 * 100_000;
        let clean = self.start * (1.0 + uniform(place)) * if statistic == 1 { 0.1 } else { 1.0 };
        let grown = (step - self.first.min(step)) as f64;
        let noise = self.noise * self.growth.powf(grown) * (2.0 * uniform(place ^ (self.seed << 40)) - 1.0);
        let fault =
            self.fault.filter(|(at, _)| step >= *at && (tensor == 2 || self.is_broad) && kind == "grad_reduced");
        let value = clean * (1.0 + noise) * fault.map_or(1.0, |(_, factor)| factor);
        match self.decimals {
            Some(decimals) => format!("{value:.decimals$}"),
            None => format!("{value}"),
        }
    }
}

/// A number from 0 to 1 that looks like chance.
fn uniform(seed: u64) -> f64 {
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
}

fn part(step: u64, kind: &str, name: &str) -> (String, Option<(u64, String, String)>) {
    ("diverges".to_owned(), Some((step, kind.to_owned(), name.to_owned())))
}

fn no_divergence() -> (String, Option<(u64, String, String)>) {
    ("no_divergence".to_owned(), None)
}

#[test]
fn recorded_trainings_part_where_their_fault_is_and_nowhere_else() {
    let desk = Desk::recorded();
    // The same samples in another order: every sum over the batch is rounded otherwise.
    assert_eq!(desk.first("order", &["golden"]), no_divergence());
    assert_eq!(desk.first("golden", &["golden"]), no_divergence());
    assert_eq!(desk.first("half", &["golden"]), part(9, "actv", "layers.0.fc2.input"));
    assert_eq!(desk.first("weight", &["golden"]), part(16, "param_origin", "layers.0.fc1.weight"));
    let said = desk.compare(&["order", "golden", "--fail-on", "warning"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert!(said.out.contains("not judged") && said.out.contains("`layers.0.k.bias`"), "{}", said.out);
}

#[test]
fn a_jump_in_growing_noise_is_found_at_its_step_and_tensor() {
    let desk = Desk::new();
    desk.make("golden", &Made::GOLDEN);
    desk.make("clean", &Made { seed: 2, ..Made::GOLDEN });
    desk.make("fault", &Made { seed: 2, fault: Some((23, 1.01)), ..Made::GOLDEN });
    assert_eq!(desk.first("clean", &["golden"]), no_divergence());
    assert_eq!(desk.first("fault", &["golden"]), part(23, "grad_reduced", "layers.2.weight"));
    let (found, code) = desk.json(&["fault", "golden"]);
    let first = &found["first"];
    assert_eq!((code, first["bound_source"].as_str()), (Some(1), Some("growth")), "{first}");
    let number = |key: &str| first[key].as_f64().expect("a number");
    assert!(number("difference") > number("bound") && number("bound") > 1e-6, "{first}");
    assert!((number("target") / number("golden") - 1.01).abs() < 1e-4, "{first}");
}

#[test]
fn a_small_jump_of_one_series_is_noise_and_of_many_a_fault() {
    let desk = Desk::new();
    desk.make("golden", &Made::GOLDEN);
    // Some two times the bound.
    let lone = Made { seed: 2, fault: Some((23, 1.0004)), ..Made::GOLDEN };
    desk.make("lone", &lone);
    desk.make("broad", &Made { is_broad: true, ..lone });
    assert_eq!(desk.first("lone", &["golden"]), no_divergence());
    let (answer, first) = desk.first("broad", &["golden"]);
    let (step, kind, _) = first.expect("they part");
    assert_eq!((answer.as_str(), step, kind.as_str()), ("diverges", 23, "grad_reduced"));
}

#[test]
fn several_golden_runs_are_the_measure_of_each_other() {
    let desk = Desk::new();
    // Noise of a tenth of a percent from the first step on: one golden run cannot explain it, three can.
    let noisy = Made { noise: 1e-3, growth: 1.0, ..Made::GOLDEN };
    for (name, seed) in [("target", 2), ("golden", 1), ("golden2", 3), ("golden3", 4)] {
        desk.make(name, &Made { seed, ..noisy });
    }
    desk.make("fault", &Made { seed: 2, fault: Some((30, 1.1)), ..noisy });
    assert_ne!(desk.first("target", &["golden"]).0, "no_divergence");
    let golden = ["golden", "golden2", "golden3"];
    assert_eq!(desk.first("target", &golden), no_divergence());
    assert_eq!(desk.first("fault", &golden), part(30, "grad_reduced", "layers.2.weight"));
    let (found, _) = desk.json(&["fault", "golden", "golden2", "golden3"]);
    assert_eq!(found["first"]["bound_source"], "golden_spread");
}

#[test]
fn runs_equal_to_the_last_digit_part_with_the_first_bit() {
    let desk = Desk::new();
    let exact = Made { noise: 0.0, ..Made::GOLDEN };
    desk.make("golden", &exact);
    desk.make("fault", &Made { fault: Some((7, 1.0 + 1e-9)), ..exact });
    assert_eq!(desk.first("fault", &["golden"]), part(7, "grad_reduced", "layers.2.weight"));
    let (found, _) = desk.json(&["fault", "golden"]);
    assert_eq!(found["first"]["bound_source"], "equal_until_then");
}

#[test]
fn printed_digits_are_no_difference_and_too_few_of_them_are_an_answer_of_their_own() {
    let desk = Desk::new();
    desk.make("golden", &Made::GOLDEN);
    desk.make("six", &Made { seed: 2, decimals: Some(6), growth: 1.0, ..Made::GOLDEN });
    assert_eq!(desk.first("six", &["golden"]), no_divergence());
    let faulty = Made { seed: 2, decimals: Some(6), fault: Some((11, 1.01)), growth: 1.0, ..Made::GOLDEN };
    desk.make("six_fault", &faulty);
    assert_eq!(desk.first("six_fault", &["golden"]), part(11, "grad_reduced", "layers.2.weight"));
    // Values of some 1e-6 with six decimals.
    for (name, seed) in [("small", 1), ("small2", 2)] {
        desk.make(name, &Made { seed, decimals: Some(6), start: 1e-6, ..Made::GOLDEN });
    }
    let said = desk.compare(&["small", "small2"]);
    assert_eq!(said.code, Some(1));
    assert!(said.out.starts_with("cannot tell: of 1920 values "), "{}", said.out);
    assert!(
        said.out.contains("too few digits (6 decimals)") && said.out.contains("next: leave `ndigits` out"),
        "{}",
        said.out
    );
}

#[test]
fn another_start_is_told_from_a_fault() {
    let desk = Desk::new();
    desk.make("golden", &Made::GOLDEN);
    desk.make("other", &Made { start: 1.3, ..Made::GOLDEN });
    let (answer, first) = desk.first("other", &["golden"]);
    assert_eq!((answer.as_str(), first.expect("something").0), ("different_start", 0));
    // All gradients twice as large from the first step on are a scale, not another seed.
    let header = "vpp_stage,name,step,norm,shape,dtype\n";
    for (run, factor) in [("scaled", 2.0), ("plain", 1.0)] {
        let rows: Vec<String> =
            (0..12).map(|n| format!("0,w{n},0,{},[4],torch.float32\n", factor * (1.0 + f64::from(n)))).collect();
        desk.write(&format!("{run}/{RUN}/grad_reduced_0-0.csv"), &format!("{header}{}", rows.concat()));
    }
    let said = desk.compare(&["scaled", "plain"]);
    assert!(said.out.starts_with("the runs differ beyond noise first at step 0: grad_reduced of `w"), "{}", said.out);
    assert!(said.out.contains("by the factor 2.000000: look for a scale"), "{}", said.out);
}

#[test]
fn steps_in_common_are_compared_and_the_others_told() {
    let desk = Desk::new();
    let exact = Made { noise: 0.0, ..Made::GOLDEN };
    desk.make("golden", &exact);
    desk.make("later", &Made { first: 25, ..exact });
    let said = desk.compare(&["later", "golden"]);
    assert!(said.out.starts_with("no divergence: all 720 values of steps 25 to 39 are equal"), "{}", said.out);
    assert!(said.out.contains("25 steps that only the target has (it has steps 25 to 64)"), "{}", said.out);
    assert_eq!(said.code, Some(0));
    assert_eq!(desk.compare(&["later", "golden", "--fail-on", "warning"]).code, Some(1));
    desk.make("apart", &Made { first: 100, ..exact });
    let said = desk.compare(&["apart", "golden"]);
    let expected = "cannot tell: no step in common: the target has 100 to 139, the golden run 0 to 39\n";
    assert!(said.out.starts_with(expected), "{}", said.out);
    assert_eq!(said.code, Some(1));
}

const HEADER: &str = "vpp_stage,name,step,norm,shape,dtype\n";

#[test]
fn nan_on_one_side_is_a_divergence_and_on_both_is_none() {
    let desk = Desk::new();
    let rows = |third: &str| {
        format!(
            "{HEADER}0,a,0,1.5123456789012345,[2],torch.float32\n0,a,1,{third},[2],torch.float32\n0,a,2,nan,[2],torch.float32\n"
        )
    };
    for (run, value) in [("good", "2.5"), ("bad", "nan")] {
        desk.write(&format!("{run}/{RUN}/grad_reduced_0-9.csv"), &rows(value));
    }
    assert_eq!(desk.first("good", &["good"]), no_divergence());
    assert_eq!(desk.first("bad", &["good"]), part(1, "grad_reduced", "a"));
    let said = desk.compare(&["bad", "good"]);
    assert!(said.out.contains("grad_reduced of `a` on rank 0: norm NaN against 2.5\n"), "{}", said.out);
}

#[test]
fn ranks_are_paired_by_number_and_the_unpaired_named() {
    let desk = Desk::new();
    let row = |value: &str| format!("{HEADER}0,a,0,{value},[2],torch.float32\n");
    for (path, value) in [
        ("golden/Nov20_16-05-09-rank0-1f0a9c42", "1.5"),
        ("golden/Nov20_16-05-09-rank1-0a1b2c3d", "2.5"),
        ("golden/Nov20_16-05-09-rank2-0a1b2c3e", "2.5"),
        ("target/Nov21_08-00-00-rank1-aaaaaaaa", "2.75"),
        ("target/Nov21_08-00-00-rank0-bbbbbbbb", "1.5"),
    ] {
        desk.write(&format!("{path}/grad_reduced_0-0.csv"), &row(value));
    }
    let said = desk.compare(&["target", "golden"]);
    assert!(said.out.contains("grad_reduced of `a` on rank 1: norm 2.75 against 2.5"), "{}", said.out);
    assert!(said.out.contains("note: ranks that only the golden run has: 2\n"), "{}", said.out);
    desk.write("golden/Nov20_17-00-00-rank1-00000000/grad_reduced_0-0.csv", &row("1"));
    let said = desk.compare(&["target", "golden"]);
    assert!(said.err.starts_with("error: `golden` holds several runs of rank 1: `golden/Nov20_16"), "{}", said.err);
}

#[test]
fn tensors_of_one_side_and_other_shapes_are_told() {
    let desk = Desk::new();
    let of = |rows: &str| format!("{HEADER}{rows}");
    desk.write(
        &format!("a/{RUN}/grad_reduced_0-0.csv"),
        &of("0,x,0,1.5123456789012345,[2],torch.float32\n0,new,0,1.5123456789012345,[2],torch.float32\n"),
    );
    desk.write(
        &format!("b/{RUN}/grad_reduced_0-0.csv"),
        &of("0,x,0,1.5123456789012345,[2],torch.float32\n0,old,0,1.5123456789012345,[2],torch.float32\n"),
    );
    let said = desk.compare(&["a", "b"]);
    assert!(said.out.contains("grad_reduced that only the target has: `new`"), "{}", said.out);
    assert!(said.out.contains("grad_reduced that only the golden run has: `old`"), "{}", said.out);
    assert_eq!(said.code, Some(0));
    desk.write(&format!("c/{RUN}/grad_reduced_0-0.csv"), &of("0,x,0,1.5123456789012345,\"[1, 2]\",torch.float32\n"));
    let said = desk.compare(&["c", "b"]);
    assert!(said.out.contains("`x` on rank 0: shape [1, 2] against [2]"), "{}", said.out);
    assert_eq!(said.code, Some(1));
}

#[test]
fn the_report_is_whole_and_the_html_file_needs_nothing_else() {
    let desk = Desk::new();
    desk.make("golden", &Made::GOLDEN);
    desk.make("fault", &Made { seed: 2, fault: Some((23, 1.5)), ..Made::GOLDEN });
    let said = desk.compare(&["fault", "golden", "-o", "report", "--format", "csv,json,html,md"]);
    assert!(said.out.ends_with("written: report/compare.md\n"), "{}", said.out);
    let read = |name: &str| fs::read_to_string(desk.path("report").join(name)).expect("there");
    let table = read("compare.csv");
    let expected = "first_step,rank,kind,name,vpp_stage,micro_step,statistic,target,golden,difference,bound,bound_source,note\n\
                    23,0,grad_reduced,layers.2.weight,0,,";
    assert!(table.starts_with(expected), "{table}");
    assert_eq!(table.lines().count(), 3, "the norm and the largest element part: {table}");
    let json: Value = serde_json::from_str(&read("compare.json")).expect("JSON");
    assert_eq!(json["parted"].as_array().map(Vec::len), Some(2));
    let html = read("compare.html");
    assert_eq!(html.matches("<svg").count(), 1, "one tensor parts");
    for absent in ["<script", "http:", "https:", "src=", "NaN"] {
        assert!(!html.contains(absent), "{absent}");
    }
    assert!(html.contains("prefers-color-scheme: dark") && html.contains(">step 23</text>"));
    assert!(read("compare.md").contains("| 23 | 0 | grad_reduced of `layers.2.weight` |"));
    let again = desk.compare(&["fault", "golden", "-o", "report"]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.starts_with("error: `report` exists already\nhint: "), "{}", again.err);
}

#[test]
fn what_is_no_run_is_refused_with_its_reason() {
    let desk = Desk::new();
    desk.make("good", &Made::GOLDEN);
    fs::create_dir_all(desk.path("empty")).expect("writable");
    desk.write("dump/step0/rank0/dump.json", "{}");
    desk.write("notes.txt", "");
    desk.write(
        &format!("torn/{RUN}/grad_reduced_0-0.csv"),
        &format!("{HEADER}0,a,0,1.5,[2],torch.float32\n0,a,1,x,[2],torch.float32\n"),
    );
    for (path, message) in [
        ("missing", "error: `missing` does not exist\nhint: check the path".to_owned()),
        ("empty", "error: `empty` is no monitored run: it is empty\nhint: both sides".to_owned()),
        ("dump", "error: `dump` is no monitored run: it holds dumps (dump.json)\nhint: both sides must be".to_owned()),
        ("notes.txt", "error: `notes.txt` is no monitored run: it is a file and no journal".to_owned()),
        (
            "torn",
            format!(
                "error: `torn/{RUN}/grad_reduced_0-0.csv` line 3, column `norm`: expected a number, found \"x\"\nhint: "
            ),
        ),
    ] {
        let said = desk.compare(&[path, path, "-o", "report"]);
        assert!(said.err.starts_with(&message), "{path}: {}", said.err);
        assert_eq!((said.out.as_str(), said.code), ("", Some(2)), "{path}");
        assert!(!desk.path("report").exists(), "{path}");
    }
    let (found, code) = desk.json(&["missing", "good"]);
    assert_eq!((found["error"]["message"].as_str(), code), (Some("`missing` does not exist"), Some(2)));
}

/// A step with gradients and parameters of some tensors.
fn batch(step: u64) -> StepBatch {
    let record = |kind: Kind, tensor: u32| {
        let value = (step as f64 + 1.3).sqrt() / f64::from(tensor + 3);
        let shape = Shape::new(&[3, 4]).expect("a shape");
        let reading =
            Reading { norm: value, min: Scalar::Float(-value), count: 12, ..Reading::empty(Dtype::F32, shape) };
        Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(0), reading: Some(reading) }
    };
    let kinds = [Kind::GradReduced, Kind::ExpAvg, Kind::Actv];
    StepBatch {
        step: Step(step),
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + step),
        collected: true,
        loss: Some(1.0 / (step as f64 + 3.0)),
        records: kinds.into_iter().flat_map(|kind| (0..5).map(move |tensor| record(kind, tensor))).collect(),
        ..StepBatch::default()
    }
}

#[test]
fn a_journal_and_the_csv_files_of_the_same_run_do_not_part_in_either_dialect() {
    let v1 = r#"{"wg_distribution": true, "mv_distribution": true, "xy_distribution": true, "ops": ["norm", "min"],
        "step_count_per_record": 4, "ndigits": 6}"#;
    let v2 = r#"{"monitors": {"weight_grad": {"enabled": true, "ops": ["norm", "min"]}, "module": {"enabled": true},
        "optimizer": {"enabled": true, "mv_distribution": true}}, "step_count_per_record": 3}"#;
    for text in [v1, v2] {
        let desk = Desk::new();
        let config = Config::parse(text, "t", &|_| None).expect("a good config").config;
        let settings = config.csv.as_ref().expect("CSV is the default");
        let run = JournalRun { run: "run-a".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 1 };
        let spec =
            JournalSpec { file_bytes: MIN_FILE_BYTES, run, config: &config, csv: settings, storage: Storage::Auto };
        let mut journal = Journal::create(&desk.path("journal_rank0.tmj"), &spec).expect("room");
        let mut csv = CsvExporter::in_directory(&config, settings, desk.path("rank_0"));
        let names: Vec<TensorInfo> =
            (0..5).map(|id| TensorInfo { name: format!("l{id}.weight").into(), vpp_stage: 0 }).collect();
        for step in 0..6 {
            journal.append(&names, &batch(step)).expect("room");
            csv.export(&names, &batch(step)).expect("room");
        }
        journal.close().expect("room");
        let (found, code) = desk.json(&["journal_rank0.tmj", "rank_0", "--fail-on", "warning"]);
        assert_eq!((found["verdict"]["answer"].as_str(), code), (Some("no_divergence"), Some(0)), "{found:#}");
        let values = found["ranks"][0]["values"].as_u64();
        assert!(values > Some(150) && found["notes"].as_array().is_some_and(Vec::is_empty), "{found:#}");
    }
}

/// Where the recorded answers of the real msprobe are, if they are here.
fn golden() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden");
    let place = std::env::var_os("TRAINMON_GOLDEN").map_or(beside, PathBuf::from);
    place.join("01_monitor").is_dir().then_some(place)
}

fn skip(name: &str, reason: &str) {
    println!("SKIPPED {name}: {reason}");
    if let Some(log) = std::env::var_os("TRAINMON_SKIP_LOG") {
        let mut log = fs::OpenOptions::new().append(true).create(true).open(log).expect("writable");
        std::io::Write::write_all(&mut log, format!("{name}: {reason}\n").as_bytes()).expect("writable");
    }
}

#[test]
fn msprobes_own_files_are_read_and_a_changed_cell_in_them_is_found() {
    let Some(golden) = golden() else {
        skip("golden monitor runs compared", "no golden data beside the checkout; TRAINMON_GOLDEN names it");
        return;
    };
    let (mut compared, mut changed) = (0, 0);
    for part in ["01_monitor", "02_monitor_dist"] {
        for case in fs::read_dir(golden.join(part)).expect("readable") {
            let run = case.expect("readable").path().join("msprobe_out");
            if !trainmon_offline::compare_runs::is_run(&run) {
                continue;
            }
            let path = run.to_str().expect("UTF-8");
            let said = Desk::new().compare(&[path, path]);
            assert!(said.out.contains("all ") || said.out.contains("neither run has a row"), "{path}: {}", said.out);
            compared += 1;
            changed += usize::from(a_changed_cell_is_found(&run));
        }
    }
    assert!(compared >= 35 && changed >= 20, "{compared} {changed}");
}

/// Copies a run with the last norm of one gradient file a tenth larger. `false` if it has no such file.
fn a_changed_cell_is_found(run: &Path) -> bool {
    let desk = Desk::new();
    let mut change = None;
    let mut ranks: Vec<PathBuf> =
        fs::read_dir(run).expect("readable").map(|entry| entry.expect("readable").path()).collect();
    ranks.sort();
    for rank in ranks.iter().filter(|rank| rank.is_dir() && rank.to_string_lossy().contains("rank")) {
        for file in fs::read_dir(rank).into_iter().flatten().map(|entry| entry.expect("readable").path()) {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            let is_gradient = name.starts_with("grad_reduced_") || name.starts_with("weight_grad_");
            let found = (change.is_none() && is_gradient).then(|| larger_norm(&text)).flatten();
            let text = found.as_ref().map_or(text, |(text, ..)| text.clone());
            change = change.or(found.map(|(_, step, name)| (step, name)));
            let rank = rank.file_name().expect("a name").to_string_lossy().into_owned();
            desk.write(&format!("copy/{rank}/{name}"), &text);
        }
    }
    let Some((step, name)) = change else { return false };
    let (found, code) = desk.json(&["copy", run.to_str().expect("UTF-8")]);
    let first = (found["first"]["step"].as_u64(), found["first"]["name"].as_str());
    assert_eq!((first, code), ((Some(step), Some(name.as_str())), Some(1)), "{}: {}", run.display(), found["verdict"]);
    true
}

fn larger_norm(text: &str) -> Option<(String, u64, String)> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().ok()?.clone();
    let place = |column: &str| header.iter().position(|name| name == column);
    let (norm, step, name) = (place("norm")?, place("step")?, place("name").or_else(|| place("module_name"))?);
    let mut rows: Vec<Vec<String>> =
        reader.records().map(|row| row.expect("a row").iter().map(str::to_owned).collect()).collect();
    let last = rows.last_mut()?;
    let value: f64 = last[norm].parse().ok()?;
    let is_usable = value.is_finite() && value > 1e-3;
    last[norm] = format!("{}", value * 1.1);
    let changed = (last[step].parse().ok()?, last[name].clone());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header).ok()?;
    rows.iter().try_for_each(|row| writer.write_record(row)).ok()?;
    let text = String::from_utf8(writer.into_inner().ok()?).ok()?;
    is_usable.then_some((text, changed.0, changed.1))
}

#[test]
fn the_example_of_the_guide_is_what_the_command_says() {
    let guide = include_str!("../../docs/compare-runs.md");
    let desk = Desk::recorded();
    let said = desk.compare(&["weight", "golden"]);
    let sentence = said.out.lines().next().expect("a sentence");
    assert!(
        guide.contains(&format!(
            "
{sentence}
"
        )),
        "the guide lacks:
{sentence}"
    );
}
