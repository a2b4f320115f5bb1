//! Installing wheels into a directory.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};

use crate::hint::Hinted;
use crate::{process, running};

/// The Python whose pip is used; in a virtual environment it is that environment's.
pub(super) const PYTHON: &str = "python3";

/// pip tries a request again, but not a transfer that breaks off in the middle.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(5);

/// pip shows one 4 MB line when a disk is full.
const LONGEST_SHOWN: usize = 400;

/// Installs wheels, without what they depend on, into a directory. Progress is shown on stderr. `scratch`, an existing
/// directory on the same file system, takes what pip unpacks: it then moves whole directories instead of copying them.
///
/// # Errors
/// No Python, no pip, no network, no space: each with a hint.
pub(super) fn install(wheels: &[&str], into: &Path, scratch: &Path) -> Result<()> {
    ensure_python("install Python 3.10 or newer with pip, or set LIBTORCH to a libtorch 2.13.0")?;
    run(&mut command(wheels, into, scratch))
}

/// Fetches wheels for Python 3.12 on Linux into a directory, without what they depend on.
///
/// # Errors
/// As [`install`].
pub(super) fn download(requirements: &Path, into: &Path) -> Result<()> {
    ensure_python("install Python 3.10 or newer with pip")?;
    let mut command = Command::new(PYTHON);
    command.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]);
    command.args(["--disable-pip-version-check", "--python-version", "3.12", "--implementation", "cp"]);
    let arch = std::env::consts::ARCH;
    for system in ["manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014"] {
        command.arg("--platform").arg(format!("{system}_{arch}"));
    }
    run(command.arg("--dest").arg(into).arg("--requirement").arg(requirements))
}

/// Whether there is a Python to ask.
///
/// # Errors
/// There is none; the error carries the hint.
pub(super) fn ensure_python(hint: &str) -> Result<()> {
    if process::is_on_path(PYTHON) {
        return Ok(());
    }
    Err(Hinted::new(format!("{PYTHON} is not on PATH"), hint).into())
}

/// Runs pip, its progress shown on stderr; again where a transfer broke off.
///
/// # Errors
/// It failed; with a hint if what it said is understood.
pub(super) fn run(command: &mut Command) -> Result<()> {
    run_with(command, PAUSE)
}

fn run_with(command: &mut Command, pause: Duration) -> Result<()> {
    command
        .stdin(Stdio::null())
        // stdout belongs to the caller: `cargo xtask env` is evaluated by shells.
        .stdout(std::io::stderr())
        .stderr(Stdio::piped());
    let line = process::shown(command);
    eprintln!("$ {line}");
    let mut attempt = 1;
    let (status, said) = loop {
        let (status, said) = attempted(command, &line)?;
        if status.success() {
            return Ok(());
        }
        if attempt == ATTEMPTS || !has_broken_off(&said) {
            break (status, said);
        }
        attempt += 1;
        eprintln!("warning: the transfer broke off; attempt {attempt} of {ATTEMPTS} in {} s", pause.as_secs());
        thread::sleep(pause);
    };
    let message = format!("`{line}` ended with {status}");
    Err(match hint_for(&said) {
        Some(hint) => Hinted::new(message, hint).into(),
        None => Error::msg(message),
    })
}

