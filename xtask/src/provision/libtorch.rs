//! libtorch: found, or installed once below `target/`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::pip;
use super::uv::Uv;
use super::version::{self, LIBTORCH_VERSION, Unfit};
use crate::hint::Hinted;
use crate::{hint, process, workspace};

/// Written last into an installation that was found whole; with it there, the files are not compared again.
const STAMP: &str = "trainmon-libtorch.stamp";

/// Directories in which libtorch is put together begin with this; a process number follows.
const WORKSHOP: &str = "libtorch.partial-";

/// The CUDA libraries libtorch's CPU half is linked to, and the wheels that bring them: those of CUDA toolkit 13.0.3,
/// which torch 2.13.0 asks for. Torch's other CUDA packages (4 GB) are needed on a GPU only.
const CUDA_WHEELS: [(&str, &str); 2] =
    [("libcudart.so", "nvidia-cuda-runtime==13.0.96"), ("libcupti.so", "nvidia-cuda-cupti==13.0.85")];

/// A libtorch of the right version, whole and loadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libtorch {
    /// The directory that holds `lib` and `include`.
    pub dir: PathBuf,
    /// Where it was found, for people.
    pub origin: &'static str,
}

/// Finds libtorch: `$LIBTORCH`, an earlier installation below `target/`, the torch that `python3` imports; installs it
/// below `target/` if there is none. Progress and the reasons against a candidate go to stderr.
///
/// # Errors
/// It can neither be found nor installed.
pub(super) fn ensure(root: &Path) -> Result<Libtorch> {
    if let Some(found) = find(root) {
        return Ok(found);
    }
    let site = site(root);
    install(&site).with_context(|| format!("cannot install libtorch {LIBTORCH_VERSION} into {}", site.display()))
}

fn site(root: &Path) -> PathBuf {
    workspace::provisioned(root).join("libtorch")
}

/// What [`ensure`] finds, without installing any.
pub(super) fn find(root: &Path) -> Option<Libtorch> {
    // Absolute: cargo's build scripts run elsewhere.
    if let Some(dir) = std::env::var_os("LIBTORCH").and_then(|dir| std::path::absolute(dir).ok())
        && let Some(found) = usable(&dir, "LIBTORCH")
    {
        return Some(found);
    }
    let importable = || usable(&importable()?, "the torch that python3 imports");
    installed_earlier(&site(root)).or_else(importable)
}

fn usable(dir: &Path, origin: &'static str) -> Option<Libtorch> {
    if let Err(reason) = version::check(dir) {
        eprintln!("note: {origin} is passed over: {reason}");
        return None;
    }
    let missing = missing_libraries(dir);
    if !missing.is_empty() {
        eprintln!("note: {origin} is passed over: {} needs {}", dir.display(), missing.join(", "));
        return None;
    }
    Some(Libtorch { dir: dir.to_path_buf(), origin })
}

/// The installation below `target/`. One without a stamp is compared with pip's list first, then stamped.
fn installed_earlier(site: &Path) -> Option<Libtorch> {
    let dir = site.join("torch");
    let found = Libtorch { dir: dir.clone(), origin: "installed earlier" };
    let stamped = fs::read_to_string(site.join(STAMP)).is_ok_and(|text| text == LIBTORCH_VERSION);
    if stamped && version::version_in(&dir).as_deref() == Some(LIBTORCH_VERSION) {
        return Some(found);
    }
    match version::check(&dir) {
        Err(Unfit::Absent { .. }) => None,
        Err(reason) => {
            eprintln!("note: replacing an installation: {reason}");
            None
        }
        Ok(()) if missing_libraries(&dir).is_empty() => {
            stamp(site).ok()?;
            Some(found)
        }
        Ok(()) => None,
    }
}

fn stamp(site: &Path) -> Result<()> {
    fs::write(site.join(STAMP), LIBTORCH_VERSION).context("cannot write the stamp")
}

/// Where `import torch` would find it; the package is not imported.
fn importable() -> Option<PathBuf> {
    let ask = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0])";
    let answer = process::output(pip::PYTHON, &["-c", ask]).ok()?;
    Some(PathBuf::from(answer.trim())).filter(|dir| dir.is_dir())
}

