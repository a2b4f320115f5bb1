//! The names of custom scalars, apart from what takes them: the monitor keeps them, [`scalars`](crate::scalars) fills them.

use std::collections::HashMap;

use trainmon_core::TensorId;

/// The names told so far.
#[derive(Debug, Default)]
pub(crate) struct ScalarNames {
    pub(crate) known: HashMap<Box<str>, TensorId>,
    pub(crate) is_full_told: bool,
    pub(crate) is_unfit_told: bool,
}
