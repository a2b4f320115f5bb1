//! Writes the database, rank by rank.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use trainmon_capture_files::RankFiles;
use trainmon_compare::Capture;
use trainmon_report::{Progress, counted, unfinished_in};

use crate::database::{ConfigRow, Database, GraphLocation};
use crate::error::GraphError;
use crate::inputs::{Inputs, RankInput, alone, captures, paired};
use crate::json::numbers;
use crate::matching::{NodeMatching, TreeSide, pair};
use crate::metrics::{GraphTask, RankMetrics};
use crate::rank::RankGraph;
use crate::tree::CallTree;
use crate::words::{colours, tool_tips};

const TARGET: &str = "NPU";
const GOLDEN: &str = "Bench";

/// The captures and the output.
#[derive(Clone, Debug)]
pub struct GraphRequest {
    /// The directory of a rank, of a step or of a run.
    pub target: PathBuf,
    /// The baseline, of the same kind; `None` for the graph of the target alone.
    pub golden: Option<PathBuf>,
    /// The directory for the file; it is created if it does not exist.
    pub output: PathBuf,
    /// The way in which nodes pair.
    pub matching: NodeMatching,
    /// Whether to mark operators with NaN or infinity.
    pub is_overflow_checked: bool,
}

/// A written database.
#[derive(Clone, Debug)]
pub struct WrittenGraph {
    /// The file.
    pub file: PathBuf,
    /// `build` for one capture, `compare` for two.
    pub kind: &'static str,
    /// The ranks.
    pub ranks: Vec<u64>,
    /// The steps.
    pub steps: Vec<u64>,
    /// The number of nodes, of both sides together.
    pub nodes: u64,
    /// Steps and ranks that are not in the file.
    pub warnings: Vec<String>,
}

impl WrittenGraph {
    /// The result as text.
    pub fn in_words(&self) -> String {
        let count = |numbers: &[u64], one, several| counted(numbers.len() as u64, one, several);
        format!(
            "{}: {} of {} and {}\n",
            self.file.display(),
            counted(self.nodes, "node", "nodes"),
            count(&self.steps, "step", "steps"),
            count(&self.ranks, "rank", "ranks")
        )
    }
}

/// The result, or the error, as JSON.
pub fn as_json(written: &Result<WrittenGraph, GraphError>) -> Value {
    match written {
        Ok(WrittenGraph { file, kind, ranks, steps, nodes, warnings }) => json!({
            "ok": true, "file": file, "kind": kind, "ranks": ranks, "steps": steps, "nodes": nodes,
            "warnings": warnings, "error": null,
        }),
        Err(error) => json!({"ok": false, "error": trainmon_report::as_json(error)}),
    }
}

/// Writes `build_<time>.vis.db`, or `compare_<time>.vis.db` with a baseline. The file appears at the end: a failed run leaves
/// none. Reads one rank at a time.
///
/// # Errors
/// See [`GraphError`].
pub fn write(request: &GraphRequest, progress: &mut dyn FnMut(Progress)) -> Result<WrittenGraph, GraphError> {
    let mut warnings = Vec::new();
    let target = captures(&request.target, &mut warnings)?;
    let golden = request.golden.as_deref().map(|path| captures(path, &mut warnings)).transpose()?;
    let inputs = match (&golden, request.golden.as_deref()) {
        (Some(golden), Some(path)) => paired((&request.target, &target), (path, golden))?,
        _ => alone(&target),
    };
    let kind = if golden.is_some() { "compare" } else { "build" };
    let directory = &request.output;
    let failed = |source| GraphError::Write { path: directory.clone(), source };
    let _made = (!directory.exists()).then(|| RemovedIfEmpty(directory));
    std::fs::create_dir_all(directory).map_err(failed)?;
    let aside = unfinished_in(directory).map_err(failed)?;
    let name = free_name(directory, kind);
    let nodes = write_ranks(request, &inputs, (kind, &aside.path().join(&name)), progress)?;
    let placed = aside.put_in_place(&[PathBuf::from(&name)], directory);
    placed.map_err(|(path, source)| GraphError::Write { path, source })?;
    warnings.extend(inputs.warnings.iter().cloned());
    let [steps, ranks] = numbers_of(&inputs);
    Ok(WrittenGraph { file: directory.join(name), kind, ranks, steps, nodes, warnings })
}

/// A directory that is removed if it stays empty.
struct RemovedIfEmpty<'p>(&'p Path);

impl Drop for RemovedIfEmpty<'_> {
    fn drop(&mut self) {
        // It has the file, or another process has removed it: both are fine.
        drop(std::fs::remove_dir(self.0));
    }
}

/// The name with the current second, or the next one without a file.
fn free_name(directory: &Path, kind: &str) -> String {
    let mut time = jiff::Zoned::now();
    loop {
        let name = format!("{kind}_{}.vis.db", time.strftime("%Y%m%d%H%M%S"));
        match time.checked_add(jiff::SignedDuration::from_secs(1)) {
            Ok(next) if directory.join(&name).exists() => time = next,
            _ => return name,
        }
    }
}

