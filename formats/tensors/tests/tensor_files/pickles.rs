//! Hostile pickles: nothing is executed, nothing unfolds without end.

use std::error::Error as _;

use proptest::prelude::*;
use trainmon_tensor_files::{Kind, TensorFileError, pickle};

use crate::support::{MOST_AT_ONCE, archive, largest_allocation, parse, read_all, tensor_pickle};

fn refusal(outcome: Result<(), TensorFileError>) -> String {
    let error = outcome.unwrap_err();
    assert!(!error.hint().is_empty());
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[test]
fn a_pickle_that_calls_the_system_is_inert_data() {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("executed");
    let command = format!("touch {}", marker.display());
    let mut attack = b"\x80\x02cposix\nsystem\nX".to_vec();
    attack.extend_from_slice(&(command.len() as u32).to_le_bytes());
    attack.extend_from_slice(command.as_bytes());
    attack.extend_from_slice(b"\x85R.");
    let file = parse(archive(&attack, &[])).unwrap();
    let root = file.root().unwrap();
    assert_eq!(root.class(), Some(("posix", "system")));
    assert_eq!(root.args().unwrap().items().next().unwrap().as_text(), Some(command.as_str()));
    assert!(file.entries().is_empty() && !marker.exists());
}

#[test]
fn a_structure_that_unfolds_without_end_is_refused() {
    // A list of two of the list before, forty times: 2^40 places in 400 bytes.
    let mut laughs = b"\x80\x02]q\0".to_vec();
    for level in 0..40u8 {
        laughs.extend_from_slice(&[b']', b'q', level + 1, b'(', b'h', level, b'h', level, b'e']);
    }
    laughs.push(b'.');
    assert!(refusal(read_all(archive(&laughs, &[]))).contains("for places in the structure of a file"));
    // A list in itself.
    let within = archive(b"\x80\x02]q\0h\0a.", &[]);
    assert_eq!(refusal(read_all(within)), "exceeded the limit of 64 for the depth of a structure: found 65");
    // A parameter that is its own tensor, by way of a list of arguments.
    let own = b"\x80\x02ctorch._utils\n_rebuild_parameter\n]q\0Rq\x01h\0h\x01a0.";
    assert!(read_all(archive(own, &[])).is_ok(), "it is no tensor, and no crash");
    let (pickled, _) = pickle::read(own).unwrap();
    assert_eq!(pickled.root().class(), Some(("torch._utils", "_rebuild_parameter")));
}

#[test]
fn numbers_in_a_pickle_are_not_believed() {
    let storage = [0; 16];
    for (sizes, strides, elements, words) in [
        (
            &[1 << 60][..],
            &[1][..],
            4,
            "cannot read a tensor: it requires bytes 0..4611686018427387904, but the file has only 16",
        ),
        (&[4], &[1], 1 << 60, "cannot read a storage: it requires bytes"),
        (&[4], &[1 << 62], 4, "cannot read a tensor: it requires bytes 0..18446744073709551615"),
        (
            &[1 << 40],
            &[0],
            4,
            "exceeded the limit of 268435456 for bytes of a tensor that repeats its elements: found 4398046511104",
        ),
        (&[5], &[1], 4, "cannot read a tensor: it requires bytes 0..20, but the file has only 16"),
        (&[4], &[u64::MAX], 4, "cannot read a tensor: it requires bytes"),
        (&[2], &[1, 1], 4, "a tensor at byte 0: 2 strides for shape [2]"),
        (&[u64::MAX], &[1], 4, "invalid shape"),
        (&[1; 9], &[1; 9], 4, "invalid shape"),
        (&[1 << 32, 1 << 32], &[1, 1], 4, "invalid shape"),
    ] {
        let file = parse(archive(&tensor_pickle(sizes, strides, elements), &[("0", &storage)])).unwrap();
        let found = refusal(file.only().map(drop));
        assert!(found.starts_with(words), "{sizes:?} {strides:?} {elements}: {found}");
    }
    let good = archive(&tensor_pickle(&[2, 2], &[1, 2], 4), &[("0", &storage)]);
    assert_eq!(parse(good).unwrap().only().unwrap().to_f64(), [0.0; 4]);
    assert!(largest_allocation() <= MOST_AT_ONCE);
}

#[test]
fn damaged_opcodes_are_errors_with_their_place() {
    for (bytes, words) in [
        (&b"\x80\x02"[..], "cannot read a pickle: it requires bytes 2..3, but the file has only 2"),
        (b"(lp0\n.", "a pickle of protocol 0 or 1, or another file, is not supported"),
        (b"\x80\x07N.", "a pickle of this protocol is not supported: 7"),
        (b"\x80\x02.", "a pickle at byte 3: the stack is empty"),
        (b"\x80\x02t.", "a pickle at byte 3: no mark on the stack"),
        (b"\x80\x02h\x05.", "a pickle at byte 4: the memo has no entry 5"),
        (
            b"\x80\x02X\xff\xff\xff\xff.",
            "cannot read a value of a pickle: it requires bytes 7..4294967302, but the file has only 8",
        ),
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "exceeded the limit of 256 for bytes of a number: found 2147483647"),
        (b"\x80\x02NNb.", "a pickle at byte 5: a state for a value without one"),
        (b"\x80\x02N]Na\x88s.", "a pickle at byte 8: entries for a value that is not a dict"),
        (b"\x80\x02}(Nu.", "a pickle at byte 6: a key without a value"),
        (b"\x80\x02(N(a.", "a pickle at byte 6: the stack is empty"),
        (b"\x80\x02\x82\x01.", "a pickle at byte 3: unknown opcode '\\u{82}'"),
        (b"\x80\x02cos", "a pickle at byte 3: the name of a class is not terminated"),
        (b"\x80\x04NN\x93.", "a pickle at byte 5: the name of a class is not a string, or is too long"),
        (b"\x80\x02X\x01\0\0\0\xff.", "a string at byte 7: invalid utf-8"),
    ] {
        let found = pickle::read(bytes).unwrap_err().to_string();
        assert!(found.starts_with(words), "{}: {found}", bytes.escape_ascii());
    }
}