/// One run, and what it said on stderr.
fn attempted(command: &mut Command, line: &str) -> Result<(ExitStatus, String)> {
    let mut child = running::spawn(command).with_context(|| format!("cannot start `{line}`"))?;
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        for text in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let text = shortened(&String::from_utf8_lossy(&text));
            eprintln!("{text}");
            said.push_str(&text);
            said.push('\n');
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{line}`"))?;
    Ok((status, said))
}

/// Whether pip ended with the traceback of a transfer that did not come to its end.
fn has_broken_off(said: &str) -> bool {
    let of_transfers =
        ["IncompleteRead", "ReadTimeoutError", "ProtocolError", "ConnectionResetError", "_internal/network/"];
    said.contains("Traceback") && of_transfers.iter().any(|word| said.contains(word))
}

fn command(wheels: &[&str], into: &Path, scratch: &Path) -> Command {
    let mut command = Command::new(PYTHON);
    command
        // No wheel of an index is to be replaced by compiling a source package; byte code is of no use here.
        .args(["-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--no-compile", "--no-cache-dir"])
        // Nothing of the system is touched, whoever runs this.
        .args(["--root-user-action=ignore", "--target"])
        .arg(into)
        .args(wheels)
        .env("TMPDIR", scratch);
    command
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{} … ({} bytes more)", &line[..end], line.len() - end),
        None => line.to_owned(),
    }
}

/// Advice for what pip said on stderr when it failed.
fn hint_for(said: &str) -> Option<&'static str> {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["No module named pip"]) {
        Some("install pip for this Python: `python3 -m ensurepip`, or your system's python3-pip package")
    } else if has(&["No space left on device", "Disk quota exceeded"]) {
        Some("free 2 GB for libtorch (1.2 GB and its download), 10 GB for the Python environment of the checks")
    } else if has(&[
        "Temporary failure in name resolution",
        "Name or service not known",
        "Failed to establish a new connection",
        "ConnectionError",
        "Connection refused",
        "Read timed out",
        "ReadTimeoutError",
        "ProxyError",
    ]) {
        Some("the package index cannot be reached: check the network, or set LIBTORCH to a libtorch 2.13.0")
    } else if has(&["(from versions: none)"]) {
        // pip says no more when it does not retry.
        Some("either the package index cannot be reached, or it has no wheel for this Python: use CPython 3.10 to 3.14")
    } else if has(&["No matching distribution found"]) {
        Some("the package index lacks this version: check which index pip uses, or set LIBTORCH to a libtorch 2.13.0")
    } else if has(&["Permission denied"]) {
        Some("the target directory of this checkout must be writable")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pip_says_leads_to_advice() {
        let advice = |said: &str| hint_for(said).unwrap_or_default();
        assert!(advice("/usr/bin/python3: No module named pip").contains("ensurepip"));
        assert!(
            advice("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
                .contains("2 GB")
        );
        let offline = "WARNING: Retrying ... Temporary failure in name resolution\n\
            ERROR: Could not find a version\nERROR: No matching distribution found for torch==2.13.0";
        assert!(advice(offline).contains("network"), "an unreachable index also ends in `no matching distribution`");
        assert!(advice("ERROR: ... (from versions: none)\nERROR: No matching distribution found").contains("CPython"));
        assert!(advice("ERROR: ... (from versions: 2.12.0)\nERROR: No matching distribution found").contains("lacks"));
        assert_eq!(hint_for("something else"), None);
    }

    #[test]
    fn a_transfer_that_broke_off_is_tried_again() {
        let folder = tempfile::tempdir().expect("a folder");
        // As pip 23 ends: breaks off so many times, and counts its runs.
        let breaking = |times: u32| {
            let script = format!(
                "echo x >> runs; test $(wc -l < runs) -gt {times} && exit 0\n\
                 echo 'Traceback (most recent call last):' >&2\n\
                 echo '  File \"/usr/lib/python3/pip/_internal/network/utils.py\", line 63, in response_chunks' >&2\n\
                 exit 2"
            );
            let mut command = Command::new("sh");
            command.args(["-c", &script]).current_dir(folder.path());
            let outcome = run_with(&mut command, Duration::ZERO);
            let runs = std::fs::read_to_string(folder.path().join("runs")).expect("it ran").lines().count();
            std::fs::remove_file(folder.path().join("runs")).expect("can be removed");
            (outcome.is_ok(), runs)
        };
        assert_eq!(breaking(0), (true, 1));
        assert_eq!(breaking(2), (true, 3));
        assert_eq!(breaking(9), (false, 3));
        assert!(!has_broken_off("ERROR: No matching distribution found for torch==2.13.0"));
    }

    #[test]
    fn an_endless_line_is_cut_at_a_whole_character() {
        let line = format!("[Errno 28] No space left on device {}", "é".repeat(5000));
        let cut = shortened(&line);
        assert!(cut.starts_with("[Errno 28]") && cut.ends_with("bytes more)") && cut.len() < 1000, "{cut}");
        assert_eq!(shortened("short"), "short");
    }
}
