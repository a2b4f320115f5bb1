//! `cargo xtask dist`: what one publishes. Wheels, the source package, the program by itself, what is in them, checksums.

mod archive;
mod inspect;
mod platform;
pub mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::hint::{self, Hinted};
use crate::provision::Environment;
use crate::{process, provision, workspace};
pub use platform::Architecture;

/// The package that is published, and the program.
const PACKAGE: &str = "agent/python";
const PROGRAM: &str = "trainmon-cli";
/// The profile of everything that users install and that benchmarks measure.
pub(crate) const PROFILE: &str = "release";

/// The oldest glibc a wheel runs on: as with torch's own wheels of before 2.6, and as old as Rust's standard library allows.
const MANYLINUX: &str = "manylinux_2_17";

/// The list of checksums.
const CHECKSUMS: &str = "SHA256SUMS";

/// What was made, and where.
#[derive(Debug)]
pub struct Made {
    /// Every file of the release.
    pub files: Vec<PathBuf>,
    /// Things that could not be tried on this machine: `name`, reason.
    pub skipped: Vec<(String, String)>,
}

impl Made {
    /// The wheel for this machine.
    ///
    /// # Errors
    /// It was built for other machines only.
    pub fn wheel(&self) -> Result<PathBuf> {
        let ending = format!("_{}.whl", std::env::consts::ARCH);
        let wheel = self.files.iter().find(|file| file_name(file).ends_with(&ending));
        wheel.cloned().with_context(|| format!("the release has no wheel *{ending}"))
    }
}

/// Builds a release into `out`, from which an older one is removed first: for both architectures, or for one. Four to five minutes of processor
/// time per architecture where nothing is compiled yet.
///
/// # Errors
/// Something does not build or is not what it should be. What can be built for the other architecture is built all the same.
pub fn run(root: &Path, out: &Path, only: Option<Architecture>) -> Result<Made> {
    let out = &root.join(out);
    clear(out)?;
    let tools = provision::dist_tools(root)?;
    let release = Release { root, out, tools, version: env!("CARGO_PKG_VERSION") };
    let mut failed = Vec::new();
    let mut skipped = Vec::new();
    // This machine's first: its program writes the completions of all.
    for architecture in Architecture::ordered(only) {
        match release.of(architecture) {
            Ok(untried) => skipped.extend(untried.map(|reason| (format!("dist[{architecture}]"), reason))),
            Err(error) => failed.push(format!("{architecture}: {}", hint::render(&error))),
        }
    }
    release.source_package()?;
    sbom::write(root, &release.path(&format!("trainmon-{}.cdx.json", release.version)))?;
    let files = release.checksums()?;
    for (name, reason) in &skipped {
        eprintln!("  note: {name} was not tried: {reason}");
    }
    if failed.is_empty() {
        return Ok(Made { files, skipped });
    }
    let hint = "`--only x86_64` or `--only aarch64` builds for one architecture; the others' files are in place";
    Err(Hinted::new(format!("the release is not whole\n{}", failed.join("\n")), hint).into())
}

/// Builds the wheel of one architecture alone into `out`, as a release has it, and looks into it.
///
/// # Errors
/// As [`run`].
pub fn wheel(root: &Path, out: &Path, architecture: Architecture) -> Result<PathBuf> {
    clear(out)?;
    let tools = provision::dist_tools(root)?;
    let release = Release { root, out, tools, version: env!("CARGO_PKG_VERSION") };
    Architecture::ensure_targets(&[architecture.gnu()])?;
    let wheel = release.wheel(architecture)?;
    inspect::wheel(&release.tools, &wheel, architecture)?;
    Ok(wheel)
}

/// Makes an empty directory; files of an older release go, those of others are not touched.
fn clear(out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let files = files_of(out)?;
    let is_ours = |file: &PathBuf| {
        let name = file_name(file);
        file.is_file() && (name.starts_with("trainmon-") || name == CHECKSUMS)
    };
    if let Some(other) = files.iter().find(|file| !is_ours(file)) {
        let message = format!("{} is no file of a release", other.display());
        return Err(Hinted::new(message, "give a directory of its own to `--out`").into());
    }
    files.iter().try_for_each(|file| fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display())))
}

/// A release in the making.
struct Release<'a> {
    root: &'a Path,
    out: &'a Path,
    tools: Environment,
    version: &'static str,
}

