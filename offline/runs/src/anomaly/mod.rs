//! `trainmon anomaly`: finds the first findings of all ranks, which show where to look.
//!
//! The order is that of msprobe's tool: step, micro-batch, place in the step (forward, gradients, moments), pipeline stage
//! (ascending in the forward pass, descending after it), call number. Unlike there, updated parameters are last in their step
//! instead of first: their cause came before.

mod error;
mod report;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use self::error::{AnomalyError, DIRECTORY, FILE};
pub use self::report::{Analysis, as_json};
use trainmon_baseline::{NewestRun, run_directory_of};
use trainmon_run_files::rank_of;

/// The file that msprobe's tool writes.
pub const ANALYSIS: &str = "anomaly_analyse.json";

/// The sort order of findings; the smallest is first.
type Order = (u64, u64, i8, (i64, i64), i64, u64);

/// A finding with its key.
struct Finding {
    order: Order,
    key: String,
    entry: Value,
}

/// Finds the first `top` findings of all ranks, limited to `steps` if there are any, and writes them to `out`, by default the
/// directory of the findings.
///
/// # Errors
/// A file cannot be read, is malformed, or the analysis cannot be written.
pub fn analyse(data: &Path, out: Option<&Path>, top: usize, steps: &[u64]) -> Result<Analysis, AnomalyError> {
    let (directory, newest) = findings_of(data)?;
    let files = if directory.is_dir() { files_in(&directory)? } else { Vec::new() };
    if files.is_empty() {
        let path = newest.map_or_else(|| data.to_path_buf(), |newest| newest.taken);
        return Err(AnomalyError::NoFindings { path });
    }
    let mut findings = Vec::new();
    for (_, file) in &files {
        findings.extend(read(file)?);
    }
    findings.retain(|finding| steps.is_empty() || steps.contains(&finding.order.0));
    findings.sort_by_key(|finding| finding.order);
    let count = findings.len();
    let first: Map<String, Value> =
        findings.into_iter().take(top).map(|finding| (finding.key, finding.entry)).collect();
    let out = out.map_or(directory, Path::to_path_buf).join(ANALYSIS);
    write(&out, &first)?;
    Ok(Analysis { out, newest, files: files.into_iter().map(|(_, file)| file).collect(), findings: count, first })
}

/// The directory of findings of a path: itself, its own directory of them, or that of its newest run.
fn findings_of(data: &Path) -> Result<(PathBuf, Option<NewestRun>), AnomalyError> {
    if !files_in(data)?.is_empty() {
        return Ok((data.to_path_buf(), None));
    }
    let (run, newest) = run_directory_of(data);
    // A rank's directory is next to its run's findings.
    let beside = run.parent().map(|run| run.join(DIRECTORY)).filter(|_| rank_of(&run).is_some());
    let own = run.join(DIRECTORY);
    Ok((beside.filter(|_| !own.is_dir()).unwrap_or(own), newest))
}

/// The findings file of a rank directory: in its run's directory of findings, or next to the run as in msprobe's layout. `None`
/// if there is none.
pub(crate) fn findings_file(rank_directory: &Path, rank: u32) -> Option<PathBuf> {
    let beside = [Some(rank_directory), rank_directory.parent()];
    let file = |directory: &Path| directory.join(DIRECTORY).join(format!("rank{rank}")).join(FILE);
    beside.into_iter().flatten().map(file).find(|file| file.is_file())
}

/// `rank<R>/anomaly.json`, by rank.
fn files_in(directory: &Path) -> Result<Vec<(u64, PathBuf)>, AnomalyError> {
    let failed = |source| AnomalyError::ReadDirectory { path: directory.to_path_buf(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let rank = name.to_str().and_then(|name| name.strip_prefix("rank")?.parse().ok());
        let file = entry.path().join(FILE);
        if let Some(rank) = rank.filter(|_| file.is_file()) {
            files.push((rank, file));
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<Vec<Finding>, AnomalyError> {
    let path = || file.to_path_buf();
    let bytes = std::fs::read(file).map_err(|source| AnomalyError::Read { path: path(), source })?;
    let entries: Map<String, Value> =
        serde_json::from_slice(&bytes).map_err(|source| AnomalyError::Malformed { path: path(), source })?;
    let finding = |(key, entry): (String, Value)| {
        let order = order(&entry).map_err(|(field, expected)| AnomalyError::Field {
            path: path(),
            key: key.clone(),
            field,
            expected,
            found: entry.get(field).map_or_else(|| "nothing".to_owned(), ToString::to_string),
        })?;
        Ok(Finding { order, key, entry })
    };
    entries.into_iter().map(finding).collect()
}

fn order(entry: &Value) -> Result<Order, (&'static str, &'static str)> {
    let count = |field| entry[field].as_u64().ok_or((field, "an integer of at least 0"));
    let number = |field| entry[field].as_i64().ok_or((field, "an integer"));
    let tag = entry["tag_name"].as_str().ok_or(("tag_name", "text"))?;
    let kind = tag.rsplit('/').next().unwrap_or(tag);
    let stage = stage(kind);
    let (vpp, pp) = (number("vpp_stage")?, number("pp_stage")?);
    let pipeline = if stage == FORWARD { (vpp, pp) } else { (vpp.wrapping_neg(), pp.wrapping_neg()) };
    Ok((count("step")?, count("micro_step")?, stage, pipeline, number("call_id")?, count("rank")?))
}

const FORWARD: i8 = 0;

/// The place in a step at which a kind of tensor is computed.
fn stage(kind: &str) -> i8 {
    match kind {
        "actv" | "loss" => FORWARD,
        kind if kind.contains("grad") => 1,
        "exp_avg" | "exp_avg_sq" | "max_exp_avg_sq" | "momentum_buffer" | "square_avg" | "sum" | "optimizer_state" => 2,
        "update" | "update_ratio" | "param_updated" => 3,
        // Before the forward pass: parameters before the update.
        _ => -1,
    }
}

fn write(out: &Path, first: &Map<String, Value>) -> Result<(), AnomalyError> {
    let failed = |source| AnomalyError::Write { path: out.to_path_buf(), source };
    if let Some(directory) = out.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    first.serialize(&mut serializer).map_err(|source| failed(source.into()))?;
    std::fs::write(out, text).map_err(failed)
}
