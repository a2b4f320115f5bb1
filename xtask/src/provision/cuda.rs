//! The libraries of CUDA in a Python environment, on a machine without a GPU: torch's wheels are linked to some 3 GB of them and
//! cannot be imported without, though none is ever called there. Each is replaced by one that has the functions torch asks for
//! and in which every call fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use elf::ElfBytes;
use elf::abi::{SHN_UNDEF, STT_FUNC};
use elf::endian::AnyEndian;

use crate::process;

/// What is smaller stays as it is: the runtime among them, which is asked how many devices there are.
const LARGE: u64 = 1 << 20;

/// Libraries that are called without a GPU too: the profiler's.
const KEPT: [&str; 3] = ["libcudart", "libcupti", "libnvperf"];

/// Names of C++ functions, which libraries have of each other's templates: a substitute must not offer them to others.
const MANGLED: &str = "_Z";

/// The functions of a library by the version their names carry; none is the empty one.
type Functions = BTreeMap<String, BTreeSet<String>>;

/// What a driver of NVIDIA's leaves in the system: on a server or a desktop, on a Jetson, under WSL.
const DRIVERS: [&str; 5] =
    ["/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/nvhost-ctrl", "/dev/nvhost-ctrl-gpu", "/dev/dxg"];

/// Set to anything, the libraries stay: for a checkout that machines with a GPU share.
const KEEP: &str = "TRAINMON_KEEP_CUDA";

/// Whether the libraries are of no use here: on Linux without a driver of NVIDIA's.
pub(super) fn is_idle() -> bool {
    cfg!(target_os = "linux")
        && std::env::var_os(KEEP).is_none()
        && !DRIVERS.iter().any(|path| Path::new(path).exists())
}

/// Replaces the libraries of CUDA below `packages` by new files: what an installer's cache is linked to stays as it is.
///
/// # Errors
/// A library cannot be read or written, or there is no C compiler.
pub(super) fn replace_libraries(packages: &Path) -> Result<()> {
    let large: Vec<PathBuf> = libraries(&packages.join("nvidia"))?
        .into_iter()
        .filter(|path| fs::metadata(path).is_ok_and(|found| found.len() >= LARGE))
        .filter(|path| !KEPT.iter().any(|kept| file_name(path).starts_with(kept)))
        .collect();
    if large.is_empty() {
        return Ok(());
    }
    let mut asked = BTreeSet::new();
    for library in libraries(&packages.join("torch/lib"))? {
        let bytes = read(&library)?;
        asked.extend(symbols(&bytes, &library)?.into_iter().filter(|found| !found.is_defined).map(|found| found.name));
    }
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    for library in &large {
        let functions = functions_of(library, &asked)?;
        let substitute = compile(&functions, &file_name(library), scratch.path())
            .with_context(|| format!("cannot make a substitute for {}", library.display()))?;
        let beside = library.with_extension("substitute");
        fs::write(&beside, substitute).with_context(|| format!("cannot write {}", beside.display()))?;
        fs::rename(&beside, library).with_context(|| format!("cannot replace {}", library.display()))?;
    }
    Ok(())
}

/// The names of the packages that hold them.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn packages_of(packages: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(packages).with_context(|| format!("cannot read {}", packages.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let package = |name: String| Some(name.strip_suffix(".dist-info")?.split_once('-')?.0.replace('_', "-"));
    Ok(names.filter_map(package).filter(|name| name.starts_with("nvidia-")).collect())
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The shared libraries below a directory, links left out; none if there is no such directory.
fn libraries(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return Ok(found) };
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", dir.display()))?;
        let kind = entry.file_type().with_context(|| format!("cannot look at {}", entry.path().display()))?;
        if kind.is_dir() {
            found.extend(libraries(&entry.path())?);
        } else if kind.is_file() && file_name(&entry.path()).contains(".so") {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// One name in a library's dynamic symbol table.
struct Symbol {
    name: String,
    version: String,
    is_function: bool,
    is_defined: bool,
}

fn symbols(bytes: &[u8], path: &Path) -> Result<Vec<Symbol>> {
    read_symbols(bytes).with_context(|| format!("{} is no library that can be read", path.display()))
}

fn read_symbols(bytes: &[u8]) -> Result<Vec<Symbol>> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes)?;
    let Some((table, names)) = file.dynamic_symbol_table()? else { return Ok(Vec::new()) };
    let versions = file.symbol_version_table()?;
    let mut found = Vec::new();
    // The first is no symbol.
    for (index, symbol) in table.iter().enumerate().skip(1) {
        let is_defined = symbol.st_shndx != SHN_UNDEF;
        let version = match &versions {
            Some(versions) if is_defined => versions.get_definition(index)?.and_then(|mut definition| {
                // Without a name it is the library itself.
                definition.names.next()?.ok()
            }),
            _ => None,
        };
        found.push(Symbol {
            name: names.get(symbol.st_name as usize)?.to_owned(),
            version: version.unwrap_or_default().to_owned(),
            is_function: symbol.st_symtype() == STT_FUNC,
            is_defined,
        });
    }
    Ok(found)
}

