//! `trainmon parse`, msprobe's spelling, and `trainmon convert` of files of tensors.

#[path = "support/golden.rs"]
mod golden;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trainmon_tensor_files::{open, read_one};

use golden::golden;
use support::trainmon;

fn checkpoint(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkpoints/made").join(name).display().to_string()
}

fn workspace() -> TempDir {
    TempDir::new().expect("a temporary directory")
}

#[test]
fn what_msprobe_parses_and_what_it_fails_at_become_the_same_arrays() {
    let Some(golden) = golden("07_tools/parse_pt_dir", "golden parse") else { return };
    let workspace = workspace();
    for name in ["t.bin", "in.pt"] {
        let input = golden.join(name).display().to_string();
        let said = trainmon(workspace.path(), &["parse", "-d", &input, "-t", "npy", "-o", "out"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
    let bytes = |path: PathBuf| fs::read(path).expect("readable");
    assert_eq!(
        bytes(workspace.path().join("out/t.npy")),
        bytes(golden.join("out_bin/t.npy")),
        "msprobe's, byte for byte"
    );
    let array = read_one(&workspace.path().join("out/in.npy")).expect("an array");
    let tensor = read_one(&golden.join("in.pt")).expect("a tensor");
    assert_eq!((array.shape(), array.to_f64()), (tensor.shape(), tensor.to_f64()));
}

#[test]
fn a_checkpoint_goes_to_every_format_and_back() {
    let workspace = workspace();
    let source = checkpoint("plain.pt");
    for (to, made) in [("safetensors", "out/plain.safetensors"), ("pt", "again/plain.pt")] {
        let input = if to == "pt" { "out/plain.safetensors" } else { source.as_str() };
        let out = Path::new(made).parent().unwrap().display().to_string();
        let said = trainmon(workspace.path(), &["convert", "--to", to, input, "-o", &out]);
        assert_eq!((said.code, said.out.as_str()), (Some(0), format!("{made}\n").as_str()), "{}", said.err);
        let said = trainmon(workspace.path(), &["compare-checkpoint", &source, made]);
        assert_eq!(said.code, Some(0), "{}", said.out);
        assert!(said.out.contains("12 in both: 12 identical"), "{}", said.out);
    }
    let said = trainmon(workspace.path(), &["convert", "--to", "npy", &checkpoint("bfloat16.pt"), "-o", "arrays"]);
    assert_eq!((said.code, said.out.lines().count()), (Some(0), 12), "{}", said.err);
    let widened = read_one(&workspace.path().join("arrays/bfloat16/state_dict.model.norm.weight.npy")).unwrap();
    let kept = open(Path::new(&checkpoint("bfloat16.pt"))).unwrap().read("state_dict.model.norm.weight").unwrap();
    assert_eq!(widened.dtype().torch_name(), "torch.float32");
    assert_eq!(widened.to_f64(), kept.to_f64());
}

#[test]
fn nothing_is_replaced_and_nothing_half_written() {
    let workspace = workspace();
    let source = checkpoint("plain.pt");
    assert_eq!(trainmon(workspace.path(), &["parse", "-d", &source]).code, Some(0));
    let again = trainmon(workspace.path(), &["parse", "-d", &source]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.starts_with("error: `./output/plain.pt` already exists\nhint: "), "{}", again.err);
    fs::write(workspace.path().join("cut.pt"), &fs::read(&source).unwrap()[..3000]).unwrap();
    fs::create_dir(workspace.path().join("empty")).unwrap();
    for (input, words) in [
        ("cut.pt", "cannot read the tensors of `cut.pt`"),
        ("empty", "no tensor files (.pt, .pth, .npy, .safetensors, .bin, .ckpt) in `empty`"),
        ("none", "cannot read `none`"),
    ] {
        let said = trainmon(workspace.path(), &["parse", "-d", input, "-t", "npy", "-o", "fresh"]);
        assert_eq!(said.code, Some(2), "{input}");
        assert!(said.err.contains(words), "{input}: {}", said.err);
    }
    assert!(!workspace.path().join("fresh").exists());
}

#[test]
fn a_file_without_tensors_is_not_passed_over() {
    let workspace = workspace();
    let mut bytes = 2_u64.to_le_bytes().to_vec();
    bytes.extend_from_slice(b"{}");
    fs::write(workspace.path().join("nothing.safetensors"), bytes).unwrap();
    let said = trainmon(workspace.path(), &["parse", "-d", "nothing.safetensors", "-t", "npy", "-o", "out"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.starts_with("error: `nothing.safetensors` contains no tensors\n"), "{said:?}");
}

#[test]
fn a_file_that_would_call_the_system_is_converted_and_said_to_do_so() {
    let workspace = workspace();
    let said =
        trainmon(workspace.path(), &["parse", "-d", &checkpoint("attack_within.pt"), "-t", "safetensors", "-o", "out"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "out/attack_within.safetensors\n"), "{}", said.err);
    assert!(said.err.starts_with("note: "), "{}", said.err);
    assert!(said.err.contains("attack_within.pt contains calls of posix.system"), "{}", said.err);
    let said = trainmon(workspace.path(), &["parse", "-d", &checkpoint("plain.pt"), "-t", "safetensors", "-o", "out"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
}
