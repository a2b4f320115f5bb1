//! Encodes and decodes one record, bit for bit.
//!
//! A statistic that was not requested has its neutral value in [`TensorStats`] and is omitted. A record with only the
//! norm takes 30 bytes, one with ten statistics about 90. Plain numbers ([`Values`](trainmon_core::Values)) are stored
//! in the fields of a tensor, by [`Reading::as_stats`]: the record's kind determines which of the two it is.

use trainmon_core::{MAX_DIMS, MicroStep, Reading, Record, Scalar, Shape, TensorId, TensorStats};

use super::bytes::{Cursor, Malformed};
use super::number_names::{NumberNames, dtype_code, kind_code};

/// The smallest size of a record: the part before the statistics.
pub(super) const MIN_RECORD: usize = 14;
/// The largest size of a record: eight dimensions and every statistic.
const MAX_RECORD: usize = MIN_RECORD + 8 * MAX_DIMS + 11 * 8 + 4;

/// The tags byte: the number types of min and max, the width of the sizes, and whether there is a reading.
const MAX_TAG_SHIFT: u8 = 2;
const SCALAR_MASK: u8 = 0b11;
const WIDE_SIZES: u8 = 1 << 4;
const HAS_READING: u8 = 1 << 7;

/// The bits of the fields, in their order in the record.
mod field {
    pub(super) const MIN: u16 = 1;
    pub(super) const MAX: u16 = 1 << 1;
    pub(super) const MEAN: u16 = 1 << 2;
    pub(super) const NORM: u16 = 1 << 3;
    pub(super) const ABS_MAX: u16 = 1 << 4;
    pub(super) const STD: u16 = 1 << 5;
    pub(super) const NANS: u16 = 1 << 6;
    pub(super) const INFS: u16 = 1 << 7;
    pub(super) const ZEROS: u16 = 1 << 8;
    pub(super) const COUNT: u16 = 1 << 9;
    pub(super) const CRC32: u16 = 1 << 10;
    pub(super) const XOR64: u16 = 1 << 11;
    /// The count follows from the shape.
    pub(super) const COUNT_OF_SHAPE: u16 = 1 << 12;
    pub(super) const KNOWN: u16 = (1 << 13) - 1;
}

/// A record under construction, on the stack: a step's buffer grows once per record, not once per number.
struct RecordBytes {
    bytes: [u8; MAX_RECORD],
    length: usize,
}

impl RecordBytes {
    fn put<const N: usize>(&mut self, value: [u8; N]) {
        self.bytes[self.length..self.length + N].copy_from_slice(&value);
        self.length += N;
    }

    fn put_if(&mut self, is_there: bool, value: u64) {
        if is_there {
            self.put(value.to_le_bytes());
        }
    }
}

/// Appends a record.
pub(super) fn put_record(out: &mut Vec<u8>, record: &Record) {
    let Record { tensor, kind, micro_step, reading } = *record;
    let mut bytes = RecordBytes { bytes: [0; MAX_RECORD], length: 0 };
    bytes.put(tensor.0.to_le_bytes());
    bytes.put([kind_code(kind)]);
    match &reading {
        None => {
            bytes.put([0, 0, 0]);
            bytes.put(micro_step.0.to_le_bytes());
            bytes.put(0u16.to_le_bytes());
        }
        Some(Reading::Tensor(stats)) => put_stats(&mut bytes, micro_step, stats),
        Some(Reading::Values(values)) => put_stats(&mut bytes, micro_step, &values.as_stats()),
    }
    out.extend_from_slice(&bytes.bytes[..bytes.length]);
}

