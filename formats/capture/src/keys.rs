//! The keys and names of the format, for the reader and the writer.

/// The names of a rank's files.
pub(super) mod file {
    pub(crate) const DUMP: &str = "dump.json";
    pub(crate) const DEBUG: &str = "debug.json";
    pub(crate) const STACK: &str = "stack.json";
    pub(crate) const CONSTRUCT: &str = "construct.json";
    pub(crate) const TENSORS: &str = "dump_tensor_data";
    pub(crate) const ERRORS: &str = "dump_error_info.log";
    /// The record file of a running capture; removed when the documents exist.
    pub(crate) const RECORDS: &str = "capture.records";
}

/// The document's own keys.
pub(super) mod document {
    pub(crate) const TASK: &str = "task";
    pub(crate) const LEVEL: &str = "level";
    pub(crate) const FRAMEWORK: &str = "framework";
    pub(crate) const DIRECTORY: &str = "dump_data_dir";
    pub(crate) const DATA: &str = "data";
}

/// The keys of an entry's parts.
pub mod part {
    /// A call's positional arguments: a list.
    pub const INPUT_ARGS: &str = "input_args";
    /// A call's keyword arguments: an object.
    pub const INPUT_KWARGS: &str = "input_kwargs";
    /// A backward call's gradients of the outputs: a list.
    pub const INPUT: &str = "input";
    /// The outputs: a list.
    pub const OUTPUT: &str = "output";
    /// A module's own parameters: an object.
    pub const PARAMETERS: &str = "parameters";
    /// Whether the outputs contain a NaN or an infinity: 1, 0 or null.
    pub const IS_NAN: &str = "is_nan";
    /// A note on the call: a text. Readers ignore it.
    pub const NOTE: &str = "note";
    /// Occurs in the name of an entry with parameter gradients.
    pub const PARAMETERS_GRAD: &str = "parameters_grad";
    /// Occurs in the name of a saved value.
    pub const SAVED: &str = ".debug";
}

/// The keys of a value.
pub(super) mod value {
    pub(crate) const TYPE: &str = "type";
    pub(crate) const VALUE: &str = "value";
    pub(crate) const DTYPE: &str = "dtype";
    pub(crate) const SHAPE: &str = "shape";
    pub(crate) const STATISTICS: [&str; 4] = ["Max", "Min", "Mean", "Norm"];
    pub(crate) const REQUIRES_GRAD: &str = "requires_grad";
    pub(crate) const DEVICE_MESH: &str = "device_mesh";
    pub(crate) const PLACEMENTS: &str = "placements";
    /// Written only if true.
    pub(crate) const FROM_EMPTY: &str = "from_empty";
    pub(crate) const DATA_NAME: &str = "data_name";
    pub(crate) const DIGEST: &str = "md5";
    pub(crate) const GROUP_RANKS: &str = "group_ranks";
    pub(crate) const GROUP_ID: &str = "group_id";
    pub(crate) const CLASS_TYPE: &str = "class_type";
    pub(crate) const TENSOR: &str = "tensor";
    pub(crate) const OPERATION: &str = "op";
    pub(crate) const PEER: &str = "peer";
    pub(crate) const TAG: &str = "tag";
    pub(crate) const FORMAT: &str = "format";
}

/// In `construct.json`: the number of micro steps.
pub(super) const MICRO_STEPS: &str = "megatron_micro_step_number";
