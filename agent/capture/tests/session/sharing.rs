//! Tensors that are the same share a file; others never do.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;

use trainmon_core::Dtype;

use crate::support::{Host, bytes, floats, numbers_in, tensor_of};

/// 80 kB each: large enough to be shared.
fn row(first: f32) -> Vec<f32> {
    (0..20_000).map(|index| first + (index % 977) as f32).collect()
}

impl Host {
    /// Captures a row and gives its file, once it is whole.
    fn file_of(&self, row: &[f32]) -> PathBuf {
        self.call("f", |values| floats(values, row), |_| ()).unwrap();
        self.files().pop().unwrap()
    }

    /// The files of all calls, in their order.
    fn files(&self) -> Vec<PathBuf> {
        let document = self.document();
        let name = |operator: &trainmon_capture_files::Operator| {
            let name = tensor_of(&operator.values[0]).data_name.clone().unwrap();
            self.directory.join("dump_tensor_data").join(&*name)
        };
        document.operators.iter().map(name).collect()
    }
}

fn inode(path: &PathBuf) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn equal_tensors_share_a_file_in_every_format_and_each_name_reads_as_its_own() {
    for keys in [
        r#""task": "tensor""#,
        r#""task": "tensor", "compress": true"#,
        r#""task": "tensor", "tensor": {"file_format": "npy"}"#,
        r#""task": "tensor", "tensor": {"file_format": "safetensors"}"#,
    ] {
        let host = Host::new(keys);
        let rows = [row(0.0), row(1.0)];
        // One after the other without a wait: both writers are at work.
        for count in 0..20 {
            host.call("f", |values| floats(values, &rows[count % 2]), |_| ()).unwrap();
        }
        let files = host.files();
        for (count, file) in files.iter().enumerate() {
            assert_eq!(inode(file), inode(&files[count % 2]), "{keys}");
            assert_eq!(fs::metadata(file).unwrap().nlink(), 10, "{keys}");
            let expected: Vec<f64> = rows[count % 2].iter().copied().map(f64::from).collect();
            if !keys.contains("compress") {
                assert_eq!(numbers_in(file), expected, "{keys}");
            }
        }
        assert_ne!(inode(&files[0]), inode(&files[1]), "{keys}");
        let progress = host.session.progress();
        assert_eq!((progress.files, progress.shared_bytes, progress.tensor_bytes), (20, 18 * 80_000, 20 * 80_000));
        assert!(progress.bytes < 3 * 80_000, "what is on the disk: {} bytes", progress.bytes);
        let left = fs::read_dir(host.directory.join("dump_tensor_data")).unwrap().count();
        assert_eq!(left, 20, "no temporary file is left");
    }
}

#[test]
fn the_same_bytes_of_another_shape_or_dtype_have_a_file_of_their_own() {
    let host = Host::new(r#""task": "tensor""#);
    let memory = vec![1; 80_000];
    for (dtype, dims) in [(Dtype::F32, &[20_000][..]), (Dtype::F32, &[200, 100]), (Dtype::I32, &[20_000])] {
        host.call("f", |values| bytes(values, dtype, dims, &memory), |_| ()).unwrap();
    }
    let inodes: Vec<u64> = host.files().iter().map(inode).collect();
    assert!(inodes[0] != inodes[1] && inodes[1] != inodes[2] && inodes[0] != inodes[2], "{inodes:?}");
    assert_eq!(host.session.progress().shared_bytes, 0);
}

#[test]
fn small_tensors_and_those_that_are_not_to_share_have_files_of_their_own() {
    for (keys, row) in [(r#""task": "tensor""#, vec![1.0; 16]), (r#""task": "tensor", "share_files": false"#, row(0.0))]
    {
        let host = Host::new(keys);
        let files = [host.file_of(&row), host.file_of(&row)];
        assert_ne!(inode(&files[0]), inode(&files[1]), "{keys}");
    }
}

#[test]
fn a_file_that_was_changed_meanwhile_is_not_linked_to() {
    let row = row(0.0);
    let expected: Vec<f64> = row.iter().copied().map(f64::from).collect();
    let changes: [fn(&PathBuf); 6] = [
        |file| {
            let mut bytes = fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(file, bytes).unwrap();
        },
        |file| fs::OpenOptions::new().write(true).open(file).unwrap().set_len(70_000).unwrap(),
        |file| {
            let mut bytes = fs::read(file).unwrap();
            bytes.push(0);
            fs::write(file, bytes).unwrap();
        },
        |file| fs::remove_file(file).unwrap(),
        |file| {
            let elsewhere = file.with_extension("elsewhere");
            fs::rename(file, &elsewhere).unwrap();
            symlink(elsewhere, file).unwrap();
        },
        // Nobody ever writes into it: opening it must not wait for that.
        |file| {
            fs::remove_file(file).unwrap();
            assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let host = Host::new(r#""task": "tensor""#);
        change(&host.file_of(&row));
        let second = host.file_of(&row);
        assert_eq!(fs::symlink_metadata(&second).unwrap().nlink(), 1, "change {number}: a file of its own");
        assert_eq!(numbers_in(&second), expected, "change {number}");
        assert_eq!(inode(&host.file_of(&row)), inode(&second), "change {number}: the third shares what is right");
    }
}

#[test]
fn where_no_link_can_be_made_the_tensor_is_written() {
    let host = Host::new(r#""task": "tensor""#);
    let row = row(0.0);
    let first = host.file_of(&row);
    // The next one's name is taken: a link is refused, a file that appears whole takes its place.
    fs::write(first.with_file_name("Functional.f.1.forward.input.0.pt"), "somebody's").unwrap();
    let second = host.file_of(&row);
    assert!(second.ends_with("Functional.f.1.forward.input.0.pt"), "{}", second.display());
    assert_ne!(inode(&first), inode(&second));
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
    assert_eq!(host.session.progress().shared_bytes, 0);
}

#[test]
fn a_budget_counts_what_is_on_the_disk() {
    let host = Host::new(r#""task": "tensor", "disk_budget_mib": 1"#);
    for _ in 0..40 {
        host.file_of(&row(0.0));
    }
    assert_eq!((host.session.progress().files, host.said().len()), (40, 0), "3.2 MB of one content");
    let mut calls = 1;
    while host.call("f", |values| floats(values, &row(calls as f32)), |_| ()).is_some() {
        calls += 1;
        host.session.write_documents().unwrap();
        assert!(calls < 100);
    }
    assert!((11..=14).contains(&calls), "{calls}: 80 kB each");
}
