//! Finds libtorch's headers by torch-sys's rules, so that both are compiled against the same copy.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The location of the headers, and the string ABI of the library.
pub(crate) struct Libtorch {
    /// The directories, in search order.
    pub(crate) include_dirs: Vec<PathBuf>,
    /// `1` or `0`.
    pub(crate) cxx11_abi: String,
}

const PYTHON: &str = "\
import torch
from torch.utils import cpp_extension
print('ABI', int(torch._C._GLIBCXX_USE_CXX11_ABI))
for path in cpp_extension.include_paths():
    print('INCLUDE', path)
";

/// Searches the active Python if `LIBTORCH_USE_PYTORCH` is set; otherwise `LIBTORCH_INCLUDE`, `LIBTORCH`, then `/usr`.
pub(crate) fn find() -> Result<Libtorch, String> {
    if variable("LIBTORCH_USE_PYTORCH").is_some() {
        return from_python();
    }
    let root = variable("LIBTORCH_INCLUDE")
        .or_else(|| variable("LIBTORCH"))
        .map(PathBuf::from)
        .or_else(|| Path::new("/usr/lib/libtorch.so").exists().then(|| PathBuf::from("/usr")))
        .ok_or(
            "libtorch not found: set `LIBTORCH` to its directory, or install torch and set `LIBTORCH_USE_PYTORCH=1`",
        )?;
    let include = root.join("include");
    if !include.join("torch/csrc/autograd").is_dir() {
        return Err(format!("`{}` does not contain libtorch's headers", include.display()));
    }
    let include_dirs = vec![include.clone(), include.join("torch/csrc/api/include")];
    Ok(Libtorch { include_dirs, cxx11_abi: variable("LIBTORCH_CXX11_ABI").unwrap_or_else(|| "1".to_owned()) })
}

fn from_python() -> Result<Libtorch, String> {
    let python = if env::var_os("VIRTUAL_ENV").is_some() { "python" } else { "python3" };
    let output =
        Command::new(python).args(["-c", PYTHON]).output().map_err(|why| format!("cannot run `{python}`: {why}"))?;
    if !output.status.success() {
        return Err(format!("`{python}` cannot import torch: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let values = |key: &'static str| text.lines().filter_map(move |line| line.strip_prefix(key)).map(str::trim);
    let cxx11_abi = values("ABI ").next().ok_or("torch did not report its string ABI")?.to_owned();
    Ok(Libtorch { include_dirs: values("INCLUDE ").map(PathBuf::from).collect(), cxx11_abi })
}

fn variable(name: &str) -> Option<String> {
    println!("cargo:rerun-if-env-changed={name}");
    env::var(name).ok()
}
