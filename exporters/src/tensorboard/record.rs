//! The framing of records in an event file (TFRecord): length and content, each with a checksum.

/// The offset added to a rotated CRC, so that data that contains checksums is no special case.
const MASK_DELTA: u32 = 0xa282_ead8;

/// The number of bytes before a record's content: its length, and the length's checksum.
pub(super) const HEAD_BYTES: usize = 12;
/// The number of bytes around a record's content.
const FRAME_BYTES: usize = 16;

/// Frames one record: the length (8 bytes, little-endian), the length's checksum, the content, the content's checksum.
pub(super) fn framed(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(content.len() + FRAME_BYTES);
    record.extend_from_slice(&length);
    record.extend_from_slice(&masked_crc(&length).to_le_bytes());
    record.extend_from_slice(content);
    record.extend_from_slice(&masked_crc(content).to_le_bytes());
    record
}

/// CRC-32C (Castagnoli), rotated by 15 bits, with the offset added.
pub(super) fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(MASK_DELTA)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksums of RFC 3720, appendix B.4: 32 bytes each.
    #[test]
    fn the_checksum_is_castagnolis() {
        let ascending: Vec<u8> = (0..32).collect();
        for (data, crc) in [(vec![0; 32], 0x8a91_36aa), (vec![0xff; 32], 0x62a8_ab43), (ascending, 0x46dd_794e)] {
            assert_eq!(crc32c::crc32c(&data), crc);
        }
        assert_eq!(masked_crc(&[0; 32]), 0x8a91_36aa_u32.rotate_right(15).wrapping_add(MASK_DELTA));
    }

    #[test]
    fn a_record_is_its_length_and_content_between_checksums() {
        let record = framed(b"abc");
        assert_eq!(record.len(), 3 + FRAME_BYTES);
        assert_eq!(record[..8], 3u64.to_le_bytes());
        assert_eq!(record[12..15], *b"abc");
        assert_eq!(record[15..], masked_crc(b"abc").to_le_bytes());
    }
}