/// The steps and the ranks, each once.
fn numbers_of(inputs: &Inputs<'_>) -> [Vec<u64>; 2] {
    let of = |number: fn(&RankInput<'_>) -> u64| -> Vec<u64> {
        inputs.ranks.iter().map(number).collect::<BTreeSet<u64>>().into_iter().collect()
    };
    [of(|input| input.step), of(|input| input.rank)]
}

fn write_ranks(
    request: &GraphRequest,
    inputs: &Inputs<'_>,
    (kind, path): (&'static str, &Path),
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, GraphError> {
    let failed = |source| GraphError::Database { path: request.output.clone(), source };
    let mut writer =
        Writer { request, database: Database::create(path).map_err(failed)?, task: None, micro_steps: 1, nodes: 0 };
    let total = inputs.ranks.iter().map(RankInput::bytes).sum();
    let mut done = 0;
    for input in &inputs.ranks {
        match input.golden {
            None => writer.build(input)?,
            Some(golden) => writer.compare(input, golden)?,
        }
        done += input.bytes();
        progress(Progress { done, total });
    }
    let [steps, ranks] = numbers_of(inputs);
    let config = ConfigRow {
        kind,
        task: writer.task.map_or("", GraphTask::word),
        tool_tips: writer.task.map(tool_tips),
        micro_steps: writer.micro_steps,
        is_overflow_checked: request.is_overflow_checked,
        colours: writer.task.map_or_else(|| "null".to_owned(), colours),
        ranks: numbers(&ranks),
        steps: numbers(&steps),
    };
    writer.database.finish(&config).map_err(failed)?;
    Ok(writer.nodes)
}

struct Writer<'r> {
    request: &'r GraphRequest,
    database: Database,
    /// The task of a comparison, from its first rank.
    task: Option<GraphTask>,
    micro_steps: u32,
    nodes: u64,
}

impl Writer<'_> {
    fn build(&mut self, input: &RankInput<'_>) -> Result<(), GraphError> {
        let capture = Capture::read(input.target)?;
        let tree = CallTree::of(&capture)?;
        let graph = RankGraph {
            at: GraphLocation { source: TARGET, step: input.step, rank: input.rank },
            side: TreeSide { tree: &tree, capture: &capture },
            other: None,
            metrics: None,
            is_overflow_checked: self.request.is_overflow_checked,
        };
        self.write(&[graph])
    }

    fn compare(&mut self, input: &RankInput<'_>, golden: &RankFiles) -> Result<(), GraphError> {
        let (target, golden) = (Capture::read(input.target)?, Capture::read(golden)?);
        let task = self.task(&target, &golden)?;
        let (target_tree, golden_tree) = (CallTree::of(&target)?, CallTree::of(&golden)?);
        let target = TreeSide { tree: &target_tree, capture: &target };
        let golden = TreeSide { tree: &golden_tree, capture: &golden };
        let pairs = pair(target, golden, &self.request.matching);
        let metrics = RankMetrics::of(target, golden, &pairs, task);
        let at = |source| GraphLocation { source, step: input.step, rank: input.rank };
        let is_overflow_checked = self.request.is_overflow_checked;
        let of_target = RankGraph {
            at: at(TARGET),
            side: target,
            other: Some((golden.tree, &pairs.of_target)),
            metrics: Some(&metrics),
            is_overflow_checked,
        };
        let of_golden = RankGraph {
            at: at(GOLDEN),
            side: golden,
            other: Some((target.tree, &pairs.of_golden)),
            metrics: None,
            is_overflow_checked,
        };
        self.write(&[of_target, of_golden])
    }

    /// The task of a rank, which is that of the ranks before it.
    fn task(&mut self, target: &Capture, golden: &Capture) -> Result<GraphTask, GraphError> {
        let Some(found) = GraphTask::of(target, golden) else {
            return Err(GraphError::NothingInCommon { target: target.path.clone(), golden: golden.path.clone() });
        };
        let expected = *self.task.get_or_insert(found);
        if expected != found {
            let (expected, found) = (expected.word(), found.word());
            return Err(GraphError::AnotherTask { path: target.path.clone(), expected, found });
        }
        Ok(found)
    }

    fn write(&mut self, graphs: &[RankGraph<'_>]) -> Result<(), GraphError> {
        for graph in graphs {
            self.micro_steps = self.micro_steps.max(graph.side.tree.micro_steps());
            self.nodes += graph.side.tree.nodes.len() as u64;
        }
        let written = self.database.rows(|to| graphs.iter().try_for_each(|graph| graph.write(to)));
        written.map_err(|source| GraphError::Database { path: self.request.output.clone(), source })
    }
}
