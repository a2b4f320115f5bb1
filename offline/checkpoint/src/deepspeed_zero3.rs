//! ZeRO-3's partitions: every parameter in equal parts on all data-parallel ranks, in fp32.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trainmon_core::Shape;
use trainmon_tensor_files::{Item, Kind};

use super::contents::Checkpoint;
use super::error::{CheckpointError, PieceError};
use super::recipe::{Piece, PieceSource, Recipe};

/// ZeRO-3 partitions: every parameter is cut into as many equal rows of elements as there are ranks, the last one
/// padded. Each rank's rows are concatenated in its flat tensors.
pub(super) struct Partitioned<'a> {
    checkpoint: &'a mut Checkpoint,
    directory: &'a Path,
    /// The data-parallel ranks' files with the content outside the flat tensors.
    models: Vec<usize>,
    /// The flat tensors of each rank: file, index of the entry, number of elements.
    flat: Vec<Vec<(usize, usize, u64)>>,
}

impl<'a> Partitioned<'a> {
    pub(super) fn new(
        checkpoint: &'a mut Checkpoint,
        directory: &'a Path,
        models: &[(Option<u64>, PathBuf)],
        partitions: Option<&BTreeMap<u64, PathBuf>>,
    ) -> Result<Self, CheckpointError> {
        let wrong = |expected, found| CheckpointError::Structure { path: directory.to_path_buf(), expected, found };
        let partitions = partitions.ok_or_else(|| wrong("files of the optimizer's partitions", "none".to_owned()))?;
        let world = partitions.len() as u64;
        if partitions.keys().next_back().is_none_or(|&last| last + 1 != world) || models.len() as u64 != world {
            let found = format!("{} model files, {world} optimizer files", models.len());
            return Err(wrong("one file per rank", found));
        }
        let mut models = models.to_vec();
        models.sort();
        let models = models.iter().map(|(_, path)| checkpoint.open(path)).collect::<Result<_, _>>()?;
        let mut flat = Vec::new();
        for path in partitions.values() {
            let file = checkpoint.open(path)?;
            let entries = checkpoint.files[file].entries().iter().enumerate();
            let of_rank: Vec<(usize, usize, u64)> = entries
                .filter(|(_, entry)| entry.name.starts_with("optimizer_state_dict.fp32_flat_groups."))
                .map(|(index, entry)| (file, index, entry.shape.elements() as u64))
                .collect();
            if of_rank.is_empty() {
                return Err(wrong("`fp32_flat_groups` in the optimizer's files", path.display().to_string()));
            }
            flat.push(of_rank);
        }
        Ok(Self { checkpoint, directory, models, flat })
    }

    pub(super) fn take_all(mut self, prefix: &str) -> Result<(), CheckpointError> {
        self.take_whole_ones(prefix);
        let shapes = self.shapes("param_shapes")?;
        let mut offset = 0;
        for (name, dims) in shapes {
            let failed = |checkpoint: &Checkpoint, source| Err(checkpoint.piece_error(&name, source));
            let shape = match Shape::new(&dims) {
                Ok(shape) => shape,
                Err(error) => return failed(self.checkpoint, PieceError::from(error)),
            };
            let elements = shape.elements() as u64;
            let fragment = elements.div_ceil(self.flat.len() as u64);
            let pieces = match self.pieces(offset, fragment, elements) {
                Ok(pieces) => pieces,
                Err(source) => return failed(self.checkpoint, source),
            };
            offset = offset.saturating_add(fragment);
            let Ok(cut_as) = Shape::new(&[elements as i64]) else { continue };
            let (file, index, _) = self.flat[0][0];
            let dtype = self.checkpoint.files[file].entries()[index].dtype;
            self.checkpoint.tensors.insert(format!("{prefix}{name}"), Recipe { dtype, shape, cut_as, pieces });
        }
        self.take_frozen(prefix)?;
        self.take_aliases(prefix);
        Ok(())
    }

    /// The rows of a parameter: its elements from `offset` on in each rank's flat tensors.
    fn pieces(&self, offset: u64, fragment: u64, elements: u64) -> Result<Vec<Piece>, PieceError> {
        let mut pieces = Vec::new();
        let mut done = 0;
        for rank in &self.flat {
            let mut at = offset;
            let mut left = fragment.min(elements - done);
            for &(file, index, length) in rank {
                if at >= length {
                    at -= length;
                    continue;
                }
                let count = left.min(length - at);
                if count == 0 {
                    break;
                }
                let shape = Shape::new(&[count as i64])?;
                let source = PieceSource::Entry { file, index };
                pieces.push(Piece { source, elements: Some((at, count)), shape, at: vec![done as i64] });
                (done, left, at) = (done + count, left - count, 0);
            }
        }
        if done == elements { Ok(pieces) } else { Err(PieceError::Elements { found: done, expected: elements }) }
    }

