//! Which libtorch lies in a directory, and whether all of it.

use std::fs;
use std::path::{Path, PathBuf};

/// The libtorch that tch 0.26 is generated from; its build script accepts no other.
pub(super) const LIBTORCH_VERSION: &str = "2.13.0";

/// Why a directory cannot serve as libtorch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// Nothing there names a version.
    #[error("{dir}: no libtorch there")]
    Absent {
        /// The directory.
        dir: PathBuf,
    },
    /// Another version.
    #[error("{dir}: libtorch {got}, needed is {LIBTORCH_VERSION}")]
    WrongVersion {
        /// The directory.
        dir: PathBuf,
        /// The version found.
        got: String,
    },
    /// The right version, but a file is missing or cut short.
    #[error("{dir}: incomplete, {file} is missing or cut short")]
    Incomplete {
        /// The directory.
        dir: PathBuf,
        /// The first file found wanting.
        file: PathBuf,
    },
}

/// Whether `dir` (the directory that holds `lib` and `include`) is a whole libtorch of the right version.
///
/// A directory that pip made is compared file by file with pip's own list of what it wrote, names and sizes: about
/// 15 000 files, some 0.1 s.
///
/// # Errors
/// The reason why not.
pub(super) fn check(dir: &Path) -> Result<(), Unfit> {
    let dir_owned = || dir.to_path_buf();
    let got = version_in(dir).ok_or_else(|| Unfit::Absent { dir: dir_owned() })?;
    if got != LIBTORCH_VERSION {
        return Err(Unfit::WrongVersion { dir: dir_owned(), got });
    }
    let essential = essential_files().into_iter().find(|file| !dir.join(file).is_file());
    match essential.or_else(|| missing_from_record(dir)) {
        None => Ok(()),
        Some(file) => Err(Unfit::Incomplete { dir: dir_owned(), file }),
    }
}

/// The version a directory claims, without build suffix: from the header the compiler will see, else from the file of
/// the zip distribution, else from the Python package.
pub(super) fn version_in(dir: &Path) -> Option<String> {
    let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
    let version = read("include/torch/headeronly/version.h")
        .and_then(|text| version_of_header(&text))
        .or_else(|| read("build-version").map(|text| text.trim().to_owned()))
        .or_else(|| read("version.py").and_then(|text| version_of_python(&text)))?;
    Some(without_suffix(&version).to_owned())
}

/// `2.13.0+cu130` is 2.13.0.
pub(super) fn without_suffix(version: &str) -> &str {
    version.split_once('+').map_or(version, |(bare, _)| bare)
}

fn version_of_header(text: &str) -> Option<String> {
    let number = |part: &str| {
        let name = format!("TORCH_VERSION_{part}");
        text.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("#define") && words.next() == Some(&name))
                .then(|| words.next()?.parse::<u32>().ok())?
        })
    };
    Some(format!("{}.{}.{}", number("MAJOR")?, number("MINOR")?, number("PATCH")?))
}

fn version_of_python(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("__version__"))?.trim().strip_prefix('=')?.trim();
    Some(value.trim_matches(['\'', '"']).to_owned())
}

fn essential_files() -> [PathBuf; 4] {
    let suffix = std::env::consts::DLL_SUFFIX;
    [
        format!("lib/libtorch_cpu{suffix}").into(),
        format!("lib/libtorch{suffix}").into(),
        format!("lib/libc10{suffix}").into(),
        "include/torch/csrc/api/include/torch/torch.h".into(),
    ]
}

/// The first file below `dir` that pip's list names and that is not there in full; none if pip did not make `dir`.
fn missing_from_record(dir: &Path) -> Option<PathBuf> {
    let site = dir.parent()?;
    let record = fs::read_dir(site).ok()?.flatten().map(|entry| entry.path()).find(|path| is_torch_record(path))?;
    let record = record.join("RECORD");
    let Ok(text) = fs::read_to_string(&record) else { return Some(record) };
    text.lines().filter_map(recorded_file).find_map(|(file, size)| {
        let there = fs::metadata(site.join(file)).is_ok_and(|found| found.len() == size);
        (!there).then(|| PathBuf::from(file))
    })
}

