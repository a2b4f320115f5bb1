//! The words of the format: keys and names, for the reader and the writer.

/// A rank's files.
pub(super) mod file {
    pub(in crate::capture) const DUMP: &str = "dump.json";
    pub(in crate::capture) const DEBUG: &str = "debug.json";
    pub(in crate::capture) const STACK: &str = "stack.json";
    pub(in crate::capture) const CONSTRUCT: &str = "construct.json";
    pub(in crate::capture) const TENSORS: &str = "dump_tensor_data";
    pub(in crate::capture) const ERRORS: &str = "dump_error_info.log";
    /// What is being captured, entry by entry; gone when the others are there.
    pub(in crate::capture) const RECORDS: &str = "capture.records";
}

/// The document's own keys.
pub(super) mod document {
    pub(in crate::capture) const TASK: &str = "task";
    pub(in crate::capture) const LEVEL: &str = "level";
    pub(in crate::capture) const FRAMEWORK: &str = "framework";
    pub(in crate::capture) const DIRECTORY: &str = "dump_data_dir";
    pub(in crate::capture) const DATA: &str = "data";
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
    pub(in crate::capture) const TYPE: &str = "type";
    pub(in crate::capture) const VALUE: &str = "value";
    pub(in crate::capture) const DTYPE: &str = "dtype";
    pub(in crate::capture) const SHAPE: &str = "shape";
    pub(in crate::capture) const STATISTICS: [&str; 4] = ["Max", "Min", "Mean", "Norm"];
    pub(in crate::capture) const REQUIRES_GRAD: &str = "requires_grad";
    pub(in crate::capture) const DEVICE_MESH: &str = "device_mesh";
    pub(in crate::capture) const PLACEMENTS: &str = "placements";
    /// Only where it is true.
    pub(in crate::capture) const FROM_EMPTY: &str = "from_empty";
    pub(in crate::capture) const DATA_NAME: &str = "data_name";
    pub(in crate::capture) const DIGEST: &str = "md5";
    pub(in crate::capture) const GROUP_RANKS: &str = "group_ranks";
    pub(in crate::capture) const GROUP_ID: &str = "group_id";
    pub(in crate::capture) const CLASS_TYPE: &str = "class_type";
    pub(in crate::capture) const TENSOR: &str = "tensor";
    pub(in crate::capture) const OPERATION: &str = "op";
    pub(in crate::capture) const PEER: &str = "peer";
    pub(in crate::capture) const TAG: &str = "tag";
    pub(in crate::capture) const FORMAT: &str = "format";
}

/// In `construct.json`: how many micro steps there were.
pub(super) const MICRO_STEPS: &str = "megatron_micro_step_number";
