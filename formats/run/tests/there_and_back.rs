//! Rows that are written are read back as what they were, in either layout: names, columns and cells are known in one place.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::path::Path;

use trainmon_core::config::{Config, Dialect, Signal, Signals, WeightGrad};
use trainmon_core::{
    Dtype, Kind, LeftOut, MicroStep, Reading, Record, Repeats, Scalar, Shape, Statistic, Step, StepBatch, TensorId,
    TensorInfo, TensorStats,
};
use trainmon_run_files::{
    FileUse, LineFile, Lines, NumberColumns, RankFiles, Selection, StepColumn, Style, file_class, rank_directory,
    runs_in, write_left_out,
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
    assert!(run.name == "rank3" && run.other_files.is_empty(), "{run:?}");
    let selection = Selection { tables: &|_| true, empty_rows: true, steps: &StepColumn::ALL, file_use: FileUse::Held };
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
                let (read, written) = (row.kept.reading(kind, &row.of, &row.cells)?.unwrap(), reading(kind, step));
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

/// The norms of tensors in a step: kind, tensor, norm.
type Norms = Vec<(Kind, u32, f64)>;

/// Writes the steps without the rows that say what others say; every norm that is read of them.
fn without_repeats(left_out: LeftOut, steps: &[(u64, Norms)]) -> Vec<(u64, Norms)> {
    let signal = || Signal { ops: OPS.to_vec(), eps: 0.0 };
    let weight_grad = WeightGrad { signal: signal(), every_micro_batch: false, micro_batches: None };
    let signals = Signals { weight_grad: Some(weight_grad), param: Some(signal()), ..Signals::default() };
    let config = Config { dialect: Dialect::V1, signals, ..Config::default() };
    let base = tempfile::tempdir().unwrap();
    let directory = base.path().join(rank_directory(trainmon_core::Rank(0)));
    write_left_out(&directory, left_out).unwrap();
    let mut repeats = Repeats::new(left_out);
    for (step, norms) in steps {
        let record = |&(kind, tensor, norm): &(Kind, u32, f64)| {
            let stats = TensorStats { norm, count: 8, ..TensorStats::empty(Dtype::F32, Shape::new(&[8]).unwrap()) };
            Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(0), reading: Some(stats.into()) }
        };
        let batch =
            StepBatch { step: Step(*step), records: norms.iter().map(record).collect(), ..StepBatch::default() };
        for record in repeats.written(&batch) {
            let class = file_class(&config, record.kind).unwrap();
            let info = TensorInfo { name: format!("fc{}.weight", record.tensor.0).into(), vpp_stage: 0 };
            let mut lines = Lines::new(Style { dialect: Dialect::V1, ndigits: None, has_chunks: false });
            lines.push(&class.columns, batch.step, &info, &record).unwrap();
            // A file of few steps: what is held against the step before may lie in another file.
            let path = directory.join(class.file_name(&config, batch.step, 2));
            LineFile::open(path, &class.header(Dialect::V1)).unwrap().append(&lines.into_bytes().unwrap()).unwrap();
        }
    }
    let run = &runs_in(base.path()).unwrap()[0];
    let selection = Selection { tables: &|_| true, empty_rows: false, steps: &[], file_use: FileUse::Held };
    let mut warn = |warning| panic!("{warning}");
    let mut files = RankFiles::open(run, &selection, |_, layout| NumberColumns::of(layout), &mut warn).unwrap();
    let mut read: Vec<(u64, Norms)> = Vec::new();
    while let Some(step) = files.peek(&mut warn).unwrap() {
        let mut norms = Norms::new();
        files
            .rows(step, &mut warn, |row| {
                let kind = Kind::from_name(row.of.kind).unwrap();
                let tensor = row.of.name.trim_matches(|of: char| !of.is_ascii_digit()).parse().unwrap();
                let reading = row.kept.reading(kind, &row.of, &row.cells)?.unwrap();
                norms.push((kind, tensor, reading.tensor().unwrap().norm));
                Ok(())
            })
            .unwrap();
        read.push((step, norms));
    }
    read
}

#[test]
fn what_is_left_out_is_read_and_what_differs_or_was_never_there_is_neither_lost_nor_invented() {
    use Kind::{GradReduced, GradUnreduced, ParamOrigin, ParamUpdated};
    let mut steps = vec![
        (0, vec![(GradUnreduced, 0, 1.0), (GradReduced, 0, 1.0), (ParamOrigin, 0, 5.0), (ParamUpdated, 0, 6.0)]),
        (1, vec![(GradUnreduced, 0, 2.0), (GradReduced, 0, 1.5), (ParamOrigin, 0, 6.0), (ParamUpdated, 0, 7.0)]),
        (2, vec![(GradUnreduced, 0, 2.0), (GradReduced, 0, 2.0), (ParamOrigin, 0, 7.0), (ParamUpdated, 0, 7.5)]),
        // Somebody wrote to the parameter; of one tensor there is nothing before the reduction, of another nothing else.
        (3, vec![(GradReduced, 0, 1.0), (GradUnreduced, 1, 3.0), (ParamOrigin, 0, 0.0), (ParamUpdated, 0, 1.0)]),
        // The parameter was not looked at before the step, and then not at all.
        (4, vec![(ParamUpdated, 0, 2.0)]),
        (6, vec![(ParamUpdated, 0, 3.0)]),
        // Not the step behind it.
        (8, vec![(ParamOrigin, 0, 3.0), (ParamUpdated, 0, 4.0)]),
        (9, vec![(ParamOrigin, 0, f64::NAN), (ParamUpdated, 0, f64::NAN)]),
    ];
    let sort = |steps: &mut Vec<(u64, Norms)>| {
        for (_, norms) in steps {
            norms.sort_by_key(|(kind, tensor, _)| (*kind, *tensor));
        }
    };
    sort(&mut steps);
    for left_out in [LeftOut { gradients: true, parameters: true }, LeftOut::default()] {
        let mut read = without_repeats(left_out, &steps);
        sort(&mut read);
        assert_eq!(format!("{read:?}"), format!("{steps:?}"), "{left_out:?}");
    }
}