/// What a library has of the functions that are asked for.
fn functions_of(library: &Path, asked: &BTreeSet<String>) -> Result<Functions> {
    let mut functions = Functions::new();
    for found in symbols(&read(library)?, library)? {
        if found.is_defined && found.is_function && asked.contains(&found.name) && !found.name.starts_with(MANGLED) {
            functions.entry(found.version).or_default().insert(found.name);
        }
    }
    Ok(functions)
}

/// A library of this name with these functions. Each returns 1, which means failure in all of CUDA.
fn compile(functions: &Functions, name: &str, scratch: &Path) -> Result<Vec<u8>> {
    let (mut source, mut script) = (String::new(), String::new());
    for (version, names) in functions {
        for function in names {
            writeln!(source, "int {function}(void) {{ return 1; }}")?;
        }
        if !version.is_empty() {
            let names = names.iter().map(|name| format!("{name};")).collect::<Vec<_>>().join(" ");
            writeln!(script, "{version} {{ global: {names} }};")?;
        }
    }
    let place = |name: &str| scratch.join(name);
    fs::write(place("substitute.c"), source).context("cannot write the source")?;
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    // Names as `exp` are the compiler's own otherwise.
    command.args(["-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-w", "-O1"]).arg(format!("-Wl,-soname,{name}"));
    if !script.is_empty() {
        fs::write(place("versions"), script).context("cannot write the versions")?;
        command.arg(format!("-Wl,--version-script,{}", place("versions").display()));
    }
    command.arg("-o").arg(place("substitute.so")).arg(place("substitute.c"));
    let line = process::shown(&command);
    let said = process::capture(command)?;
    ensure!(said.status.success(), "`{line}`: {}\n{}", said.status, said.text);
    read(&place("substitute.so"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(dir: &Path, file: &str, source: &str, script: Option<&str>) -> PathBuf {
        fs::create_dir_all(dir).unwrap();
        let path = dir.join(file);
        fs::write(dir.join("source.c"), source).unwrap();
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-nostdlib", "-o"]).arg(&path).arg(dir.join("source.c"));
        if let Some(script) = script {
            fs::write(dir.join("script"), script).unwrap();
            command.arg(format!("-Wl,--version-script,{}", dir.join("script").display()));
        }
        assert!(command.status().unwrap().success());
        path
    }

    #[test]
    fn a_substitute_has_the_functions_torch_asks_for_with_their_versions_and_no_others() {
        if !cfg!(target_os = "linux") {
            return;
        }
        let packages = tempfile::tempdir().unwrap();
        let at = |dir: &str| packages.path().join(dir);
        let cublas = library(
            &at("nvidia/cublas/lib"),
            "libcublas.so.9",
            "static char filling[2 << 20] = {1}; char* cublasUnused(void) { return filling; }\n\
             int cublasCreate(void) { return 0; }\nint _ZN3std4swapE(void) { return 0; }",
            Some("libcublas.so.9 { global: *; };"),
        );
        let small = library(&at("nvidia/nvtx/lib"), "libnvtx.so.1", "int nvtxMark(void) { return 0; }", None);
        let before = fs::read(&small).unwrap();
        library(
            &at("torch/lib"),
            "libtorch_cuda.so",
            "int cublasCreate(void); int _ZN3std4swapE(void); int call(void) { return cublasCreate() + _ZN3std4swapE(); }",
            None,
        );

        let (cached, whole) = (packages.path().join("cached"), fs::metadata(&cublas).unwrap().len());
        fs::hard_link(&cublas, &cached).unwrap();

        replace_libraries(packages.path()).unwrap();

        assert!(fs::metadata(&cublas).unwrap().len() < LARGE);
        assert_eq!(fs::metadata(&cached).unwrap().len(), whole, "an installer's cache keeps the library");
        let offered: Vec<(String, String)> = symbols(&fs::read(&cublas).unwrap(), &cublas)
            .unwrap()
            .into_iter()
            .filter(|found| found.is_defined && found.is_function)
            .map(|found| (found.name, found.version))
            .collect();
        assert_eq!(offered, [("cublasCreate".to_owned(), "libcublas.so.9".to_owned())]);
        assert_eq!(fs::read(&small).unwrap(), before, "a small one is left alone");
        replace_libraries(packages.path()).unwrap();
    }

    #[test]
    fn what_is_no_library_is_named() {
        let packages = tempfile::tempdir().unwrap();
        let dir = packages.path().join("nvidia/cublas/lib");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("libcublas.so.9"), vec![b'x'; 2 << 20]).unwrap();
        let error = format!("{:#}", replace_libraries(packages.path()).unwrap_err());
        assert!(error.contains("libcublas.so.9 is no library that can be read"), "{error}");
    }
}
