//! Journals.

use std::time::{Duration, SystemTime};

use trainmon_core::config::Config;
use trainmon_core::{
    Dtype, Kind, MicroStep, Rank, Record, Scalar, Shape, Step, StepBatch, TensorId, TensorInfo, TensorStats,
};
use trainmon_exporters::{CsvExporter, Exporter as _};
use trainmon_journal::{Journal, JournalRun, JournalSpec, MIN_FILE_BYTES, Storage};

use crate::workspace::Workspace;

/// A step with gradients and parameters of some tensors.
fn batch(step: u64) -> StepBatch {
    let record = |kind: Kind, tensor: u32| {
        let value = (step as f64 + 1.3).sqrt() / f64::from(tensor + 3);
        let shape = Shape::new(&[3, 4]).expect("a shape");
        let reading =
            TensorStats { norm: value, min: Scalar::Float(-value), count: 12, ..TensorStats::empty(Dtype::F32, shape) };
        Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(0), reading: Some(reading.into()) }
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
        let workspace = Workspace::new();
        let config = Config::parse(text, "t", &|_| None).expect("a good config").config;
        let settings = config.csv.as_ref().expect("CSV is the default");
        let run = JournalRun { run: "run-a".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 1 };
        let spec =
            JournalSpec { file_bytes: MIN_FILE_BYTES, run, config: &config, csv: settings, storage: Storage::Auto };
        let mut journal = Journal::create(&workspace.path("journal_rank0.tmj"), &spec).expect("room");
        let mut csv = CsvExporter::in_directory(&config, settings, workspace.path("rank_0"));
        let names: Vec<TensorInfo> =
            (0..5).map(|id| TensorInfo { name: format!("l{id}.weight").into(), vpp_stage: 0 }).collect();
        let reading = Some(trainmon_core::Reading::of_values(&[0.5]));
        let told = Record { tensor: TensorId(0), kind: Kind::Scalar, micro_step: MicroStep(0), reading };
        for step in 0..6 {
            // What a script told by name is in both, and compared in neither.
            let mut batch = batch(step);
            batch.records.push(told);
            journal.append(&names, &batch).expect("room");
            csv.export(&names, &batch).expect("room");
        }
        journal.close().expect("room");
        let (found, code) = workspace.json(&["journal_rank0.tmj", "rank_0", "--fail-on", "warning"]);
        assert_eq!((found["verdict"]["answer"].as_str(), code), (Some("no_divergence"), Some(0)), "{found:#}");
        let values = found["ranks"][0]["values"].as_u64();
        assert!(values > Some(150) && found["notes"].as_array().is_some_and(Vec::is_empty), "{found:#}");
    }
}
