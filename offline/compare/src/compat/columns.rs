//! msprobe's columns.

/// The compared properties of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Max, min, mean and norm.
    Statistics,
    /// Every element.
    Tensor,
    /// Checksums.
    Digest,
}

const BASIC: [&str; 8] = [
    "NPU Name",
    "Bench Name",
    "NPU Dtype",
    "Bench Dtype",
    "NPU Tensor Shape",
    "Bench Tensor Shape",
    "NPU Requires_grad",
    "Bench Requires_grad",
];
const STATISTICS: [&str; 8] =
    ["NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm"];
const OF_TENSORS: [&str; 6] =
    ["Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio"];
const OF_STATISTICS: [&str; 8] = [
    "Max diff",
    "Min diff",
    "Mean diff",
    "L2norm diff",
    "MaxRelativeErr",
    "MinRelativeErr",
    "MeanRelativeErr",
    "NormRelativeErr",
];
const OF_DIGESTS: [&str; 2] = ["NPU MD5", "BENCH MD5"];
const TAIL: [&str; 3] = ["Requires_grad Consistent", "Result", "Err_message"];

/// The columns of a mode.
pub fn headers(mode: Mode, has_stacks: bool) -> Vec<&'static str> {
    let mut headers = BASIC.to_vec();
    match mode {
        Mode::Statistics => headers.extend(OF_STATISTICS.iter().chain(&STATISTICS)),
        Mode::Tensor => headers.extend(OF_TENSORS.iter().chain(&STATISTICS)),
        Mode::Digest => headers.extend(OF_DIGESTS),
    }
    headers.extend(TAIL);
    headers.extend(has_stacks.then_some("NPU_Stack_Info"));
    headers.extend((mode == Mode::Tensor).then_some("Data_name"));
    headers
}
