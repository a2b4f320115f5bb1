//! Rows that are written are read back as what they were, in either layout: names, columns and cells are known in one place.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::path::Path;

use trainmon_core::config::{Config, Dialect, Signal, Signals, WeightGrad};
use trainmon_core::{
    Dtype, Kind, MicroStep, Reading, Record, Scalar, Shape, Statistic, Step, TensorId, TensorInfo, TensorStats,
};
use trainmon_run_files::{
    FileUse, LineFile, Lines, NumberColumns, RankFiles, Selection, StepColumn, Style, file_class, rank_directory,
    runs_in,
};

const OPS: [Statistic; 5] = [Statistic::Norm, Statistic::Min, Statistic::Max, Statistic::Nans, Statistic::Zeros];
const KINDS: [Kind; 5] = [Kind::GradUnreduced, Kind::GradReduced, Kind::ExpAvg, Kind::MgDirection, Kind::UpdateRatio];

fn config(dialect: Dialect) -> Config {
    let signal = || Signal { ops: OPS.to_vec(), eps: 0.0 };
    let weight_grad = WeightGrad { signal: signal(), every_micro_batch: true, micro_batches: None };
    let signals = Signals {
        weight_grad: Some(weight_grad),
        moments: Some(signal()),
        mg_direction: Some(signal()),
        update: Some(signal()),
        param: None,
        activations: None,
    };
    Config { dialect, signals, ..Config::default() }
}

/// The reading of a kind in a step.
fn reading(kind: Kind, step: u64) -> Reading {
    if !kind.value_columns().is_empty() {
        return Reading::of_values(&[0.5 + step as f64]);
    }
    let shape = Shape::new(&[2, 4]).unwrap();
    TensorStats {
        norm: 1.25 + step as f64,
        min: Scalar::Float(-2.0),
        max: Scalar::Float(1e-7),
        abs_max: 2.0,
        nans: 1,
        zeros: 2,
        count: 8,
        ..TensorStats::empty(Dtype::Bf16, shape)
    }
    .into()
}

fn write(config: &Config, directory: &Path, steps: u64, per_file: u64) -> Vec<String> {
    let info = TensorInfo { name: "-fc.weight".into(), vpp_stage: 0 };
    let mut names = Vec::new();
    for step in (0..steps).map(Step) {
        for kind in KINDS {
            let class = file_class(config, kind).unwrap();
            let mut lines = Lines::new(Style { dialect: config.dialect, ndigits: None, has_chunks: false });
            let record =
                Record { tensor: TensorId(0), kind, micro_step: MicroStep(1), reading: Some(reading(kind, step.0)) };
            lines.push(&class.columns, step, &info, &record).unwrap();
            let name = class.file_name(config, step, per_file);
            let path = directory.join(&name);
            LineFile::open(path, &class.header(config.dialect)).unwrap().append(&lines.into_bytes().unwrap()).unwrap();
            names.push(name);
        }
    }
    names.sort();
    names.dedup();
    names
}

fn read_back(config: &Config, base: &Path, steps: u64) {
    let runs = runs_in(base).unwrap();
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert!(run.name == "rank3" && run.strangers.is_empty(), "{run:?}");
    let selection =
        Selection { tables: &|_| true, empty_rows: &|_| true, steps: &StepColumn::ALL, file_use: FileUse::Held };
    let mut warn = |warning| panic!("{warning}");
    let mut files = RankFiles::open(run, &selection, |_, layout| NumberColumns::of(layout), &mut warn).unwrap();
    for step in 0..steps {
        assert_eq!(files.peek(&mut warn).unwrap(), Some(step));
        let mut kinds = Vec::new();
        let first_micro_step = u32::from(config.dialect == Dialect::V2);
        files
            .rows(step, &mut warn, |row| {
                let kind = Kind::from_name(row.of.kind).unwrap();
                assert_eq!((row.of.name, row.of.vpp_stage), ("-fc.weight", 0));
                let has_micro_step = trainmon_core::micro_step_column(config, kind);
                assert_eq!(row.of.micro_step, has_micro_step.then_some(1 + first_micro_step), "{kind:?}");
                let (read, written) = (row.kept.reading(kind, row.of, row.cells)?.unwrap(), reading(kind, step));
                if let (Some(read), Some(written)) = (read.tensor(), written.tensor()) {
                    assert_eq!(OPS.map(|op| read.value(op)), OPS.map(|op| written.value(op)), "{kind:?}");
                    assert_eq!(read.abs_max, 2.0);
                    if config.dialect == Dialect::V1 {
                        assert_eq!((read.shape, read.dtype, read.count), (written.shape, written.dtype, 8));
                    }
                } else {
                    assert_eq!(read.values(), written.values(), "{kind:?}");
                }
                kinds.push(kind);
                Ok(())
            })
            .unwrap();
        kinds.sort_by_key(|kind| KINDS.iter().position(|known| known == kind));
        assert_eq!(kinds, KINDS);
    }
    assert_eq!(files.peek(&mut warn).unwrap(), None);
}

#[test]
fn rows_are_read_back_as_they_were_written_in_either_layout() {
    for (dialect, files) in [
        (
            Dialect::V1,
            [
                ["exp_avg_0-1.csv", "exp_avg_2-3.csv"],
                ["grad_reduced_0-1.csv", "grad_reduced_2-3.csv"],
                ["grad_unreduced_0-1.csv", "grad_unreduced_2-3.csv"],
                ["other_0-1.csv", "other_2-3.csv"],
                ["update_ratio_0-1.csv", "update_ratio_2-3.csv"],
            ]
            .concat(),
        ),
        (
            Dialect::V2,
            [
                ["mg_direction_step0-1.csv", "mg_direction_step2-3.csv"],
                ["optimizer_step0-1.csv", "optimizer_step2-3.csv"],
                ["update_ratio_step0-1.csv", "update_ratio_step2-3.csv"],
                ["weight_grad_step0-1.csv", "weight_grad_step2-3.csv"],
            ]
            .concat(),
        ),
    ] {
        let base = tempfile::tempdir().unwrap();
        let (config, directory) = (config(dialect), base.path().join(rank_directory(trainmon_core::Rank(3))));
        assert_eq!(write(&config, &directory, 3, 2), files);
        read_back(&config, base.path(), 3);
    }
}
