//! The way in to a run: from its description, or as the caller says.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;
use trainmon_runs::NewestRun;

use super::error::ControlError;

/// What a run leaves to say how to come in.
const DESCRIPTION: &str = "control.json";

/// One way in to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Its unix socket.
    Socket(PathBuf),
    /// HTTP, with the token.
    Http {
        /// Where.
        address: SocketAddr,
        /// The text of the token file.
        token: String,
    },
}

#[derive(Deserialize)]
struct Description {
    socket: Option<PathBuf>,
    url: Option<String>,
    token_file: Option<PathBuf>,
}

impl Door {
    /// The door of a run: of its directory, or of the newest run in a directory of runs, with the word that it is. The socket
    /// goes first.
    ///
    /// # Errors
    /// There is no run, or its description or token cannot be read.
    pub(crate) fn of_run(place: &Path) -> Result<(Self, Option<NewestRun>), ControlError> {
        let (path, newest) = description_in(place).ok_or_else(|| ControlError::NoRun { place: place.to_path_buf() })?;
        Ok((Self::described(&path)?, newest))
    }

    fn described(path: &Path) -> Result<Self, ControlError> {
        let path = path.to_path_buf();
        let text = fs::read_to_string(&path).map_err(|source| ControlError::Read { path: path.clone(), source })?;
        let wrong = |why: String| ControlError::Description { path: path.clone(), why };
        let description: Description = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        match description {
            Description { socket: Some(socket), .. } if socket.exists() => Ok(Self::Socket(socket)),
            Description { url: Some(url), token_file: Some(token_file), .. } => Self::http(&url, &token_file),
            Description { socket: Some(socket), .. } => Ok(Self::Socket(socket)),
            _ => Err(wrong("neither socket nor url".to_owned())),
        }
    }

    /// The door at an address.
    ///
    /// # Errors
    /// The address makes no sense, or the token file cannot be read.
    pub(crate) fn http(url: &str, token_file: &Path) -> Result<Self, ControlError> {
        let wrong = || ControlError::Url { found: url.to_owned() };
        let host = url.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
        let address = host.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(wrong)?;
        let token = fs::read_to_string(token_file);
        let token = token.map_err(|source| ControlError::Read { path: token_file.to_path_buf(), source })?;
        Ok(Self::Http { address, token: token.trim().to_owned() })
    }

    /// The door, for messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Socket(path) => format!("`{}`", path.display()),
            Self::Http { address, .. } => format!("http://{address}"),
        }
    }
}

/// The description itself, in the directory, or the newest in one of its directories: runs', or those of their ranks.
fn description_in(place: &Path) -> Option<(PathBuf, Option<NewestRun>)> {
    if place.is_file() {
        return Some((place.to_path_buf(), None));
    }
    let own = place.join(DESCRIPTION);
    if own.is_file() {
        return Some((own, None));
    }
    let below = directories(place);
    let deeper = below.iter().flat_map(|directory| directories(directory));
    let found = below.iter().cloned().chain(deeper).map(|directory| directory.join(DESCRIPTION));
    let mut dated: Vec<_> = found.filter_map(|path| Some((modified(&path)?, path))).collect();
    dated.sort();
    // A run of several ranks has the same description in two places.
    let different: BTreeSet<_> = dated.iter().filter_map(|(_, path)| fs::read(path).ok()).collect();
    let (_, path) = dated.pop()?;
    let newest = path.parent().filter(|_| different.len() > 1).map(|directory| NewestRun {
        directory: place.to_path_buf(),
        runs: different.len(),
        taken: run_of(place, directory),
    });
    Some((path, newest))
}

/// The directory right in `place` that leads to this one.
fn run_of(place: &Path, directory: &Path) -> PathBuf {
    let first = directory.strip_prefix(place).ok().and_then(|inner| inner.components().next());
    first.map_or_else(|| directory.to_path_buf(), |first| place.join(first))
}

/// No links, of which one leads to the newest run.
fn directories(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_by_its_directory_by_the_one_above_and_by_its_description() {
        let base = tempfile::tempdir().unwrap();
        let run = base.path().join("run");
        fs::create_dir(&run).unwrap();
        let socket = run.join("s");
        fs::write(&socket, "").unwrap();
        let text = format!(r#"{{"socket": {socket:?}, "url": null, "token_file": "/nowhere"}}"#);
        fs::write(run.join(DESCRIPTION), text).unwrap();
        for place in [base.path().to_path_buf(), run.clone(), run.join(DESCRIPTION)] {
            assert_eq!(Door::of_run(&place).unwrap(), (Door::Socket(socket.clone()), None));
        }
        // The same run's, beside its rank's files; the second run is newer.
        let ranks = base.path().join("train/rank_0");
        fs::create_dir_all(&ranks).unwrap();
        fs::copy(run.join(DESCRIPTION), ranks.join(DESCRIPTION)).unwrap();
        assert_eq!(Door::of_run(base.path()).unwrap(), (Door::Socket(socket.clone()), None));
        let second = base.path().join("train-2/rank_0");
        fs::create_dir_all(&second).unwrap();
        let later = r#"{"socket": "/later", "url": null, "token_file": "/nowhere"}"#;
        fs::write(second.join(DESCRIPTION), later).unwrap();
        let file = fs::File::options().write(true).open(second.join(DESCRIPTION)).unwrap();
        file.set_modified(SystemTime::now() + std::time::Duration::from_secs(9)).unwrap();
        let (door, newest) = Door::of_run(base.path()).unwrap();
        assert_eq!(door, Door::Socket("/later".into()));
        let said = newest.unwrap().in_words("speaking to");
        assert_eq!(said, format!("`{}` holds 2 runs: speaking to the newest, train-2\n", base.path().display()));
        let nowhere = base.path().join("other");
        assert!(matches!(Door::of_run(&nowhere), Err(ControlError::NoRun { .. })));
    }

    #[test]
    fn the_address_is_taken_where_the_socket_cannot_be_seen() {
        let base = tempfile::tempdir().unwrap();
        let token_file = base.path().join("token");
        fs::write(&token_file, "abc\n").unwrap();
        let text = format!(r#"{{"socket": "/nowhere", "url": "http://127.0.0.1:9470", "token_file": {token_file:?}}}"#);
        fs::write(base.path().join(DESCRIPTION), text).unwrap();
        let address = "127.0.0.1:9470".parse().unwrap();
        assert_eq!(Door::of_run(base.path()).unwrap().0, Door::Http { address, token: "abc".to_owned() });
        for wrong in ["127.0.0.1:9470", "https://127.0.0.1:1", "http://127.0.0.1", "http://:x"] {
            assert!(matches!(Door::http(wrong, &token_file), Err(ControlError::Url { .. })), "{wrong}");
        }
    }
}
