//! The Python environments of the checks: virtual environments below `target/` with pinned packages.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use super::recipe::{CHECKS, DEVICE_KIT, DIST, Matrix, NEWEST, OTLP, Recipe, Torch, VLLM, WORKFLOWS};
use super::uv::Uv;
use super::{cuda, disk, pip};
use crate::hint::{self, Hinted};
use crate::{process, workspace};

/// Written last: the requirements that are installed. With equal ones pip is not asked again.
const STAMP: &str = "trainmon-requirements.stamp";

/// In the stamp of an environment whose torch can use a GPU.
const WITH_CUDA: &str = "# with the libraries of CUDA\n";

/// The wheels that the device kit takes along.
const BESIDE_THE_KIT: &str = "device-kit.txt";

/// An environment with another torch, or why there is none.
#[derive(Debug)]
pub struct OtherTorch {
    /// `torch21`.
    pub name: &'static str,
    /// The environment.
    pub environment: Result<Environment>,
}

/// A virtual environment that has what the checks of the Python front need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The directory that holds `bin`.
    pub dir: PathBuf,
}

impl Environment {
    /// A program of the environment: `python`, `pytest`, `maturin`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join("bin").join(name)
    }

    /// Where its packages lie.
    ///
    /// # Errors
    /// Its Python does not say.
    pub fn packages(&self) -> Result<PathBuf> {
        let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
        Ok(PathBuf::from(process::output(self.program("python"), &["-c", ask])?.trim()))
    }

    /// A program of the environment, ready to take arguments, that finds the others and the environment's packages.
    pub fn command(&self, name: &str) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.dir.join("bin")).chain(std::env::split_paths(&path));
        let mut command = Command::new(self.program(name));
        command.env("VIRTUAL_ENV", &self.dir).env_remove("PYTHONHOME");
        // A path with a colon cannot be joined; the programs are then found by their own paths only.
        command.env("PATH", std::env::join_paths(path).unwrap_or_else(|_| OsString::from("/usr/bin:/bin")));
        command
    }
}

/// Where the requirements stand.
fn requirements_dir(root: &Path) -> PathBuf {
    root.join("agent/python/requirements")
}

/// Finds or makes the environment of the checks. 10 ms if it is there; else some minutes and about 6 GB, of which 2.3 stay
/// where there is no GPU.
///
/// # Errors
/// No Python, no network, no space: each with a hint.
pub fn python(root: &Path) -> Result<Environment> {
    make(root, CHECKS)
}

/// Finds or makes the environment of the OTLP tests' receiver: some seconds.
///
/// # Errors
/// As [`python()`].
pub fn otlp_receiver(root: &Path) -> Result<Environment> {
    make(root, OTLP)
}

/// Finds or makes the environment that builds a release: some seconds, 0.5 GB.
///
/// # Errors
/// As [`python()`].
pub fn dist_tools(root: &Path) -> Result<Environment> {
    make(root, DIST)
}

/// Finds or makes the environment that reads workflows: some seconds.
///
/// # Errors
/// As [`python()`].
pub fn workflow_linters(root: &Path) -> Result<Environment> {
    make(root, WORKFLOWS)
}

/// Finds or makes the environment with vLLM: half a minute and 5 GB the first time.
///
/// # Errors
/// As [`python()`].
pub fn vllm(root: &Path) -> Result<Environment> {
    make(root, VLLM)
}

/// Finds or makes the environment with the newest torch and frameworks: a minute and 7 GB the first time.
///
/// # Errors
/// As [`python()`].
pub fn newest(root: &Path) -> Result<Environment> {
    make(root, NEWEST)
}

/// Finds or makes the environment with the torch and the Python that the device kit meets.
///
/// # Errors
/// As [`python()`]; or there is no such Python.
pub fn device_kit(root: &Path) -> Result<Environment> {
    make(root, DEVICE_KIT)
}

/// Fetches the wheels that the device kit takes along beside ours, once, and copies them into `into`.
///
/// # Errors
/// No pip, no network: each with a hint.
pub fn wheels_beside(root: &Path, into: &Path) -> Result<()> {
    let requirements = requirements_dir(root).join(BESIDE_THE_KIT);
    let wanted =
        fs::read_to_string(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    let place = workspace::provisioned(root).join("python/device-kit-wheels");
    let stamp = place.join(STAMP);
    if !fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == wanted) {
        if place.exists() {
            fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
        }
        pip::download(&requirements, &place)?;
        fs::write(&stamp, wanted).context("cannot write the stamp")?;
    }
    for entry in fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))? {
        let wheel = entry?.path();
        if let Some(name) = wheel.file_name().filter(|_| wheel.extension().is_some_and(|kind| kind == "whl")) {
            fs::copy(&wheel, into.join(name)).with_context(|| format!("cannot copy {}", wheel.display()))?;
        }
    }
    Ok(())
}