fn put_stats(bytes: &mut RecordBytes, micro_step: MicroStep, stats: &TensorStats) {
    let TensorStats { dtype, shape, min, max, mean, norm, abs_max, std, nans, infs, zeros, count, crc32, xor64 } =
        *stats;
    let sizes = shape.dims();
    let is_wide = sizes.iter().any(|&size| u32::try_from(size).is_err());
    let (min_tag, min_bits) = scalar_bits(min);
    let (max_tag, max_bits) = scalar_bits(max);
    let neutral_min = (min_tag, min_bits) == scalar_bits(Scalar::Float(f64::NAN));
    let neutral_max = (max_tag, max_bits) == scalar_bits(Scalar::Float(f64::NAN));
    let nan = f64::NAN.to_bits();
    let is_count_of_shape = count == shape.elements() as u64;
    let there = [
        (field::MIN, !neutral_min),
        (field::MAX, !neutral_max),
        (field::MEAN, mean.to_bits() != nan),
        (field::NORM, norm.to_bits() != 0),
        (field::ABS_MAX, abs_max.to_bits() != nan),
        (field::STD, std.to_bits() != nan),
        (field::NANS, nans != 0),
        (field::INFS, infs != 0),
        (field::ZEROS, zeros != 0),
        (field::COUNT, count != 0 && !is_count_of_shape),
        (field::CRC32, crc32 != 0),
        (field::XOR64, xor64 != 0),
        (field::COUNT_OF_SHAPE, is_count_of_shape),
    ];
    let fields = there.iter().fold(0, |fields, &(bit, is_there)| if is_there { fields | bit } else { fields });
    let tags = HAS_READING | if is_wide { WIDE_SIZES } else { 0 } | max_tag << MAX_TAG_SHIFT | min_tag;
    bytes.put([dtype_code(dtype), sizes.len() as u8, tags]);
    bytes.put(micro_step.0.to_le_bytes());
    bytes.put(fields.to_le_bytes());
    for &size in sizes {
        if is_wide { bytes.put(size.to_le_bytes()) } else { bytes.put((size as u32).to_le_bytes()) }
    }
    let has = |bit| fields & bit != 0;
    bytes.put_if(has(field::MIN), min_bits);
    bytes.put_if(has(field::MAX), max_bits);
    bytes.put_if(has(field::MEAN), mean.to_bits());
    bytes.put_if(has(field::NORM), norm.to_bits());
    bytes.put_if(has(field::ABS_MAX), abs_max.to_bits());
    bytes.put_if(has(field::STD), std.to_bits());
    bytes.put_if(has(field::NANS), nans);
    bytes.put_if(has(field::INFS), infs);
    bytes.put_if(has(field::ZEROS), zeros);
    bytes.put_if(has(field::COUNT), count);
    if has(field::CRC32) {
        bytes.put(crc32.to_le_bytes());
    }
    bytes.put_if(has(field::XOR64), xor64);
}

/// Reads a record from the front.
pub(super) fn read_record(cursor: &mut Cursor<'_>, number_names: &NumberNames) -> Result<Record, Malformed> {
    let tensor = TensorId(cursor.u32()?);
    let kind = number_names.kind(cursor.u8()?).ok_or_else(|| cursor.malformed("an unknown kind of record"))?;
    let (dtype, dims, tags) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    let micro_step = MicroStep(cursor.u32()?);
    let fields = cursor.u16()?;
    if tags & HAS_READING == 0 {
        return Ok(Record { tensor, kind, micro_step, reading: None });
    }
    let dtype = number_names.dtype(dtype).ok_or_else(|| cursor.malformed("an unknown dtype"))?;
    if fields & !field::KNOWN != 0 {
        return Err(cursor.malformed("an unknown statistic"));
    }
    let shape = read_shape(cursor, usize::from(dims), tags & WIDE_SIZES != 0)?;
    let mut stats = TensorStats::empty(dtype, shape);
    let has = |bit| fields & bit != 0;
    if has(field::MIN) {
        stats.min = read_scalar(cursor, tags & SCALAR_MASK)?;
    }
    if has(field::MAX) {
        stats.max = read_scalar(cursor, tags >> MAX_TAG_SHIFT & SCALAR_MASK)?;
    }
    for (bit, value) in [
        (field::MEAN, &mut stats.mean),
        (field::NORM, &mut stats.norm),
        (field::ABS_MAX, &mut stats.abs_max),
        (field::STD, &mut stats.std),
    ] {
        if has(bit) {
            *value = cursor.f64()?;
        }
    }
    stats.count = if has(field::COUNT_OF_SHAPE) { shape.elements() as u64 } else { 0 };
    for (bit, value) in [
        (field::NANS, &mut stats.nans),
        (field::INFS, &mut stats.infs),
        (field::ZEROS, &mut stats.zeros),
        (field::COUNT, &mut stats.count),
    ] {
        if has(bit) {
            *value = cursor.u64()?;
        }
    }
    if has(field::CRC32) {
        stats.crc32 = cursor.u32()?;
    }
    if has(field::XOR64) {
        stats.xor64 = cursor.u64()?;
    }
    Ok(Record { tensor, kind, micro_step, reading: Some(Reading::of_kind(kind, stats)) })
}

