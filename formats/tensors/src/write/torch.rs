//! Writes torch's `.pt` for `torch.load`, also with `weights_only=True`.

use std::io::Write;

use super::WriteError;
use super::archive::Archive;
use crate::dtype_names::storage_class;
use crate::{StoredTensor, TensorRef};

/// Writes one tensor, as `torch.save(tensor, file)` does.
///
/// # Errors
/// The writer fails.
pub fn write_pt_of_one(tensor: &StoredTensor, out: &mut impl Write) -> Result<(), WriteError> {
    write_pt_of_crc(tensor.into(), None, out)
}

/// As [`write_pt_of_one`], for a tensor whose CRC-32 may be known: if so, the bytes are not read to compute it.
///
/// # Errors
/// The writer fails.
pub fn write_pt_of_crc(tensor: TensorRef<'_>, crc: Option<u32>, out: &mut impl Write) -> Result<(), WriteError> {
    let mut pickle = Pickle::new();
    pickle.tensor(tensor, 0);
    finish(pickle, &[(tensor, crc)], out)
}

/// Writes a dict of named tensors, as `torch.save({name: tensor, …}, file)` does.
///
/// # Errors
/// The writer fails.
pub fn write_pt(tensors: &[(String, StoredTensor)], out: &mut impl Write) -> Result<(), WriteError> {
    let mut pickle = Pickle::new();
    pickle.bytes.extend_from_slice(b"}(");
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        pickle.text(name);
        pickle.tensor(tensor.into(), index);
    }
    pickle.bytes.push(b'u');
    let tensors: Vec<_> = tensors.iter().map(|(_, tensor)| (tensor.into(), None)).collect();
    finish(pickle, &tensors, out)
}

/// Writes the archive of a pickle and its tensors, each with its CRC-32 if known.
fn finish(
    mut pickle: Pickle,
    tensors: &[(TensorRef<'_>, Option<u32>)],
    out: &mut impl Write,
) -> Result<(), WriteError> {
    pickle.bytes.push(b'.');
    let mut archive = Archive::new(out);
    archive.entry("archive/data.pkl", &pickle.bytes)?;
    archive.entry("archive/byteorder", b"little")?;
    for (index, (tensor, crc)) in tensors.iter().enumerate() {
        let crc = crc.unwrap_or_else(|| crc32fast::hash(tensor.bytes()));
        archive.entry_of_crc(&format!("archive/data/{index}"), tensor.bytes(), crc)?;
    }
    archive.entry("archive/version", b"3\n")?;
    archive.finish()?;
    Ok(())
}

/// A pickle of protocol 2 under construction.
struct Pickle {
    bytes: Vec<u8>,
}

impl Pickle {
    fn new() -> Self {
        Self { bytes: b"\x80\x02".to_vec() }
    }

    /// Writes a call of torch's own function for a tensor. Its storage is named by its number.
    fn tensor(&mut self, tensor: TensorRef<'_>, index: usize) {
        let shape = tensor.shape();
        let storage = storage_class(tensor.dtype());
        let version = if storage.is_some() { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" };
        self.global("torch._utils", version);
        self.bytes.extend_from_slice(b"((");
        self.text("storage");
        match storage {
            Some(class) => self.global("torch", class),
            None => self.global("torch.storage", "UntypedStorage"),
        }
        self.text(&index.to_string());
        self.text("cpu");
        // The size of a byte storage is counted in bytes.
        self.int(if storage.is_some() { tensor.elements() } else { tensor.bytes().len() } as i64);
        self.bytes.extend_from_slice(b"tQ");
        self.int(0);
        self.ints(shape.dims());
        self.ints(&shape.contiguous_strides()[..shape.dims().len()]);
        self.bytes.push(0x89);
        self.global("collections", "OrderedDict");
        self.bytes.extend_from_slice(b")R");
        if storage.is_none() {
            self.global("torch", &tensor.dtype().torch_name()["torch.".len()..]);
        }
        self.bytes.extend_from_slice(b"tR");
    }

    fn global(&mut self, module: &str, name: &str) {
        self.bytes.extend_from_slice(format!("c{module}\n{name}\n").as_bytes());
    }

    fn text(&mut self, text: &str) {
        self.bytes.push(b'X');
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn ints(&mut self, numbers: &[i64]) {
        self.bytes.push(b'(');
        for &number in numbers {
            self.int(number);
        }
        self.bytes.push(b't');
    }

    fn int(&mut self, number: i64) {
        if let Ok(short) = i32::try_from(number) {
            self.bytes.push(b'J');
            self.bytes.extend_from_slice(&short.to_le_bytes());
        } else {
            self.bytes.extend_from_slice(&[0x8a, 8]);
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
}
