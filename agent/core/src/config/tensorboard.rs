//! The keys of TensorBoard's event files.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// TensorBoard event files.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct TensorBoard {
    /// Write event files.
    #[default = true]
    pub enabled: bool,
    /// The directory; rank 3 writes to `<dir>/rank3`. Default: `tensorboard` in the rank's directory.
    #[schemars(length(min = 1))]
    pub dir: Option<PathBuf>,
    /// The maximum number of tensor tags per rank; further ones are only counted. TensorBoard lists all tags before it draws one.
    #[schemars(range(min = 1, max = 1_000_000))]
    // Users report minutes of loading from about 12,000 tags on.
    #[default = 10_000]
    pub max_tags: usize,
}
