//! CRC-32 and XOR over a tensor's bytes in logical order.

use crc32fast::Hasher;
use trainmon_core::{Statistic, StatisticSet, TensorView};

use crate::copy::CopyTarget;
use crate::isa::Isa;
use crate::kernel::xor_of_words;
use crate::layout::{Order, Source};
use crate::pool;

/// The requested checksums.
#[derive(Clone, Copy)]
pub(crate) struct RequestedChecksums {
    crc: bool,
    xor: bool,
}

impl RequestedChecksums {
    pub(crate) const NEITHER: Self = Self { crc: false, xor: false };

    pub(crate) fn of(statistics: StatisticSet) -> Self {
        Self { crc: statistics.contains(Statistic::Crc32), xor: statistics.contains(Statistic::Xor64) }
    }

    pub(crate) fn any(self) -> bool {
        self.crc || self.xor
    }
}

/// The checksums of a stretch of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksums {
    pub(crate) crc: u32,
    pub(crate) xor: u64,
    bytes: u64,
}

impl Checksums {
    /// Adds the checksums of the bytes that follow.
    pub(crate) fn append(&mut self, wanted: RequestedChecksums, next: &Self) {
        if wanted.crc {
            let mut joined = Hasher::new_with_initial_len(self.crc, self.bytes);
            joined.combine(&Hasher::new_with_initial_len(next.crc, next.bytes));
            self.crc = joined.finalize();
        }
        self.xor ^= rotated(next.xor, self.bytes);
        self.bytes += next.bytes;
    }
}

/// Rotates a word computed over bytes from position 0 to the value it has over the same bytes from `offset`.
fn rotated(word: u64, offset: u64) -> u64 {
    word.rotate_left((offset % 8) as u32 * 8)
}

/// Accumulates checksums over consecutive bytes.
pub(crate) struct Summer {
    crc: Option<Hasher>,
    wants_xor: bool,
    xor: u64,
    bytes: u64,
}

impl Summer {
    pub(crate) fn new(wanted: RequestedChecksums) -> Self {
        Self { crc: wanted.crc.then(Hasher::new), wants_xor: wanted.xor, xor: 0, bytes: 0 }
    }

    #[inline]
    pub(crate) fn update(&mut self, isa: Isa, bytes: &[u8]) {
        if let Some(crc) = &mut self.crc {
            crc.update(bytes);
        }
        if self.wants_xor {
            self.xor ^= rotated(xor_of_words(isa, bytes), self.bytes);
        }
        self.bytes += bytes.len() as u64;
    }

    pub(crate) fn finish(self) -> Checksums {
        Checksums { crc: self.crc.map_or(0, Hasher::finalize), xor: self.xor, bytes: self.bytes }
    }
}

/// Computes the checksums of a tensor in a separate pass in logical order, and copies it if a target is given.
#[expect(unsafe_code, reason = "copies blocks into the range of their shard")]
pub(crate) fn in_logical_order(
    view: &TensorView<'_>,
    wanted: RequestedChecksums,
    target: Option<&CopyTarget<'_>>,
) -> Checksums {
    let isa = Isa::current();
    let source = Source::new([view], Order::Logical);
    let mut checksums = Checksums::default();
    pool::fold_shards(
        source.elements(),
        &mut checksums,
        |range, checksums| {
            let mut summer = Summer::new(wanted);
            let mut at = range.start * view.dtype().size();
            source.for_each_block(range, &mut |block| {
                let mut bytes = block.bytes(0);
                if let Some(target) = target {
                    // SAFETY: shards do not overlap, and neither do the blocks of one.
                    bytes = unsafe { target.put(at, bytes) };
                    at += bytes.len();
                }
                summer.update(isa, bytes);
            });
            *checksums = summer.finish();
        },
        |checksums, next| checksums.append(wanted, next),
    );
    checksums
}