fn read_shape(cursor: &mut Cursor<'_>, dims: usize, is_wide: bool) -> Result<Shape, Malformed> {
    let mut sizes = [0i64; MAX_DIMS];
    let sizes = sizes.get_mut(..dims).ok_or_else(|| cursor.malformed("too many dimensions"))?;
    for size in sizes.iter_mut() {
        *size = if is_wide { cursor.u64()? as i64 } else { i64::from(cursor.u32()?) };
    }
    // The offset identifies the error: these are the sizes.
    Shape::new(sizes).ok().ok_or_else(|| cursor.malformed("sizes without a valid element count"))
}

fn scalar_bits(scalar: Scalar) -> (u8, u64) {
    match scalar {
        Scalar::Float(value) => (0, value.to_bits()),
        Scalar::Int(value) => (1, value as u64),
        Scalar::UInt(value) => (2, value),
        Scalar::Bool(value) => (3, u64::from(value)),
    }
}

fn read_scalar(cursor: &mut Cursor<'_>, tag: u8) -> Result<Scalar, Malformed> {
    let bits = cursor.u64()?;
    Ok(match tag {
        0 => Scalar::Float(f64::from_bits(bits)),
        1 => Scalar::Int(bits as i64),
        2 => Scalar::UInt(bits),
        _ => Scalar::Bool(bits != 0),
    })
}

#[cfg(test)]
mod tests {
    use trainmon_core::{Dtype, Kind};

    use super::super::number_names::StoredNames;
    use super::*;

    fn through(record: &Record) -> (Record, usize) {
        let mut bytes = Vec::new();
        put_record(&mut bytes, record);
        let mut cursor = Cursor::new(&bytes);
        let read = read_record(&mut cursor, &NumberNames::of(&StoredNames::current())).unwrap();
        cursor.finish().unwrap();
        (read, bytes.len())
    }

    #[test]
    fn the_largest_and_the_smallest_record_have_the_sizes_promised() {
        let full = TensorStats {
            min: Scalar::Int(i64::MIN),
            max: Scalar::UInt(u64::MAX),
            mean: -0.0,
            norm: 1.0,
            abs_max: f64::INFINITY,
            std: 0.5,
            nans: 1,
            infs: 2,
            zeros: 3,
            count: 4,
            crc32: 5,
            xor64: 6,
            ..TensorStats::empty(Dtype::Complex128, Shape::new(&[0, i64::MAX, 1, 1, 1, 1, 1, 1]).unwrap())
        };
        let record =
            |reading| Record { tensor: TensorId(7), kind: Kind::Adhoc, micro_step: MicroStep(u32::MAX), reading };
        assert_eq!(through(&record(Some(full.into()))), (record(Some(full.into())), MAX_RECORD));
        assert_eq!(through(&record(None)), (record(None), MIN_RECORD));
        let norm_only =
            TensorStats { norm: 3.0, count: 12, ..TensorStats::empty(Dtype::F32, Shape::new(&[3, 4]).unwrap()) };
        let (read, bytes) = through(&record(Some(norm_only.into())));
        assert_eq!((read.reading.unwrap().as_stats().count, bytes), (12, 30));
    }

    #[test]
    fn a_nan_keeps_its_bits() {
        let odd = f64::from_bits(0xfff8_0000_0000_1234);
        let reading = TensorStats { mean: odd, min: Scalar::Float(odd), ..TensorStats::of_value(1.0) };
        let record =
            Record { tensor: TensorId(0), kind: Kind::Sum, micro_step: MicroStep(0), reading: Some(reading.into()) };
        let read = through(&record).0.reading.unwrap().as_stats();
        assert_eq!(read.mean.to_bits(), odd.to_bits());
        assert!(matches!(read.min, Scalar::Float(value) if value.to_bits() == odd.to_bits()));
    }
}
