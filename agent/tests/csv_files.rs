//! What the CSV files of a run hold, from the hooks to the disk.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trainmon_agent::core::config::{Config, FileLayout, FrontTask};
use trainmon_agent::core::{GradNorm, Kind, MicroStep, Reading, Record, Statistic, TensorStats, TensorView};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StepFacts};

struct Run {
    monitor: Monitor,
    said: Arc<Mutex<Vec<String>>>,
    base: tempfile::TempDir,
}

impl Run {
    fn of(config: &str) -> Self {
        Self::below(tempfile::tempdir().unwrap(), config)
    }

    fn below(base: tempfile::TempDir, config: &str) -> Self {
        let config = Config::parse(config, "test.json", &|_| None).unwrap().config;
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let options = Options {
            ranks: Some(Ranks::SINGLE),
            output_dir: Some(base.path().to_path_buf()),
            layout: FileLayout::Msprobe,
            notices: Notices::new(move |notice| heard.lock().unwrap().push(notice.to_string())),
            ..Options::default()
        };
        Self { monitor: Monitor::start(config, options).unwrap(), said, base }
    }

    fn observe(&self, name: &str, data: &[f32]) {
        let tensor = self.monitor.register(name, 0);
        let view = TensorView::from_slice(data, &[data.len() as i64]).unwrap();
        self.monitor.observe(tensor, Kind::GradReduced, MicroStep(0), &view);
    }

    fn record(&self, name: &str, kind: Kind, micro_step: u32, values: [f64; 2]) {
        let tensor = self.monitor.register(name, 0);
        let reading = Some(Reading::of_values(&values));
        self.monitor.record(Record { tensor, kind, micro_step: MicroStep(micro_step), reading }, Duration::ZERO, 0);
    }

    fn end_step(&self) {
        self.monitor.end_step(StepFacts::default());
    }

    fn directory(&self) -> PathBuf {
        self.monitor.locations()[0].1[0].clone().into()
    }

    /// Shuts down; the files by name, and what was said.
    fn finish(self) -> (BTreeMap<String, String>, Vec<String>, tempfile::TempDir) {
        let report = self.monitor.shutdown();
        assert!(report.balances() && report.lost() == 0, "{report}");
        let said = self.said.lock().unwrap().clone();
        (files(&self.directory()), said, self.base)
    }
}

fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

#[test]
fn each_feature_has_its_file_with_the_incumbents_columns() {
    let run = Run::of(
        r#"{"recording_l2_features": true, "ndigits": 8, "l2_targets": {"linear_hook": [], "attention_hook": ["a"],
            "moe_router_weight_hook": ["r"], "moe_router_logit_hook": ["r"]}}"#,
    );
    run.record("a.attention", Kind::AttentionHook, 1, [0.471_5, 0.798_8]);
    // The first row of a recorded run, before its rounding to eight decimals.
    run.record("blocks.0.attn.qkv.linear", Kind::LinearHook, 1, [2.030_084_611_3, 1.451_757_434_9]);
    run.record("r.moe_router", Kind::MoeRouterWeightHook, 0, [0.25, f64::NAN]);
    run.record("r.moe_router", Kind::MoeRouterLogitHook, 1, [1.5, f64::NAN]);
    run.end_step();
    let (files, _, _) = run.finish();
    for (name, expected) in [
        (
            "attention_hook_0-0.csv",
            "vpp_stage,name,step,micro_step,entropy,softmax_max\n0,a.attention,0,1,0.4715,0.7988\n",
        ),
        (
            "linear_hook_0-0.csv",
            "vpp_stage,name,step,sr,kernel_norm\n0,blocks.0.attn.qkv.linear,0,2.03008461,1.45175743\n",
        ),
        ("moe_router_weight_hook_0-0.csv", "vpp_stage,name,step,router_weight_similarity\n0,r.moe_router,0,0.25\n"),
        (
            "moe_router_logit_hook_0-0.csv",
            "vpp_stage,name,step,micro_step,per_token_expert_entropy\n0,r.moe_router,0,1,1.5\n",
        ),
    ] {
        assert_eq!(files[name], expected);
    }
}

