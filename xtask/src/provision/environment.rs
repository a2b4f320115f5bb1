//! The variables that lead builds and programs to libtorch.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The variable in which the loader looks for libraries.
pub const LIBRARY_PATH: &str = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };

/// The variables for child processes; `library_path` is what [`LIBRARY_PATH`] holds now.
pub fn variables(libtorch: &Path, library_path: Option<&OsStr>) -> Vec<(String, OsString)> {
    let lib = libtorch.join("lib");
    let others: Vec<PathBuf> = library_path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    let others = others.into_iter().filter(|dir| *dir != lib && !dir.as_os_str().is_empty());
    let joined = std::env::join_paths(std::iter::once(lib.clone()).chain(others));
    vec![
        ("LIBTORCH".to_owned(), libtorch.as_os_str().to_owned()),
        // The wheels are built with the new string ABI since torch 2.6.
        ("LIBTORCH_CXX11_ABI".to_owned(), "1".into()),
        // A path with a colon cannot be joined; the loader could not read it either.
        (LIBRARY_PATH.to_owned(), joined.unwrap_or_else(|_| lib.into_os_string())),
    ]
}

/// The same for a POSIX shell: lines to `eval`, which keep what the shell's own library path holds.
pub fn shell_lines(libtorch: &Path) -> String {
    let dir = quoted(&libtorch.display().to_string());
    let lib = quoted(&libtorch.join("lib").display().to_string());
    format!(
        "export LIBTORCH={dir}\nexport LIBTORCH_CXX11_ABI=1\n\
         export {LIBRARY_PATH}={lib}\"${{{LIBRARY_PATH}:+:${LIBRARY_PATH}}}\"\n"
    )
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library_path(before: Option<&str>) -> String {
        let variables = variables(Path::new("/lt"), before.map(OsStr::new));
        variables.iter().find(|(name, _)| name == LIBRARY_PATH).unwrap().1.to_string_lossy().into_owned()
    }

    #[test]
    fn the_library_path_keeps_what_was_there_and_names_libtorch_first() {
        assert_eq!(library_path(None), "/lt/lib");
        assert_eq!(library_path(Some("")), "/lt/lib");
        assert_eq!(library_path(Some("/a:/b")), "/lt/lib:/a:/b");
        assert_eq!(library_path(Some("/a:/lt/lib")), "/lt/lib:/a");
    }

    #[test]
    fn a_shell_that_evaluates_the_lines_gets_the_same_variables() {
        let script = format!(
            "{LIBRARY_PATH}=/old\n{}printf '%s|%s' \"$LIBTORCH\" \"${LIBRARY_PATH}\"",
            shell_lines(Path::new("/it's here"))
        );
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "/it's here|/it's here/lib:/old");
    }
}
