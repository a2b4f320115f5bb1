//! msprobe's `anomaly.json`: every finding of a rank, one JSON object, grown without being read or written whole.
//!
//! The file is a complete JSON document after every step: a step's findings go over its closing brace in one write,
//! which brings the new one along. A torn end (a disk that filled up, a machine that lost power) is cut back to the
//! last whole finding when the file is opened again.
//!
//! Keys: msprobe's `<tag>_step_<S>_call_<C>`, with `_<op>_<rule>` behind it, so that two statistics of one tag, or two
//! rules on one statistic, do not overwrite each other. A step that a resumed run makes again gets `_again` too.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

/// What a run may add: at 500 bytes each, half a gigabyte.
const MAX_FINDINGS: u64 = 1_000_000;

/// One finding in msprobe's words.
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

/// The file could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnomalyFileError {
    /// The directory could not be made.
    #[error("cannot create directory `{}`", path.display())]
    CreateDirectory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file could not be read or written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The run has added as many findings as it may.
    #[error("`{}` has got {MAX_FINDINGS} findings of this run; no more are written", path.display())]
    Full {
        /// Which.
        path: PathBuf,
    },
}

/// The growing file. Made with the first finding: a run without any leaves none.
#[derive(Debug)]
pub(crate) struct AnomalyFile {
    path: PathBuf,
    open: Option<Open>,
    /// Findings of the step in progress, as text.
    pending: Vec<(String, String)>,
    written: u64,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Where the closing brace stands.
    end: u64,
    is_empty: bool,
    /// Keys of earlier runs.
    earlier: HashSet<String>,
}

const CLOSING: &str = "\n}";

impl AnomalyFile {
    /// `<base>/anomaly_detected/rank<R>/anomaly.json`.
    pub(crate) fn new(base: &Path, rank: u32) -> Self {
        let path = base.join("anomaly_detected").join(format!("rank{rank}")).join("anomaly.json");
        Self { path, open: None, pending: Vec::new(), written: 0 }
    }

    /// Notes a finding of the step in progress.
    pub(crate) fn add(&mut self, op: &str, rule: &str, anomaly: &Anomaly) {
        let key = format!("{}_step_{}_call_{}_{op}_{rule}", anomaly.tag_name, anomaly.step, anomaly.call_id);
        // A struct of numbers and texts has no way to fail.
        let entry = serde_json::to_value(anomaly).map(|value| indented(&value)).unwrap_or_default();
        self.pending.push((key, entry));
    }

    /// Writes the step's findings; says how many are lost if it cannot.
    pub(crate) fn flush(&mut self) -> Result<(), (u64, AnomalyFileError)> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let count = pending.len() as u64;
        if self.written + count > MAX_FINDINGS {
            return Err((count, AnomalyFileError::Full { path: self.path.clone() }));
        }
        self.append(pending).map_err(|error| (count, error))?;
        self.written += count;
        Ok(())
    }

    fn append(&mut self, findings: Vec<(String, String)>) -> Result<(), AnomalyFileError> {
        let failed = |source| AnomalyFileError::Write { path: self.path.clone(), source };
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open::at(&self.path)?),
        };
        let mut text = String::new();
        for (mut key, entry) in findings {
            if open.earlier.contains(&key) {
                key.push_str("_again");
            }
            text.push_str(if open.is_empty && text.is_empty() { "\n " } else { ",\n " });
            text.push_str(&Value::from(key).to_string());
            text.push_str(": ");
            text.push_str(&entry);
        }
        let added = text.len() as u64;
        text.push_str(CLOSING);
        let outcome = open.file.seek(SeekFrom::Start(open.end)).and_then(|_| open.file.write_all(text.as_bytes()));
        if let Err(error) = outcome {
            // What got written may be half a finding: the next attempt opens the file anew, and that repairs it.
            self.open = None;
            return Err(failed(error));
        }
        open.end += added;
        open.is_empty = false;
        Ok(())
    }
}