#[test]
fn a_feature_that_is_not_asked_for_has_no_file() {
    let run = Run::of(r#"{"recording_l2_features": true, "l2_targets": {"linear_hook": []}}"#);
    assert!(run.monitor.request(Kind::LinearHook).is_some());
    assert!(run.monitor.request(Kind::AttentionHook).is_none());
    run.record("a.attention", Kind::AttentionHook, 0, [1.0, 1.0]);
    run.end_step();
    assert_eq!(run.finish().0.into_keys().collect::<Vec<_>>(), ["steps.csv"]);
}

#[test]
fn the_steps_file_has_both_norms_and_their_ratio() {
    let run = Run::of(r#"{"wg_distribution": true}"#);
    run.observe("fc.weight", &[3.0, 4.0]);
    run.monitor.end_step(StepFacts { framework_grad_norm: Some(4.0), ..StepFacts::default() });
    run.monitor.end_step(StepFacts { grad_norm: GradNorm::Unknown, ..StepFacts::default() });
    let (files, _, _) = run.finish();
    let mut reader = csv::Reader::from_reader(files["steps.csv"].as_bytes());
    let columns = ["grad_norm", "framework_grad_norm", "grad_norm_ratio"];
    let places = columns.map(|column| reader.headers().unwrap().iter().position(|name| name == column).unwrap());
    let rows: Vec<_> =
        reader.records().map(|row| places.map(|place| row.as_ref().unwrap()[place].to_owned())).collect();
    assert_eq!(rows, [["5.0", "4.0", "1.25"], ["", "", ""]]);
}

/// Header and rows without shape and dtype, which would hide the point.
fn lines(file: &str) -> Vec<&str> {
    file.lines().map(|line| line.rsplitn(3, ',').nth(2).unwrap()).collect()
}

/// Twenty steps per file, so that a change falls into a file.
const LONG_FILES: &str = r#"{"wg_distribution": true, "ops": ["norm"], "step_count_per_record": 20}"#;

#[test]
fn other_statistics_begin_a_file_of_their_own_and_nothing_stands_under_a_wrong_header() {
    let run = Run::of(LONG_FILES);
    let data = [1.0, -2.0, 2.0];
    run.observe("w", &data);
    run.end_step();
    assert_eq!(
        run.monitor.set_ops(&[Statistic::Max, Statistic::Min, Statistic::Max]),
        [Statistic::Max, Statistic::Min]
    );
    run.observe("w", &data);
    run.end_step();
    assert_eq!(run.monitor.set_ops(&[]), [Statistic::Norm]);
    run.observe("w", &data);
    run.end_step();
    let (files, _, _) = run.finish();
    assert_eq!(lines(&files["grad_reduced_0-19.csv.old"]), ["vpp_stage,name,step,norm", "0,w,0,3.0"]);
    assert_eq!(lines(&files["grad_reduced_0-19.csv.old.2"]), ["vpp_stage,name,step,max,min", "0,w,1,2.0,-2.0"]);
    assert_eq!(lines(&files["grad_reduced_0-19.csv"]), ["vpp_stage,name,step,norm", "0,w,2,3.0"]);
}

#[test]
fn a_step_that_is_under_way_keeps_its_columns_and_so_do_its_late_readings() {
    let run = Run::of(r#"{"wg_distribution": true, "ops": ["norm"]}"#);
    let data = [1.0, -2.0, 2.0];
    run.observe("a", &data);
    run.monitor.set_ops(&[Statistic::Min]);
    run.observe("b", &data);
    run.end_step();
    let pending = run.monitor.pending_step();
    run.monitor.set_ops(&[Statistic::Mean]);
    let held = run.monitor.request(Kind::GradReduced).unwrap().statistics;
    assert!(held.contains(Statistic::Min) && held.contains(Statistic::Mean), "{held:?}");
    run.end_step();
    let tensor = run.monitor.register("late", 0);
    let reading = Some(TensorStats::of_value(-7.0).into());
    pending.record(Record { tensor, kind: Kind::GradReduced, micro_step: MicroStep(0), reading });
    drop(pending);
    run.observe("c", &[3.0, 5.0]);
    run.end_step();
    let (files, _, _) = run.finish();
    assert_eq!(lines(&files["grad_reduced_0-0.csv"]), ["vpp_stage,name,step,norm", "0,a,0,3.0", "0,b,0,3.0"]);
    assert_eq!(lines(&files["grad_reduced_1-1.csv"]), ["vpp_stage,name,step,min", "0,late,1,-7.0"]);
    assert_eq!(lines(&files["grad_reduced_2-2.csv"]), ["vpp_stage,name,step,mean", "0,c,2,4.0"]);
}

#[test]
fn other_statistics_leave_plain_numbers_and_the_global_norm_alone() {
    let run = Run::of(r#"{"wg_distribution": true, "recording_l2_features": true, "l2_targets": {"linear_hook": []}}"#);
    run.monitor.set_ops(&[Statistic::Max]);
    run.observe("w", &[3.0, 4.0]);
    run.record("a.linear", Kind::LinearHook, 0, [1.0, 2.0]);
    run.end_step();
    let (files, _, _) = run.finish();
    assert_eq!(files["linear_hook_0-0.csv"], "vpp_stage,name,step,sr,kernel_norm\n0,a.linear,0,1.0,2.0\n");
    let mut reader = csv::Reader::from_reader(files["steps.csv"].as_bytes());
    let place = reader.headers().unwrap().iter().position(|name| name == "grad_norm").unwrap();
    assert_eq!(&reader.records().next().unwrap().unwrap()[place], "5.0");
}

const YEAR: &str = r#"["Jan01_00-00-00", "Dec31_23-59-59"]"#;

#[test]
fn a_run_made_in_the_window_is_appended_to() {
    let first = Run::of(LONG_FILES);
    let directory = first.directory();
    first.observe("w", &[3.0, 4.0]);
    first.end_step();
    let (_, _, base) = first.finish();
    let config = LONG_FILES.replace('}', &format!(", \"append_output\": {YEAR}}}"));
    let second = Run::below(base, &config);
    assert_eq!(second.directory(), directory);
    second.monitor.end_step(StepFacts::default());
    second.observe("w", &[6.0, 8.0]);
    second.end_step();
    let (files, said, _base) = second.finish();
    assert_eq!(lines(&files["grad_reduced_0-19.csv"]), ["vpp_stage,name,step,norm", "0,w,0,5.0", "0,w,1,10.0"]);
    assert_eq!(files["steps.csv"].lines().filter(|line| line.starts_with("step,")).count(), 1);
    assert_eq!(said, [""; 0]);
}

#[test]
fn without_a_run_in_the_window_a_new_one_is_made_and_said() {
    let config = format!(r#"{{"wg_distribution": true, "append_output": {YEAR}}}"#);
    let run = Run::of(&config);
    run.observe("w", &[3.0, 4.0]);
    run.end_step();
    let (files, said, _base) = run.finish();
    assert!(files.contains_key("grad_reduced_0-0.csv"));
    let [said] = said.as_slice() else { panic!("{said:?}") };
    assert!(said.contains("`append_output`: ") && said.contains("no run of rank 0 from Jan01_00-00-00"), "{said}");
}

#[test]
fn a_front_that_does_not_do_a_task_says_so_by_name() {
    let config = Config::parse(r#"{"print_struct": true, "stack_info": true}"#, "test.json", &|_| None).unwrap().config;
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let base = tempfile::tempdir().unwrap();
    let options = Options {
        ranks: Some(Ranks::SINGLE),
        output_dir: Some(base.path().to_path_buf()),
        front_tasks: &[FrontTask::PrintStruct],
        notices: Notices::new(move |notice| heard.lock().unwrap().push(notice.message.clone())),
        ..Options::default()
    };
    Monitor::start(config, options).unwrap().shutdown();
    assert_eq!(*said.lock().unwrap(), ["`stack_info` has no effect: this front does not support it"]);
}

#[test]
fn what_a_script_tells_by_name_is_a_row_of_its_step_whether_tensors_are_measured_in_it_or_not() {
    // Steps 1 and 3 are outside the window.
    let run = Run::of(r#"{"wg_distribution": true, "step_interval": 2, "ndigits": 2, "step_count_per_record": 10}"#);
    for step in 0..4 {
        run.monitor.scalar("accuracy", -1.0);
        run.monitor.scalar("tokens, per \"s\"", 1e9 + f64::from(step));
        // The last one counts.
        run.monitor.scalar("accuracy", f64::from(step) / 3.0);
        run.end_step();
    }
    // What is told of a step that is not made is not the next one's.
    run.monitor.scalar("accuracy", 7.0);
    run.monitor.skip_step();
    run.end_step();
    let pending = run.monitor.pending_step();
    run.end_step();
    let tensor = run.monitor.scalar_id("accuracy").unwrap();
    let reading = Some(Reading::of_values(&[f64::NAN]));
    pending.record(Record { tensor, kind: Kind::Scalar, micro_step: MicroStep(0), reading });
    drop(pending);
    let report = run.monitor.shutdown();
    // Two names in four steps, one skipped, one late: what took another's place is one record with it.
    assert_eq!((report.counts.observed, report.counts.not_sampled), (10, 1));
    let (files, said, _base) = run.finish();
    let rows = "vpp_stage,name,step,value\n\
        0,accuracy,0,0.0\n0,\"tokens, per \"\"s\"\"\",0,1000000000.0\n\
        0,accuracy,1,0.3333333333333333\n0,\"tokens, per \"\"s\"\"\",1,1000000001.0\n\
        0,accuracy,2,0.6666666666666666\n0,\"tokens, per \"\"s\"\"\",2,1000000002.0\n\
        0,accuracy,3,1.0\n0,\"tokens, per \"\"s\"\"\",3,1000000003.0\n0,accuracy,5,nan\n";
    assert_eq!(files["scalar_0-9.csv"], rows);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["scalar_0-9.csv", "steps.csv"]);
    assert_eq!(said, [""; 0]);
}

#[test]
fn names_without_end_are_bounded_counted_and_told_once() {
    let run = Run::of(r#"{"wg_distribution": true}"#);
    for step in 0..1_010 {
        run.monitor.scalar(&format!("loss of step {step}"), 1.0);
    }
    for unfit in ["", "two\nlines", &"x".repeat(257)] {
        run.monitor.scalar(unfit, 1.0);
    }
    run.end_step();
    let counts = run.monitor.shutdown().counts;
    assert_eq!((counts.observed, counts.not_sampled), (1_013, 13));
    let (files, said, _base) = run.finish();
    assert_eq!(files["scalar_0-0.csv"].lines().count(), 1_001);
    let [many, unfit] = said.as_slice() else { panic!("{said:?}") };
    assert!(many.contains("`loss of step 1000`") && many.contains("at most 1000 names"), "{many}");
    assert!(unfit.contains("its name is invalid"), "{unfit}");
}

#[test]
fn other_statistics_say_nothing_about_what_a_script_tells() {
    let run = Run::of(r#"{"wg_distribution": true}"#);
    let is_plain = |run: &Run| run.monitor.request(Kind::Scalar).is_some_and(|request| request.statistics.is_empty());
    assert!(is_plain(&run));
    run.monitor.set_ops(&[Statistic::Max]);
    assert!(is_plain(&run));
}

#[test]
fn older_steps_are_thinned_out_where_the_files_reach_their_budget() {
    let steps = 3_000;
    let config = r#"{"wg_distribution": true, "ops": ["norm"], "layout": "run", "csv_budget_mib": 1, "queue_steps": 4096,
            "shutdown_timeout_ms": 600000}"#;
    let run = Run::of(config);
    for step in 0..steps {
        for number in 0..10 {
            run.observe(&format!("layer.{number}"), &[step as f32, number as f32]);
        }
        run.end_step();
        // The thinning of one file is to be over before the next ones are complete.
        std::thread::sleep(Duration::from_micros(300));
    }
    let (files, said, _base) = run.finish();
    let rows = |name: &String| files[name].lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let names: Vec<&String> = files.keys().filter(|name| name.starts_with("grad_reduced_")).collect();
    assert_eq!(names.len(), 30, "a file has fewer steps than the layout has, since they are large: {names:?}");
    assert_eq!(files["steps.csv"].lines().count(), steps + 1, "what is told of the steps themselves stays whole");
    let size: usize = names.iter().map(|name| files[*name].len()).sum::<usize>() + files["steps.csv"].len();
    assert!(size < (1 << 20) * 5 / 4, "{size}");
    let mut kept: Vec<usize> =
        names.iter().flat_map(|name| rows(name)).map(|row| row.split(',').nth(2).unwrap().parse().unwrap()).collect();
    kept.sort_unstable();
    kept.dedup();
    assert!(kept.ends_with(&(steps - 100..steps).collect::<Vec<_>>()), "the newest are whole");
    assert!(kept.len() < steps * 3 / 4, "{}", kept.len());
    for row in names.iter().flat_map(|name| rows(name)) {
        let cells: Vec<&str> = row.split(',').collect();
        let (step, number): (f64, f64) =
            (cells[2].parse().unwrap(), cells[1].strip_prefix("layer.").unwrap().parse().unwrap());
        assert_eq!(cells[3].parse::<f64>().unwrap() as f32, step.hypot(number) as f32, "{row}");
    }
    let told: serde_json::Value = serde_json::from_str(&files["thinned.json"]).unwrap();
    for one in told["thinned"].as_array().unwrap() {
        let [first, last, every] =
            ["first_step", "last_step", "one_step_in"].map(|key| one[key].as_u64().unwrap() as usize);
        let there: Vec<usize> = kept.iter().copied().filter(|step| (first..=last).contains(step)).collect();
        assert_eq!(there, (first..=last).filter(|step| step % every == 0).collect::<Vec<_>>());
    }
    assert!(
        said.iter().any(|line| line.contains("csv: the files reached their limit of 1 MiB (`csv_budget_mib`)")),
        "{said:?}"
    );
}
