//! The part of each parameter that this rank holds, from Python's arguments.

use trainmon_agent::core::{HeldPart, ParameterParts, TensorInfo};

/// Whether a part counts in sums over ranks, and its number of elements; `None` if unknown.
type ContentPart = Option<(bool, Option<u64>)>;

/// Name, model chunk, name in the whole model, elements over all ranks; the parts of values, gradient and moments;
/// whether the ranks that hold the values also update them.
pub(crate) type ParameterLayout = (String, u32, String, u64, [ContentPart; 3], bool);

pub(crate) fn parts_of(
    (name, vpp_stage, whole_name, elements, held, is_stepped_by_holders): ParameterLayout,
) -> (TensorInfo, ParameterParts) {
    let held = held.map(|one| one.map(|(is_counted, elements)| HeldPart { is_counted, elements }));
    let parts = ParameterParts { whole_name: whole_name.into(), elements, held, is_stepped_by_holders };
    (TensorInfo { name: name.into(), vpp_stage }, parts)
}
