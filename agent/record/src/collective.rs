//! Collective operations and their throughput.

use std::time::Duration;

crate::named_enum! {
    /// A collective operation, with the name that `torch.distributed` uses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[expect(missing_docs, reason = "each name is its own documentation")]
    pub enum CollectiveOp: name, from_name {
        AllReduce = "all_reduce",
        AllReduceCoalesced = "all_reduce_coalesced",
        Reduce = "reduce",
        Broadcast = "broadcast",
        AllGather = "all_gather",
        AllGatherCoalesced = "all_gather_coalesced",
        AllGatherIntoTensor = "all_gather_into_tensor",
        AllGatherIntoTensorCoalesced = "all_gather_into_tensor_coalesced",
        ReduceScatter = "reduce_scatter",
        ReduceScatterTensor = "reduce_scatter_tensor",
        ReduceScatterTensorCoalesced = "reduce_scatter_tensor_coalesced",
        AllToAll = "all_to_all",
        AllToAllSingle = "all_to_all_single",
        Gather = "gather",
        Scatter = "scatter",
        Send = "send",
        Recv = "recv",
        Barrier = "barrier",
    }
}

impl CollectiveOp {
    /// Whether only two ranks of a group take part. The other ranks do not count the operation.
    pub const fn is_point_to_point(self) -> bool {
        matches!(self, Self::Send | Self::Recv)
    }

    /// The factor between algorithm bandwidth and bus bandwidth in nccl-tests, for a group of `ranks`: the share of the
    /// data that the link of each rank must carry. 0 for a group of one rank, which moves no data, unless the factor
    /// does not depend on the group.
    ///
    /// Source: nccl-tests, doc/PERFORMANCE.md.
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let ranks = f64::from(ranks.max(1));
        match self {
            Self::AllReduce | Self::AllReduceCoalesced => 2.0 * (ranks - 1.0) / ranks,
            Self::AllGather
            | Self::AllGatherCoalesced
            | Self::AllGatherIntoTensor
            | Self::AllGatherIntoTensorCoalesced
            | Self::ReduceScatter
            | Self::ReduceScatterTensor
            | Self::ReduceScatterTensorCoalesced
            | Self::AllToAll
            | Self::AllToAllSingle
            | Self::Gather
            | Self::Scatter => (ranks - 1.0) / ranks,
            Self::Reduce | Self::Broadcast | Self::Send | Self::Recv | Self::Barrier => 1.0,
        }
    }
}

/// The throughput of one operation on this rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectiveTiming {
    /// The size as nccl-tests defines it: the larger of this rank's buffers, i.e. the output of `all_gather` and
    /// `gather` and the input of `reduce_scatter`, `scatter` and `all_to_all`. If a rank has only its own part, that
    /// part times the number of ranks.
    pub bytes: u64,
    /// The time from the call to completion, including the wait for other ranks.
    pub seconds: f64,
    /// Algorithm bandwidth in GB/s (1e9 bytes): bytes divided by seconds. NaN if the measured time is zero.
    pub algbw: f64,
    /// Bus bandwidth in GB/s: `algbw` times [`CollectiveOp::bus_factor`].
    pub busbw: f64,
}

impl CollectiveTiming {
    /// Computes the timing of one operation among `ranks`.
    pub fn of(op: CollectiveOp, ranks: u32, bytes: u64, duration: Duration) -> Self {
        let seconds = duration.as_secs_f64();
        let algbw = if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { f64::NAN };
        Self { bytes, seconds, algbw, busbw: algbw * op.bus_factor(ranks) }
    }
}

/// A group of ranks that communicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// The name: the `process_group` label. The group's role if the framework provides it, else torch's name.
    pub name: Box<str>,
    /// The role, if the framework provides it: `dp`, `tp`, `pp`, `cp`, `ep`, or the name of a mesh dimension.
    pub role: Option<Box<str>>,
    /// The members as global ranks, in the group's order. Empty if unknown.
    pub ranks: Box<[u32]>,
    /// The number of ranks.
    pub size: u32,
}

impl ProcessGroup {
    /// A group with a known name and number of ranks only.
    pub fn of_size(name: &str, size: u32) -> Self {
        Self { name: name.into(), role: None, ranks: Box::default(), size }
    }

    /// A group with its members.
    pub fn of_ranks(name: &str, role: Option<&str>, ranks: Vec<u32>) -> Self {
        let size = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        Self { name: name.into(), role: role.map(Into::into), ranks: ranks.into(), size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_found_by_its_name() {
        for op in CollectiveOp::ALL {
            assert_eq!(CollectiveOp::from_name(op.name()), Some(op));
        }
        assert_eq!(CollectiveOp::from_name("all_reduce_"), None);
    }

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        let timing = |op, ranks| CollectiveTiming::of(op, ranks, 8_000_000_000, Duration::from_secs(2));
        for (op, busbw) in [
            (CollectiveOp::AllReduce, 7.0),
            (CollectiveOp::ReduceScatter, 3.5),
            (CollectiveOp::AllGather, 3.5),
            (CollectiveOp::AllToAll, 3.5),
            (CollectiveOp::Gather, 3.5),
            (CollectiveOp::Scatter, 3.5),
            (CollectiveOp::Broadcast, 4.0),
            (CollectiveOp::Reduce, 4.0),
            (CollectiveOp::Send, 4.0),
        ] {
            assert_eq!((timing(op, 8).algbw, timing(op, 8).busbw), (4.0, busbw), "{op}");
        }
        assert_eq!(timing(CollectiveOp::AllReduce, 1).busbw, 0.0);
        let unseen = CollectiveTiming::of(CollectiveOp::AllReduce, 2, 8, Duration::ZERO);
        assert!(unseen.algbw.is_nan() && unseen.busbw.is_nan());
        let barrier = CollectiveTiming::of(CollectiveOp::Barrier, 2, 0, Duration::from_secs(1));
        assert_eq!((barrier.algbw, barrier.busbw), (0.0, 0.0));
    }
}
