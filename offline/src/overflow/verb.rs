//! `trainmon overflow`.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use trainmon_dump::capture::{CaptureError, StepFiles, find};

use super::{Level, Origins, RankAnomalies, anomalies, msprobe_answer, origins};
use crate::compare::Capture;
use crate::failure::as_json;
use crate::printer::Printer;

/// Examples for `--help`.
pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon overflow dump/step3             where NaN and infinities of the step began, over all ranks\n",
    "  trainmon overflow dump --json | jq '.steps[0].born'\n",
    "  trainmon overflow_check -i dump/step3 -o out   msprobe's spelling: its JSON goes to out\n",
    "\n",
    "Exit codes: 0 there are none (with -i, as msprobe spells it, also if there are some), 1 there are some or nobody can\n",
    "tell, 2 an error"
);

/// The arguments.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A capture: a dump.json, a rank's directory, a step's, or the one that holds the steps
    #[arg(required_unless_present = "input_path")]
    capture: Option<PathBuf>,
    /// msprobe's spelling of CAPTURE
    #[arg(short, long, visible_alias = "input_path", value_name = "CAPTURE", conflicts_with = "capture")]
    input_path: Option<PathBuf>,
    /// Write msprobe's `anomaly_analyze_….json` there, by its own rules; with -i to ./output if nothing is said
    #[arg(short, long, visible_alias = "output_path", value_name = "DIR")]
    output_path: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// How it ended.
pub(crate) enum Outcome {
    /// There are none.
    Clean,
    /// There are some.
    Found,
    /// It could not be told.
    Failed,
}

/// It cannot be told.
#[derive(Debug, thiserror::Error)]
enum OverflowError {
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// msprobe's answer cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl OverflowError {
    fn hint(&self) -> &'static str {
        match self {
            Self::Capture(error) => error.hint(),
            Self::Write { .. } => "is the disk full, or the directory not yours?",
        }
    }
}

/// Runs the verb.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let path = arguments.capture.as_deref().or(arguments.input_path.as_deref()).unwrap_or(Path::new(""));
    let is_msprobes = arguments.input_path.is_some();
    let output = arguments.output_path.as_deref().or(is_msprobes.then_some(Path::new("output")));
    match steps(path, output) {
        Ok(steps) => {
            let is_clean = steps.iter().all(|step| step.origins.born.is_empty() && !step.is_blind);
            if arguments.json {
                printer.json(&json!({"steps": steps.iter().map(Step::as_json).collect::<Vec<_>>()}))?;
            } else {
                let text: String = steps.iter().flat_map(Step::lines).map(|line| line + "\n").collect();
                printer.result(&text)?;
            }
            // Its scripts go on whatever it finds.
            Ok(if is_clean || is_msprobes { Outcome::Clean } else { Outcome::Found })
        }
        Err(error) => {
            if arguments.json {
                printer.json(&json!({"error": as_json(&error, error.hint())}))?;
            } else {
                printer.failure(&error, Some(error.hint()));
            }
            Ok(Outcome::Failed)
        }
    }
}

/// What a step has.
struct Step {
    number: u64,
    origins: Origins,
    ranks: Vec<RankAnomalies>,
    written: Option<PathBuf>,
    /// No rank has statistics: nothing could be seen.
    is_blind: bool,
}

fn steps(path: &Path, output: Option<&Path>) -> Result<Vec<Step>, OverflowError> {
    find(path)?.steps.iter().map(|files| step(files, output)).collect()
}

fn step(files: &StepFiles, output: Option<&Path>) -> Result<Step, OverflowError> {
    let captures: Result<Vec<(u64, Capture)>, CaptureError> =
        files.ranks.iter().map(|files| Ok((files.rank, Capture::read(files)?))).collect();
    let captures = captures?;
    let found: Vec<(RankAnomalies, &Capture)> =
        captures.iter().map(|(rank, capture)| (anomalies(*rank, capture), capture)).collect();
    let origins = origins(&found);
    let mut written = None;
    if let Some(directory) = output {
        let captures: Vec<(u64, &Capture)> = captures.iter().map(|(rank, capture)| (*rank, capture)).collect();
        if let Some(answer) = msprobe_answer(&captures)? {
            let path = directory.join(format!("anomaly_analyze_{}.json", jiff::Timestamp::now().as_nanosecond()));
            let failed = |source| OverflowError::Write { path: path.clone(), source };
            std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, answer.dumps(2))).map_err(failed)?;
            written = Some(path);
        }
    }
    let is_blind = captures.iter().all(|(_, capture)| !capture.document.has_statistics());
    let ranks = found.into_iter().map(|(ranks, _)| ranks).collect();
    Ok(Step { number: files.step, origins, ranks, written, is_blind })
}

impl Step {
    fn count(&self, level: Level) -> usize {
        self.ranks.iter().flat_map(|rank| &rank.anomalies).filter(|anomaly| anomaly.level == level).count()
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (rank, birth) in &self.origins.born {
            let how = if birth.arrives { "arrives with" } else { "is the first with" };
            lines.push(format!(
                "Step {}, rank {rank}: {} {how} {}, in {}.",
                self.number, birth.name, birth.what, birth.value
            ));
        }
        if self.is_blind {
            lines.push(format!(
                "Step {}: cannot tell: the capture has no statistics. Capture task statistics or tensor.",
                self.number
            ));
        } else if lines.is_empty() {
            lines.push(format!("Step {}: neither NaN nor infinity.", self.number));
        }
        for (rank, operator, givers) in &self.origins.received {
            let givers: Vec<String> = givers.iter().map(ToString::to_string).collect();
            lines.push(format!("  Rank {rank} gets it in {operator} from rank {}.", givers.join(", ")));
        }
        for rank in self.ranks.iter().filter(|rank| !rank.on_purpose.is_empty()) {
            let first = rank.on_purpose.first().map_or("", String::as_str);
            lines.push(format!(
                "  Rank {}: {first} was given an infinity as an argument; that is not counted.",
                rank.rank
            ));
        }
        let counts = [Level::Critical, Level::High, Level::Medium].map(|level| (level.word(), self.count(level)));
        if counts.iter().any(|(_, count)| *count > 0) {
            let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
            lines.push(format!("  Operators by level: {}.", counts.join(", ")));
        }
        lines.extend(self.written.iter().map(|path| format!("  {}", path.display())));
        lines
    }

    fn as_json(&self) -> Value {
        let born = self.origins.born.iter().map(|(rank, birth)| {
            json!({"rank": rank, "operator": birth.name, "value": birth.value, "what": birth.what, "arrives": birth.arrives})
        });
        let received = self
            .origins
            .received
            .iter()
            .map(|(rank, operator, from)| json!({"rank": rank, "operator": operator, "from": from}));
        let ranks = self.ranks.iter().map(|rank| {
            let anomalies =
                rank.anomalies.iter().map(|anomaly| json!({"operator": anomaly.name, "level": anomaly.level.word()}));
            json!({"rank": rank.rank, "anomalies": anomalies.collect::<Vec<_>>(), "on_purpose": rank.on_purpose})
        });
        json!({
            "step": self.number, "born": born.collect::<Vec<_>>(), "received": received.collect::<Vec<_>>(),
            "ranks": ranks.collect::<Vec<_>>(), "file": self.written, "cannot_tell": self.is_blind,
        })
    }
}
