//! The endpoint of a run's live control: from its description, or as the user passes it.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use trainmon_core::RUN_FILE;
use trainmon_runs::{NewestRun, directories, newest_of};

use super::error::ControlError;

/// The file in which a run describes its control endpoint.
const DESCRIPTION: &str = "control.json";

/// An endpoint of a run's live control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A unix socket.
    Socket(PathBuf),
    /// HTTP with a token.
    Http {
        /// The address.
        address: SocketAddr,
        /// The content of the token file.
        token: String,
    },
}

#[derive(Deserialize)]
struct Description {
    socket: Option<PathBuf>,
    url: Option<String>,
    token_file: Option<PathBuf>,
}

impl Endpoint {
    /// The endpoint of a run's directory, or of the newest run in a directory of runs, with that run. The socket is
    /// preferred.
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
            _ => Err(wrong("it has neither `socket` nor `url`".to_owned())),
        }
    }

    /// The endpoint at an address.
    ///
    /// # Errors
    /// The address is invalid, or the token file cannot be read.
    pub(crate) fn http(url: &str, token_file: &Path) -> Result<Self, ControlError> {
        let wrong = || ControlError::Url { found: url.to_owned() };
        let host = url.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
        let address = host.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(wrong)?;
        let token = fs::read_to_string(token_file);
        let token = token.map_err(|source| ControlError::Read { path: token_file.to_path_buf(), source })?;
        Ok(Self::Http { address, token: token.trim().to_owned() })
    }

    /// The endpoint's name in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Socket(path) => format!("`{}`", path.display()),
            Self::Http { address, .. } => format!("http://{address}"),
        }
    }
}

/// The path of the description: in the run's directory or a rank's, or in the newest run in a directory of runs.
fn description_in(place: &Path) -> Option<(PathBuf, Option<NewestRun>)> {
    if place.is_file() {
        return Some((place.to_path_buf(), None));
    }
    if let Some(own) = description_right_in(place) {
        return Some((own, None));
    }
    // A run of several ranks may have the same description in two directories.
    let mut known = BTreeSet::new();
    let mut is_another = |path: PathBuf| fs::read(path).is_ok_and(|text| known.insert(text));
    let mut runs = directories(place);
    // A run's directory, which contains its start time, is preferred over a directory of its control.
    runs.sort_by_key(|run| !run.join(RUN_FILE).is_file());
    runs.retain(|run| description_of(run).is_some_and(&mut is_another));
    let (run, newest) = newest_of(place, runs)?;
    Some((description_of(&run)?, newest))
}

fn description_of(run: &Path) -> Option<PathBuf> {
    description_right_in(run).or_else(|| directories(run).iter().find_map(|rank| description_right_in(rank)))
}

fn description_right_in(directory: &Path) -> Option<PathBuf> {
    Some(directory.join(DESCRIPTION)).filter(|path| path.is_file())
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
            assert_eq!(Endpoint::of_run(&place).unwrap(), (Endpoint::Socket(socket.clone()), None));
        }
        // The same run's, beside its rank's files.
        let ranks = base.path().join("train/rank_0");
        fs::create_dir_all(&ranks).unwrap();
        fs::copy(run.join(DESCRIPTION), ranks.join(DESCRIPTION)).unwrap();
        assert_eq!(Endpoint::of_run(base.path()).unwrap(), (Endpoint::Socket(socket.clone()), None));
        // The second was started later, and its files were written before the others.
        let second = base.path().join("train-2");
        fs::create_dir_all(second.join("rank_0")).unwrap();
        let later = r#"{"socket": "/later", "url": null, "token_file": "/nowhere"}"#;
        fs::write(second.join("rank_0").join(DESCRIPTION), later).unwrap();
        for (run, started) in [(&second, "2026-11-23T05:00:00Z"), (&run, "2026-11-23T04:00:00Z")] {
            let text = format!(r#"{{"run": "r", "world_size": 1, "job": "", "started": "{started}"}}"#);
            fs::write(run.join(RUN_FILE), text).unwrap();
        }
        fs::remove_dir_all(base.path().join("train")).unwrap();
        let (endpoint, newest) = Endpoint::of_run(base.path()).unwrap();
        assert_eq!(endpoint, Endpoint::Socket("/later".into()));
        let said = newest.unwrap().in_words("speaking to");
        assert_eq!(said, format!("`{}` contains 2 runs; speaking to the newest, train-2\n", base.path().display()));
        let nowhere = base.path().join("other");
        assert!(matches!(Endpoint::of_run(&nowhere), Err(ControlError::NoRun { .. })));
    }

    #[test]
    fn the_address_is_taken_where_the_socket_cannot_be_seen() {
        let base = tempfile::tempdir().unwrap();
        let token_file = base.path().join("token");
        fs::write(&token_file, "abc\n").unwrap();
        let text = format!(r#"{{"socket": "/nowhere", "url": "http://127.0.0.1:9470", "token_file": {token_file:?}}}"#);
        fs::write(base.path().join(DESCRIPTION), text).unwrap();
        let address = "127.0.0.1:9470".parse().unwrap();
        assert_eq!(Endpoint::of_run(base.path()).unwrap().0, Endpoint::Http { address, token: "abc".to_owned() });
        for wrong in ["127.0.0.1:9470", "https://127.0.0.1:1", "http://127.0.0.1", "http://:x"] {
            assert!(matches!(Endpoint::http(wrong, &token_file), Err(ControlError::Url { .. })), "{wrong}");
        }
    }
}
