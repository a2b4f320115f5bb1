//! `cargo xtask dist`: what one publishes. Wheels, the source package, the program by itself, what is in them, checksums.

mod archive;
mod inspect;
mod platform;
pub mod sbom;

use std::ffi::OsString;
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

/// The oldest glibc a wheel runs on: as with torch's own wheels of before 2.6, and as old as Rust's standard library allows.
const MANYLINUX: &str = "manylinux_2_17";

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

/// Builds a release into `out`, which is emptied first: for both architectures, or for one. Four to five minutes of processor
/// time per architecture where nothing is compiled yet.
///
/// # Errors
/// Something does not build or is not what it should be. What can be built for the other architecture is built all the same.
pub fn run(root: &Path, out: &Path, only: Option<Architecture>) -> Result<Made> {
    let out = &root.join(out);
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
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
        architecture.ensure_targets()?;
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
        command.args(["build", "--release", "--zig", "--compatibility", MANYLINUX, "--target", architecture.gnu()]);
        command.arg("--manifest-path").arg(self.root.join(PACKAGE).join("Cargo.toml")).arg("--out").arg(self.out);
        process::run_visibly(as_released(&mut command).current_dir(self.root))?;
        let name = format!("trainmon-{}-cp310-abi3-{MANYLINUX}_{architecture}", self.version);
        let made = files_of(self.out)?.into_iter().find(|file| {
            // It may bear the older name of the same promise as well: `….manylinux2014_…`.
            file.extension().is_some_and(|extension| extension == "whl") && file_name(file).starts_with(&name)
        });
        made.with_context(|| format!("maturin left no wheel {name}*.whl in {}", self.out.display()))
    }

    /// Linked with everything it needs: it starts on any Linux of its architecture.
    fn program(&self, architecture: Architecture) -> Result<PathBuf> {
        let mut command = self.tools.command("cargo-zigbuild");
        command.args(["zigbuild", "--release", "--package", PROGRAM, "--bins", "--target", architecture.musl()]);
        process::run_visibly(as_released(&mut command).current_dir(self.root))?;
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
        let place = self.path("SHA256SUMS");
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

/// Nothing for a debugger: what is published is stripped anyway.
fn as_released(command: &mut Command) -> &mut Command {
    let variables = [("CARGO_PROFILE_RELEASE_STRIP", "symbols"), ("CARGO_PROFILE_RELEASE_DEBUG", "false")];
    command.envs(variables.map(|(name, value)| (name, OsString::from(value))))
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
