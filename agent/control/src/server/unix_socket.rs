//! The unix socket, accessible only to its owner from its creation on.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::rank_store::random_id;

/// The path of a listening socket, removed when dropped by the process that created it.
pub(super) struct BoundSocket {
    path: PathBuf,
    /// The creator: a forked child also has this value, and its end must not remove the socket.
    owner: u32,
}

impl BoundSocket {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            // Another process may have removed it.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Listens on a socket of mode 0600.
///
/// The socket is created in a private directory and moved to its place once it has its mode, so no connection is
/// possible before that. An existing socket is replaced: its listener has lost the lock on the directory.
pub(super) fn bind_socket(path: &Path) -> io::Result<(BoundSocket, UnixListener)> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let word = random_id()?;
    let hidden = parent.join(format!(".{}", &word[..6]));
    fs::DirBuilder::new().mode(0o700).create(&hidden)?;
    let made = bind_in(&hidden, path);
    // The directory is empty by now; if not, the error is more informative.
    drop(fs::remove_dir_all(&hidden));
    made
}

fn bind_in(hidden: &Path, path: &Path) -> io::Result<(BoundSocket, UnixListener)> {
    let first = hidden.join("s");
    // An address has at most 107 bytes and a path may have more, so the directory's descriptor replaces it.
    let listener = match UnixListener::bind(&first) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let directory = File::open(hidden)?;
            UnixListener::bind(format!("/proc/self/fd/{}/s", directory.as_raw_fd()))?
        }
        bound => bound?,
    };
    fs::set_permissions(&first, fs::Permissions::from_mode(0o600))?;
    fs::rename(&first, path)?;
    Ok((BoundSocket { path: path.to_path_buf(), owner: std::process::id() }, listener))
}

/// Whether the other end is this user, or root.
pub(super) fn is_own_user(stream: &tokio::net::UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_its_owners_alone_and_goes_with_its_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        fs::write(&path, "left over").unwrap();
        let (socket, _listener) = bind_socket(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left of its making");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_path_longer_than_an_address_is_listened_on() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("d".repeat(100)).join("e".repeat(100));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("control.sock");
        let (socket, listener) = bind_socket(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let opened = File::open(&directory).unwrap();
        let address = format!("/proc/self/fd/{}/control.sock", opened.as_raw_fd());
        std::os::unix::net::UnixStream::connect(address).unwrap();
        listener.accept().unwrap();
        drop(socket);
        assert!(!path.exists());
    }
}