    /// Adds buffers and other tensors that are complete in the first rank's file, where a parameter's entry is empty.
    fn take_whole_ones(&mut self, prefix: &str) {
        let file = self.models[0];
        for index in 0..self.checkpoint.files[file].entries().len() {
            let entry = &self.checkpoint.files[file].entries()[index];
            if let Some(name) = entry.name.strip_prefix("module.").filter(|_| entry.shape.elements() > 0) {
                let name = format!("{prefix}{name}");
                let recipe = self.checkpoint.whole(file, index);
                self.checkpoint.tensors.insert(name, recipe);
            }
        }
    }

    /// Adds frozen parameters, which have their own fragments in the ranks' files.
    fn take_frozen(&mut self, prefix: &str) -> Result<(), CheckpointError> {
        for (name, dims) in self.shapes("frozen_param_shapes")? {
            let Ok(shape) = Shape::new(&dims) else { continue };
            let elements = shape.elements() as u64;
            let fragment = elements.div_ceil(self.models.len() as u64);
            let (mut pieces, mut done, mut dtype) = (Vec::new(), 0, None);
            for &file in &self.models {
                let wanted = format!("frozen_param_fragments.{name}");
                let entries = self.checkpoint.files[file].entries();
                let Some(index) = entries.iter().position(|entry| entry.name == wanted) else { break };
                let count = fragment.min(elements - done);
                let Ok(piece) = Shape::new(&[count as i64]) else { break };
                dtype = Some(entries[index].dtype);
                let source = PieceSource::Entry { file, index };
                pieces.push(Piece { source, elements: Some((0, count)), shape: piece, at: vec![done as i64] });
                done += count;
            }
            let (Some(dtype), Ok(cut_as)) = (dtype, Shape::new(&[elements as i64])) else { continue };
            self.checkpoint.tensors.insert(format!("{prefix}{name}"), Recipe { dtype, shape, cut_as, pieces });
        }
        Ok(())
    }

    /// Adds tied parameters, which are stored once: pairs of a name and the name under which the tensor is stored.
    fn take_aliases(&mut self, prefix: &str) {
        let Some(shared) = self.checkpoint.files[self.models[0]].root().and_then(|root| root.get("shared_params"))
        else {
            return;
        };
        let listed = shared.items().filter_map(|pair| {
            let mut parts = pair.items();
            Some((parts.next()?.as_text()?, parts.next()?.as_text()?))
        });
        let mapped = shared.pairs().filter_map(|(name, kept)| Some((name.as_text()?, kept.as_text()?)));
        let aliases: Vec<(String, String)> =
            listed.chain(mapped).map(|(name, kept)| (format!("{prefix}{name}"), format!("{prefix}{kept}"))).collect();
        for (name, kept) in aliases {
            if let Some(recipe) = self.checkpoint.tensors.get(&kept).cloned() {
                self.checkpoint.tensors.insert(name, recipe);
            }
        }
    }

    /// Names and sizes in the first rank's file, in order: one dict, or a list with one dict per parameter group.
    fn shapes(&self, key: &str) -> Result<Vec<(String, Vec<i64>)>, CheckpointError> {
        let Some(value) = self.checkpoint.files[self.models[0]].root().and_then(|root| root.get(key)) else {
            return Ok(Vec::new());
        };
        let mut shapes = Vec::new();
        for group in value.items().chain([value]) {
            for (name, size) in group.pairs() {
                let size = match size.kind() {
                    Kind::Object => size.args().and_then(|args| args.items().next()),
                    _ => Some(size),
                };
                let dims = size.and_then(|size| size.items().map(Item::as_int).collect::<Option<Vec<i64>>>());
                let (Some(name), Some(dims)) = (name.as_text(), dims) else {
                    let (expected, found) = ("names and sizes of parameters", format!("another structure in `{key}`"));
                    return Err(CheckpointError::Structure { path: self.directory.to_path_buf(), expected, found });
                };
                shapes.push((name.to_owned(), dims));
            }
        }
        Ok(shapes)
    }
}
