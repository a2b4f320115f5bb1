//! The names of custom scalars. The monitor owns them, [`scalars`](crate::scalars) adds to them.

use std::collections::HashMap;

use trainmon_core::TensorId;

/// The names registered so far, and the warnings already given.
#[derive(Debug, Default)]
pub(crate) struct ScalarNames {
    pub(crate) known: HashMap<Box<str>, TensorId>,
    pub(crate) is_full_told: bool,
    pub(crate) is_unfit_told: bool,
}
