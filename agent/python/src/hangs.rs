//! The operations that a hanging rank has not completed.

use trainmon_agent::core::OpenCollective;

/// Operation, group, its ranks (empty if unknown), number in the group, bytes, calling line, seconds since it began.
pub(crate) type OpenOperation = (String, String, Vec<u32>, u64, u64, Option<String>, f64);

pub(crate) fn described(open: OpenCollective) -> OpenOperation {
    let OpenCollective { op, group, sequence, bytes, caller, since } = open;
    let ranks = group.ranks.to_vec();
    let caller = caller.map(|line| line.to_string());
    (op.name().to_owned(), group.name.to_string(), ranks, sequence, bytes, caller, since.elapsed().as_secs_f64())
}
