//! DeepSpeed's tensor-parallel ranks, layers and experts put together.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::{compare, compare_json, made, names, save_shaped};

/// Compares with one file of whole tensors: exit code and report.
fn with_whole(directory: &Path, whole: &[(&str, Vec<i64>, &[f32])]) -> (Option<i32>, Value) {
    let place = TempDir::new().expect("a temporary directory");
    let file = place.path().join("whole.pt");
    save_shaped(&file, whole);
    compare_json(&file.display().to_string(), &directory.display().to_string())
}

fn rows(of: &[&str]) -> Value {
    Value::from(of.to_vec())
}

#[test]
fn what_deepspeed_wrote_from_tensor_parallel_ranks_is_the_whole_model() {
    // Megatron's names and a gate, ZeRO-1 and ZeRO-3 on two data-parallel ranks; DeepSpeed's own division of a model, with
    // slices of 7 and 6 rows.
    for (whole, ranks, tensors) in [
        ("deepspeed_tp2_whole.pt", "deepspeed_tp2_zero1", 15),
        ("deepspeed_tp2_whole.pt", "deepspeed_tp2_zero3", 15),
        ("plain.pt", "deepspeed_autotp", 12),
    ] {
        let (code, report) = compare_json(&made(whole), &made(ranks));
        let (identical, notes) = (&report["summary"]["identical"], report["golden"]["notes"].to_string());
        assert_eq!((code, identical), (Some(0), &tensors.into()), "{ranks}: {report}");
        assert!(!notes.contains("mp_rank_NN"), "{ranks}: {notes}");
    }
}

#[test]
fn a_missing_rank_is_an_error() {
    let place = TempDir::new().expect("a temporary directory");
    for file in ["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"] {
        let directory = place.path().join(file.split('_').nth(2).expect("a rank"));
        fs::create_dir(&directory).expect("writable");
        fs::copy(Path::new(&made("deepspeed_tp2_zero1/global_step0")).join(file), directory.join(file)).expect("there");
        let path = directory.display().to_string();
        let said = compare(&[&path, &made("deepspeed_tp2_whole.pt")]);
        let expected = format!("error: `{path}`: expected the files of every tensor-parallel rank, found 1 of 2\n");
        assert!(said.err.starts_with(&expected), "{}", said.err);
        assert_eq!(said.code, Some(2));
    }
}

#[test]
fn a_pipelines_layers_are_put_together_over_ranks() {
    let place = TempDir::new().expect("a temporary directory");
    let at = |name: &str| place.path().join(name);
    for (rank, columns, tokens) in [(0, [1.0, 2.0, 4.0, 5.0], [1.0, 2.0]), (1, [3.0, 3.5, 6.0, 6.5], [3.0, 4.0])] {
        let dense = ("self_attention.dense.weight", vec![2, 2], &columns[..]);
        let norm = ("input_layernorm.weight", vec![2], &[7.0, 8.0][..]);
        save_shaped(&at(&format!("layer_03-model_{rank:02}-model_states.pt")), &[dense, norm]);
        let embedding = ("word_embeddings.weight", vec![1, 2], &tokens[..]);
        save_shaped(&at(&format!("layer_01-model_{rank:02}-model_states.pt")), &[embedding]);
    }
    let whole: [(&str, Vec<i64>, &[f32]); 3] = [
        ("layer_01.word_embeddings.weight", vec![2, 2], &[1.0, 2.0, 3.0, 4.0]),
        ("layer_03.input_layernorm.weight", vec![2], &[7.0, 8.0]),
        ("layer_03.self_attention.dense.weight", vec![2, 4], &[1.0, 2.0, 3.0, 3.5, 4.0, 5.0, 6.0, 6.5]),
    ];
    let (code, report) = with_whole(place.path(), &whole);
    assert_eq!((code, &report["summary"]["identical"]), (Some(0), &3.into()), "{report}");
    fs::remove_file(at("layer_03-model_01-model_states.pt")).expect("there");
    let said = compare(&[&place.path().display().to_string(), &made("plain.pt")]);
    assert!(said.err.contains("expected the files of every tensor-parallel rank, found 3 of 4"), "{}", said.err);
}

#[test]
fn experts_stand_beside_the_rest_of_the_model() {
    let place = TempDir::new().expect("a temporary directory");
    let at = |name: &str| place.path().join(name);
    save_shaped(&at("mp_rank_00_model_states.pt"), &[("module.gate.weight", vec![2], &[1.0, 2.0])]);
    for expert in 0..2u8 {
        let name = format!("moe.experts.deepspeed_experts.{expert}.weight");
        let file = at(&format!("layer_0_expert_{expert}_mp_rank_00_model_states.pt"));
        save_shaped(&file, &[(&name, vec![1], &[f32::from(expert)])]);
    }
    let whole: [(&str, Vec<i64>, &[f32]); 3] = [
        ("gate.weight", vec![2], &[1.0, 2.0]),
        ("moe.experts.deepspeed_experts.0.weight", vec![1], &[0.0]),
        ("moe.experts.deepspeed_experts.1.weight", vec![1], &[2.0]),
    ];
    let (code, report) = with_whole(place.path(), &whole);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(names(&report, "identical"), ["gate.weight", "moe.experts.deepspeed_experts.0.weight"]);
    assert_eq!(names(&report, "different"), ["moe.experts.deepspeed_experts.1.weight"]);
}

#[test]
fn slices_nobody_can_place_stay_apart_and_the_note_says_so() {
    let place = TempDir::new().expect("a temporary directory");
    for rank in 0..2u8 {
        let slice = [f32::from(rank), 5.0];
        let (strange, same) = ("module.strange.weight", "module.norm.weight");
        let tensors = [
            (strange, vec![1, 2], &slice[..]),
            (same, vec![2], &[3.0, 4.0][..]),
            // Zeros are the same on both ranks, and slices by their name all the same.
            ("module.layers.0.q_proj.bias", vec![1], &[0.0][..]),
        ];
        save_shaped(&place.path().join(format!("mp_rank_{rank:02}_model_states.pt")), &tensors);
    }
    let whole: [(&str, Vec<i64>, &[f32]); 3] = [
        ("norm.weight", vec![2], &[3.0, 4.0]),
        ("layers.0.q_proj.bias", vec![2], &[0.0, 0.0]),
        ("strange.weight", vec![2, 2], &[0.0, 5.0, 1.0, 5.0]),
    ];
    let (code, report) = with_whole(place.path(), &whole);
    assert_eq!(code, Some(1));
    assert_eq!(names(&report, "identical"), ["layers.0.q_proj.bias", "norm.weight"]);
    assert_eq!(report["golden_only"], rows(&["mp_rank_00.strange.weight", "mp_rank_01.strange.weight"]), "{report}");
    let note = "unknown tensor-parallel layout of `strange.weight`: each rank's slice is compared separately, \
                under `mp_rank_NN.`";
    assert_eq!(report["golden"]["notes"][0], note, "{report}");
}
