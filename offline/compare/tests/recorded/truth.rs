//! Where runs part, against the truth stated with the recorded pairs.

use trainmon_compare::{CaptureVerdict, CompareError, Thresholds, compare};

use crate::recorded::golden;

/// Target, golden, the ranks that part, and the operators that are right answers; no ranks: they do not part.
const TRUTHS: &[(&str, &str, &[u64], &[&str])] = &[
    ("eps_stat", "bench_stat", &[0], &["Functional.layer_norm.1.forward"]),
    ("eps_md5", "bench_md5", &[0], &["Functional.layer_norm.1.forward"]),
    ("eps_tensor", "bench_tensor", &[0], &["Functional.layer_norm.1.forward"]),
    ("eps_stat_L0", "bench_stat_L0", &[0], &["Module.blocks.0.ln2.LayerNorm.forward.0"]),
    ("eps_stat_L1", "bench_stat_L1", &[0], &["Functional.layer_norm.1.forward"]),
    ("bf16op_stat", "bench_stat", &[0], &["Functional.gelu.0.forward"]),
    ("bf16op_md5", "bench_md5", &[0], &["Functional.gelu.0.forward"]),
    ("weight_stat", "bench_stat", &[0], &["Functional.conv1d.0.forward"]),
    ("weight_md5", "bench_md5", &[0], &["Functional.conv1d.0.forward"]),
    ("nan_stat", "bench_stat", &[0], &["Tensor.masked_fill.0.forward"]),
    ("nan_md5", "bench_md5", &[0], &["Tensor.masked_fill.0.forward"]),
    ("nan_tensor", "bench_tensor", &[0], &["Tensor.masked_fill.0.forward"]),
    ("dist_weight1_stat", "dist_bench_stat", &[1], &["Functional.linear.1.forward"]),
    ("dist_weight1_md5", "dist_bench_md5", &[1], &["Functional.linear.1.forward"]),
    ("dist_weight1_tensor", "dist_bench_tensor", &[1], &["Functional.linear.1.forward"]),
    ("dist_nan1_stat", "dist_bench_stat", &[1], &["Functional.linear.1.forward"]),
    ("bench_stat", "bench_stat", &[], &[]),
    ("renamed_stat", "bench_stat", &[], &[]),
    ("extra_call_stat", "bench_stat", &[], &[]),
    ("shifted_stat", "bench_stat", &[], &[]),
];

#[test]
fn recorded_pairs_part_where_they_are_stated_to() {
    let Some(root) = golden("03_dump", "msprobe's dumps") else { return };
    let mut wrong = Vec::new();
    for (target, golden, ranks, operators) in TRUTHS {
        let directory = |name: &str| root.join(name).join("msprobe_out");
        let answer =
            compare(&directory(target), &[directory(golden)], &Thresholds::default(), |_| Ok::<(), CompareError>(()))
                .unwrap();
        let is_right = match &answer.verdict {
            CaptureVerdict::Parts { ranks: found, finding, .. } => {
                found == ranks && operators.contains(&finding.operator.as_str())
            }
            CaptureVerdict::Same | CaptureVerdict::OneSided { .. } => ranks.is_empty(),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{target} against {golden}: {:?}", answer.verdict));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), TRUTHS.len(), wrong.join("\n"));
}
