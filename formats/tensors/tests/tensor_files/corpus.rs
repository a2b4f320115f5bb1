//! What torch, numpy and safetensors wrote is read as they meant it.

use serde_json::Value;
use trainmon_tensor_files::{Format, Item, Kind, StoredTensor, TensorFile, open, read_one, read_pickle};

use crate::support::corpus;

fn expected() -> serde_json::Map<String, Value> {
    let text = std::fs::read_to_string(corpus().join("expected.json")).unwrap();
    let Value::Object(files) = serde_json::from_str(&text).unwrap() else { panic!("no object") };
    files
}

fn file(name: &str) -> TensorFile {
    open(&corpus().join(name)).unwrap()
}

fn as_number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

fn assert_is(place: &str, tensor: &StoredTensor, facts: &Value) {
    assert_eq!(tensor.dtype().torch_name(), facts["dtype"], "{place}");
    let shape: Vec<i64> = facts["shape"].as_array().unwrap().iter().map(|size| size.as_i64().unwrap()).collect();
    assert_eq!(tensor.shape().dims(), shape, "{place}");
    let expected: Vec<f64> = facts["numbers"].as_array().unwrap().iter().map(as_number).collect();
    let found = tensor.to_f64();
    assert_eq!(found.len(), expected.len(), "{place}");
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(same, "{place}[{index}]: {found} instead of {expected}");
    }
}

#[test]
fn every_tensor_of_every_real_file_has_its_dtype_shape_and_numbers() {
    let mut tensors = 0;
    for (name, facts) in expected() {
        let file = file(&name);
        let facts = facts.as_object().unwrap();
        let mut names: Vec<&str> = file.entries().iter().map(|entry| entry.name.as_str()).collect();
        names.sort_unstable();
        let mut expected_names: Vec<&str> = facts.keys().map(String::as_str).collect();
        expected_names.sort_unstable();
        assert_eq!(names, expected_names, "{name}");
        for (tensor, facts) in facts {
            assert_is(&format!("{name}: {tensor}"), &file.read(tensor).unwrap(), facts);
            tensors += 1;
        }
    }
    assert!(tensors > 100, "{tensors}");
}

#[test]
fn the_format_is_told_by_the_bytes() {
    for (name, format) in [
        ("c.npy", Format::Npy),
        ("dtypes.safetensors", Format::Safetensors),
        ("checkpoint.pt", Format::Torch),
        ("legacy.pt", Format::TorchLegacy),
    ] {
        assert_eq!(file(name).format(), format);
    }
    assert_eq!(file("dtypes.safetensors").metadata(), [("format".to_owned(), "pt".to_owned())]);
}

#[test]
fn a_file_of_one_tensor_is_read_at_once_and_one_of_several_is_not() {
    assert_eq!(read_one(&corpus().join("one.pt")).unwrap().to_f64(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(read_one(&corpus().join("scalar.npy")).unwrap().to_f64(), [2.5]);
    let error = read_one(&corpus().join("views.pt")).unwrap_err();
    assert!(error.to_string().ends_with("views.pt` has 9 tensors instead of one"), "{error}");
}

#[test]
fn what_is_no_tensor_is_there_by_name() {
    for name in ["checkpoint.pt", "checkpoint_protocol5.pt", "legacy.pt"] {
        let file = file(name);
        let leaves = file.leaves().unwrap();
        let leaf = |name: &str| {
            let found = leaves.iter().find(|(found, _)| found == name);
            found.unwrap_or_else(|| panic!("no {name} among {leaves:?}")).1
        };
        assert_eq!(leaf("args.tensor_model_parallel_size").as_int(), Some(2), "{name}");
        assert_eq!(leaf("args.name").as_text(), Some("tiny"));
        assert_eq!(leaf("args.lr").kind(), Kind::Float(1e-3));
        assert_eq!(leaf("args.bf16").as_bool(), Some(true));
        assert_eq!(leaf("step").as_int(), Some(7));
        let Kind::Long(seed) = leaf("seed").kind() else { panic!("{name}: the seed is no long") };
        assert_eq!(seed, [&[0; 8][..], &[64]].concat());
        assert_eq!(leaf("dtype").kind(), Kind::Global { module: "torch", name: "bfloat16" });
        assert_eq!(leaf("optimizer.param_groups.0.lr").kind(), Kind::Float(1e-3));
        let root = file.root().unwrap();
        let args = root.get("args").unwrap();
        assert_eq!(args.class(), Some(("argparse", "Namespace")));
        assert_eq!(args.attribute("name").and_then(Item::as_text), Some("tiny"));
    }
}

#[test]
fn tensors_of_kinds_that_are_not_read_are_listed_with_the_reason() {
    let file = file("unreadable.pt");
    let reasons: Vec<_> = file.unreadable().iter().map(|one| format!("{}: {}", one.name, one.error)).collect();
    assert_eq!(
        reasons,
        [
            "sparse: a tensor of this kind is not supported: torch._utils._rebuild_sparse_tensor",
            "quantised: a tensor of this kind is not supported: torch._utils._rebuild_qtensor",
            "conjugate: a tensor with lazy conjugation or negation is not supported: mark Text(\"conj\")",
            "meta: a tensor of this kind is not supported: torch._utils._rebuild_meta_tensor_no_storage",
        ]
    );
}

#[test]
fn arrays_of_objects_records_and_text_and_programs_are_refused_by_name() {
    for (name, words) in [
        ("object.npy", "an array of Python objects is not supported: it is a pickle, which is not executed"),
        ("record.npy", "an array of records is not supported"),
        ("text.npy", "an array of this dtype is not supported: descr \"<U3\""),
        ("script.pt", "a TorchScript program is not supported"),
    ] {
        let error = open(&corpus().join(name)).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with(words), "{cause}");
    }
}

#[test]
fn a_large_file_is_mapped_and_its_tensors_are_borrowed_from_the_mapping() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.npy");
    let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (524288,), }");
    let elements: Vec<u8> = (0..524_288u32).flat_map(|index| (index as f32).to_le_bytes()).collect();
    let magic = b"\x93NUMPY\x01\0\x76\0";
    std::fs::write(&path, [&magic[..], header.as_bytes(), &elements].concat()).unwrap();
    let tensor = read_one(&path).unwrap();
    assert_eq!(tensor.bytes(), elements);
    let mut tail = [0.0; 3];
    tensor.read_f64(tensor.numbers() - 3, &mut tail);
    assert_eq!(tail, [524_285.0, 524_286.0, 524_287.0]);
    // The tensor outlives the name of its file.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(tensor.clone().bytes()[..4], [0; 4]);
}

#[test]
fn a_bare_pickle_is_read_as_data() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(".metadata");
    std::fs::write(&path, b"\x80\x04}\x94\x8c\x01a\x94K\x05s.").unwrap();
    let pickled = read_pickle(&path).unwrap();
    assert_eq!(pickled.root().get("a").and_then(Item::as_int), Some(5));
}
