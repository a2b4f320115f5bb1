//! The places of calls in `construct.json`.

use trainmon_capture::Entry;

use crate::capture::shared::Active;
use crate::capture::thread;

/// Places the surrounding modules in `construct.json`, so that readers find a parent before its children are complete.
pub(crate) fn tell_modules_around(active: &Active) {
    if active.has_construct {
        thread::tell_around(|module, parent| {
            let mut entry = active.session.entry(module);
            entry.under(parent);
            entry.append();
        });
    }
}

/// Places an entry under its parent in `construct.json`.
pub(crate) fn place(active: &Active, entry: &mut Entry<'_>) {
    if active.has_construct {
        thread::with_parent(|parent| match parent {
            Some(parent) => entry.under(Some(parent)),
            None => entry.inside_open_module(),
        });
    }
}
