//! `cargo xtask device-kit`: a folder with everything there is to learn from one GPU in one call (docs/device.md).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::dist::{self, Architecture};
use crate::hint::Hinted;
use crate::{provision, workspace};

/// The kit's parts.
const PARTS: &str = "integration-tests/device_kit";
/// The benchmarks that parts of it run.
const BENCHES: [&str; 3] =
    ["agent/python/benches/overhead.py", "agent/python/benches/gpts.py", "agent/python/benches/dump.py"];
/// What shows that a folder is an older kit.
const FACTS: &str = "facts.json";
/// More does not travel to a machine that is lent.
const MOST_MIB: f64 = 60.0;

/// A kit that was put together.
#[derive(Debug)]
pub struct Kit {
    /// The folder.
    pub folder: PathBuf,
    /// All its files.
    pub mib: f64,
}

/// Builds the kit with the wheel that users install, and prints its size and how to run it.
///
/// # Errors
/// The wheel does not build, msprobe cannot be fetched, the folder is not an older kit, or the kit is too large to travel.
pub fn run(root: &Path, out: &Path) -> Result<()> {
    let wheels = workspace::provisioned(root).join("device-kit-wheel");
    let wheel = dist::wheel(root, &wheels, Architecture::of_this_machine())?;
    let kit = assemble(root, &root.join(out), &wheel, dist::PROFILE)?;
    if kit.mib > MOST_MIB {
        let message = format!("the kit has {:.1} MiB, more than {MOST_MIB} MiB", kit.mib);
        return Err(Hinted::new(message, "leave out wheels of agent/python/requirements/device-kit.txt").into());
    }
    println!("{}: {:.1} MiB of at most {MOST_MIB}", kit.folder.display(), kit.mib);
    println!("run it on a machine with a GPU: bash '{}'", kit.folder.join("run.sh").display());
    Ok(())
}

/// Puts the kit together around a wheel.
///
/// # Errors
/// As [`run`].
pub fn assemble(root: &Path, folder: &Path, wheel: &Path, profile: &str) -> Result<Kit> {
    clear(folder)?;
    // First of all: a folder that was left unfinished is known as a kit, too.
    let facts = folder.join(FACTS);
    fs::write(&facts, "{}").with_context(|| format!("cannot write {}", facts.display()))?;
    for directory in ["device_kit", "benches", "wheels/other"] {
        let directory = folder.join(directory);
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    copy_scripts(&root.join(PARTS), &folder.join("device_kit"))?;
    copy(&root.join(PARTS).join("run.sh"), &folder.join("run.sh"))?;
    for bench in BENCHES {
        copy_into(&root.join(bench), &folder.join("benches"))?;
    }
    copy_into(wheel, &folder.join("wheels"))?;
    provision::wheels_beside(root, &folder.join("wheels/other"))?;
    let mut kit = Kit { folder: folder.to_path_buf(), mib: mib_of(folder)? };
    let text = serde_json::to_string_pretty(&facts_of(root, kit.mib, profile)).context("cannot write the facts")?;
    fs::write(&facts, text).with_context(|| format!("cannot write {}", facts.display()))?;
    kit.mib = mib_of(folder)?;
    Ok(kit)
}

/// What the scripts cannot find out where they run.
fn facts_of(root: &Path, mib: f64, profile: &str) -> serde_json::Value {
    let room = (MOST_MIB - mib).max(0.0);
    let libtorch = provision::libraries_of_libtorch(root).and_then(|lib| mib_of_libraries(&lib).ok());
    let tch = match libtorch {
        Some(libtorch) => format!(
            "the demo is linked to libtorch, whose libraries have {libtorch:.0} MiB, and {room:.0} MiB are left"
        ),
        None => "there was no libtorch where the kit was built".to_owned(),
    };
    json!({
        "trainmon": env!("CARGO_PKG_VERSION"),
        "profile": profile,
        "libtorch_mib": libtorch,
        "room_mib": room,
        "tch": tch,
    })
}

/// Of the libraries that a program of tch is linked to where there is no GPU.
fn mib_of_libraries(directory: &Path) -> Result<f64> {
    let names = ["libtorch.so", "libtorch_cpu.so", "libc10.so"];
    let bytes = names.iter().map(|name| Ok(fs::metadata(directory.join(name))?.len()));
    Ok(bytes.sum::<Result<u64>>()? as f64 / f64::from(1 << 20))
}

/// Makes an empty folder. An older kit goes; what is not one is not touched.
fn clear(folder: &Path) -> Result<()> {
    let is_used = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if is_used && !folder.join(FACTS).is_file() {
        let message = format!("{} has other files than a kit's", folder.display());
        return Err(Hinted::new(message, "give a folder of its own to `--out`").into());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn copy_scripts(from: &Path, to: &Path) -> Result<()> {
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let script = entry?.path();
        if script.extension().is_some_and(|extension| extension == "py") {
            copy_into(&script, to)?;
        }
    }
    Ok(())
}

fn copy_into(file: &Path, directory: &Path) -> Result<()> {
    copy(file, &directory.join(file.file_name().context("no file")?))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display())).map(drop)
}

fn mib_of(folder: &Path) -> Result<f64> {
    fn bytes(folder: &Path) -> std::io::Result<u64> {
        fs::read_dir(folder)?.try_fold(0, |sum, entry| {
            let entry = entry?;
            let metadata = entry.metadata()?;
            Ok(sum + if metadata.is_dir() { bytes(&entry.path())? } else { metadata.len() })
        })
    }
    let bytes = bytes(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint;

    #[test]
    fn only_an_older_kit_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a kit");
        clear(&folder).unwrap();
        for file in [FACTS, "anything"] {
            fs::write(folder.join(file), "").unwrap();
        }
        clear(&folder).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::write(folder.join("thesis.tex"), "").unwrap();
        let told = hint::render(&clear(&folder).unwrap_err());
        assert!(told.contains("has other files than a kit's") && told.contains("hint: "), "{told}");
        assert!(folder.join("thesis.tex").exists(), "nothing was removed");
    }

    #[test]
    fn a_folder_is_as_large_as_its_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        for file in ["one", "a/two", "a/b/three"] {
            fs::write(dir.path().join(file), vec![0; 1 << 20]).unwrap();
        }
        assert!((mib_of(dir.path()).unwrap() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn everything_the_kit_is_made_of_is_there() {
        let root = workspace::root();
        for file in BENCHES.into_iter().map(|bench| root.join(bench)).chain([root.join(PARTS).join("run.sh")]) {
            assert!(file.is_file(), "{}", file.display());
        }
        assert!(root.join(PARTS).join("__main__.py").is_file());
    }
}
