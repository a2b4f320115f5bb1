//! What the writers write is read back, and is byte for byte what torch and safetensors were seen to load
//! (`generate.py` does it with the files kept beside it).

use std::path::Path;

use trainmon_core::Dtype;
use trainmon_tensor_files::write::{WriteError, write_npy, write_pt, write_pt_of_one, write_safetensors};
use trainmon_tensor_files::{Format, StoredTensor, TensorRef, open, read_one};

use crate::support::{corpus, corpus_files, parse};

fn tensors_of(name: &str) -> Vec<(String, StoredTensor)> {
    let file = open(&corpus().join(name)).unwrap();
    file.entries().iter().map(|entry| (entry.name.clone(), file.read(&entry.name).unwrap())).collect()
}

fn assert_same(name: &str, a: &StoredTensor, b: &StoredTensor) {
    assert_eq!((a.dtype(), a.shape(), a.bytes()), (b.dtype(), b.shape(), b.bytes()), "{name}");
}

#[test]
fn every_tensor_of_the_corpus_survives_every_format() {
    for (name, bytes) in corpus_files() {
        let Ok(file) = parse(bytes) else { continue };
        let tensors: Vec<(String, StoredTensor)> =
            file.entries().iter().map(|entry| (entry.name.clone(), file.read(&entry.name).unwrap())).collect();
        let mut pt = Vec::new();
        write_pt(&tensors, &mut pt).unwrap();
        let back = parse(pt).unwrap();
        assert_eq!((back.format(), back.entries().len()), (Format::Torch, tensors.len()), "{name}");
        for (index, (_, tensor)) in tensors.iter().enumerate() {
            assert_same(&name, &back.read_at(index).unwrap(), tensor);
        }
        for (tensor_name, tensor) in &tensors {
            let mut one = Vec::new();
            write_pt_of_one(tensor, &mut one).unwrap();
            assert_same(&name, &parse(one).unwrap().only().unwrap(), tensor);
            let mut npy = Vec::new();
            write_npy(tensor, &mut npy).unwrap();
            let back = parse(npy).unwrap().only().unwrap();
            let as_bits = |tensor: &StoredTensor| -> Vec<u64> {
                tensor.to_f64().iter().map(|number| if number.is_nan() { 1 } else { number.to_bits() }).collect()
            };
            assert_eq!(as_bits(&back), as_bits(tensor), "{name} {tensor_name}");
            assert_eq!(back.shape(), tensor.shape());
            let named = [("x", TensorRef::from(tensor))];
            let mut safe = Vec::new();
            match write_safetensors(&named, &mut safe) {
                Err(WriteError::Dtype { dtype: Dtype::Complex128, .. }) => {}
                outcome => {
                    outcome.unwrap();
                    assert_same(&name, &parse(safe).unwrap().only().unwrap(), tensor);
                }
            }
        }
    }
}

#[test]
fn npy_files_are_numpys_own_byte_for_byte() {
    for name in ["c.npy", "scalar.npy", "empty.npy", "bool.npy", "half.npy"] {
        let mut written = Vec::new();
        write_npy(&read_one(&corpus().join(name)).unwrap(), &mut written).unwrap();
        assert_eq!(written, std::fs::read(corpus().join(name)).unwrap(), "{name}");
    }
}

#[test]
fn the_bytes_are_those_the_real_libraries_were_seen_to_load() {
    let every = tensors_of("dtypes.pt");
    let (mut pt, mut one, mut safe) = (Vec::new(), Vec::new(), Vec::new());
    write_pt(&every, &mut pt).unwrap();
    write_pt_of_one(&read_one(&corpus().join("one.pt")).unwrap(), &mut one).unwrap();
    let known: Vec<_> = every
        .iter()
        .filter(|(_, tensor)| tensor.dtype() != Dtype::Complex128)
        .map(|(name, tensor)| (name.as_str(), tensor.into()))
        .collect();
    write_safetensors(&known, &mut safe).unwrap();
    for (name, bytes) in [("written.pt", pt), ("written_one.pt", one), ("written.safetensors", safe)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tensor_files").join(name);
        if std::env::var_os("TRAINMON_REGENERATE").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name}: write it anew, and let generate.py load it");
    }
}

#[test]
fn ascends_bin_files_are_read() {
    let header =
        "$Version=1.0\n$Object.Count=1\n$Object.Length=24\nformat=2\ndtype=0\ndims=2,3\n$Object.data=0,24\n$End=1\n";
    let elements: Vec<u8> = [0.0f32, 0.25, 0.5, 0.75, 1.0, 1.25].iter().flat_map(|x| x.to_le_bytes()).collect();
    let tensor = parse([header.as_bytes(), &elements].concat()).unwrap().only().unwrap();
    assert_eq!((tensor.dtype(), tensor.shape().dims()), (Dtype::F32, &[2i64, 3][..]));
    assert_eq!(tensor.to_f64(), [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]);
    for (from, to) in [("0,24", "8,24"), ("0,24", "0,-1"), ("2,3", "2,4"), ("dtype=0", "dtype=99"), ("$End=1", "$End")]
    {
        let bytes = [header.replace(from, to).as_bytes(), &elements].concat();
        assert!(parse(bytes).is_err(), "{to}");
    }
}