impl Release<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    /// The wheel and the program of one architecture, looked into; the reason if the program could not be started here.
    fn of(&self, architecture: Architecture) -> Result<Option<String>> {
        Architecture::ensure_targets(&[architecture.gnu(), architecture.musl()])?;
        let wheel = self.wheel(architecture)?;
        inspect::wheel(&self.tools, &wheel, architecture)?;
        let program = self.program(architecture)?;
        inspect::program(&program, architecture)?;
        let name = format!("trainmon-{}-{}", self.version, architecture.musl());
        let completions = completions(architecture, &program)?;
        archive::write(self.root, &self.path(&format!("{name}.tar.gz")), &name, &program, &completions)?;
        inspect::starts(&program, architecture, self.version)
    }

    fn wheel(&self, architecture: Architecture) -> Result<PathBuf> {
        let mut command = self.tools.command("maturin");
        command.args(["build", "--profile", PROFILE, "--zig"]);
        command.args(["--compatibility", MANYLINUX, "--target", architecture.gnu()]);
        command.arg("--manifest-path").arg(self.root.join(PACKAGE).join("Cargo.toml")).arg("--out").arg(self.out);
        process::run_visibly(command.current_dir(self.root))?;
        // It bears the older name of the same promise as well: `…-manylinux2014_….manylinux_2_17_….whl`.
        let ending = format!("{MANYLINUX}_{architecture}.whl");
        let made = files_of(self.out)?.into_iter().find(|file| file_name(file).ends_with(&ending));
        made.with_context(|| format!("maturin left no wheel *{ending} in {}", self.out.display()))
    }

    /// Linked with everything it needs: it starts on any Linux of its architecture.
    fn program(&self, architecture: Architecture) -> Result<PathBuf> {
        let mut command = self.tools.command("cargo-zigbuild");
        command.args(["zigbuild", "--release", "--package", PROGRAM, "--bins", "--target", architecture.musl()]);
        process::run_visibly(command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols").current_dir(self.root))?;
        Ok(workspace::cargo_target(self.root).join(architecture.musl()).join("release/trainmon"))
    }

    fn source_package(&self) -> Result<()> {
        let mut command = self.tools.command("maturin");
        command.args(["sdist", "--manifest-path"]).arg(self.root.join(PACKAGE).join("Cargo.toml"));
        process::run_visibly(command.arg("--out").arg(self.out).current_dir(self.root))
    }

    /// As `sha256sum --check` reads them; returns every file of the release.
    fn checksums(&self) -> Result<Vec<PathBuf>> {
        let mut files = files_of(self.out)?;
        let names: Vec<String> = files.iter().map(|file| file_name(file)).collect();
        let mut command = Command::new("sha256sum");
        let summed = command.arg("--").args(&names).current_dir(self.out).output().context("cannot start sha256sum")?;
        if !summed.status.success() {
            bail!("sha256sum ended with {}", summed.status);
        }
        let place = self.path(CHECKSUMS);
        fs::write(&place, summed.stdout).with_context(|| format!("cannot write {}", place.display()))?;
        files.push(place);
        Ok(files)
    }
}

/// Of all shells, by name of file.
fn completions(architecture: Architecture, program: &Path) -> Result<Vec<(&'static str, String)>> {
    let shells = [("bash", "trainmon.bash"), ("zsh", "_trainmon"), ("fish", "trainmon.fish")];
    let script = |shell: &str| {
        if architecture.is_this_machines() {
            return process::output(program, &["completions", shell]);
        }
        let line = ["run", "--quiet", "--package", PROGRAM, "--", "completions", shell];
        process::output(process::cargo_path(), &line)
    };
    shells.into_iter().map(|(shell, file)| Ok((file, script(shell)?))).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = || format!("cannot read {}", directory.display());
    let entries = fs::read_dir(directory).with_context(read)?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>().with_context(read)?;
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_an_older_release_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("dist");
        clear(&out).unwrap();
        for file in ["trainmon-0.1.0.tar.gz", CHECKSUMS] {
            fs::write(out.join(file), "").unwrap();
        }
        clear(&out).unwrap();
        assert_eq!(files_of(&out).unwrap(), [""; 0].map(PathBuf::from));
        for file in ["trainmon-0.1.0.tar.gz", "thesis.tex"] {
            fs::write(out.join(file), "").unwrap();
        }
        let told = hint::render(&clear(&out).unwrap_err());
        assert!(told.contains("thesis.tex is no file of a release") && told.contains("hint: "), "{told}");
        assert_eq!(files_of(&out).unwrap().len(), 2, "nothing was removed");
    }
}
