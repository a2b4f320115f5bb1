//! Where NaN and infinities were born, against msprobe's answers and the truth.

use trainmon_capture_files::find;
use trainmon_compare::Capture;
use trainmon_compare::compat::dumps;
use trainmon_compare::overflow::{anomalies, msprobe_answer, origins};

fn captures(name: &str) -> Vec<(u64, Capture)> {
    let root = crate::recorded::root().join("03_dump").join(name).join("msprobe_out/step0");
    find(&root).unwrap().steps[0].ranks.iter().map(|files| (files.rank, Capture::read(files).unwrap())).collect()
}

#[test]
fn msprobes_own_answer_is_given_letter_for_letter() {
    let tools = crate::recorded::root().join("07_tools");
    if !tools.exists() {
        crate::recorded::skip("msprobe's overflow checks", &format!("`{}` does not exist", tools.display()));
        return;
    }
    for name in ["bench_stat", "nan_stat", "nan_tensor", "dist_nan1_stat"] {
        let captures = captures(name);
        let ranks: Vec<(u64, &Capture)> = captures.iter().map(|(rank, capture)| (*rank, capture)).collect();
        let ours = msprobe_answer(&ranks).unwrap().map(|node| dumps(&node, 2));
        let theirs = std::fs::read_to_string(tools.join(format!("overflow_{name}/anomaly_analyze.json"))).ok();
        assert_eq!(ours.as_deref(), theirs.as_deref().map(str::trim_end), "{name}");
    }
}

#[test]
fn the_birth_is_named_and_a_mask_is_none() {
    if !crate::recorded::root().exists() {
        crate::recorded::skip("births of NaN", "no recorded dumps");
        return;
    }
    let starts = |name: &str| -> Vec<(u64, String)> {
        let captures = captures(name);
        let ranks: Vec<_> = captures.iter().map(|(rank, capture)| (anomalies(*rank, capture), capture)).collect();
        origins(&ranks).starts.into_iter().map(|(rank, origin)| (rank, origin.value)).collect()
    };
    assert_eq!(starts("nan_stat"), [(0, "Torch.softmax.0.forward.output.0".to_owned())]);
    assert_eq!(starts("dist_nan1_stat"), [(1, "Functional.linear.1.forward.input.2".to_owned())]);
    assert_eq!(starts("bench_stat"), []);
}
