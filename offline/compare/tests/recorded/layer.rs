//! Modules that were renamed, put right by a layer mapping.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use trainmon_capture_files::find;
use trainmon_compare::matching::{How, LayerMapping, Matching, by_layer};
use trainmon_compare::{Capture, CaptureVerdict, CompareError, Options, Thresholds, compare_matched, deviation};

fn dump(name: &str) -> PathBuf {
    crate::recorded::root().join("03_dump").join(name).join("msprobe_out/step0/rank0/dump.json")
}

fn read(name: &str) -> Capture {
    Capture::read(&find(&dump(name)).unwrap().steps[0].ranks[0]).unwrap()
}

#[test]
fn a_renamed_head_matches_in_every_value() {
    let root = crate::recorded::root();
    if !root.exists() {
        crate::recorded::skip("a layer mapping", &format!("`{}` does not exist", root.display()));
        return;
    }
    let mapping = LayerMapping::read(&root.join("04_compare/renamed_lm/layer_mapping.yaml")).unwrap();
    let (target, golden) = (read("renamed_stat"), read("bench_stat"));
    let pairs = by_layer(&target, &golden, &mapping);
    let mut mapped = 0;
    for pair in &pairs {
        let (Some(one), Some(other)) = (pair.target, pair.golden) else { panic!("{pair:?} lacks a side") };
        let (one, other) = (target.at(one), golden.at(other));
        assert!(!deviation(one, other).is_some(), "{} against {}", one.name(), other.name());
        mapped += usize::from(pair.how == How::Mapping);
    }
    assert_eq!(mapped, 8, "the head's inputs, outputs, parameters and gradients");
    assert_eq!(pairs.len(), target.addresses().count());
}

/// Without the mapping the renamed head is a call of one side alone.
#[test]
fn the_search_for_the_first_divergence_follows_the_mapping() {
    if !crate::recorded::root().exists() {
        crate::recorded::skip("a layer mapping in the search", "no recorded dumps");
        return;
    }
    let answer = |target: &str, matching: &Matching| {
        let goldens = [dump("bench_stat")];
        let way = Options { matching, is_compat: false, is_for_tables: false };
        compare_matched((&dump(target), &goldens), &Thresholds::default(), way, &Arc::default(), |_| {
            Ok::<(), CompareError>(())
        })
        .unwrap()
        .verdict
    };
    let head = HashMap::from([("classifier".to_owned(), "head".to_owned())]);
    let mapping = Matching::Layer(LayerMapping::of(HashMap::from([("TopLayer".to_owned(), head)])));
    assert!(matches!(answer("renamed_stat", &Matching::Name), CaptureVerdict::OneSided { .. }));
    assert!(matches!(answer("renamed_stat", &mapping), CaptureVerdict::Same));
    let CaptureVerdict::Parts { finding, .. } = answer("eps_stat", &mapping) else { panic!("they part") };
    assert_eq!(finding.operator, "Functional.layer_norm.1.forward");
}
