//! What tells readers, and people, which rows are left out since others say the same.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value};
use trainmon_core::{Kind, LeftOut};

/// Its name, in a rank's directory.
pub const LEFT_OUT_FILE: &str = "left_out.json";

/// Writes the file into a rank's directory, which is made if it is not there.
///
/// # Errors
/// The file cannot be written.
pub fn write_left_out(directory: &Path, left_out: LeftOut) -> io::Result<()> {
    let told: Map<_, _> = left_out.kinds().map(|kind| (kind.name().to_owned(), Value::from(in_words(kind)))).collect();
    fs::create_dir_all(directory)?;
    fs::write(directory.join(LEFT_OUT_FILE), format!("{:#}\n", Value::Object(told)))
}

/// What the file says in a rank's directory; nothing is left out where there is none.
///
/// # Errors
/// The file cannot be read, or is no object.
pub fn read_left_out(directory: &Path) -> io::Result<LeftOut> {
    match fs::read(directory.join(LEFT_OUT_FILE)) {
        Ok(text) => {
            let told: Map<String, Value> = serde_json::from_slice(&text)?;
            let says = |kind: Kind| told.contains_key(kind.name());
            Ok(LeftOut { gradients: says(Kind::GradUnreduced), parameters: says(Kind::ParamOrigin) })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LeftOut::default()),
        Err(error) => Err(error),
    }
}

/// Which rows of a kind are left out.
fn in_words(kind: Kind) -> &'static str {
    match kind {
        Kind::GradUnreduced => "rows that equal those of grad_reduced in the same step",
        _ => "rows that equal those of param_updated in the step before",
    }
}
