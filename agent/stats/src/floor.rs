//! The read-only pass that benchmarks compare a measurement with.

use trainmon_core::TensorView;

use crate::isa::Isa;
use crate::kernel::xor_of_words;
use crate::layout::{Order, Source};
use crate::pool;

/// Reads every byte of a tensor once and returns the XOR of its 64-bit words, computed at the full register width.
/// Uses the same threads and shards as a measurement. For benchmarks.
pub fn read_only_pass(view: &TensorView<'_>) -> u64 {
    let isa = Isa::current();
    let source = Source::new([view], Order::Memory);
    let mut folded = 0;
    pool::fold_shards(
        source.elements(),
        &mut folded,
        |range, folded| {
            source.for_each_block(range, &mut |block| *folded ^= xor_of_words(isa, block.bytes(0)));
        },
        |folded, next| *folded ^= next,
    );
    folded
}
