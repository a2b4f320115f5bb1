//! How many files a process may have open: merging reads some ten of every rank at once.

/// Raises this process's own limit to what the system lets it have; where that fails it stays as it was.
///
/// The usual soft limit of 1,024 files is that of a hundred ranks.
#[cfg(unix)]
pub(super) fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // What is refused is no worse than before.
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap_or_default();
    }
}

/// There is no such limit.
#[cfg(not(unix))]
pub(super) fn raise_limit() {}

#[cfg(all(test, unix))]
mod tests {
    use rustix::process::{Resource, getrlimit};

    #[test]
    fn as_many_files_as_the_system_allows_may_be_open() {
        super::raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
