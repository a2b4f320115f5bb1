//! What the tests share: the corpus, archives made by hand, and an eye on the memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use trainmon_tensor_files::{FileBytes, TensorFile, TensorFileError};

/// Views that repeat elements may take so much; nothing else comes near.
pub(crate) const MOST_AT_ONCE: usize = 257 << 20;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

struct Watching;

#[global_allocator]
static ALLOCATOR: Watching = Watching;

#[expect(unsafe_code, reason = "an allocator is")]
// SAFETY: everything is the system allocator's; the sizes are only looked at.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The largest piece of memory anybody asked for so far.
pub(crate) fn largest_allocation() -> usize {
    LARGEST.load(Ordering::Relaxed)
}

pub(crate) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tensor_files/corpus")
}

/// Every file of tensors in the corpus.
pub(crate) fn corpus_files() -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension != "json"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    assert!(files.len() > 20, "the corpus is there");
    files
}

pub(crate) fn parse(bytes: Vec<u8>) -> Result<TensorFile, TensorFileError> {
    TensorFile::of_bytes(Path::new("made up"), FileBytes::from(bytes))
}

/// Opens and reads everything there is to read.
pub(crate) fn read_all(bytes: Vec<u8>) -> Result<(), TensorFileError> {
    let file = parse(bytes)?;
    for index in 0..file.entries().len() {
        let tensor = file.read_at(index)?;
        let mut numbers = [0.0; 16];
        let count = tensor.numbers().min(16);
        tensor.read_f64(0, &mut numbers[..count]);
    }
    file.leaves().map(drop)
}

/// An archive as torch writes it, of a pickle and storages.
pub(crate) fn archive(pickle: &[u8], storages: &[(&str, &[u8])]) -> Vec<u8> {
    let storages = storages.iter().map(|(key, bytes)| (format!("archive/data/{key}"), *bytes));
    let entries = std::iter::once(("archive/data.pkl".to_owned(), pickle)).chain(storages);
    zip(&entries.collect::<Vec<_>>(), 0)
}

/// A zip archive whose directory says that the entries are packed by `method`.
pub(crate) fn zip(entries: &[(String, &[u8])], method: u16) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let at = out.len() as u32;
        let sizes = [(bytes.len() as u32).to_le_bytes(); 2].concat();
        let name_length = (name.len() as u16).to_le_bytes();
        // Version, flags, method, time, date, checksum; then the sizes.
        let facts = [&[20, 0, 0, 0][..], &method.to_le_bytes(), &[0; 8], &sizes, &name_length, &[0; 2]].concat();
        out.extend_from_slice(&[b"PK\x03\x04", &facts[..], name.as_bytes(), bytes].concat());
        let places = [&[0; 10][..], &at.to_le_bytes()].concat();
        directory.extend_from_slice(&[b"PK\x01\x02\x14\0", &facts[..], &places, name.as_bytes()].concat());
    }
    let count = (entries.len() as u16).to_le_bytes();
    let end = [(directory.len() as u32).to_le_bytes(), (out.len() as u32).to_le_bytes()].concat();
    out.extend_from_slice(&[&directory[..], b"PK\x05\x06\0\0\0\0", &count, &count, &end, &[0; 2]].concat());
    out
}

/// The pickle of a tensor of floats over storage `0`: sizes, strides, elements of the storage.
pub(crate) fn tensor_pickle(sizes: &[u64], strides: &[u64], elements: u64) -> Vec<u8> {
    let mut pickle = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n".to_vec();
    pickle.extend_from_slice(b"X\x01\0\0\x000X\x03\0\0\0cpu");
    number(&mut pickle, elements);
    pickle.extend_from_slice(b"tQK\0");
    for list in [sizes, strides] {
        pickle.push(b'(');
        for &value in list {
            number(&mut pickle, value);
        }
        pickle.push(b't');
    }
    pickle.extend_from_slice(b"\x89}tR.");
    pickle
}

fn number(pickle: &mut Vec<u8>, value: u64) {
    pickle.extend_from_slice(&[0x8a, 8]);
    pickle.extend_from_slice(&value.to_le_bytes());
}
