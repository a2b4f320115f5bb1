//! Converts files of tensors to another format: `trainmon parse`, and `trainmon convert --to npy|pt|safetensors`.

#![forbid(unsafe_code)]

mod error;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use trainmon_report::{NotMade, write_new};
use trainmon_tensor_files::write::{WriteError, write_npy, write_pt, write_pt_of_one, write_safetensors};
use trainmon_tensor_files::{StoredTensor, TensorFile, open};

pub use self::error::TensorsError;

/// The extensions of tensor files in a directory.
const ENDINGS: [&str; 6] = ["pt", "pth", "npy", "safetensors", "bin", "ckpt"];
/// The name of a single unnamed tensor in a format that requires names.
const ONLY: &str = "tensor";

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TensorFormat {
    /// numpy arrays; bfloat16 and float8 become float32
    Npy,
    /// torch files
    Pt,
    /// safetensors
    Safetensors,
}

impl TensorFormat {
    fn ending(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Pt => "pt",
            Self::Safetensors => "safetensors",
        }
    }
}

/// The result of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Converted {
    /// The written files, in order.
    pub files: Vec<PathBuf>,
    /// Warnings about input files whose pickle calls a harmful function when it is loaded.
    pub notes: Vec<String>,
}

/// Converts a file, or every file of tensors in a directory, and writes the result into `out`. Only the extension of a
/// file changes. A file with several tensors becomes a directory of that name with one `.npy` per tensor.
///
/// # Errors
/// A file cannot be read or written. Files converted before it stay; no file is replaced or left incomplete.
pub fn convert(path: &Path, format: TensorFormat, out: &Path) -> Result<Converted, TensorsError> {
    let mut made = Converted::default();
    for source in sources(path)? {
        let file = open(&source)?;
        if let Some(one) = file.unreadable().first() {
            let (name, reason) = (one.name.clone(), one.error.to_string());
            return Err(TensorsError::Unreadable { path: source, name, reason });
        }
        if file.entries().is_empty() {
            return Err(TensorsError::NoTensors { path: source });
        }
        // Not `with_extension`: names of dumps contain dots, and only the last one begins the extension.
        let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        made.notes.extend(file.harmful_note());
        made.files.extend(convert_file(&file, format, out, &stem)?);
    }
    Ok(made)
}

fn sources(path: &Path) -> Result<Vec<PathBuf>, TensorsError> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let failed = |source| TensorsError::ReadDirectory { path: path.to_path_buf(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str());
        if file.is_file() && ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() { Err(TensorsError::NoFiles { path: path.to_path_buf() }) } else { Ok(files) }
}

fn convert_file(file: &TensorFile, format: TensorFormat, out: &Path, stem: &str) -> Result<Vec<PathBuf>, TensorsError> {
    let mut tensors = Vec::with_capacity(file.entries().len());
    for (index, entry) in file.entries().iter().enumerate() {
        let name = if entry.name.is_empty() { ONLY } else { &entry.name };
        tensors.push((name.to_owned(), file.read_at(index)?));
    }
    let place = out.join(format!("{stem}.{}", format.ending()));
    // A dict with one tensor stays a dict.
    let is_bare = matches!(file.entries(), [one] if one.name.is_empty());
    match format {
        TensorFormat::Pt if is_bare => write_whole(&place, |out| write_pt_of_one(&tensors[0].1, out))?,
        TensorFormat::Pt => write_whole(&place, |out| write_pt(&tensors, out))?,
        TensorFormat::Safetensors => {
            let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.into())).collect();
            write_whole(&place, |out| write_safetensors(&tensors, out))?;
        }
        TensorFormat::Npy if is_bare => write_whole(&place, |out| write_npy(&tensors[0].1, out))?,
        TensorFormat::Npy => return each_as_npy(&tensors, &out.join(stem)),
    }
    Ok(vec![place])
}

fn each_as_npy(tensors: &[(String, StoredTensor)], directory: &Path) -> Result<Vec<PathBuf>, TensorsError> {
    let mut made = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let place = directory.join(format!("{}.npy", file_name(name)));
        write_whole(&place, |out| write_npy(tensor, out))?;
        made.push(place);
    }
    Ok(made)
}

/// Returns a tensor's name as a file name, without path separators or a leading dot.
fn file_name(name: &str) -> String {
    let name: String = name.chars().map(|c| if matches!(c, '/' | '\\' | '\0') { '_' } else { c }).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

fn write_whole(
    place: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), WriteError>,
) -> Result<(), TensorsError> {
    write_new(place, write).map_err(|error| match error {
        NotMade::Exists => TensorsError::OutputExists { path: place.to_path_buf() },
        NotMade::Failed(source) => TensorsError::Write { path: place.to_path_buf(), source },
    })
}
