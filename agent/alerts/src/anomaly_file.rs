//! msprobe's `anomaly.json`: every finding of a rank in one JSON object, extended in place without rereading or
//! rewriting it.
//!
//! The file is a complete JSON document after every step: a step's findings overwrite the closing brace in one write,
//! which ends with a new one. An incomplete end (full disk, power loss) is cut back to the last whole finding when the
//! file is opened again (`anomaly_repair`).
//!
//! Keys: msprobe's `<tag>_step_<S>_call_<C>` with `_<op>_<rule>` appended, so that two statistics of one tag, or two
//! rules on one statistic, do not overwrite each other. If the file already has the key (a resumed run repeats a step,
//! or two rules differ only in their threshold), `_again` is appended, then `_again_2` and so on.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crossbeam_channel::Receiver;
use serde::Serialize;
use serde_json::Value;
use trainmon_core::with_causes;

use super::anomaly_repair::whole_findings;
use super::delivery::{Failed, Message, Notifier, QueueSpec};

/// The maximum number of findings of a run: at 500 bytes each, half a gigabyte.
const MAX_FINDINGS: u64 = 1_000_000;

/// Findings are written on their own thread, so that a hanging disk does not block a step. The queue holds at most 50
/// MB.
pub(crate) const QUEUE: QueueSpec =
    QueueSpec { thread: "anomalies", name: "anomaly.json", things: "findings", messages: 1_024, most: 100_000 };

/// One finding with msprobe's field names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Anomaly {
    pub(crate) rank: u32,
    pub(crate) step: u64,
    pub(crate) micro_step: u32,
    pub(crate) pp_stage: u32,
    pub(crate) vpp_stage: u32,
    pub(crate) call_id: i64,
    pub(crate) tag_name: String,
    pub(crate) message: String,
    pub(crate) group_mates: Vec<u32>,
}

/// A finding and the other parts of its key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) op: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) anomaly: Anomaly,
}

impl Entry {
    /// The key, if the file does not have it yet.
    fn key(&self) -> String {
        let Self { op, rule, anomaly } = self;
        format!("{}_step_{}_call_{}_{op}_{rule}", anomaly.tag_name, anomaly.step, anomaly.call_id)
    }
}

/// The findings of a step.
impl Message for Vec<Entry> {
    fn weight(&self) -> u64 {
        self.len() as u64
    }

    fn cut(&mut self, most: u64) {
        self.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }
}

