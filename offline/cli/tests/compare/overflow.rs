//! `trainmon overflow` as a person runs it.

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
    let workspace = tempfile::tempdir().unwrap();
    capture(workspace.path(), "both", r#""Max": Infinity, "Min": -Infinity, "Mean": NaN, "Norm": Infinity"#);
    capture(workspace.path(), "nan", r#""Max": NaN, "Min": NaN, "Mean": NaN, "Norm": NaN"#);
    capture(workspace.path(), "digests", r#""md5": "37bf296c""#);
    let overflow = |name: &str| crate::small::trainmon(workspace.path(), &["overflow", name]);
    assert!(overflow("both").out.starts_with("First infinity: "), "{:?}", overflow("both"));
    assert!(overflow("nan").out.starts_with("First NaN: "), "{:?}", overflow("nan"));
    let said = overflow("digests");
    assert_eq!(said.code, Some(1));
    assert_eq!(
        said.out,
        "Step 0: cannot tell: the capture has no statistics. Capture with task `statistics` or `tensor`.\n"
    );
}

#[test]
fn msprobes_spelling_writes_to_output_and_scripts_go_on() {
    let workspace = tempfile::tempdir().unwrap();
    capture(workspace.path(), "nan", r#""Max": NaN, "Min": NaN, "Mean": NaN, "Norm": NaN"#);
    let said = crate::small::trainmon(workspace.path(), &["overflow_check", "--input_path", "nan/step0"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let written = crate::small::listed(&workspace.path().join("output"));
    assert!(matches!(&written[..], [one] if one.starts_with("anomaly_analyze_")), "{written:?}");
    assert_eq!(crate::small::trainmon(workspace.path(), &["overflow", "nan"]).code, Some(1));
}
