//! Parameters in creation order, with their names.

use std::collections::HashMap;
use std::sync::Arc;

use tch::{Tensor, nn};

use crate::ffi::TensorRef;

/// A trainable variable of a `VarStore`.
pub(crate) struct NamedParameter {
    pub(crate) name: Arc<str>,
    pub(crate) tensor: Tensor,
    pub(crate) group: usize,
}

/// Returns the trainable variables in creation order. A `VarStore` keeps names without order and the order without
/// names; tensor identity links both. A variable whose name was taken by a later one is named after its index.
pub(crate) fn in_creation_order(variables: &nn::Variables) -> Vec<NamedParameter> {
    let names: HashMap<usize, &str> = variables
        .named_variables
        .iter()
        .filter_map(|(name, tensor)| Some((identity(tensor)?, name.as_str())))
        .collect();
    let trainable = variables.trainable_variables.iter().enumerate();
    let named = trainable.map(|(index, variable)| {
        let name = identity(&variable.tensor).and_then(|identity| names.get(&identity).copied());
        let name = name.map_or_else(|| format!("unnamed_{index}").into(), Arc::from);
        NamedParameter { name, tensor: variable.tensor.shallow_clone(), group: variable.group }
    });
    named.collect()
}

/// Returns a value that is equal for all handles of a tensor; `None` for an undefined tensor.
pub(crate) fn identity(tensor: &Tensor) -> Option<usize> {
    TensorRef::new(tensor)?.describe().ok().flatten().map(|description| description.identity())
}
