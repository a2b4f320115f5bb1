//! Where NaN and infinities were born, against msprobe's answers and the truth.

use trainmon_dump::capture::find;
use trainmon_offline::compare::Capture;
use trainmon_offline::overflow::{anomalies, msprobe_answer, origins};

fn captures(name: &str) -> Vec<(u64, Capture)> {
    let root = crate::golden::root().join("03_dump").join(name).join("msprobe_out/step0");
    find(&root).unwrap().steps[0].ranks.iter().map(|files| (files.rank, Capture::read(files).unwrap())).collect()
}

#[test]
fn msprobes_own_answer_is_given_letter_for_letter() {
    let tools = crate::golden::root().join("07_tools");
    if !tools.exists() {
        crate::skip("msprobe's overflow checks", &format!("`{}` does not exist", tools.display()));
        return;
    }
    for name in ["bench_stat", "nan_stat", "nan_tensor", "dist_nan1_stat"] {
        let captures = captures(name);
        let ranks: Vec<(u64, &Capture)> = captures.iter().map(|(rank, capture)| (*rank, capture)).collect();
        let ours = msprobe_answer(&ranks).unwrap().map(|node| node.dumps(2));
        let theirs = std::fs::read_to_string(tools.join(format!("overflow_{name}/anomaly_analyze.json"))).ok();
        assert_eq!(ours.as_deref(), theirs.as_deref().map(str::trim_end), "{name}");
    }
}

#[test]
fn the_birth_is_named_and_a_mask_is_none() {
    if !crate::golden::root().exists() {
        crate::skip("births of NaN", "no recorded dumps");
        return;
    }
    let born = |name: &str| -> Vec<(u64, String)> {
        let captures = captures(name);
        let ranks: Vec<_> = captures.iter().map(|(rank, capture)| (anomalies(*rank, capture), capture)).collect();
        origins(&ranks).born.into_iter().map(|(rank, birth)| (rank, birth.value)).collect()
    };
    assert_eq!(born("nan_stat"), [(0, "Torch.softmax.0.forward.output.0".to_owned())]);
    assert_eq!(born("dist_nan1_stat"), [(1, "Functional.linear.1.forward.input.2".to_owned())]);
    assert_eq!(born("bench_stat"), []);
}

/// A capture of one operator with such statistics.
fn capture(directory: &std::path::Path, name: &str, statistics: &str) {
    let tensor = format!(r#"{{"type": "torch.Tensor", "dtype": "torch.float16", "shape": [2], {statistics}}}"#);
    let dump = format!(
        r#"{{"task": "statistics", "level": "L1", "framework": "pytorch", "data": {{"Torch.exp.0.forward":
        {{"input_args": [], "input_kwargs": {{}}, "output": [{tensor}]}}}}}}"#
    );
    crate::small::put(&directory.join(name).join("step0/rank0/dump.json"), dump);
}

#[test]
fn infinities_of_both_signs_are_no_nan_and_without_statistics_nobody_can_tell() {
    let desk = tempfile::tempdir().unwrap();
    capture(desk.path(), "both", r#""Max": Infinity, "Min": -Infinity, "Mean": NaN, "Norm": Infinity"#);
    capture(desk.path(), "nan", r#""Max": NaN, "Min": NaN, "Mean": NaN, "Norm": NaN"#);
    capture(desk.path(), "digests", r#""md5": "37bf296c""#);
    let overflow = |name: &str| crate::small::trainmon(desk.path(), &["overflow", name]);
    assert!(overflow("both").out.contains("is the first with infinity"), "{:?}", overflow("both"));
    assert!(overflow("nan").out.contains("is the first with NaN"), "{:?}", overflow("nan"));
    let said = overflow("digests");
    assert_eq!(said.code, Some(1));
    assert_eq!(said.out, "Step 0: cannot tell: the capture has no statistics. Capture task statistics or tensor.\n");
}

#[test]
fn msprobes_spelling_writes_to_output_and_scripts_go_on() {
    let desk = tempfile::tempdir().unwrap();
    capture(desk.path(), "nan", r#""Max": NaN, "Min": NaN, "Mean": NaN, "Norm": NaN"#);
    let said = crate::small::trainmon(desk.path(), &["overflow_check", "--input_path", "nan/step0"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let written = crate::small::listed(&desk.path().join("output"));
    assert!(matches!(&written[..], [one] if one.starts_with("anomaly_analyze_")), "{written:?}");
    assert_eq!(crate::small::trainmon(desk.path(), &["overflow", "nan"]).code, Some(1));
}
