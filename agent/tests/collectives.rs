//! Collective operations under guard: what is counted, timed and measured of them, and what is not.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trainmon_agent::core::config::Config;
use trainmon_agent::core::{CollectiveOp, CollectiveTiming, Dtype, Kind, ProcessGroup, TensorView};
use trainmon_agent::{CollectiveCall, CollectiveGroup, Monitor, Notices, Options, Ranks, StepFacts};

struct Run {
    monitor: Monitor,
    base: tempfile::TempDir,
}

impl Run {
    fn of(config: &str) -> Self {
        let base = tempfile::tempdir().unwrap();
        let config = Config::parse(config, "test.json", &|_| None).unwrap().config;
        let options = Options {
            ranks: Some(Ranks::SINGLE),
            output_dir: Some(base.path().to_path_buf()),
            notices: Notices::new(|notice| panic!("{notice}")),
            ..Options::default()
        };
        Self { monitor: Monitor::start(config, options).unwrap(), base }
    }

    fn end_step(&self) {
        self.monitor.end_step(StepFacts::default());
    }

    /// Shuts down; the rows of each file, as cells by column.
    fn finish(&self) -> BTreeMap<String, Vec<BTreeMap<String, String>>> {
        let report = self.monitor.shutdown();
        assert!(report.balances() && report.lost() == 0, "{report}");
        assert!(self.base.path().exists());
        let directory = self.monitor.locations()[0].1[0].clone();
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), rows(&path))).collect()
    }
}

fn rows(file: &Path) -> Vec<BTreeMap<String, String>> {
    csv::Reader::from_path(file).unwrap().deserialize().map(Result::unwrap).collect()
}

/// An all-reduce over two ranks that both have the same data, in place.
fn all_reduce(group: &CollectiveGroup, data: &mut [f32]) -> CollectiveTiming {
    let guard = {
        let view = TensorView::from_slice(data, &[data.len() as i64]).unwrap();
        group.start(CollectiveCall::of(CollectiveOp::AllReduce, &view))
    };
    std::thread::sleep(Duration::from_millis(2));
    for value in &mut *data {
        *value *= 2.0;
    }
    guard.finish(Some(&TensorView::from_slice(data, &[data.len() as i64]).unwrap()))
}

