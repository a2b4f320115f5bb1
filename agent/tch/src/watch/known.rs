//! Readings that can be used twice: a tensor nobody wrote to since need not be read again.

use trainmon_agent::core::Reading;
use trainmon_agent::stats::Request;

use crate::ffi::Description;

/// Which contents of which tensor: torch counts every write it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contents {
    identity: usize,
    address: usize,
    version: i64,
}

/// The last reading of one tensor, and what was asked for then.
#[derive(Debug, Default)]
pub(super) struct Known(Option<(Contents, Request, Reading)>);

impl Known {
    /// The contents are those of the reading from now on. Remembers nothing where torch does not count writes.
    pub(super) fn remember(&mut self, description: &Description<'_>, request: Request, reading: Reading) {
        self.0 = contents(description).map(|contents| (contents, request, reading));
    }

    /// The reading, if the same tensor still has the same contents and the same is asked for.
    pub(super) fn recall(&self, description: &Description<'_>, request: Request) -> Option<Reading> {
        let (known, asked, reading) = self.0.as_ref()?;
        (*asked == request && contents(description).as_ref() == Some(known)).then_some(*reading)
    }

    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

fn contents(description: &Description<'_>) -> Option<Contents> {
    let (identity, address) = (description.identity(), description.address());
    Some(Contents { identity, address, version: description.version()? })
}
