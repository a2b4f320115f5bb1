//! The words of the format: keys and names, for the reader and the writer.

/// A rank's files.
pub(super) mod file {
    pub(crate) const DUMP: &str = "dump.json";
    pub(crate) const DEBUG: &str = "debug.json";
    pub(crate) const STACK: &str = "stack.json";
    pub(crate) const CONSTRUCT: &str = "construct.json";
    pub(crate) const TENSORS: &str = "dump_tensor_data";
    pub(crate) const ERRORS: &str = "dump_error_info.log";
    /// What is being captured, entry by entry; gone when the others are there.
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
    /// Its keyword arguments: an object.
    pub const INPUT_KWARGS: &str = "input_kwargs";
    /// A backward's gradients of what came out: a list.
    pub const INPUT: &str = "input";
    /// What came out: a list.
    pub const OUTPUT: &str = "output";
    /// A module's own parameters: an object.
    pub const PARAMETERS: &str = "parameters";
    /// Whether a NaN or an infinity came out: 1, 0 or null.
    pub const IS_NAN: &str = "is_nan";
    /// What there is to say of the call: a text. Readers pass it over.
    pub const NOTE: &str = "note";
    /// In the name of an entry of parameters' gradients.
    pub const PARAMETERS_GRAD: &str = "parameters_grad";
    /// In the name of a saved value.
    pub const SAVED: &str = ".debug";
}

/// A value's keys.
pub(super) mod value {
    pub(crate) const TYPE: &str = "type";
    pub(crate) const VALUE: &str = "value";
    pub(crate) const DTYPE: &str = "dtype";
    pub(crate) const SHAPE: &str = "shape";
    pub(crate) const STATISTICS: [&str; 4] = ["Max", "Min", "Mean", "Norm"];
    pub(crate) const REQUIRES_GRAD: &str = "requires_grad";
    pub(crate) const DEVICE_MESH: &str = "device_mesh";
    pub(crate) const PLACEMENTS: &str = "placements";
    /// Only where it is true.
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

/// In `construct.json`: how many micro steps there were.
pub(super) const MICRO_STEPS: &str = "megatron_micro_step_number";
