//! Names of tensor files.

use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::quality::FixedState;

/// The maximum length of a file name in bytes.
const LONGEST: usize = 255;
/// The length of a tilde and 16 hexadecimal digits.
const MARK: usize = 17;

/// Returns the file name of the value at `path`: the path itself if it is a valid name. If it has a slash or a control
/// character or is too long, the name is a part of it and a hash of the whole, so that no two paths share a name.
pub(crate) fn file_name(path: &str, extension: &str) -> String {
    let room = LONGEST - 1 - extension.len();
    let is_bad = |character: char| character == '/' || character.is_control();
    // A leading dot is reserved for incomplete files.
    if path.len() <= room && !path.starts_with('.') && !path.contains(is_bad) && !path.is_empty() {
        return format!("{path}.{extension}");
    }
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(path.as_bytes());
    let mut kept: String = path.chars().map(|character| if is_bad(character) { '_' } else { character }).collect();
    if kept.starts_with('.') {
        kept.replace_range(..1, "_");
    }
    let mut end = kept.len().min(room - MARK);
    while !kept.is_char_boundary(end) {
        end -= 1;
    }
    kept.truncate(end);
    format!("{kept}~{:016x}.{extension}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_can_be_a_files_is_one() {
        assert_eq!(file_name("Torch.cat.0.forward.input.0.1", "pt"), "Torch.cat.0.forward.input.0.1.pt");
        assert_eq!(file_name("X.forward.kwargs.my mask", "npy"), "X.forward.kwargs.my mask.npy");
    }

    #[test]
    fn names_that_cannot_be_are_shortened_and_stay_apart() {
        let names: Vec<String> = ["a/b", "a_b", "a\0b", "a\nb", ".hidden", "../../etc/passwd", ""]
            .map(str::to_owned)
            .into_iter()
            .chain((0..3).map(|last| format!("{}{last}", "layer.".repeat(60))))
            .chain((0..3).map(|last| format!("{}{last}", "\u{e9}".repeat(200))))
            .map(|path| file_name(&path, "pt"))
            .collect();
        for name in &names {
            assert!(name.len() <= LONGEST && !name.contains('/') && !name.starts_with('.'), "{name}");
        }
        let mut different = names.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), names.len());
    }
}