/// A write error of the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnomalyFileError {
    #[error("cannot create directory `{}`", path.display())]
    CreateDirectory { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` has reached {MAX_FINDINGS} findings of this run; further findings are not written", path.display())]
    Full { path: PathBuf },
}

/// The growing file, created with the first finding.
#[derive(Debug)]
pub(crate) struct AnomalyFile {
    path: PathBuf,
    open: Option<Open>,
    written: u64,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// The position of the closing brace.
    end: u64,
    is_empty: bool,
    keys: Keys,
}

/// Hashes of the keys in a file. On a hash collision, a new finding only gets a different key.
#[derive(Debug, Default)]
struct Keys(HashSet<u64>);

impl Keys {
    /// Adds a key. Returns whether it is new.
    fn add(&mut self, key: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.0.insert(hasher.finish())
    }

    /// Takes the key, or its first variant that the file does not have.
    fn take(&mut self, key: &str) -> String {
        let mut taken = key.to_owned();
        let mut repeats = 0_u64;
        while !self.add(&taken) {
            repeats += 1;
            taken = if repeats == 1 { format!("{key}_again") } else { format!("{key}_again_{repeats}") };
        }
        taken
    }
}

const CLOSING: &str = "\n}";

impl AnomalyFile {
    /// `<base>/anomaly_detected/rank<R>/anomaly.json`.
    pub(crate) fn new(base: &Path, rank: u32) -> Self {
        let path = base.join("anomaly_detected").join(format!("rank{rank}")).join("anomaly.json");
        Self { path, open: None, written: 0 }
    }

    /// Writes a step's findings: all of them or, with an error, none.
    pub(crate) fn append(&mut self, findings: &[Entry]) -> Result<(), AnomalyFileError> {
        let count = findings.len() as u64;
        if self.written + count > MAX_FINDINGS {
            return Err(AnomalyFileError::Full { path: self.path.clone() });
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open::at(&self.path)?),
        };
        if let Err(source) = open.append(findings) {
            // The write may have ended in the middle of a finding: the next attempt reopens and repairs the file.
            self.open = None;
            return Err(AnomalyFileError::Write { path: self.path.clone(), source });
        }
        self.written += count;
        Ok(())
    }
}

impl Notifier for AnomalyFile {
    type Message = Vec<Entry>;

    fn deliver(&mut self, findings: &Vec<Entry>, _closing: &Receiver<std::time::Instant>) -> Result<(), Failed> {
        let hint = "check that the disk has space; findings are not written until then";
        self.append(findings).map_err(|error| Failed { what: with_causes(&error), hint })
    }
}

impl Open {
    fn at(path: &Path) -> Result<Self, AnomalyFileError> {
        let failed = |source| AnomalyFileError::Write { path: path.to_path_buf(), source };
        if let Some(directory) = path.parent() {
            let made = std::fs::create_dir_all(directory);
            made.map_err(|source| AnomalyFileError::CreateDirectory { path: directory.to_path_buf(), source })?;
        }
        Self::repaired(path).map_err(failed)
    }

    fn repaired(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // No other process writes meanwhile. The lock ends with the function's last use of the file, or with the file.
        file.lock()?;
        let Some((keys, kept)) = findings_in(&mut file)? else {
            set_aside(path)?;
            let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
            file.write_all(b"{\n}")?;
            return Ok(Self { file, end: 1, is_empty: true, keys: Keys::default() });
        };
        file.set_len(kept as u64)?;
        let opening = if kept == 0 { "{" } else { "" };
        file.seek(SeekFrom::Start(kept as u64))?;
        file.write_all(format!("{opening}{CLOSING}").as_bytes())?;
        file.unlock()?;
        Ok(Self { file, end: (kept + opening.len()) as u64, is_empty: keys.0.is_empty(), keys })
    }

    /// Appends findings to a file that another monitor of this rank may also write: one at a time, each after what the
    /// others wrote.
    fn append(&mut self, findings: &[Entry]) -> io::Result<()> {
        self.file.lock()?;
        let written = self.catch_up().and_then(|()| self.append_alone(findings));
        self.file.unlock().and(written)
    }

    /// Rereads the file if another process has changed it.
    fn catch_up(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() == self.end + CLOSING.len() as u64 {
            return Ok(());
        }
        self.file.seek(SeekFrom::Start(0))?;
        let Some((keys, kept)) = findings_in(&mut self.file)? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "another process changed the file"));
        };
        let is_empty = keys.0.is_empty();
        (self.keys, self.end, self.is_empty) = (keys, if is_empty { 1 } else { kept as u64 }, is_empty);
        Ok(())
    }

    fn append_alone(&mut self, findings: &[Entry]) -> io::Result<()> {
        let mut text = String::new();
        for entry in findings {
            text.push_str(if self.is_empty && text.is_empty() { "\n " } else { ",\n " });
            text.push_str(&Value::from(self.keys.take(&entry.key())).to_string());
            text.push_str(": ");
            // A struct of numbers and texts always serializes.
            text.push_str(&serde_json::to_value(&entry.anomaly).map(|value| indented(&value)).unwrap_or_default());
        }
        let added = text.len() as u64;
        text.push_str(CLOSING);
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(text.as_bytes())?;
        self.end += added;
        self.is_empty = false;
        Ok(())
    }
}

/// The keys of a file's whole findings, from the current position, and the end of the last one; `None` if it is not a
/// file of findings.
fn findings_in(file: &mut File) -> io::Result<Option<(Keys, usize)>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut keys = Keys::default();
    let kept = whole_findings(&bytes, |key| _ = keys.add(&key)).ok();
    Ok(kept.map(|kept| (keys, kept)))
}

/// Renames a file to the first unused of `….old`, `….old.2` and so on.
fn set_aside(path: &Path) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".old");
    let mut count = 1_u32;
    while Path::new(&aside).try_exists()? {
        count += 1;
        path.as_os_str().clone_into(&mut aside);
        aside.push(format!(".old.{count}"));
    }
    std::fs::rename(path, aside)
}

/// A value with msprobe's indentation (one space per level), one level deep.
fn indented(value: &Value) -> String {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    if value.serialize(&mut serializer).is_err() {
        return value.to_string();
    }
    String::from_utf8_lossy(&text).replace('\n', "\n ")
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn entry(op: &'static str, rule: &'static str, step: u64) -> Entry {
        let anomaly = Anomaly {
            rank: 3,
            step,
            micro_step: 0,
            pp_stage: 0,
            vpp_stage: 0,
            call_id: 5,
            tag_name: "0:a.w/rank3/acc_grad".into(),
            message: format!("step {step} \"quoted\""),
            group_mates: vec![3],
        };
        Entry { op, rule, anomaly }
    }

    fn read(path: &Path) -> Map<String, Value> {
        let text = std::fs::read_to_string(path).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn the_file_is_whole_after_every_step_and_grows_at_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = AnomalyFile::new(directory.path(), 3);
        let path = directory.path().join("anomaly_detected/rank3/anomaly.json");
        assert!(!path.exists());
        for step in 0..5 {
            file.append(&[entry("norm", "AnomalyNan", step), entry("mean", "AnomalyNan", step)]).unwrap();
            assert_eq!(read(&path).len() as u64, 2 * (step + 1));
        }
        let entry = &read(&path)["0:a.w/rank3/acc_grad_step_2_call_5_mean_AnomalyNan"];
        assert_eq!(entry["message"], "step 2 \"quoted\"");
        let text = std::fs::read_to_string(&path).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let pretty = indented(&expected).replace("\n ", "\n");
        assert_eq!(text, pretty, "indented as one document would be");
    }

    #[test]
    fn two_monitors_of_one_rank_write_after_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("anomaly_detected/rank0/anomaly.json");
        let mut files = [AnomalyFile::new(directory.path(), 0), AnomalyFile::new(directory.path(), 0)];
        for step in 0..6 {
            for file in &mut files {
                file.append(&[entry("norm", "Spike", step), entry("mean", "Spike", step)]).unwrap();
            }
        }
        let found = read(&path);
        assert_eq!(found.len(), 24, "{:?}", found.keys().collect::<Vec<_>>());
    }

    #[test]
    fn no_finding_takes_the_place_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("anomaly_detected/rank0/anomaly.json");
        // Three runs of the same step, each of which goes back to it once and has two rules on the same series.
        for _ in 0..3 {
            let mut file = AnomalyFile::new(directory.path(), 0);
            file.append(&[entry("norm", "Spike", 7), entry("norm", "Spike", 7)]).unwrap();
            file.append(&[entry("norm", "Spike", 7)]).unwrap();
        }
        let found = read(&path);
        let key = "0:a.w/rank3/acc_grad_step_7_call_5_norm_Spike";
        let expected: Vec<String> = ["", "_again"]
            .map(str::to_owned)
            .into_iter()
            .chain((2..9).map(|count| format!("_again_{count}")))
            .map(|suffix| format!("{key}{suffix}"))
            .collect();
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(key).count(), 9, "none is there twice");
    }

    #[test]
    fn a_file_torn_anywhere_keeps_its_whole_findings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("anomaly_detected/rank0/anomaly.json");
        let mut file = AnomalyFile::new(directory.path(), 0);
        file.append(&[0, 1, 2].map(|step| entry("norm", "Spike", step))).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut file = AnomalyFile::new(directory.path(), 0);
            file.append(&[entry("norm", "Spike", 9)]).unwrap();
            let found = read(&path);
            assert!(found.contains_key("0:a.w/rank3/acc_grad_step_9_call_5_norm_Spike"), "cut at {cut}");
            let entry = whole.len() / 3;
            assert!(found.len() > cut / (entry + 2), "cut at {cut}: {} findings left", found.len());
        }
    }

    #[test]
    fn what_is_no_such_file_is_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("anomaly_detected/rank0/anomaly.json");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "[1, 2]").unwrap();
        let mut file = AnomalyFile::new(directory.path(), 0);
        file.append(&[entry("norm", "Spike", 1)]).unwrap();
        assert_eq!(read(&path).len(), 1);
        assert_eq!(std::fs::read_to_string(path.with_file_name("anomaly.json.old")).unwrap(), "[1, 2]");
        std::fs::write(&path, "[3]").unwrap();
        AnomalyFile::new(directory.path(), 0).append(&[entry("norm", "Spike", 1)]).unwrap();
        assert_eq!(std::fs::read_to_string(path.with_file_name("anomaly.json.old")).unwrap(), "[1, 2]");
        assert_eq!(std::fs::read_to_string(path.with_file_name("anomaly.json.old.2")).unwrap(), "[3]");
    }

    #[test]
    fn bytes_that_are_no_text_cost_nothing_but_the_torn_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("anomaly_detected/rank0/anomaly.json");
        AnomalyFile::new(directory.path(), 0).append(&[0, 1].map(|step| entry("norm", "Spike", step))).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let body = whole.strip_suffix(CLOSING.as_bytes()).unwrap();
        // A block that never reached the disk, and one of another file.
        for torn in [&b"\0\0\0\0"[..], b",\n \"k\xff\xfe\xf0: {", b",\n \"\xe2\x82"] {
            std::fs::write(&path, [body, torn].concat()).unwrap();
            AnomalyFile::new(directory.path(), 0).append(&[entry("mean", "Spike", 9)]).unwrap();
            assert_eq!(read(&path).len(), 3, "{torn:?}");
            assert!(std::fs::read(&path).unwrap().starts_with(body));
        }
        // Damage in the middle: what stands behind it is not thrown away.
        let mut damaged = whole.clone();
        damaged[40] = 0xff;
        std::fs::write(&path, &damaged).unwrap();
        AnomalyFile::new(directory.path(), 0).append(&[entry("mean", "Spike", 9)]).unwrap();
        assert_eq!(read(&path).len(), 1);
        assert_eq!(std::fs::read(path.with_file_name("anomaly.json.old")).unwrap(), damaged);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("anomaly_detected"), "a file").unwrap();
        let mut file = AnomalyFile::new(directory.path(), 0);
        let error = file.append(&[entry("norm", "Spike", 1)]).unwrap_err();
        assert!(error.to_string().starts_with("cannot create directory"), "{error}");
    }
}
