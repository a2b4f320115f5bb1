//! The XOR of the 64-bit words of a byte slice.

#[cfg(target_arch = "x86_64")]
use super::avx512;
use crate::isa::Isa;

const GROUP: usize = 256;

/// Returns the XOR of little-endian words; the last one is padded with zeros.
pub(crate) fn xor_of_words(isa: Isa, bytes: &[u8]) -> u64 {
    let (groups, rest) = bytes.as_chunks::<GROUP>();
    let (words, tail) = rest.as_chunks::<8>();
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    let lanes = xor_of_groups(isa, groups);
    let rest = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    lanes.into_iter().chain(rest).fold(0, |xor, word| xor ^ word)
}

#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a function compiled for an instruction set"))]
fn xor_of_groups(isa: Isa, groups: &[[u8; GROUP]]) -> [u64; 8] {
    match isa {
        // SAFETY: the instruction set was detected before it was selected.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::xor_of_groups(groups) },
        _ => {
            let mut lanes = [0; 8];
            for line in groups.as_flattened().as_chunks::<8>().0.as_chunks::<8>().0 {
                for (lane, word) in lanes.iter_mut().zip(line) {
                    *lane ^= u64::from_le_bytes(*word);
                }
            }
            lanes
        }
    }
}
