//! Copies of tensors that are not written yet, and the further names of their files.
//!
//! Most tensors occur several times in a step: one operator's output is the next one's input, and at `mix` modules and their
//! operators have the same tensors. While the first copy of a tensor is queued or being written, the same tensor is found by
//! its address and compared with that copy. If they are equal, the file gets another name. The tensor is not copied or
//! measured again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use trainmon_capture_files::Hole;
use trainmon_core::{Dtype, Shape, TensorStats};
use trainmon_tensor_files::Buffer;

use crate::file_writer::Content;

/// An additional name of a copy's file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FurtherName {
    pub(crate) hole: Hole,
    pub(crate) name: String,
}

/// The bytes of a tensor as they were when it was captured.
pub(crate) struct TensorCopy {
    pub(crate) content: Content,
    pub(crate) bytes: Buffer,
    /// The tensor's statistics.
    pub(crate) measured: Option<TensorStats>,
    /// The tensor's address; `None` if it was not contiguous.
    address: Option<usize>,
    /// `None` once the file has been given its names.
    names: Mutex<Option<Vec<FurtherName>>>,
}

impl TensorCopy {
    pub(crate) fn new(content: Content, bytes: Buffer, address: Option<usize>, measured: Option<TensorStats>) -> Self {
        Self { content, bytes, measured, address, names: Mutex::new(Some(Vec::new())) }
    }

    /// Whether a tensor equals this copy, byte for byte. Cost: reads both up to the first difference.
    pub(crate) fn is_same(&self, dtype: Dtype, shape: Shape, bytes: &[u8]) -> bool {
        (self.content.dtype, self.content.shape) == (dtype, shape) && *self.bytes == *bytes
    }

    /// Adds a name for the file. Returns `false` if the file already has its names.
    pub(crate) fn add_name(&self, hole: Hole, name: &str) -> bool {
        let mut names = self.names.lock();
        let Some(names) = &mut *names else { return false };
        names.push(FurtherName { hole, name: name.to_owned() });
        true
    }

    /// Takes the additional names; no more can be added afterwards.
    pub(crate) fn take_names(&self) -> Vec<FurtherName> {
        self.names.lock().take().unwrap_or_default()
    }
}

/// The copies that are queued or being written, by the address of their tensors.
#[derive(Default)]
pub(crate) struct Copies {
    by_address: HashMap<usize, Arc<TensorCopy>>,
}

impl Copies {
    /// Registers a copy under its tensor's address, in place of an earlier one.
    pub(crate) fn insert(&mut self, copy: &Arc<TensorCopy>) {
        if let Some(address) = copy.address {
            self.by_address.insert(address, Arc::clone(copy));
        }
    }

    /// Returns the last copy of a tensor at the address of these bytes.
    pub(crate) fn of(&self, bytes: &[u8]) -> Option<Arc<TensorCopy>> {
        self.by_address.get(&address_of(bytes)).cloned()
    }

    /// Removes a copy whose file is written.
    pub(crate) fn remove(&mut self, copy: &Arc<TensorCopy>) {
        let Some(address) = copy.address else { return };
        if self.by_address.get(&address).is_some_and(|known| Arc::ptr_eq(known, copy)) {
            self.by_address.remove(&address);
        }
    }
}

/// Returns the address of a tensor's first byte.
pub(crate) fn address_of(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_of(bytes: &[u8], address: Option<usize>) -> Arc<TensorCopy> {
        let mut buffer = Buffer::zeros(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        let shape = Shape::new(&[bytes.len() as i64]).unwrap();
        Arc::new(TensorCopy::new(Content { crc: 0, dtype: Dtype::U8, shape }, buffer, address, None))
    }

    #[test]
    fn a_tensor_is_its_copy_while_nothing_of_it_changed() {
        let copy = copy_of(&[1, 2], None);
        let shape = Shape::new(&[2]).unwrap();
        assert!(copy.is_same(Dtype::U8, shape, &[1, 2]));
        assert!(!copy.is_same(Dtype::U8, shape, &[1, 3]), "an element");
        assert!(!copy.is_same(Dtype::I8, shape, &[1, 2]), "its dtype");
        assert!(!copy.is_same(Dtype::U8, Shape::new(&[2, 1]).unwrap(), &[1, 2]), "its shape");
    }

    #[test]
    fn names_are_taken_once_and_none_comes_later() {
        let copy = copy_of(&[1], None);
        assert!(copy.add_name(Hole(1), "a.pt"));
        assert_eq!(copy.take_names(), [FurtherName { hole: Hole(1), name: "a.pt".to_owned() }]);
        assert!(!copy.add_name(Hole(2), "b.pt"));
        assert!(copy.take_names().is_empty());
    }

    #[test]
    fn the_last_copy_of_an_address_is_found_until_its_own_file_is_made() {
        let tensor = [0_u8];
        let [first, second] = [0, 1].map(|value| copy_of(&[value], Some(address_of(&tensor))));
        let mut copies = Copies::default();
        assert!(copies.of(&tensor).is_none());
        copies.insert(&first);
        copies.insert(&second);
        copies.remove(&first);
        assert!(copies.of(&tensor).is_some_and(|found| Arc::ptr_eq(&found, &second)), "another file was made");
        copies.remove(&second);
        assert!(copies.of(&tensor).is_none());
        copies.insert(&copy_of(&[0], None));
        assert!(copies.by_address.is_empty(), "it lay in no one place");
    }
}
