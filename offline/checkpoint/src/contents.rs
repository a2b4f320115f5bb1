//! A checkpoint of any layout: tensors by name, each assembled from pieces when it is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trainmon_tensor_files::{StoredTensor, TensorFile};

use super::assemble;
use super::error::{CheckpointError, PieceError};
use super::layout::Layout;
use super::recipe::{Piece, PieceSource, Recipe};

/// An open checkpoint. Elements are read when they are compared.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) path: PathBuf,
    pub(super) layout: Layout,
    pub(super) files: Vec<TensorFile>,
    pub(super) tensors: BTreeMap<String, Recipe>,
    /// Tensors that cannot be read, with the reason.
    pub(super) unreadable: BTreeMap<String, String>,
    /// Numbers and texts beside the tensors, by name, in Python syntax.
    pub(super) values: BTreeMap<String, String>,
    /// Notes on how the checkpoint was read.
    pub(super) notes: Vec<String>,
}

impl Checkpoint {
    pub(super) fn new(path: &Path, layout: Layout) -> Self {
        Self {
            path: path.to_path_buf(),
            layout,
            files: Vec::new(),
            tensors: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            values: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Opens a file of tensors, keeps it open and returns its index.
    pub(super) fn open(&mut self, path: &Path) -> Result<usize, CheckpointError> {
        let file = trainmon_tensor_files::open(path)?;
        self.notes.extend(file.harmful_note());
        self.files.push(file);
        Ok(self.files.len() - 1)
    }

    /// An entry of a file as the only piece of a tensor.
    pub(super) fn whole(&self, file: usize, index: usize) -> Recipe {
        let entry = &self.files[file].entries()[index];
        let piece = Piece {
            source: PieceSource::Entry { file, index },
            elements: None,
            shape: entry.shape,
            at: vec![0; entry.shape.dims().len()],
        };
        Recipe { dtype: entry.dtype, shape: entry.shape, cut_as: entry.shape, pieces: vec![piece] }
    }

    /// Adds every tensor of a file under the name that `rename` returns; `None` omits the tensor.
    pub(super) fn take_all(&mut self, file: usize, rename: &dyn Fn(&str) -> Option<String>) {
        for index in 0..self.files[file].entries().len() {
            if let Some(name) = rename(&self.files[file].entries()[index].name) {
                let recipe = self.whole(file, index);
                self.tensors.insert(name, recipe);
            }
        }
        for one in self.files[file].unreadable() {
            if let Some(name) = rename(&one.name) {
                self.unreadable.insert(name, one.error.to_string());
            }
        }
    }

    /// Reads and assembles a tensor.
    pub(super) fn read(&self, name: &str) -> Result<StoredTensor, CheckpointError> {
        let recipe = &self.tensors[name];
        let failed = |source| CheckpointError::Piece { path: self.path.clone(), name: name.to_owned(), source };
        self.check_size(recipe).map_err(failed)?;
        let mut parts = Vec::with_capacity(recipe.pieces.len());
        for piece in &recipe.pieces {
            let tensor = match &piece.source {
                PieceSource::Entry { file, index } => self.files[*file].read_at(*index)?,
                PieceSource::Within { path, bytes } => TensorFile::of_bytes(path, bytes.clone())?.only()?,
            };
            parts.push(tensor);
        }
        assemble::assemble(recipe, &parts).map_err(failed)
    }

    /// Checks that a tensor of several pieces is not larger than the files that contain them. Otherwise pieces that
    /// share the same bytes could exhaust the memory.
    fn check_size(&self, recipe: &Recipe) -> Result<(), PieceError> {
        if recipe.pieces.len() < 2 {
            return Ok(());
        }
        let mut files: BTreeMap<&Path, u64> = BTreeMap::new();
        for piece in &recipe.pieces {
            let (path, bytes) = match &piece.source {
                PieceSource::Entry { file, .. } => (self.files[*file].path(), self.files[*file].bytes()),
                PieceSource::Within { path, bytes } => (path.as_path(), bytes),
            };
            files.insert(path, bytes.file_length());
        }
        let stored = files.values().fold(0u64, |sum, &length| sum.saturating_add(length));
        let needed = (recipe.shape.elements() as u64).saturating_mul(recipe.dtype.size() as u64);
        if needed > stored { Err(PieceError::TooLarge { needed, stored }) } else { Ok(()) }
    }

    /// Adds the tensor's name to an error of its pieces.
    pub(super) fn piece_error(&self, name: &str, source: PieceError) -> CheckpointError {
        CheckpointError::Piece { path: self.path.clone(), name: name.to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use trainmon_core::{Dtype, Shape};
    use trainmon_tensor_files::write::write_pt_of_one;

    use super::*;

    #[test]
    fn pieces_that_are_all_the_same_bytes_take_no_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.pt");
        let shape = Shape::new(&[256]).unwrap();
        let one = StoredTensor::new(Dtype::U8, shape, vec![0; 256].into()).unwrap();
        write_pt_of_one(&one, &mut std::fs::File::create(&path).unwrap()).unwrap();
        let mut checkpoint = Checkpoint::new(&path, Layout::Distributed);
        let file = checkpoint.open(&path).unwrap();
        let piece = |at: i64| Piece {
            source: PieceSource::Entry { file, index: 0 },
            elements: None,
            shape,
            at: vec![at * 256],
        };
        let whole = Shape::new(&[256 * 1000]).unwrap();
        let pieces = (0..1000).map(piece).collect();
        checkpoint.tensors.insert("x".to_owned(), Recipe { dtype: Dtype::U8, shape: whole, cut_as: whole, pieces });
        let error = checkpoint.read("x").unwrap_err();
        assert!(matches!(error, CheckpointError::Piece { source: PieceError::TooLarge { needed: 256_000, .. }, .. }));
    }
}
