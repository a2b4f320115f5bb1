//! Finds the captures at a path: a file, a rank's directory, a step's, or the root of several steps.
//!
//! Only these few levels are searched, never a whole tree, so a loop of symbolic links does no harm.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::CaptureError;
use super::keys::file;

/// The names of documents, in search order.
const DOCUMENTS: [&str; 2] = [file::DUMP, file::DEBUG];

/// The kind of path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// One `dump.json` or `debug.json`.
    File,
    /// A directory with one of them.
    Rank,
    /// A directory of ranks.
    Step,
    /// A directory of steps.
    Root,
}

/// A capture's files, before any is read.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The kind of the path.
    pub kind: DumpKind,
    /// At least one step, sorted by part and number.
    pub steps: Vec<StepFiles>,
}

/// The ranks of one step.
#[derive(Clone, Debug)]
pub struct StepFiles {
    /// `graph` or `pynative` if the framework writes them separately, otherwise empty.
    pub part: String,
    /// The number in the directory's name; 0 if it has none.
    pub step: u64,
    /// At least one rank, sorted by number.
    pub ranks: Vec<RankFiles>,
}

/// One rank's files.
#[derive(Clone, Debug)]
pub struct RankFiles {
    /// The number in the directory's name. A directory named after a process becomes rank 0 if it is the only one,
    /// otherwise the next free number.
    pub rank: u64,
    /// `dump.json` or `debug.json`.
    pub document: PathBuf,
    /// The call stacks in the same directory, if they exist.
    pub stack: Option<PathBuf>,
    /// The module tree in the same directory, if it exists.
    pub construct: Option<PathBuf>,
    /// The directory of the tensors. The path in the document is ignored, because the directory may have been renamed
    /// or copied.
    pub tensors: Option<PathBuf>,
}

impl RankFiles {
    /// Whether it holds values that a script saved by name.
    pub fn is_debug(&self) -> bool {
        self.document.file_name().is_some_and(|name| name == file::DEBUG)
    }

    fn beside(document: PathBuf, rank: u64) -> Self {
        let directory = document.parent().unwrap_or(Path::new("")).to_path_buf();
        let existing = |name: &str| Some(directory.join(name)).filter(|path| path.exists());
        let (stack, construct) = (existing(file::STACK), existing(file::CONSTRUCT));
        Self { rank, document, stack, construct, tensors: existing(file::TENSORS) }
    }
}

/// Finds the captures at `path`.
///
/// # Errors
/// [`CaptureError::Read`], [`CaptureError::NoCapture`] if there is none, [`CaptureError::Twice`] if two directories
/// have the same number.
pub fn find(path: &Path) -> Result<Tree, CaptureError> {
    let failed = |source| CaptureError::Read { path: path.to_path_buf(), source };
    let one = |kind, rank| Tree { kind, steps: vec![StepFiles { part: String::new(), step: 0, ranks: vec![rank] }] };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(one(DumpKind::File, RankFiles::beside(path.to_path_buf(), 0)));
    }
    if let Some(document) = document_in(path) {
        return Ok(one(DumpKind::Rank, RankFiles::beside(document, 0)));
    }
    let ranks = ranks_in(path)?;
    if !ranks.is_empty() {
        let step = numbered(path, "step").and_then(|name| name.number).unwrap_or(0);
        return Ok(Tree { kind: DumpKind::Step, steps: vec![StepFiles { part: String::new(), step, ranks }] });
    }
    let mut steps = Vec::new();
    for part in ["", "graph", "pynative"] {
        steps.extend(steps_in(&path.join(part), part)?);
    }
    if steps.is_empty() {
        return Err(CaptureError::NoCapture { path: path.to_path_buf() });
    }
    Ok(Tree { kind: DumpKind::Root, steps })
}

fn document_in(directory: &Path) -> Option<PathBuf> {
    DOCUMENTS.iter().map(|name| directory.join(name)).find(|path| path.is_file())
}

fn steps_in(directory: &Path, part: &str) -> Result<Vec<StepFiles>, CaptureError> {
    let mut steps = Vec::new();
    for (step, path) in children(directory, "step")? {
        let ranks = ranks_in(&path)?;
        if let (Some(step), false) = (step, ranks.is_empty()) {
            steps.push((path, StepFiles { part: part.to_owned(), step, ranks }));
        }
    }
    steps.sort_by(|(path, one), (other_path, other)| (one.step, path).cmp(&(other.step, other_path)));
    if let Some(pair) = steps.windows(2).find(|pair| pair[0].1.step == pair[1].1.step) {
        let [first, second] = [0, 1].map(|at: usize| pair[at].0.clone());
        return Err(CaptureError::Twice { what: format!("step {}", pair[0].1.step), first, second });
    }
    Ok(steps.into_iter().map(|(_, step)| step).collect())
}

fn ranks_in(directory: &Path) -> Result<Vec<RankFiles>, CaptureError> {
    let mut ranks: Vec<RankFiles> = Vec::new();
    // `rank` without a number is a single process.
    for (rank, path) in children(directory, "rank")? {
        if let Some(document) = document_in(&path) {
            ranks.push(RankFiles::beside(document, rank.unwrap_or(0)));
        }
    }
    ranks.sort_by_key(|rank| rank.rank);
    if let Some(pair) = ranks.windows(2).find(|pair| pair[0].rank == pair[1].rank) {
        let [first, second] = [0, 1].map(|at: usize| pair[at].document.clone());
        return Err(CaptureError::Twice { what: format!("rank {}", pair[0].rank), first, second });
    }
    let mut processes = children(directory, "proc")?;
    processes.extend(children(directory, "pid")?);
    processes.sort();
    for (_, path) in processes {
        if let Some(document) = document_in(&path) {
            let rank = ranks.last().map_or(0, |last| last.rank + 1);
            ranks.push(RankFiles::beside(document, rank));
        }
    }
    Ok(ranks)
}

/// The directories named `prefix` or `prefix` with a number. A missing directory has none.
fn children(directory: &Path, prefix: &str) -> Result<Vec<(Option<u64>, PathBuf)>, CaptureError> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |source| CaptureError::Read { path: directory.to_path_buf(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some(Numbered { number }) = numbered(&path, prefix)
            && path.is_dir()
        {
            found.push((number, path));
        }
    }
    Ok(found)
}

/// A name with a prefix and the number after it: 3 for `step3`, none for `step`.
struct Numbered {
    number: Option<u64>,
}

/// `None` for a name that is neither the prefix nor the prefix with a number.
fn numbered(path: &Path, prefix: &str) -> Option<Numbered> {
    let rest = path.file_name()?.to_str()?.strip_prefix(prefix)?;
    let number = if rest.is_empty() { None } else { Some(rest.parse().ok()?) };
    Some(Numbered { number })
}