fn install(site: &Path) -> Result<Libtorch> {
    let parent = site.parent().context("no parent directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    // One installs, others wait and find it done.
    let lock = File::create(parent.join("libtorch.lock")).context("cannot make the lock file")?;
    lock.lock().context("cannot take the lock")?;
    if let Some(found) = installed_earlier(site) {
        return Ok(found);
    }
    remove_leftovers(parent);
    // A name of its own: the pip of a run that was killed may still be writing into the old one.
    let workshop = parent.join(format!("{WORKSHOP}{}", std::process::id()));
    let made = make(&workshop, site);
    // Whatever is left is of no use, and it may be what fills the disk.
    remove(&workshop)?;
    made?;
    Ok(Libtorch { dir: site.join("torch"), origin: "installed now" })
}

/// Installs inside `workshop`, which lies beside `site`, and moves what is whole to `site`.
fn make(workshop: &Path, site: &Path) -> Result<()> {
    let (new, scratch) = (workshop.join("site"), workshop.join("scratch"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    eprintln!("libtorch {LIBTORCH_VERSION}: installing once into {} (0.5 GB to download)", site.display());
    install_wheels(&[&format!("torch=={LIBTORCH_VERSION}")], &new, &scratch, site)?;
    let dir = new.join("torch");
    let wheels = wheels_for(&missing_libraries(&dir));
    if !wheels.is_empty() {
        install_wheels(&wheels, &new, &scratch, site)?;
    }
    version::check(&dir).context("the new installation is not whole")?;
    let missing = missing_libraries(&dir);
    if !missing.is_empty() {
        let hint = "install these libraries with your system's package manager";
        return Err(Hinted::new(format!("libtorch needs {}", missing.join(", ")), hint).into());
    }
    stamp(&new)?;
    remove(site)?;
    // On one file system the rename is atomic: no half-finished directory ever bears the final name.
    fs::rename(&new, site).with_context(|| format!("cannot rename {}", new.display()))
}

/// With uv the files are those of the Python environments, on the disk once; else with pip.
fn install_wheels(wheels: &[&str], into: &Path, scratch: &Path, site: &Path) -> Result<()> {
    pip::ensure_python("install Python 3.10 or newer with pip, or set LIBTORCH to a libtorch 2.13.0")?;
    let beside = site.with_file_name("python");
    let with_uv = fs::create_dir_all(&beside)
        .map_err(Into::into)
        .and_then(|()| Uv::ensure(&beside))
        .and_then(|uv| uv.install_into(into, wheels));
    with_uv.or_else(|error| {
        eprintln!("  note: installing with pip: {}", hint::render(&error));
        pip::install(wheels, into, scratch)
    })
}

/// What runs that were killed left behind; what cannot be removed yet is left to the next installation.
fn remove_leftovers(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(WORKSHOP)) {
        if let Err(reason) = remove(&entry.path()) {
            eprintln!("note: {reason:#}");
        }
    }
}

fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}

/// The libraries the loader would not find for libtorch's CPU half. Empty where there is no `ldd` to ask.
fn missing_libraries(dir: &Path) -> Vec<String> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let library = dir.join("lib/libtorch_cpu.so");
    let answer = process::output("ldd", &[&library.display().to_string()]).unwrap_or_default();
    not_found(&answer)
}

fn not_found(ldd: &str) -> Vec<String> {
    let mut names: Vec<String> = ldd
        .lines()
        .filter(|line| line.contains("=> not found"))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

fn wheels_for(missing: &[String]) -> Vec<&'static str> {
    let needed = |library: &str| missing.iter().any(|name| name.starts_with(library));
    CUDA_WHEELS.into_iter().filter(|(library, _)| needed(library)).map(|(_, wheel)| wheel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::version::tests::installed;

    #[test]
    fn the_loader_names_what_it_misses() {
        let ldd = "\tlibc10.so => /x/libc10.so (0x1)\n\tlibcupti.so.13 => not found\n\tlibcudart.so.13 => not found\n\
            \tlibcudart.so.13 => not found\n\tlinux-vdso.so.1 (0x2)\n";
        let missing = not_found(ldd);
        assert_eq!(missing, ["libcudart.so.13", "libcupti.so.13"]);
        assert_eq!(wheels_for(&missing), ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85"]);
        assert_eq!(wheels_for(&[]), [""; 0]);
    }

    #[test]
    fn an_installation_without_stamp_is_checked_then_stamped() {
        let site = tempfile::tempdir().unwrap();
        let dir = installed(site.path());
        assert_eq!(installed_earlier(site.path()).map(|found| found.dir), Some(dir));
        assert_eq!(fs::read_to_string(site.path().join(STAMP)).unwrap(), LIBTORCH_VERSION);
    }

    #[test]
    fn a_half_finished_installation_is_not_taken_for_a_whole_one() {
        let site = tempfile::tempdir().unwrap();
        let dir = installed(site.path());
        fs::remove_file(dir.join("include/torch/csrc/api/include/torch/torch.h")).unwrap();
        assert_eq!(installed_earlier(site.path()), None);
        assert!(!site.path().join(STAMP).exists());
    }

    #[test]
    fn what_killed_runs_left_behind_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        for dir in ["libtorch.partial-1/site/torch", "libtorch.partial-22", "libtorch/torch", "debug"] {
            fs::create_dir_all(parent.path().join(dir)).unwrap();
        }
        remove_leftovers(parent.path());
        let mut left: Vec<_> = fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["debug", "libtorch"]);
    }

    #[test]
    fn a_stamp_of_another_version_proves_nothing() {
        let site = tempfile::tempdir().unwrap();
        fs::write(site.path().join(STAMP), "2.12.0").unwrap();
        assert_eq!(installed_earlier(site.path()), None);
    }
}
