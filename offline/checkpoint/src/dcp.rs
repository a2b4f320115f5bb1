//! torch's distributed checkpoints: a pickle `.metadata` maps each piece of a tensor to a place in a file; each piece
//! is itself a torch file.

use std::collections::HashMap;
use std::path::{Component, Path};

use trainmon_core::Shape;
use trainmon_tensor_files::{FileBytes, Item, Kind, Pickled, TensorFile, read_pickle};

use super::contents::Checkpoint;
use super::error::{CheckpointError, PieceError};
use super::layout::Layout;
use super::recipe::{Piece, PieceSource, Recipe};

const METADATA: &str = ".metadata";
/// The extension of files with pieces.
pub(super) const ENDING: &str = ".distcp";

pub(super) fn is_one(directory: &Path) -> bool {
    directory.join(METADATA).is_file()
}

/// Opens the checkpoint in `directory`; `path` is the path that the user passed.
pub(super) fn open(path: &Path, directory: &Path) -> Result<Checkpoint, CheckpointError> {
    let metadata_path = directory.join(METADATA);
    let metadata = read_pickle(&metadata_path)?;
    let mut reader = Reader { directory, metadata_path: &metadata_path, files: HashMap::new() };
    let places = reader.places(&metadata)?;
    let mut checkpoint = Checkpoint::new(path, Layout::Distributed);
    checkpoint.notes.extend(metadata.harmful_note(&metadata_path));
    let tensors = metadata.root().attribute("state_dict_metadata");
    let tensors = tensors.ok_or_else(|| reader.wrong("a description of the tensors", "none"))?;
    let mut others = 0;
    for (name, facts) in tensors.pairs() {
        let name = name.as_text().ok_or_else(|| reader.wrong("names of tensors", "another key"))?;
        let Some(chunks) = facts.attribute("chunks") else {
            others += 1;
            continue;
        };
        let shape =
            facts.attribute("size").and_then(sizes).ok_or_else(|| reader.wrong("the shape of a tensor", name))?;
        let mut pieces = Vec::new();
        for chunk in chunks.items() {
            pieces.push(reader.piece(name, chunk, &places)?);
        }
        let shape = Shape::new(&shape).map_err(|error| checkpoint.piece_error(name, error.into()))?;
        match first_dtype(&pieces)? {
            Some(dtype) => {
                checkpoint.tensors.insert(name.to_owned(), Recipe { dtype, shape, cut_as: shape, pieces });
            }
            None => drop(checkpoint.unreadable.insert(name.to_owned(), "the tensor has no pieces".to_owned())),
        }
    }
    if others > 0 {
        checkpoint.notes.push(format!("{others} entries are not tensors and are not compared"));
    }
    Ok(checkpoint)
}

/// The place of a piece: file, first byte, length.
type Place<'a> = (&'a str, u64, u64);
type Places<'a> = HashMap<(&'a str, Vec<i64>), Place<'a>>;

struct Reader<'a> {
    directory: &'a Path,
    metadata_path: &'a Path,
    files: HashMap<String, FileBytes>,
}

impl Reader<'_> {
    fn places<'m>(&self, metadata: &'m Pickled) -> Result<Places<'m>, CheckpointError> {
        let data = metadata.root().attribute("storage_data");
        let data = data.ok_or_else(|| self.wrong("the locations of the tensors", "none"))?;
        let mut places = HashMap::new();
        for (key, place) in data.pairs() {
            let Some(name) = key.attribute("fqn").and_then(Item::as_text) else {
                return Err(self.wrong("the name of a piece", "none"));
            };
            let transforms = place.attribute("transform_descriptors").map(|list| list.items().len());
            if transforms.is_some_and(|count| count > 0) {
                return Err(self.wrong("uncompressed pieces as `torch.save` writes them", "transformed pieces"));
            }
            // An entry that is not a tensor has no offset.
            let Some(at) = key.attribute("offset").and_then(sizes) else { continue };
            let number = |field: &str| place.attribute(field)?.as_int().and_then(|number| u64::try_from(number).ok());
            let file = place.attribute("relative_path").and_then(Item::as_text);
            let (Some(file), Some(offset), Some(length)) = (file, number("offset"), number("length")) else {
                return Err(self.wrong("the location of a piece", name));
            };
            places.insert((name, at), (file, offset, length));
        }
        Ok(places)
    }

    fn piece(&mut self, name: &str, chunk: Item<'_>, places: &Places<'_>) -> Result<Piece, CheckpointError> {
        let field = |field: &str| chunk.attribute(field).and_then(sizes);
        let (Some(at), Some(shape)) = (field("offsets"), field("sizes")) else {
            return Err(self.wrong("the offsets and sizes of a piece", name));
        };
        // The map is searched by owned keys, so the offsets are moved in and out of the key.
        let key = (name, at);
        let Some(&(file, offset, length)) = places.get(&key) else {
            return Err(self.wrong("the location of every piece", &format!("none for `{name}` at {:?}", key.1)));
        };
        let path = self.directory.join(file);
        if !Path::new(file).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(self.wrong("files in the directory of the metadata", file));
        }
        if !self.files.contains_key(file) {
            self.files.insert(file.to_owned(), FileBytes::open(&path)?);
        }
        let failed = |source: PieceError| CheckpointError::Piece { path: path.clone(), name: name.to_owned(), source };
        let bytes = self.files[file].part("a piece", offset, length).map_err(|error| failed(error.into()))?;
        let shape = Shape::new(&shape).map_err(|error| failed(error.into()))?;
        Ok(Piece { source: PieceSource::Within { path: path.clone(), bytes }, elements: None, shape, at: key.1 })
    }

    fn wrong(&self, expected: &'static str, found: &str) -> CheckpointError {
        CheckpointError::Structure { path: self.metadata_path.to_path_buf(), expected, found: found.to_owned() }
    }
}

/// The dtype of the first piece: the metadata contain it too, but its form changes with torch's versions.
fn first_dtype(pieces: &[Piece]) -> Result<Option<trainmon_core::Dtype>, CheckpointError> {
    let Some(Piece { source: PieceSource::Within { path, bytes }, .. }) = pieces.first() else { return Ok(None) };
    let file = TensorFile::of_bytes(path, bytes.clone())?;
    Ok(file.entries().first().map(|entry| entry.dtype))
}

/// `torch.Size((2, 3))`, or a tuple.
fn sizes(item: Item<'_>) -> Option<Vec<i64>> {
    let tuple = match item.kind() {
        Kind::Object => item.args()?.items().next()?,
        _ => item,
    };
    matches!(tuple.kind(), Kind::Tuple | Kind::List).then(|| tuple.items().map(Item::as_int).collect())?
}
