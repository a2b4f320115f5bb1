//! The program with what belongs beside it, in one archive.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::process;

/// Writes `place`, in which everything lies in the directory `name`. Of one commit and one program it is always the same
/// bytes: nobody owns the files, and their time is the commit's.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn write(
    root: &Path,
    place: &Path,
    name: &str,
    program: &Path,
    completions: &[(&str, String)],
) -> Result<()> {
    let read = |file: &Path| fs::read(file).with_context(|| format!("cannot read {}", file.display()));
    let mut content = vec![("trainmon".to_owned(), 0o755, read(program)?)];
    for document in ["LICENSE", "README.md", "CHANGELOG.md"] {
        content.push((document.to_owned(), 0o644, read(&root.join(document))?));
    }
    for (file, script) in completions {
        content.push((format!("completions/{file}"), 0o644, script.clone().into_bytes()));
    }
    let time = time_of_commit(root);
    let pack = || -> std::io::Result<()> {
        let mut tar = tar::Builder::new(GzEncoder::new(File::create(place)?, Compression::best()));
        for (file, mode, bytes) in &content {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(*mode);
            header.set_mtime(time.unsigned_abs());
            tar.append_data(&mut header, format!("{name}/{file}"), &bytes[..])?;
        }
        tar.into_inner()?.finish()?.flush()
    };
    pack().with_context(|| format!("cannot write {}", place.display()))
}

/// `SOURCE_DATE_EPOCH`, or when the last commit was made; in seconds since 1970.
pub(super) fn time_of_commit(root: &Path) -> i64 {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let asked = || process::output("git", &["-C", &root.display().to_string(), "log", "-1", "--format=%ct"]).ok();
    given.or_else(asked).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::workspace;

    #[test]
    fn an_archive_has_the_program_its_papers_and_the_completions_in_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("trainmon");
        fs::write(&program, "\x7fELF").unwrap();
        let place = dir.path().join("trainmon-1.tar.gz");
        let completions = [("_trainmon", "#compdef trainmon".to_owned())];
        write(&workspace::root(), &place, "trainmon-1", &program, &completions).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&place).unwrap()));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = Vec::new();
            entry.read_to_end(&mut text).unwrap();
            assert!(!text.is_empty());
            found.push((entry.path().unwrap().display().to_string(), entry.header().mode().unwrap()));
        }
        let named = |file: &str, mode| (format!("trainmon-1/{file}"), mode);
        let papers = ["LICENSE", "README.md", "CHANGELOG.md", "completions/_trainmon"].map(|file| named(file, 0o644));
        assert_eq!(found, [&[named("trainmon", 0o755)][..], &papers[..]].concat());
        let first = fs::read(&place).unwrap();
        write(&workspace::root(), &place, "trainmon-1", &program, &completions).unwrap();
        assert!(first == fs::read(&place).unwrap(), "the same input gives the same bytes");
    }
}
