//! `trainmon compare-checkpoint` on checkpoints that the real libraries wrote (`checkpoints/generate.py`), on msprobe's
//! recorded pairs, and on what is no checkpoint.

mod deepspeed;
#[path = "../support/golden.rs"]
mod golden;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/transcript.rs"]
mod transcript;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use trainmon_core::{Dtype, Shape};
use trainmon_tensor_files::write::{write_npy, write_pt, write_pt_of_one, write_safetensors};
use trainmon_tensor_files::{FileBytes, StoredTensor};

use golden::golden;
use support::{ProgramOutput, trainmon};
use transcript::Transcript;

fn made(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkpoints/made").join(name).display().to_string()
}

fn compare_in(directory: &Path, arguments: &[&str]) -> ProgramOutput {
    trainmon(directory, &[&["compare-checkpoint"], arguments].concat())
}

fn compare(arguments: &[&str]) -> ProgramOutput {
    compare_in(&std::env::temp_dir(), arguments)
}

fn compare_json(a: &str, b: &str) -> (Option<i32>, Value) {
    let said = compare(&[a, b, "--json"]);
    (said.code, serde_json::from_str(&said.out).expect("JSON"))
}

fn names(rows: &Value, verdict: &str) -> Vec<String> {
    let rows = rows["tensors"].as_array().expect("rows").iter();
    let of_verdict = rows.filter(|row| row["verdict"] == verdict);
    of_verdict.map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn files_of_one_tensor_pair_whatever_their_format() {
    let directory = TempDir::new().unwrap();
    let values = [1.0_f32, -2.0, 0.5].map(f32::to_le_bytes).concat();
    let tensor = StoredTensor::new(Dtype::F32, Shape::new(&[3]).unwrap(), FileBytes::from(values)).unwrap();
    let file = |name: &str| fs::File::create(directory.path().join(name)).unwrap();
    write_npy(&tensor, &mut file("one.npy")).unwrap();
    write_pt_of_one(&tensor, &mut file("one.pt")).unwrap();
    write_safetensors(&[("tensor", (&tensor).into())], &mut file("one.safetensors")).unwrap();
    for (a, b) in [("one.npy", "one.pt"), ("one.pt", "one.safetensors")] {
        let said = compare_in(directory.path(), &[a, b, "--json"]);
        let report: Value = serde_json::from_str(&said.out).expect("JSON");
        assert_eq!((said.code, &report["summary"]["identical"]), (Some(0), &Value::from(1)), "{a} {b}: {report}");
        assert_eq!(names(&report, "identical"), ["tensor"]);
    }
}

#[test]
fn one_model_in_every_layout_is_the_same() {
    for (layout, kind) in [
        ("hf", "hugging_face"),
        ("hf/model.safetensors.index.json", "hugging_face"),
        ("fsdp", "distributed"),
        ("deepspeed_zero2", "deepspeed"),
        ("deepspeed_zero3", "deepspeed"),
        ("deepspeed_zero3/global_step0", "deepspeed"),
    ] {
        let (code, report) = compare_json(&made("plain.pt"), &made(layout));
        assert_eq!((code, &report["same"]), (Some(0), &Value::Bool(true)), "{layout}: {report}");
        assert_eq!(report["summary"]["identical"], 12, "{layout}: {report}");
        assert_eq!(report["summary"]["common"], 12);
        assert_eq!(report["golden"]["layout"], kind);
    }
}

#[test]
fn megatrons_ranks_are_put_together_over_tensors_pipelines_virtual_stages_and_experts() {
    for layout in ["megatron_tp2_pp2_ep2", "megatron_pp2_vpp2", "megatron_ep2"] {
        let (code, report) = compare_json(&made("megatron_one"), &made(layout));
        assert_eq!(code, Some(0), "{layout}: {report}");
        // An embedding, an output layer, a norm, and four layers of four tensors and two experts of two.
        assert_eq!(report["summary"]["identical"], 3 + 4 * (4 + 2 * 2), "{layout}: {report}");
    }
}

#[test]
fn a_changed_tensor_is_named_and_the_exit_code_says_so() {
    let (code, report) = compare_json(&made("plain.pt"), &made("changed_norm.pt"));
    assert_eq!(code, Some(1));
    assert_eq!(names(&report, "different"), ["model.norm.weight"]);
    let row = report["tensors"].as_array().unwrap().iter().find(|row| row["name"] == "model.norm.weight").unwrap();
    let relative = row["distance"]["relative_l2"].as_f64().unwrap();
    assert!((relative - 0.001 / 1.001).abs() < 1e-6, "{row}");
    let said = compare(&[&made("plain.pt"), &made("changed_norm.pt")]);
    assert_eq!(said.code, Some(1));
    assert!(said.out.contains("model.norm.weight  different"), "{}", said.out);
    assert!(
        said.out.ends_with(
            "12 in both: 11 identical, 0 within rounding, 1 different, 0 with different shapes; 0 only in the target, 0 only in the baseline\n"
        ),
        "{}",
        said.out
    );
}

#[test]
fn a_model_kept_in_bfloat16_is_the_same_within_its_rounding() {
    let (code, report) = compare_json(&made("plain.pt"), &made("bfloat16.pt"));
    assert_eq!(names(&report, "rounding").len(), 12, "{report}");
    assert_eq!(names(&report, "different"), [""; 0]);
    assert_eq!(code, Some(0));
}

#[test]
fn files_are_written_whole_in_the_formats_asked_for_and_none_is_replaced() {
    let directory = TempDir::new().expect("a temporary directory");
    let (a, b) = (made("plain.pt"), made("changed_norm.pt"));
    let said = compare_in(directory.path(), &[&a, &b, "-o", "report", "--format", "json,csv"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    // Without a place to write to there is nothing of any format.
    let nowhere = compare_in(directory.path(), &[&a, &b, "--format", "csv"]);
    assert!(nowhere.code == Some(2) && nowhere.err.contains("--output <DIR>"), "{}", nowhere.err);
    let json: Value = serde_json::from_slice(&fs::read(directory.path().join("report/compare.json")).unwrap()).unwrap();
    assert_eq!(json["summary"]["different"], 1);
    let csv = fs::read_to_string(directory.path().join("report/compare.csv")).unwrap();
    assert_eq!(csv.lines().count(), 13);
    assert!(
        csv.lines().any(|line| line.starts_with("model.norm.weight,different,torch.float32,torch.float32,[8],[8],8,")),
        "{csv}"
    );
    let said = compare_in(directory.path(), &[&a, &b, "-o", "report"]);
    assert_eq!(said.code, Some(2));
    let expected = "error: `report/compare.json` already exists\nhint: pass another directory";
    assert!(said.err.starts_with(expected), "{}", said.err);
    assert_eq!(fs::read_dir(directory.path().join("report")).unwrap().count(), 2, "nothing half-written is left");
}

#[test]
fn the_output_is_a_directory_and_the_name_of_a_file_is_refused_before_anything_is_compared() {
    let directory = TempDir::new().expect("a temporary directory");
    let (a, b) = (made("plain.pt"), made("changed_norm.pt"));
    fs::write(directory.path().join("taken"), "").unwrap();
    fs::create_dir(directory.path().join("of.html")).unwrap();
    for file in ["report.json", "there/report.html", "taken"] {
        for more in [&[][..], &["--compat"]] {
            let said = compare_in(directory.path(), &[&[&a, &b, "-o", file], more].concat());
            let expected = format!(
                "error: the output `{file}` is the name of a file, not of a directory\nhint: pass a directory to `-o`"
            );
            assert_eq!(said.code, Some(2));
            assert!(said.err.starts_with(&expected), "{}", said.err);
        }
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is made");
    let said = compare_in(directory.path(), &[&a, &b, "-o", "of.html", "--compat"]);
    assert_eq!((said.code, said.err.as_str()), (Some(1), ""));
    assert!(directory.path().join("of.html/ckpt_similarity.json").is_file());
}

#[test]
fn what_is_no_checkpoint_or_an_incomplete_one_is_an_error_and_writes_nothing() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let copy = |layout: &str, to: &str| {
        let from = PathBuf::from(made(layout));
        let mut pending = vec![from.clone()];
        while let Some(next) = pending.pop() {
            for entry in fs::read_dir(&next).unwrap() {
                let entry = entry.unwrap().path();
                let target = path(to).join(entry.strip_prefix(&from).unwrap());
                if entry.is_dir() {
                    fs::create_dir_all(&target).unwrap();
                    pending.push(entry);
                } else {
                    fs::create_dir_all(target.parent().unwrap()).unwrap();
                    fs::copy(&entry, &target).unwrap();
                }
            }
        }
    };
    fs::create_dir(path("empty")).unwrap();
    fs::write(path("cut.pt"), &fs::read(made("plain.pt")).unwrap()[..4000]).unwrap();
    fs::write(path("text.pt"), "no tensors at all").unwrap();
    copy("megatron_tp2_pp2_ep2", "megatron");
    fs::remove_dir_all(path("megatron/iter_0000003/mp_rank_01_001_001")).unwrap();
    copy("deepspeed_zero3", "zero3");
    fs::remove_file(path("zero3/global_step0/zero_pp_rank_1_mp_rank_00_optim_states.pt")).unwrap();
    copy("fsdp", "fsdp");
    fs::remove_file(path("fsdp/__1_0.distcp")).unwrap();
    copy("fsdp", "unlisted");
    fs::remove_file(path("unlisted/.metadata")).unwrap();
    fs::write(path("nothing.pt"), "").unwrap();
    copy("hf", "hf");
    fs::write(path("hf/model.safetensors.index.json"), r#"{"weight_map": {"a": "../../etc/passwd"}}"#).unwrap();
    copy("hf", "sparse");
    fs::File::create(path("sparse/model.safetensors.index.json")).unwrap().set_len(10 << 30).unwrap();
    std::os::unix::fs::symlink(path("loop"), path("loop")).unwrap();
    // os.system("touch executed"), as an archive of torch.
    let attack = b"\x80\x02cposix\nsystem\nX\x0e\0\0\0touch executed\x85R.";
    fs::write(path("attack.pt"), archive_of(attack)).unwrap();
    copy("megatron_one", "pointer");
    fs::write(path("pointer/latest_checkpointed_iteration.txt"), "../../elsewhere").unwrap();
    let mut transcript = Transcript::default();
    for bad in [
        "none",
        "empty",
        "cut.pt",
        "text.pt",
        "megatron",
        "zero3",
        "fsdp",
        "hf",
        "sparse",
        "loop",
        "attack.pt",
        "pointer",
        "unlisted",
        "nothing.pt",
    ] {
        let said = compare_in(directory.path(), &[bad, &made("plain.pt"), "-o", "out"]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{bad}: {}", said.err);
        assert!(!path("out").exists(), "{bad}");
        transcript.add(bad, &said);
    }
    insta::assert_snapshot!(transcript);
    assert!(!path("executed").exists(), "nothing in a pickle is executed");
}

#[test]
fn a_file_that_is_identical_and_would_call_the_system_is_said_to_do_so_on_either_side() {
    let directory = TempDir::new().expect("a temporary directory");
    for (target, golden, word) in
        [("attack_within.pt", "plain.pt", "target"), ("plain.pt", "attack_within.pt", "golden")]
    {
        let said = compare_in(directory.path(), &[&made(target), &made(golden)]);
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        let after = said.out.split_once(&format!("{word}: ")).expect("the side").1;
        let note = after.lines().nth(1).expect("a note");
        assert!(note.contains("attack_within.pt contains calls of posix.system"), "{}", said.out);
        let said = compare_in(directory.path(), &["--json", &made(target), &made(golden)]);
        assert!(said.out.contains("contains calls of posix.system"), "{}", said.out);
    }
    assert!(!directory.path().join("executed").exists());
}

/// An archive of torch with this pickle in place of its own, which is longer.
fn archive_of(pickle: &[u8]) -> Vec<u8> {
    let mut bytes = fs::read(made("plain.pt")).expect("the file");
    let at = bytes.windows(2).position(|window| window == b"\x80\x02").expect("a pickle");
    bytes[at..at + pickle.len()].copy_from_slice(pickle);
    bytes
}

#[test]
fn megatrons_torch_dist_directories_are_read() {
    let directory = TempDir::new().expect("a temporary directory");
    let iteration = directory.path().join("iter_0000007");
    fs::create_dir(&iteration).unwrap();
    for file in [".metadata", "__0_0.distcp", "__1_0.distcp"] {
        fs::copy(Path::new(&made("fsdp")).join(file), iteration.join(file)).unwrap();
    }
    fs::write(directory.path().join("latest_checkpointed_iteration.txt"), "7\n").unwrap();
    let (code, report) = compare_json(&made("plain.pt"), &directory.path().display().to_string());
    assert_eq!((code, &report["golden"]["layout"]), (Some(0), &Value::from("distributed")), "{report}");
}

/// A file of float32 vectors, or matrices of one column, by name.
/// A name out of a file that would like to be more than text.
#[test]
fn the_page_has_every_tensor_and_no_name_breaks_out_of_it() {
    let directory = TempDir::new().expect("a temporary directory");
    let hostile = "</script><img src=x onerror=alert(1)>";
    for (name, value) in [("a.pt", 1.0), ("b.pt", 2.0)] {
        save(&directory.path().join(name), &[("w", &[1.0, value]), (hostile, &[1.0])]);
    }
    let said = compare_in(directory.path(), &["a.pt", "b.pt", "-o", "page"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let page = fs::read_to_string(directory.path().join("page/compare.html")).unwrap();
    assert!(page.contains("1 of 2 tensors differ") && page.contains(">different</td>"), "{page}");
    assert!(page.contains("default-src 'none'") && !page.contains("http://") && !page.contains("https://"), "{page}");
    assert!(page.contains("&lt;/script&gt;") && !page.contains("<img"), "{page}");
}

fn save(path: &Path, tensors: &[(&str, &[f32])]) {
    let flat: Vec<_> = tensors.iter().map(|(name, numbers)| (*name, vec![numbers.len() as i64], *numbers)).collect();
    save_shaped(path, &flat);
}

fn save_shaped(path: &Path, tensors: &[(&str, Vec<i64>, &[f32])]) {
    let tensors: Vec<(String, StoredTensor)> = tensors
        .iter()
        .map(|(name, dims, numbers)| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let shape = Shape::new(dims).expect("a shape");
            ((*name).to_owned(), StoredTensor::new(Dtype::F32, shape, bytes.into()).expect("a tensor"))
        })
        .collect();
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    write_pt(&tensors, &mut fs::File::create(path).expect("a file")).expect("written");
}

#[test]
fn a_tied_embedding_on_two_stages_is_one_tensor_and_a_norm_that_differs_between_ranks_is_told() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).join("model_optim_rng.pt");
    let embedding = "model.embedding.word_embeddings.weight";
    let norm = "model.decoder.final_layernorm.weight";
    save(&path("one/mp_rank_00"), &[(embedding, &[1.0, 2.0, 3.0, 4.0]), (norm, &[5.0])]);
    for (rank, part, last) in [("00", [1.0, 2.0], 5.0), ("01", [3.0, 4.0], 6.0)] {
        save(&path(&format!("cut/mp_rank_{rank}_000")), &[(embedding, &part)]);
        save(&path(&format!("cut/mp_rank_{rank}_001")), &[(embedding, &part), (norm, &[last])]);
    }
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (code, report) = compare_json(&at("one"), &at("cut"));
    assert_eq!((code, &report["summary"]["identical"]), (Some(0), &Value::from(2)), "{report}");
    let notes = report["golden"]["notes"].as_array().unwrap();
    let told = "`decoder.final_layernorm.weight` differs between tensor ranks 0 and 1: comparing that of rank 0";
    assert!(notes.iter().any(|note| note == told), "{report}");
}

#[test]
fn a_prefix_is_taken_off_where_names_have_nothing_in_common_and_no_tensor_is_lost_by_it() {
    let directory = TempDir::new().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    save(&at("a.pt"), &[("module.x", &[1.0]), ("module.y", &[2.0])]);
    save(&at("b.pt"), &[("x", &[1.0]), ("y", &[2.0])]);
    let (code, report) = compare_json(&at("a.pt").display().to_string(), &at("b.pt").display().to_string());
    assert_eq!((code, &report["summary"]["identical"]), (Some(0), &Value::from(2)), "{report}");
    assert_eq!(
        report["target"]["notes"][0],
        "removed the prefix `module.` from the names: with it, none matches the other checkpoint"
    );
    // Without it there would be two of one name.
    save(&at("c.pt"), &[("module.x", &[1.0]), ("module.z", &[1.0]), ("z", &[3.0])]);
    let (code, report) = compare_json(&at("c.pt").display().to_string(), &at("b.pt").display().to_string());
    assert_eq!(code, Some(1));
    assert_eq!(report["target_only"], serde_json::json!(["module.z", "z"]), "{report}");
}

const PAIRS: [&str; 2] = ["ckpt_tp1_tp1", "ckpt_tp1_tp2pp2"];

/// msprobe sums in float32 and ends elsewhere in the last digit: two units of it.
fn is_near(found: &Value, expected: &Value) -> bool {
    match (found.as_f64(), expected.as_f64()) {
        (Some(found), Some(expected)) => (found - expected).abs() <= 2.4e-7 * expected.abs().max(f64::MIN_POSITIVE),
        _ => found == expected,
    }
}

#[test]
fn compat_writes_what_msprobe_wrote() {
    for pair in PAIRS {
        let Some(golden) = golden(&format!("06_config_check/{pair}"), "compare-checkpoint") else { continue };
        let directory = TempDir::new().expect("a temporary directory");
        let side = |name: &str| golden.join(name).display().to_string();
        let said = compare_in(directory.path(), &[&side("ckpt_a"), &side("ckpt_b"), "--compat"]);
        assert_eq!(said.code, Some(1), "{}", said.err);
        let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
        let found = read(&directory.path().join("ckpt_similarity.json"));
        let expected = read(&golden.join("ckpt_similarity.json"));
        let (found, expected) = (found.as_object().unwrap(), expected.as_object().unwrap());
        let mut names: Vec<&String> = expected.keys().collect();
        names.sort();
        assert_eq!(found.keys().collect::<Vec<_>>(), names, "{pair}");
        for (name, expected) in expected {
            let found = &found[name];
            assert_eq!(found.as_object().unwrap().keys().collect::<Vec<_>>(), ["l2", "cos", "numel", "shape"]);
            for exact in ["numel", "shape"] {
                assert_eq!(found[exact], expected[exact], "{pair} {name}");
            }
            for number in ["l2", "cos"] {
                assert!(is_near(&found[number], &expected[number]), "{pair} {name} {number}: {found} {expected}");
            }
        }
    }
}

#[test]
fn every_planted_difference_of_the_recorded_pairs_is_found_and_nothing_else() {
    for pair in PAIRS {
        let Some(golden) = golden(&format!("06_config_check/{pair}"), "compare-checkpoint") else { continue };
        let side = |name: &str| golden.join(name).display().to_string();
        let (code, report) = compare_json(&side("ckpt_a"), &side("ckpt_b"));
        assert_eq!(code, Some(1));
        let known: Value = serde_json::from_slice(&fs::read(golden.join("known.json")).unwrap()).unwrap();
        let known: Vec<&str> =
            known["differences"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        let mut found = names(&report, "different");
        found.extend(names(&report, "shape"));
        assert_eq!(found.len() + 1, known.len(), "{pair}: {found:?}");
        for name in &found {
            assert!(known.iter().any(|line| line.starts_with(name)), "{pair}: {name} was not planted");
        }
        assert_eq!(report["golden_only"], serde_json::json!(["only_in_b.weight"]));
        assert_eq!(report["target_only"], serde_json::json!([]));
        let rows = report["tensors"].as_array().unwrap();
        let changed = rows.iter().find(|row| row["name"] == "decoder.layers.1.mlp.linear_fc1.weight").unwrap();
        assert_eq!(changed["distance"]["max_abs_at"], serde_json::json!([3, 2]), "{pair}");
        assert_eq!(changed["distance"]["differing"], 1);
    }
}