/// Makes an environment with nothing in it, in place of one that is there; with `beside`, what lies there can be imported.
///
/// # Errors
/// Python makes none.
pub fn empty_environment(place: &Path, beside: Option<&Path>) -> Result<Environment> {
    if place.exists() {
        fs::remove_dir_all(place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    let environment = Environment { dir: place.to_path_buf() };
    make_bare(&environment, Path::new(pip::PYTHON))?;
    if let Some(beside) = beside {
        let listing = environment.packages()?.join("beside.pth");
        fs::write(&listing, format!("{}\n", beside.display()))
            .with_context(|| format!("cannot write {}", listing.display()))?;
    }
    Ok(environment)
}

fn make_bare(environment: &Environment, python: &Path) -> Result<()> {
    let mut make = Command::new(python);
    // Without pip: Debian's Python cannot put one in, and the system's serves.
    make.args(["-m", "venv", "--without-pip"]).arg(&environment.dir).stdout(std::io::stderr());
    process::run_visibly(&mut make)
}

/// Finds or makes the environments with the other versions of torch that the wheel is tried on; half a minute and 5 GB each the
/// first time, 10 ms afterwards. Of one that cannot be made the reason.
pub fn other_torches(root: &Path, matrix: Matrix) -> Vec<OtherTorch> {
    let make = |recipe: &Recipe| OtherTorch { name: recipe.name, environment: make(root, *recipe) };
    matrix.other_torches().iter().map(make).collect()
}

fn make(root: &Path, recipe: Recipe) -> Result<Environment> {
    let dir = workspace::provisioned(root).join("python").join(recipe.name);
    let wanted = stamp_of(&requirements_dir(root), recipe, cuda::is_idle())?;
    let environment = Environment { dir };
    if is_current(&environment, &wanted) {
        return Ok(environment);
    }
    let parent = environment.dir.parent().context("no parent directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    // One installs, others wait and find it done.
    let lock = File::create(parent.join(format!("{}.lock", recipe.name))).context("cannot make the lock file")?;
    lock.lock().context("cannot take the lock")?;
    if is_current(&environment, &wanted) {
        return Ok(environment);
    }
    let shown = environment.dir.display();
    let make = || {
        can_be_made(recipe, parent)?;
        remove_other_kind(&environment, &wanted)?;
        let Recipe { requirements, download, .. } = recipe;
        eprintln!("python: installing the packages of {requirements} into {shown} ({download} to download)");
        install(root, recipe, &environment)
    };
    make().with_context(|| format!("cannot make the Python environment {shown}"))?;
    fs::write(environment.dir.join(STAMP), wanted).context("cannot write the stamp")?;
    Ok(environment)
}

/// An environment with the libraries of CUDA, and one without them, differ in nothing an installer looks at: it would leave them.
fn remove_other_kind(environment: &Environment, wanted: &str) -> Result<()> {
    let Ok(stamp) = fs::read_to_string(environment.dir.join(STAMP)) else { return Ok(()) };
    if stamp.ends_with(WITH_CUDA) == wanted.ends_with(WITH_CUDA) {
        return Ok(());
    }
    fs::remove_dir_all(&environment.dir).with_context(|| format!("cannot remove {}", environment.dir.display()))
}

fn is_current(environment: &Environment, wanted: &str) -> bool {
    let stamp = fs::read_to_string(environment.dir.join(STAMP));
    stamp.is_ok_and(|installed| installed == wanted) && environment.program("python").exists()
}

/// Refuses at once what pip would refuse after minutes.
fn can_be_made(recipe: Recipe, place: &Path) -> Result<()> {
    pip::ensure_python("install Python 3.10 or newer with pip")?;
    if let Some(last) = recipe.last_python {
        let found = python_version()?;
        if found > last {
            let (major, minor) = found;
            let message = format!("its packages have no wheels for Python {major}.{minor}");
            let hint = format!("put a Python between 3.10 and {}.{} first on PATH as {}", last.0, last.1, pip::PYTHON);
            return Err(Hinted::new(message, hint).into());
        }
    }
    disk::ensure_free(place, recipe.gigabytes)
}

/// Of the Python whose pip is used.
fn python_version() -> Result<(u32, u32)> {
    let ask = "import sys; print(sys.version_info[0], sys.version_info[1])";
    let answer = process::output(pip::PYTHON, &["-c", ask])?;
    let parsed =
        answer.trim().split_once(' ').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.with_context(|| format!("{} does not tell its version: `{}`", pip::PYTHON, answer.trim()))
}

/// The text of its files, and whether it has the libraries of CUDA: whatever changes in them is installed anew.
fn stamp_of(requirements: &Path, recipe: Recipe, is_without_gpu: bool) -> Result<String> {
    let read = |file: &str| {
        let file = requirements.join(file);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    let has_cuda = recipe.torch != Torch::Absent && !recipe.torch.is_reduced(is_without_gpu);
    let cuda = if has_cuda { WITH_CUDA } else { "" };
    Ok(read(recipe.requirements)? + &recipe.constraints.map(read).transpose()?.unwrap_or_default() + cuda)
}

fn install(root: &Path, recipe: Recipe, environment: &Environment) -> Result<()> {
    let place = environment.dir.parent().context("no parent directory")?;
    let uv = Uv::ensure(place);
    if !environment.program("python").exists() {
        make_bare(environment, &interpreter(recipe, uv.as_ref().ok())?)?;
    }
    let with_uv = uv.as_ref().map_err(|error| anyhow!("{error:#}")).and_then(|uv| {
        let command = uv.install_command(&environment.program("python"));
        pip::run(&mut with_requirements(root, recipe, command))
    });
    if let Err(error) = with_uv {
        // It reads none of pip's settings: an index of one's own, say.
        eprintln!("  note: installing with pip, which takes longer: {}", hint::render(&error));
        pip::run(&mut with_requirements(root, recipe, install_command(environment)))?;
    }
    if !recipe.torch.is_reduced(cuda::is_idle()) {
        return Ok(());
    }
    let packages = environment.packages()?;
    cuda::replace_libraries(&packages)?;
    let mut unused = cuda::packages_of(&packages)?;
    if recipe.torch == Torch::Alone {
        without_triton(environment)?;
        unused.push("triton".to_owned());
    }
    // 3 GB.
    uv.as_ref().map_or(Ok(()), |uv| pip::run(&mut uv.forget_command(&unused)))
}

/// The Python an environment is made with. One that is not on PATH is found where uv knows of it.
fn interpreter(recipe: Recipe, uv: Option<&Uv>) -> Result<PathBuf> {
    let Some(version) = recipe.python else { return Ok(PathBuf::from(pip::PYTHON)) };
    let found = uv.and_then(|uv| uv.find_python(version));
    found.ok_or_else(|| {
        let hint =
            format!("install Python {version}, for instance your system's python{version} with its venv package");
        Hinted::new(format!("there is no Python {version}"), hint).into()
    })
}

/// Leaves out the compiler of a GPU's kernels, 700 MB that torch brings and nothing loads here.
fn without_triton(environment: &Environment) -> Result<()> {
    let mut uninstall = Command::new(pip::PYTHON);
    uninstall.args(["-m", "pip", "--python"]).arg(environment.program("python"));
    uninstall.args(["uninstall", "--quiet", "--yes", "--root-user-action=ignore", "triton"]);
    pip::run(&mut uninstall)
}

/// The rest of the line, alike for both installers.
fn with_requirements(root: &Path, recipe: Recipe, mut command: Command) -> Command {
    let requirements = requirements_dir(root);
    command.arg("--requirement").arg(requirements.join(recipe.requirements));
    if let Some(constraints) = recipe.constraints {
        command.arg("--constraint").arg(requirements.join(constraints));
    }
    if recipe.is_complete {
        command.arg("--no-deps");
    }
    // DeepSpeed compiles its operators when they are first used, not here.
    command.env("DS_BUILD_OPS", "0");
    command
}

/// Installs a wheel, in place of another one of its version.
///
/// # Errors
/// pip refuses it.
pub fn install_wheel(environment: &Environment, wheel: &Path) -> Result<()> {
    pip::run(install_command(environment).args(["--quiet", "--no-index", "--no-deps", "--force-reinstall"]).arg(wheel))
}

fn install_command(environment: &Environment) -> Command {
    let mut command = Command::new(pip::PYTHON);
    command.args(["-m", "pip", "--python"]).arg(environment.program("python"));
    // What is installed once needs no second copy in a cache.
    command.args(["install", "--no-cache-dir", "--root-user-action=ignore", "--disable-pip-version-check"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint;

    #[test]
    fn an_environment_is_current_only_with_the_very_requirements() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment { dir: dir.path().join("venv") };
        fs::create_dir_all(environment.dir.join("bin")).unwrap();
        fs::write(dir.path().join("test.txt"), "torch==2.13.0\n").unwrap();
        fs::write(dir.path().join("constraints.txt"), "").unwrap();
        let wanted = stamp_of(dir.path(), CHECKS, true).unwrap();
        assert!(!is_current(&environment, &wanted), "nothing is installed");
        fs::write(environment.dir.join(STAMP), &wanted).unwrap();
        assert!(!is_current(&environment, &wanted), "a stamp alone is no environment");
        fs::write(environment.program("python"), "").unwrap();
        assert!(is_current(&environment, &wanted));
        fs::write(dir.path().join("constraints.txt"), "numpy==2.4.6\n").unwrap();
        assert!(!is_current(&environment, &stamp_of(dir.path(), CHECKS, true).unwrap()));
    }

    /// A checkout on a shared disk, or a machine that got its driver later.
    #[test]
    fn an_environment_without_cuda_is_made_anew_where_there_is_a_gpu() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment { dir: dir.path().join("venv") };
        fs::create_dir_all(&environment.dir).unwrap();
        fs::write(dir.path().join("test.txt"), "torch==2.13.0\n").unwrap();
        fs::write(dir.path().join("constraints.txt"), "").unwrap();
        let without = stamp_of(dir.path(), CHECKS, true).unwrap();
        let with = stamp_of(dir.path(), CHECKS, false).unwrap();
        fs::write(environment.dir.join(STAMP), &without).unwrap();
        remove_other_kind(&environment, &without).unwrap();
        assert!(environment.dir.exists());
        remove_other_kind(&environment, &with).unwrap();
        assert!(!environment.dir.exists());
        let no_torch = Recipe { torch: Torch::Absent, ..CHECKS };
        assert_eq!(stamp_of(dir.path(), no_torch, true).unwrap(), stamp_of(dir.path(), no_torch, false).unwrap());
    }

    #[test]
    fn every_requirement_is_pinned() {
        let files = Matrix::Full.other_torches().iter().map(|recipe| (recipe.requirements, 3));
        for (file, at_least) in
            [("test.txt", 10), ("constraints.txt", 50), (OTLP.requirements, 5), ("dist.txt", 3), ("workflows.txt", 5)]
                .into_iter()
                .chain([(VLLM.requirements, 150), (DEVICE_KIT.requirements, 1), (BESIDE_THE_KIT, 5)])
                .chain(files)
        {
            let text = fs::read_to_string(requirements_dir(&workspace::root()).join(file)).unwrap();
            let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
            assert!(lines.len() >= at_least, "{file}");
            for line in lines {
                assert!(line.contains("=="), "{file}: {line}");
            }
        }
    }

    #[test]
    fn what_pip_would_refuse_is_refused_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        let told = |recipe| can_be_made(recipe, dir.path()).map_err(|error| hint::render(&error));
        let roomy = Recipe { gigabytes: 0, ..CHECKS };
        assert_eq!(told(roomy), Ok(()));
        let no_wheels = told(Recipe { last_python: Some((3, 9)), ..roomy }).unwrap_err();
        assert!(no_wheels.contains("no wheels for Python 3.") && no_wheels.contains("hint: "), "{no_wheels}");
        let huge = told(Recipe { gigabytes: 1 << 30, ..CHECKS }).unwrap_err();
        assert!(huge.contains("GiB free") && huge.contains("hint: "), "{huge}");
    }

    #[test]
    fn programs_find_each_other() {
        let environment = Environment { dir: PathBuf::from("/venv") };
        let command = environment.command("maturin");
        assert_eq!(command.get_program(), "/venv/bin/maturin");
        let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value).unwrap();
        assert_eq!(std::env::split_paths(path).next(), Some(PathBuf::from("/venv/bin")));
    }
}
