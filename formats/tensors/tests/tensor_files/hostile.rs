//! Damaged and hostile files of every format: an error that says what is wrong, no panic, no memory by claims.

use std::error::Error as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use proptest::prelude::*;
use trainmon_tensor_files::{TensorFileError, open};

use crate::support::{MOST_AT_ONCE, corpus_files, largest_allocation, parse, read_all, zip};

fn cause(error: &TensorFileError) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), elements].concat()
}

fn safetensors(header: &str, elements: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), elements].concat()
}

#[test]
fn a_file_cut_off_anywhere_is_an_error() {
    for (name, bytes) in corpus_files() {
        for length in 0..bytes.len() {
            let outcome = read_all(bytes[..length].to_vec());
            // What the old format has at its end may belong to no tensor.
            assert!(outcome.is_err() || name == "legacy.pt", "{name} cut off after {length} bytes");
        }
    }
    assert!(largest_allocation() <= MOST_AT_ONCE);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn changed_bytes_never_bring_the_reader_down(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let files = corpus_files();
        let (_, mut bytes) = files[which.index(files.len())].clone();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        drop(read_all(bytes));
        prop_assert!(largest_allocation() <= MOST_AT_ONCE);
    }

    #[test]
    fn noise_behind_every_magic_is_an_error_or_nothing(which in 0..4usize, noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let magics: [&[u8]; 4] = [b"\x93NUMPY\x01\0\x40\0{", b"PK\x03\x04", b"\x40\0\0\0\0\0\0\0{", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."];
        drop(read_all([magics[which], &noise[..]].concat()));
        prop_assert!(largest_allocation() <= MOST_AT_ONCE);
    }
}

#[test]
fn what_a_header_claims_is_checked_against_the_file() {
    let huge = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1152921504606846976],\"data_offsets\":[0,16]}}";
    for (bytes, words) in [
        (npy("<f4", "(1152921504606846976,)", &[0; 16]), "cannot read the array: it requires bytes"),
        (npy("<f4", "(9223372036854775807, 2)", &[0; 16]), "invalid shape"),
        (
            npy("<c16", "(9223372036854775807,)", &[0; 16]),
            "exceeded the limit of 1152921504606846975 for the elements of a tensor: found 9223372036854775807",
        ),
        (npy("<f4", "(-1,)", &[0; 16]), "invalid shape"),
        (npy("<f4", "(1, 'x')", &[0; 16]), "a .npy header at byte 10: `shape` has an entry that is not a number"),
        (npy("=f4", "(1,)", &[0; 16]), "an array of this byte order is not supported"),
        (
            b"\x93NUMPY\x02\0\xff\xff\xff\xff{".to_vec(),
            "exceeded the limit of 1048576 for bytes of a .npy header: found 4294967295",
        ),
        (b"\x93NUMPY\x09\0\xff\xff\xff\xff{".to_vec(), "this version of .npy is not supported"),
        (safetensors(huge, &[0; 16]), "invalid safetensors header"),
        (
            safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,32]}}", &[0; 16]),
            "invalid safetensors header",
        ),
        ([&u64::MAX.to_le_bytes()[..], b"{}"].concat(), "invalid safetensors header"),
        (
            b"GIF89\xff".to_vec(),
            "expected `.npy`, `.safetensors` or torch's `.pt`, found a file that begins with [47, 49, 46",
        ),
        (
            b"GIF89a".to_vec(),
            "expected `.npy`, `.safetensors` or torch's `.pt`, found a file that begins with the text \"GIF89a\"",
        ),
        (Vec::new(), "expected `.npy`, `.safetensors` or torch's `.pt`, found an empty file"),
    ] {
        let found = cause(&parse(bytes).unwrap_err());
        assert!(found.starts_with(words), "{found}");
    }
    assert!(largest_allocation() <= MOST_AT_ONCE);
}

#[test]
fn packed_entries_are_refused_whatever_they_would_unpack_to() {
    let entries = [("archive/data.pkl".to_owned(), &[0; 40][..])];
    let found = cause(&parse(zip(&entries, 8)).unwrap_err());
    assert_eq!(found, "an archive that torch did not write is not supported: `archive/data.pkl` is compressed");
    let other = zip(&[("word/document.xml".to_owned(), &[0; 4][..])], 0);
    assert!(cause(&parse(other).unwrap_err()).starts_with("an archive without `data.pkl` is not supported"));
}

#[test]
fn a_sparse_file_of_ten_gigabytes_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sparse");
    let length = 10u64 << 30;
    // An end of archive whose 64-bit directory claims to be the whole file, with as many entries as fit.
    let mut end = b"PK\x06\x06".to_vec();
    for number in [44u64, 0, length / 46, length / 46, length - 1000, 0] {
        end.extend_from_slice(&number.to_le_bytes());
    }
    end.extend_from_slice(b"PK\x06\x07\0\0\0\0");
    end.extend_from_slice(&(length - 98).to_le_bytes());
    end.extend_from_slice(b"\x01\0\0\0PK\x05\x06");
    end.extend_from_slice(&[0xff; 16]);
    end.extend_from_slice(&[0; 2]);
    for (begin, end) in [
        (&b"PK\x03\x04"[..], &b""[..]),
        (b"PK\x03\x04", &end),
        (&npy("<f4", "(1152921504606846976,)", &[]), b""),
        (&safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", &[]), b""),
        (b"\xff\xff\xff\xff\x01\0\0\0{", b""),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", b""),
    ] {
        let file = File::create(&path).unwrap();
        file.set_len(length).unwrap();
        file.write_all_at(begin, 0).unwrap();
        file.write_all_at(end, length - end.len() as u64).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, TensorFileError::Content { .. }), "{error:?}");
        std::fs::remove_file(&path).unwrap();
    }
    assert!(largest_allocation() <= MOST_AT_ONCE);
}

#[test]
fn what_is_no_file_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    assert!(matches!(open(root), Err(TensorFileError::NotAFile { .. })));
    assert!(matches!(open(&root.join("none")), Err(TensorFileError::Read { .. })));
    std::os::unix::fs::symlink(root.join("b"), root.join("a")).unwrap();
    std::os::unix::fs::symlink(root.join("a"), root.join("b")).unwrap();
    assert!(matches!(open(&root.join("a")), Err(TensorFileError::Read { .. })));
    assert!(matches!(open("/dev/null".as_ref()), Err(TensorFileError::NotAFile { .. })));
}