impl Open {
    fn at(path: &Path) -> Result<Self, AnomalyFileError> {
        let failed = |source| AnomalyFileError::Write { path: path.to_path_buf(), source };
        if let Some(directory) = path.parent() {
            let made = std::fs::create_dir_all(directory);
            made.map_err(|source| AnomalyFileError::CreateDirectory { path: directory.to_path_buf(), source })?;
        }
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        if let Some((kept, earlier)) = whole_findings(&bytes) {
            file.set_len(kept as u64).map_err(failed)?;
            let opening = if kept == 0 { "{" } else { "" };
            file.seek(SeekFrom::Start(kept as u64)).map_err(failed)?;
            file.write_all(format!("{opening}{CLOSING}").as_bytes()).map_err(failed)?;
            let (end, is_empty) = ((kept + opening.len()) as u64, earlier.is_empty());
            return Ok(Self { file, end, is_empty, earlier });
        }
        // Not a file of ours or msprobe's: it is kept under another name.
        let mut aside = path.as_os_str().to_owned();
        aside.push(".old");
        std::fs::rename(path, aside).map_err(failed)?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
        file.write_all(b"{\n}").map_err(failed)?;
        Ok(Self { file, end: 1, is_empty: true, earlier: HashSet::new() })
    }
}

/// How much of the file is whole findings, and their keys; `None` if it is not an object of findings at all.
fn whole_findings(bytes: &[u8]) -> Option<(usize, HashSet<String>)> {
    let text = String::from_utf8_lossy(bytes);
    let trimmed = text.trim_end();
    if trimmed.is_empty() {
        return Some((0, HashSet::new()));
    }
    let keys = |object: &Map<String, Value>| object.keys().cloned().collect();
    if let Ok(Value::Object(object)) = serde_json::from_str(trimmed) {
        let body = trimmed.strip_suffix('}')?.trim_end();
        return Some((body.len(), keys(&object)));
    }
    // Torn: back to the end of the last finding that is whole. A finding ends with a line of one space and a brace.
    let mut end = trimmed.len();
    while let Some(place) = trimmed[..end].rfind("\n }") {
        let body = &trimmed[..place + 3];
        if let Ok(Value::Object(object)) = serde_json::from_str(&format!("{body}{CLOSING}")) {
            return Some((body.len(), keys(&object)));
        }
        end = place;
    }
    trimmed.starts_with('{').then(|| (1, HashSet::new()))
}

/// A value as msprobe indents it, one space a level, standing one level deep.
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
    use super::*;

    fn anomaly(step: u64) -> Anomaly {
        Anomaly {
            rank: 3,
            step,
            micro_step: 0,
            pp_stage: 0,
            vpp_stage: 0,
            call_id: 5,
            tag_name: "0:a.w/rank3/acc_grad".into(),
            message: format!("step {step} \"quoted\""),
            group_mates: vec![3],
        }
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
        file.flush().unwrap();
        assert!(!path.exists());
        for step in 0..5 {
            file.add("norm", "AnomalyNan", &anomaly(step));
            file.add("mean", "AnomalyNan", &anomaly(step));
            file.flush().unwrap();
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
    fn a_later_run_goes_on_in_the_same_file_and_repeats_no_key() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let mut file = AnomalyFile::new(directory.path(), 0);
            file.add("norm", "Spike", &anomaly(7));
            file.flush().unwrap();
        }
        let keys: Vec<String> =
            read(&directory.path().join("anomaly_detected/rank0/anomaly.json")).keys().cloned().collect();
        assert_eq!(
            keys,
            ["0:a.w/rank3/acc_grad_step_7_call_5_norm_Spike", "0:a.w/rank3/acc_grad_step_7_call_5_norm_Spike_again"]
        );
    }

    #[test]
    fn a_file_torn_anywhere_keeps_its_whole_findings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("anomaly_detected/rank0/anomaly.json");
        let mut file = AnomalyFile::new(directory.path(), 0);
        (0..3).for_each(|step| file.add("norm", "Spike", &anomaly(step)));
        file.flush().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut file = AnomalyFile::new(directory.path(), 0);
            file.add("norm", "Spike", &anomaly(9));
            file.flush().unwrap();
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
        file.add("norm", "Spike", &anomaly(1));
        file.flush().unwrap();
        assert_eq!(read(&path).len(), 1);
        assert_eq!(std::fs::read_to_string(path.with_file_name("anomaly.json.old")).unwrap(), "[1, 2]");
    }

    #[test]
    fn findings_that_cannot_be_written_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("anomaly_detected"), "a file").unwrap();
        let mut file = AnomalyFile::new(directory.path(), 0);
        file.add("norm", "Spike", &anomaly(1));
        let (lost, error) = file.flush().unwrap_err();
        assert_eq!(lost, 1);
        assert!(error.to_string().starts_with("cannot create directory"), "{error}");
    }
}