fn is_torch_record(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("torch-") && name.ends_with(".dist-info")
}

/// Name and size of a line of RECORD (`path,sha256=…,size`) if it is one a build uses: headers and libraries.
fn recorded_file(line: &str) -> Option<(&str, u64)> {
    let (rest, size) = line.rsplit_once(',')?;
    let (file, _hash) = rest.rsplit_once(',')?;
    let used = file.starts_with("torch/lib/") || file.starts_with("torch/include/");
    Some((file, size.parse().ok()?)).filter(|_| used)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const HEADER: &str = "#pragma once\n#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 13\n\
        #define TORCH_VERSION_PATCH 0\n#define TORCH_VERSION \\\n  \"...\"\n";

    fn write(dir: &Path, file: &str, text: &str) {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A small tree that looks like what pip installs; gives the directory that holds `lib`.
    pub(in crate::provision) fn installed(site: &Path) -> PathBuf {
        let dir = site.join("torch");
        write(&dir, "include/torch/headeronly/version.h", HEADER);
        for file in essential_files() {
            write(&dir, &file.to_string_lossy(), "content");
        }
        let record = "torch/include/torch/csrc/api/include/torch/torch.h,sha256=x,7\ntorch/_C.so,sha256=y,99\n\
            torch-2.13.0.dist-info/RECORD,,\n";
        write(site, "torch-2.13.0.dist-info/RECORD", record);
        dir
    }

    #[test]
    fn a_whole_installation_of_the_right_version_is_fit() {
        let site = tempfile::tempdir().unwrap();
        assert_eq!(check(&installed(site.path())), Ok(()));
    }

    #[test]
    fn another_version_is_named() {
        let site = tempfile::tempdir().unwrap();
        let dir = installed(site.path());
        write(&dir, "include/torch/headeronly/version.h", &HEADER.replace("MINOR 13", "MINOR 9"));
        assert_eq!(check(&dir), Err(Unfit::WrongVersion { dir: dir.clone(), got: "2.9.0".to_owned() }));
    }

    #[test]
    fn an_empty_directory_holds_no_libtorch() {
        let site = tempfile::tempdir().unwrap();
        assert_eq!(check(site.path()), Err(Unfit::Absent { dir: site.path().to_path_buf() }));
    }

    #[test]
    fn a_missing_library_makes_it_incomplete() {
        let site = tempfile::tempdir().unwrap();
        let dir = installed(site.path());
        let library = &essential_files()[0];
        fs::remove_file(dir.join(library)).unwrap();
        assert_eq!(check(&dir), Err(Unfit::Incomplete { dir, file: library.clone() }));
    }

    #[test]
    fn a_file_cut_short_makes_it_incomplete() {
        let site = tempfile::tempdir().unwrap();
        let dir = installed(site.path());
        write(&dir, "include/torch/csrc/api/include/torch/torch.h", "cont");
        let file = PathBuf::from("torch/include/torch/csrc/api/include/torch/torch.h");
        assert_eq!(check(&dir), Err(Unfit::Incomplete { dir, file }));
    }

    #[test]
    fn a_list_that_pip_did_not_get_to_write_makes_it_incomplete() {
        let site = tempfile::tempdir().unwrap();
        let dir = installed(site.path());
        let record = site.path().join("torch-2.13.0.dist-info/RECORD");
        fs::remove_file(&record).unwrap();
        assert_eq!(check(&dir), Err(Unfit::Incomplete { dir, file: record }));
    }

    #[test]
    fn the_zip_and_the_python_package_name_their_version_too() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "version.py", "from typing import Optional\n__version__ = '2.13.0+cu130'\ndebug = False\n");
        assert_eq!(version_in(dir.path()).as_deref(), Some("2.13.0"));
        write(dir.path(), "build-version", "2.12.1+cpu\n");
        assert_eq!(version_in(dir.path()).as_deref(), Some("2.12.1"));
    }
}
