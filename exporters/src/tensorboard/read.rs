//! Reads event files: their records, checked, and the numbers in them.

use std::io::{self, Read};

use prost::Message as _;

use super::message::{Content, Event, What};
use super::record::{HEAD_BYTES, masked_crc};

/// The numbers in one record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadEvent {
    /// The time of writing, in seconds since 1970.
    pub wall_time: f64,
    /// The step as written; a negative one is an error of the writer.
    pub step: i64,
    /// Tags and values.
    pub scalars: Vec<(String, f64)>,
    /// Tags of values that are not numbers: texts, images, distributions.
    pub others: Vec<String>,
}

/// Why reading stops at the record that begins at `offset`.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum EventFault {
    /// The file ends within a record, as after a killed process.
    #[error("the record at byte {offset} is incomplete")]
    Torn { offset: u64 },
    /// The checksum of a record's length is wrong, so the start of the next record is unknown.
    #[error("the record at byte {offset} has a damaged length")]
    Length { offset: u64 },
    /// A record is damaged; the next one can be read.
    #[error("the record at byte {offset} is damaged")]
    Content { offset: u64 },
    /// The file cannot be read.
    #[error("cannot read from byte {offset} on")]
    Read { offset: u64, source: io::Error },
}

impl EventFault {
    /// Whether the records after it can be read.
    pub fn is_passed(&self) -> bool {
        matches!(self, Self::Content { .. })
    }
}

/// Whether these are the first bytes of an event file: its first length has the right checksum.
pub fn begins_as_events(bytes: &[u8]) -> bool {
    bytes.first_chunk::<HEAD_BYTES>().is_some_and(|head| length_of(head).is_some())
}

/// Reads an event file record by record, in the memory of one record.
#[derive(Debug)]
pub struct EventReader<R> {
    input: R,
    offset: u64,
    content: Vec<u8>,
}

impl<R: Read> EventReader<R> {
    /// A reader at a file's beginning; `input` should be buffered.
    pub fn new(input: R) -> Self {
        Self { input, offset: 0, content: Vec::new() }
    }

    /// The number of bytes read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// The record is incomplete or damaged. [`EventFault::is_passed`] tells whether another call continues after it.
    pub fn next_event(&mut self) -> Result<Option<ReadEvent>, EventFault> {
        let offset = self.offset;
        let read = |source| EventFault::Read { offset, source };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        self.input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(read)?;
        if head.is_empty() {
            return Ok(None);
        }
        let head: [u8; HEAD_BYTES] = head.try_into().map_err(|_short: Vec<u8>| EventFault::Torn { offset })?;
        let length = length_of(&head).ok_or(EventFault::Length { offset })?;
        self.content.clear();
        // Without preallocation: the length may exceed the end of the file by far.
        self.input.by_ref().take(length).read_to_end(&mut self.content).map_err(read)?;
        let mut checksum = Vec::with_capacity(4);
        self.input.by_ref().take(4).read_to_end(&mut checksum).map_err(read)?;
        let checksum: [u8; 4] = checksum.try_into().map_err(|_short: Vec<u8>| EventFault::Torn { offset })?;
        self.offset += (HEAD_BYTES + checksum.len()) as u64 + length;
        if masked_crc(&self.content) != u32::from_le_bytes(checksum) {
            return Err(EventFault::Content { offset });
        }
        let event = Event::decode(&self.content[..]).map_err(|_malformed| EventFault::Content { offset })?;
        Ok(Some(ReadEvent::of(event)))
    }
}

impl ReadEvent {
    fn of(event: Event) -> Self {
        let Event { wall_time, step, what } = event;
        let mut read = Self { wall_time, step, ..Self::default() };
        let Some(What::Summary(summary)) = what else { return read };
        for value in summary.value {
            let number = match &value.content {
                Some(Content::Simple(number)) => Some(f64::from(*number)),
                Some(Content::Tensor(tensor)) => tensor.scalar(),
                Some(Content::Histogram(_)) | None => None,
            };
            match number {
                Some(number) => read.scalars.push((value.tag, number)),
                None => read.others.push(value.tag),
            }
        }
        read
    }
}

/// The length in a record's header, if its checksum is right.
fn length_of(head: &[u8; HEAD_BYTES]) -> Option<u64> {
    let (length, checksum) = head.split_first_chunk::<8>()?;
    (u32::from_le_bytes(checksum.try_into().ok()?) == masked_crc(length)).then(|| u64::from_le_bytes(*length))
}

#[cfg(test)]
mod tests {
    use super::super::message::{Shape, Summary, SummaryValue, TensorMessage};
    use super::super::record::framed;
    use super::*;

    fn record(step: i64, content: Content) -> Vec<u8> {
        let value = vec![SummaryValue { tag: "a".to_owned(), metadata: None, content: Some(content) }];
        framed(&Event { wall_time: 1.5, step, what: Some(What::Summary(Summary { value })) }.encode_to_vec())
    }

    fn scalars(bytes: &[u8]) -> (Vec<(i64, f64)>, Option<EventFault>) {
        let (mut reader, mut found) = (EventReader::new(bytes), Vec::new());
        loop {
            match reader.next_event() {
                Ok(Some(event)) => found.extend(event.scalars.iter().map(|(_, value)| (event.step, *value))),
                Ok(None) => return (found, None),
                Err(fault) if fault.is_passed() => {}
                Err(fault) => return (found, Some(fault)),
            }
        }
    }

    #[test]
    fn a_number_is_read_wherever_a_writer_keeps_it() {
        let tensor = |tensor| Content::Tensor(tensor);
        let shape = Some(Shape::default());
        let in_bytes = TensorMessage { dtype: 1, content: 2.5_f32.to_le_bytes().to_vec(), ..TensorMessage::default() };
        let in_field = TensorMessage { dtype: 2, shape, doubles: vec![3.5], ..TensorMessage::default() };
        let written = [Content::Simple(1.5), tensor(in_bytes), tensor(in_field), tensor(TensorMessage::of_text("b"))];
        let bytes: Vec<u8> = (0..).zip(written).flat_map(|(step, content)| record(step, content)).collect();
        assert_eq!(scalars(&bytes).0, [(0, 1.5), (1, 2.5), (2, 3.5)]);
    }

    #[test]
    fn a_damaged_record_is_passed_and_a_torn_one_ends_the_file() {
        let records = [1, 2, 3].map(|step| record(step, Content::Simple(1.0)));
        let mut bytes = records.concat();
        bytes[records[0].len() + HEAD_BYTES + 2] ^= 1;
        assert_eq!(scalars(&bytes).0, [(1, 1.0), (3, 1.0)]);
        let (found, fault) = scalars(&bytes[..bytes.len() - 1]);
        assert_eq!(found, [(1, 1.0)]);
        assert!(
            matches!(fault, Some(EventFault::Torn { offset }) if offset == 2 * records[0].len() as u64),
            "{fault:?}"
        );
        bytes[0] ^= 1;
        assert!(matches!(scalars(&bytes).1, Some(EventFault::Length { offset: 0 })));
        assert!(!begins_as_events(&bytes) && begins_as_events(&records[0]) && !begins_as_events(b"abc"));
    }
}