#[test]
fn two_places_of_one_name_have_two_names() {
    let one = tensor_pickle(&[1], &[1], 1);
    let body = &one[2..one.len() - 1];
    let mut pickle = b"\x80\x02}(X\x03\0\0\0a.b".to_vec();
    pickle.extend_from_slice(body);
    pickle.extend_from_slice(b"X\x01\0\0\0a}X\x01\0\0\0b");
    pickle.extend_from_slice(body);
    pickle.extend_from_slice(b"su.");
    let file = parse(archive(&pickle, &[("0", &[0; 4])])).unwrap();
    let names: Vec<&str> = file.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["a.b", "a.b#2"]);
}

/// Bytes that are opcodes more often than not.
fn opcodes() -> impl Strategy<Value = Vec<u8>> {
    let known = b"(.012JKMNQRTUXabcdeh])lqrst}uGBC\x80\x81\x82\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96";
    let byte = prop_oneof![4 => prop::sample::select(&known[..]), 1 => 0u8..4, 1 => any::<u8>()];
    prop::collection::vec(byte, 0..200)
}

proptest! {
    #[test]
    fn no_row_of_opcodes_brings_the_machine_down(body in opcodes()) {
        let mut bytes = b"\x80\x04".to_vec();
        bytes.extend_from_slice(&body);
        if let Ok((pickled, end)) = pickle::read(&bytes) {
            prop_assert!(end <= bytes.len());
            prop_assert!(!matches!(pickled.root().kind(), Kind::Object) || pickled.root().args().is_some());
        }
        drop(read_all(archive(&bytes, &[("0", &[0; 64])])));
        prop_assert!(largest_allocation() <= MOST_AT_ONCE);
    }
}