#[test]
fn a_steps_calls_have_a_row_of_times_and_rows_of_what_went_in_and_came_out() {
    let run = Run::of(
        r#"{"cc_distribution": {"enable": true, "cc_pre_hook": true}, "ops": ["max", "norm"], "step_count_per_record": 9}"#,
    );
    let group = run.monitor.collective_group("dp", 2);
    let mut timings = Vec::new();
    for _step in 0..2 {
        timings.push(all_reduce(&group, &mut [3.0, 4.0]));
        timings.push(all_reduce(&group, &mut [1.0]));
        run.end_step();
    }
    let files = run.finish();
    let cells = |file: &str, columns: &[&str]| -> Vec<String> {
        files[file].iter().map(|row| columns.iter().map(|&c| row[c].as_str()).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(
        cells("comm_0-8.csv", &["name", "step", "max", "norm", "shape", "dtype"]),
        [
            "all_reduce/dp/pre_0 0 4.0 6.0 nan torch.float32",
            "all_reduce/dp/post_0 0 8.0 12.0 nan torch.float32",
            "all_reduce/dp/pre_0 1 4.0 6.0 nan torch.float32",
            "all_reduce/dp/post_0 1 8.0 12.0 nan torch.float32",
        ]
    );
    assert_eq!(
        cells("comm_time_0-8.csv", &["name", "step", "calls", "bytes", "dtype"]),
        ["all_reduce/dp 0 2 12.0 torch.float32", "all_reduce/dp 1 2 12.0 torch.float32",]
    );
    for (row, timings) in files["comm_time_0-8.csv"].iter().zip(timings.chunks(2)) {
        let [first, second] = timings else { panic!("{timings:?}") };
        let number = |column: &str| row[column].parse::<f64>().unwrap();
        let seconds = first.seconds + second.seconds;
        assert_eq!((number("seconds"), number("waited")), (seconds, seconds));
        assert_eq!(number("longest"), first.seconds.max(second.seconds));
        assert_eq!(number("median"), first.seconds.min(second.seconds), "the lower of two");
        assert!(first.seconds >= 0.002 && second.seconds >= 0.002);
        assert_eq!(number("algbw"), 12.0 / seconds / 1e9);
        assert_eq!(number("busbw"), number("algbw"), "of two ranks");
    }
    let sequences: Vec<&str> = files["comm_time_0-8.csv"].iter().map(|row| row["sequence"].as_str()).collect();
    assert_eq!(sequences, ["2.0", "4.0"]);
}

#[test]
fn counts_go_on_outside_of_measured_steps_and_without_the_key() {
    let run = Run::of(r#"{"wg_distribution": true, "format": ["csv"]}"#);
    let group = run.monitor.collective_group("dp", 2);
    for _step in 0..3 {
        all_reduce(&group, &mut [1.0; 256]);
        run.end_step();
    }
    drop(group.start(CollectiveCall::new(CollectiveOp::Barrier, Dtype::U8, 0)));
    let files = run.finish();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["alerts.jsonl", "steps.csv"]);
    let report = run.monitor.report();
    let [sums, barrier] = &report.collectives[..] else { panic!("{report}") };
    assert_eq!((sums.started, sums.finished, sums.failed, sums.bytes), (3, 3, 0, 3 * 1024));
    assert!(sums.median >= Duration::from_millis(2) && sums.late >= sums.median, "{sums:?}");
    assert_eq!((barrier.started, barrier.finished, barrier.failed), (1, 0, 1), "given up");
    let text = report.to_string();
    assert!(text.contains("all_reduce in dp: 3 operations"), "{text}");
    assert!(text.contains("barrier in dp: 1 operation, 0.0 MiB, 1 failed"), "{text}");
}

#[test]
fn a_call_that_ends_in_a_later_step_on_another_thread_is_a_record_of_the_step_it_began_in() {
    let run = Run::of(r#"{"cc_distribution": {"enable": true}, "ops": ["norm"], "step_count_per_record": 9}"#);
    let group = run.monitor.collective_group("dp", 2);
    let begin = |group: &CollectiveGroup| group.start(CollectiveCall::new(CollectiveOp::AllGather, Dtype::F32, 16));
    let first = begin(&group);
    run.end_step();
    let second = begin(&group);
    run.end_step();
    let waiting = std::thread::Builder::new().name("waits".to_owned()).spawn(move || {
        first.finish(Some(&TensorView::from_slice(&[3.0_f32, 4.0], &[2]).unwrap()));
        second.finish(None);
    });
    waiting.unwrap().join().unwrap();
    let files = run.finish();
    let steps =
        |file: &str| files[file].iter().map(|row| format!("{} {}", row["name"], row["step"])).collect::<Vec<_>>();
    assert_eq!(steps("comm_time_0-8.csv"), ["all_gather/dp 0", "all_gather/dp 1"]);
    assert_eq!(steps("comm_0-8.csv"), ["all_gather/dp/post_0 0"]);
}

#[test]
fn the_scrape_page_has_counts_sizes_and_a_histogram_per_operation_and_group() {
    let run = Run::of(r#"{"wg_distribution": true, "format": ["prometheus"], "prometheus": {"port": 0}}"#);
    let group = run.monitor.collective_group("dp", 2);
    all_reduce(&group, &mut [1.0; 256]);
    // The first is the live page.
    let address = run.monitor.locations()[0].1[1].clone();
    let page = ureq::get(&address).call().unwrap().body_mut().read_to_string().unwrap();
    let labels = r#"{op="all_reduce",process_group="dp"}"#;
    for line in [
        format!("trainmon_collective_operations_total{labels} 1"),
        format!("trainmon_collective_failures_total{labels} 0"),
        format!("trainmon_collective_payload_bytes_total{labels} 1024"),
        format!("trainmon_collective_duration_seconds_count{labels} 1"),
        r#"trainmon_collective_duration_seconds_bucket{op="all_reduce",process_group="dp",le="0.001"} 0"#.to_owned(),
        r#"trainmon_collective_duration_seconds_bucket{op="all_reduce",process_group="dp",le="+Inf"} 1"#.to_owned(),
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    run.monitor.shutdown();
}

#[test]
fn a_shut_down_monitor_and_one_that_measures_nothing_are_harmless() {
    let inert = Monitor::inert(Notices::new(|notice| panic!("{notice}")));
    let run = Run::of(r#"{"cc_distribution": {"enable": true}, "ops": ["norm"]}"#);
    let group = run.monitor.collective_group("dp", 2);
    let open = group.start(CollectiveCall::new(CollectiveOp::Send, Dtype::F32, 4));
    run.monitor.shutdown();
    open.finish(Some(&TensorView::from_slice(&[1.0_f32], &[1]).unwrap()));
    all_reduce(&group, &mut [1.0]);
    let timing = all_reduce(&inert.collective_group("dp", 2), &mut [1.0; 1000]);
    assert_eq!(timing.bytes, 4000);
    assert!(inert.request(Kind::Comm).is_none());
    assert!(run.monitor.report().balances());
}

#[test]
fn what_is_open_is_told_with_its_group_number_and_line_until_it_ends() {
    let run = Run::of(r#"{"cc_distribution": {"enable": true}, "ops": ["norm"], "step_count_per_record": 9}"#);
    let group = run.monitor.process_group(ProcessGroup::of_ranks("dp", Some("dp"), vec![4, 6]), 10);
    let line: Arc<str> = Arc::from("train.py[12]");
    let gathering =
        CollectiveCall { caller: Some(&line), ..CollectiveCall::new(CollectiveOp::AllGather, Dtype::F32, 16) };
    let first = group.start(gathering);
    let second = group.clone().start(CollectiveCall::new(CollectiveOp::Send, Dtype::F32, 4));
    let told = || {
        let open = run.monitor.open_collectives().into_iter();
        open.map(|it| (it.op.name(), it.sequence, it.group.ranks.to_vec(), it.caller.as_deref().map(str::to_owned)))
            .collect::<Vec<_>>()
    };
    let gather = ("all_gather", 11, vec![4, 6], Some("train.py[12]".to_owned()));
    assert_eq!(told(), [gather.clone(), ("send", 1, vec![4, 6], None)]);
    assert!(run.monitor.open_collectives()[0].since <= run.monitor.open_collectives()[1].since);
    second.release();
    assert_eq!(told(), [gather]);
    first.finish(None);
    assert_eq!(told(), []);
    drop(group.start(gathering));
    assert_eq!(told(), [], "given up");
    // Another group of that name has another.
    let other = run.monitor.process_group(ProcessGroup::of_ranks("dp", None, vec![0, 2]), 0);
    assert_eq!((group.name(), other.name()), ("dp", "dp_2"));
    run.end_step();
    let files = run.finish();
    let rows: Vec<_> =
        files["comm_time_0-8.csv"].iter().map(|row| format!("{} {}", row["name"], row["sequence"])).collect();
    assert_eq!(rows, ["send/dp 1.0", "all_gather/dp@train.py[12] 11.0"]);
    assert_eq!((&*files["comm_time_0-8.csv"][0]["calls"], &*files["comm_time_0-8.csv"][0]["median"]), ("1", "nan"));
    let sends = run.monitor.report().collectives.into_iter().find(|series| series.op == CollectiveOp::Send).unwrap();
    assert_eq!((sends.started, sends.finished, sends.failed), (1, 0, 0), "nobody knows when it ended");
}
