//! The sentence and the table of one comparison say the same, of captures that were made up.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod made;

use std::collections::HashMap;

use proptest::prelude::*;
use trainmon_compare::{
    CaptureAnswer, CaptureVerdict, Compared, Format, Request, Tables, Thresholds, matching::Matching,
};

use crate::made::{Change, Made, plan, write};

/// A row: its operator, whether it is an input's, its verdict and how far it is apart.
struct Row {
    operator: String,
    is_input: bool,
    level: String,
    apart: String,
}

fn compared(target: &Made, golden: &Made) -> (CaptureAnswer, Vec<Row>) {
    let workspace = tempfile::tempdir().unwrap();
    let [one, other] = [("target", target), ("golden", golden)].map(|(name, made)| {
        let path = workspace.path().join(name);
        write(&path, made);
        path
    });
    let tables = workspace.path().join("tables");
    let request = Request {
        target: one,
        goldens: vec![other],
        thresholds: Thresholds::default(),
        matching: Matching::Name,
        tables: Some(Tables { directory: tables, formats: vec![Format::Csv] }),
        is_compat: false,
        is_diff_analyze: false,
    };
    let Compared { answer, files, .. } = request.run(&std::sync::Arc::default(), &mut |_| ()).unwrap();
    let mut reader = csv::Reader::from_path(&files[0]).unwrap();
    let headers: HashMap<String, usize> =
        reader.headers().unwrap().iter().zip(0..).map(|(name, at)| (name.to_owned(), at)).collect();
    let rows = reader.records().map(|record| {
        let record = record.unwrap();
        let cell = |name: &str| record[headers[name]].to_owned();
        let name = if cell("NPU Name") == "N/A" { cell("Bench Name") } else { cell("NPU Name") };
        let (operator, place) = name.split_once(".forward").unwrap();
        Row {
            operator: format!("{operator}.forward"),
            is_input: place.starts_with(".input"),
            level: cell("Result"),
            apart: cell("Deviation"),
        }
    });
    let rows = rows.collect();
    (answer, rows)
}

/// What must hold of any comparison.
fn assert_agree(answer: &CaptureAnswer, rows: &[Row]) {
    let told = rows.iter().map(|row| format!("{} {} {} {}", row.operator, row.is_input, row.level, row.apart));
    let told = || format!("{:?}\n{}", answer.verdict, told.clone().collect::<Vec<_>>().join("\n"));
    let errors = || rows.iter().filter(|row| row.level == "error");
    match &answer.verdict {
        CaptureVerdict::Same => {
            assert!(rows.iter().all(|row| row.level == "pass"), "same, and not all pass: {}", told());
        }
        CaptureVerdict::Parts { finding, .. } => {
            assert!(errors().any(|row| row.operator == finding.operator), "no error where they part: {}", told());
        }
        _ => assert_eq!(errors().count(), 0, "an error in the table, and none in the answer: {}", told()),
    }
    let walked = answer.divergence.iter().flat_map(|divergence| &divergence.walked);
    for operator in walked.flat_map(|(_, walked)| &walked.spread) {
        let mut of_it = rows.iter().filter(|row| row.operator == *operator && !row.is_input);
        assert!(of_it.any(|row| row.level != "pass"), "{operator} is affected, and passes: {}", told());
        let mut of_it = rows.iter().filter(|row| row.operator == *operator && !row.is_input && row.apart != "0");
        assert!(of_it.all(|row| row.level != "pass"), "{operator} is affected, and a row passes: {}", told());
    }
}

#[test]
fn another_dtype_of_equal_elements_is_told_by_both() {
    for has_tensors in [false, true] {
        let golden = Made::chain(4, has_tensors);
        let target = golden.changed(1, Change::Dtype);
        let (answer, rows) = compared(&target, &golden);
        assert_agree(&answer, &rows);
        assert!(matches!(answer.verdict, CaptureVerdict::Parts { .. }), "tensors: {has_tensors}: {:?}", answer.verdict);
    }
}

#[test]
fn one_call_more_shifts_no_rows() {
    let golden = Made::chain(6, false);
    let target = golden.changed(2, Change::Call);
    let (answer, rows) = compared(&target, &golden);
    assert_agree(&answer, &rows);
    assert_eq!(rows.iter().filter(|row| row.level != "pass").count(), 3, "the call alone has rows of its own");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn sentence_and_table_agree(plan in plan()) {
        let (target, golden) = plan.made();
        let (answer, rows) = compared(&target, &golden);
        assert_agree(&answer, &rows);
    }
}
