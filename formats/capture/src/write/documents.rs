//! Creates `dump.json` and the other documents from a record file.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use jiter::JsonValue;
use serde::Serialize;

use super::super::keys::{MICRO_STEPS, document, file};
use super::directory::RankDirectory;
use super::error::WriteError;
use super::index::{Index, Piece};
use super::reading::Reading;
use super::recorder::EXTRA_INFO;
use super::text::{HOLE_LENGTH, JsonText, MEMBER_HOLE, VALUE_HOLE, hole_at};

/// A root has steps, a step has ranks.
const ROOT_TO_RANK: u32 = 2;
/// The size of the write buffer.
const BUFFER: usize = 1 << 18;

/// The number of bytes searched for a hole at a time.
const BLOCK: usize = 64;

/// The largest nesting of holes: the filling of a hole may contain holes, such as the file of a saved value's gradient.
const DEEPEST_FILL: u32 = 4;

/// The created documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// `dump.json` or `debug.json`.
    pub document: PathBuf,
    /// The number of entries in it.
    pub entries: usize,
    /// The number of bytes at the record file's end that are not a complete frame.
    pub torn: u64,
    /// Data that was still to be written when the record file ended, by entry, in the document's order.
    pub missing: Vec<Missing>,
}

/// The missing data of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The entry's name.
    pub entry: String,
    /// Tensors whose file was not written.
    pub tensors: usize,
    /// Statistics and checksums that were not computed; they are `null`.
    pub numbers: usize,
}

/// Creates a directory's documents from its record file, each appearing complete. The record file stays.
///
/// Cost: time linear in the record file, which is read twice; memory for the names of its entries, not for their
/// values.
///
/// # Errors
/// There is no record file, or an I/O error.
pub fn documents_of(directory: &RankDirectory) -> Result<Made, WriteError> {
    let path = directory.path();
    let records = directory.read(file::RECORDS)?;
    let read = |source| WriteError::Read { path: path.join(file::RECORDS), source };
    let Some(index) = Index::of(&records).map_err(read)? else {
        return Err(WriteError::NoRecords { path: path.join(file::RECORDS) });
    };
    let torn = index.torn;
    let lacks = Cell::new((0, 0));
    let source = RecordSource { records, index, path: path.clone(), directory: directory.tensors_path(), lacks };
    let header = source.header();
    let name = if header.level == "debug" { file::DEBUG } else { file::DUMP };
    if header.extra_info && header.level != "debug" {
        directory.replace(file::STACK, |to| source.write(to, file::STACK, RecordSource::stacks))?;
        directory.replace(file::CONSTRUCT, |to| source.write(to, file::CONSTRUCT, RecordSource::construct))?;
    }
    // Last: if it exists, the others exist.
    let (mut entries, mut missing) = (0, Vec::new());
    directory.replace(name, |to| {
        source.write(to, name, |source, to| {
            (entries, missing) = source.document(&header, to)?;
            Ok(())
        })
    })?;
    Ok(Made { document: path.join(name), entries, torn, missing })
}

/// As [`documents_of`], then removes the record file and unfinished tensor files.
///
/// # Errors
/// As there, and [`WriteError::InUse`] if a process still writes it.
pub fn recover(path: &Path) -> Result<Made, WriteError> {
    let directory = RankDirectory::open(path)?;
    directory.refuse_if_in_use()?;
    let made = documents_of(&directory)?;
    directory.remove_unfinished_tensors()?;
    directory.remove(file::RECORDS)?;
    Ok(made)
}

/// The rank directories with a record file: `path` itself, those of a step, or those of all steps. Sorted by name.
///
/// # Errors
/// A directory cannot be read.
pub fn left_over_records(path: &Path) -> Result<Vec<PathBuf>, WriteError> {
    let mut found = Vec::new();
    look_for_records(path, ROOT_TO_RANK, &mut found)?;
    found.sort();
    Ok(found)
}

