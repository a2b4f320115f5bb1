//! The floor a measurement is compared with.

use trainmon_core::TensorView;

use crate::isa::Isa;
use crate::layout::{Order, Source};
use crate::pool;

/// 512 bytes at a time: eight of the widest registers, enough loads in flight for any level of the memory.
const WORDS: usize = 64;

/// Reads every byte of a tensor once and does next to nothing with it: the XOR of its 64-bit words, a tail of up to
/// 511 bytes per block left out. Same threads, same shards as a measurement. For benchmarks.
pub fn read_only_pass(view: &TensorView<'_>) -> u64 {
    let isa = Isa::current();
    let source = Source::new([view], Order::Memory);
    let mut folded = 0;
    pool::fold_shards(
        source.elements(),
        |range| {
            let mut lanes = [0u64; WORDS];
            source.for_each_block(range, |block| {
                isa.run(|| {
                    for chunk in block.bytes(0).as_chunks::<8>().0.as_chunks::<WORDS>().0 {
                        for (lane, word) in lanes.iter_mut().zip(chunk) {
                            *lane ^= u64::from_ne_bytes(*word);
                        }
                    }
                });
            });
            lanes.into_iter().fold(0, |xor, lane| xor ^ lane)
        },
        |next| folded ^= next,
    );
    folded
}