fn look_for_records(path: &Path, depth: u32, found: &mut Vec<PathBuf>) -> Result<(), WriteError> {
    let failed = |source| WriteError::Read { path: path.to_path_buf(), source };
    if path.join(file::RECORDS).is_file() {
        found.push(path.to_path_buf());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Links are not followed, as when a capture is written.
        if entry.file_type().map_err(failed)?.is_dir() && entry.file_name() != file::TENSORS {
            look_for_records(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}

struct Heading {
    task: String,
    level: String,
    framework: String,
    extra_info: bool,
}

/// Why a document cannot be created: a read error or a write error.
enum Fault {
    Read(std::io::Error),
    Write(std::io::Error),
}

struct RecordSource {
    records: File,
    index: Index,
    path: PathBuf,
    /// The directory of the tensor files.
    directory: Option<PathBuf>,
    /// The number of tensors and numbers that the current entry lacks.
    lacks: Cell<(usize, usize)>,
}

impl RecordSource {
    fn header(&self) -> Heading {
        let text = |fields: &[(std::borrow::Cow<'_, str>, JsonValue<'_>)], key: &str| {
            let found = fields.iter().find(|(name, _)| name == key).map(|(_, value)| value);
            if let Some(JsonValue::Str(text)) = found { text.to_string() } else { String::new() }
        };
        match JsonValue::parse(&self.index.header, false) {
            Ok(JsonValue::Object(fields)) => Heading {
                task: text(&fields, document::TASK),
                level: text(&fields, document::LEVEL),
                framework: text(&fields, document::FRAMEWORK),
                extra_info: !fields.iter().any(|(key, value)| key == EXTRA_INFO && *value == JsonValue::Bool(false)),
            },
            _ => Heading {
                task: "statistics".to_owned(),
                level: String::new(),
                framework: "pytorch".to_owned(),
                extra_info: true,
            },
        }
    }

    fn write(
        &self,
        to: &mut File,
        name: &str,
        write: impl FnOnce(&Self, &mut BufWriter<&mut File>) -> Result<(), Fault>,
    ) -> Result<(), WriteError> {
        let mut to = BufWriter::with_capacity(BUFFER, to);
        let written = write(self, &mut to).and_then(|()| to.flush().map_err(Fault::Write));
        // Unwritten data must not be written again when the buffer is dropped.
        let (_file, _rest) = to.into_parts();
        written.map_err(|fault| match fault {
            Fault::Read(source) => WriteError::Read { path: self.path.join(file::RECORDS), source },
            Fault::Write(source) => WriteError::Write { path: self.path.join(name), source },
        })
    }

    fn document(&self, header: &Heading, to: &mut impl Write) -> Result<(usize, Vec<Missing>), Fault> {
        let mut head = JsonText::new();
        head.begin_object();
        for (key, value) in
            [(document::TASK, &header.task), (document::LEVEL, &header.level), (document::FRAMEWORK, &header.framework)]
        {
            head.key(key);
            head.text(value);
        }
        head.key(document::DIRECTORY);
        match self.directory.as_deref().map(Path::to_string_lossy) {
            Some(path) => head.text(&path),
            None => head.null(),
        }
        head.key(document::DATA);
        put(to, head.as_bytes())?;
        put(to, b"{")?;
        let (mut count, mut missing) = (0, Vec::new());
        let (mut buffer, mut text) = (Reading::default(), JsonText::new());
        let described = self.index.in_order.iter().map(|&number| &self.index.entries[number as usize]);
        for entry in described.filter(|entry| !entry.parts.is_empty()) {
            put(to, if count == 0 { b"\n" } else { b",\n" })?;
            count += 1;
            put_key(to, &entry.name, &mut text)?;
            match entry.parts[..] {
                [(key, piece)] if self.index.keys[key as usize].is_empty() => self.value(piece, &mut buffer, to)?,
                _ => self.parts(&entry.parts, &mut buffer, &mut text, to)?,
            }
            let (tensors, numbers) = self.lacks.take();
            if tensors + numbers > 0 {
                missing.push(Missing { entry: entry.name.to_string(), tensors, numbers });
            }
        }
        put(to, b"\n}}\n")?;
        Ok((count, missing))
    }

    fn parts(
        &self,
        parts: &[(u32, Piece)],
        buffer: &mut Reading,
        text: &mut JsonText,
        to: &mut impl Write,
    ) -> Result<(), Fault> {
        for (place, &(key, piece)) in parts.iter().enumerate() {
            put(to, if place == 0 { b"{" } else { b"," })?;
            put_key(to, &self.index.keys[key as usize], text)?;
            self.value(piece, buffer, to)?;
        }
        put(to, b"}")
    }

    /// Writes a part's JSON with its holes filled, including holes in the fillings.
    fn value(&self, piece: Piece, buffer: &mut Reading, to: &mut impl Write) -> Result<(), Fault> {
        let json = buffer.piece(&self.records, piece).map_err(Fault::Read)?;
        let before = self.lacks.get();
        self.filled(json, DEEPEST_FILL, to)?;
        if json.len() == HOLE_LENGTH && hole_at(json).is_some_and(|hole| !self.index.fills.contains_key(&hole)) {
            // A value that is not known yet, such as the gradient of a saved tensor, is not missing.
            self.lacks.set((self.lacks.get().0, before.1));
        }
        Ok(())
    }

    fn filled(&self, json: &[u8], depth: u32, to: &mut impl Write) -> Result<(), Fault> {
        let mut rest = json;
        while let Some(at) = first_hole(rest) {
            let (before, hole) = rest.split_at(at);
            put(to, before)?;
            match hole_at(hole).and_then(|hole| self.index.fills.get(&hole)).filter(|_| depth > 0) {
                Some(&fill) => {
                    let mut filling = Reading::default();
                    self.filled(filling.piece(&self.records, fill).map_err(Fault::Read)?, depth - 1, to)?;
                }
                None if hole[0] == VALUE_HOLE => {
                    self.lacks.update(|(tensors, numbers)| (tensors, numbers + 1));
                    put(to, b"null")?;
                }
                None => self.lacks.update(|(tensors, numbers)| (tensors + 1, numbers)),
            }
            rest = hole.get(HOLE_LENGTH..).unwrap_or_default();
        }
        put(to, rest)
    }

    fn stacks(&self, to: &mut BufWriter<&mut File>) -> Result<(), Fault> {
        put(to, b"{")?;
        let mut buffer = Reading::default();
        let used = self.index.stacks.iter().filter(|(_, stack)| !stack.entries.is_empty() && stack.lines.length > 0);
        for (place, (_, stack)) in used.enumerate() {
            put(to, if place == 0 { b"\n" } else { b",\n" })?;
            put(to, format!("\"{place}\":[").as_bytes())?;
            let mut names = JsonText::new();
            names.begin_list();
            for &entry in &stack.entries {
                names.text(&self.index.entries[entry as usize].name);
            }
            names.end_list();
            put(to, names.as_bytes())?;
            put(to, b",")?;
            put(to, buffer.piece(&self.records, stack.lines).map_err(Fault::Read)?)?;
            put(to, b"]")?;
        }
        put(to, b"\n}\n")
    }

    fn construct(&self, to: &mut BufWriter<&mut File>) -> Result<(), Fault> {
        let mut most = None;
        let mut json = JsonText::new();
        json.begin_object();
        for &number in &self.index.nodes {
            let entry = &self.index.entries[number as usize];
            let Some((parent, micro_step)) = &entry.node else { continue };
            json.key(&entry.name);
            let put_parent = |json: &mut JsonText| match parent {
                Some(parent) => json.text(parent),
                None => json.null(),
            };
            match micro_step {
                Some(step) => {
                    json.begin_list();
                    put_parent(&mut json);
                    json.unsigned(u64::from(*step));
                    json.end_list();
                    most = most.max(Some(*step));
                }
                None => put_parent(&mut json),
            }
            if json.len() > BUFFER {
                put(to, json.as_bytes())?;
                json.forget();
            }
        }
        if let Some(most) = most {
            json.key(MICRO_STEPS);
            json.unsigned(u64::from(most));
        }
        json.end_object();
        put(to, json.as_bytes())?;
        put(to, b"\n")
    }
}

fn put(to: &mut impl Write, bytes: &[u8]) -> Result<(), Fault> {
    to.write_all(bytes).map_err(Fault::Write)
}

/// A key of an object, with its colon.
fn put_key(to: &mut impl Write, key: &str, text: &mut JsonText) -> Result<(), Fault> {
    text.clear();
    text.key(key);
    put(to, text.as_bytes())
}

/// The offset of the first hole's mark. Nearly all pieces have none, so they are searched by blocks.
fn first_hole(json: &[u8]) -> Option<usize> {
    let is_mark = |byte: &u8| matches!(*byte, VALUE_HOLE | MEMBER_HOLE);
    let block = json.chunks(BLOCK).position(|block| block.iter().fold(false, |found, byte| found | is_mark(byte)))?;
    let from = block * BLOCK;
    json[from..].iter().position(is_mark).map(|at| from + at)
}
