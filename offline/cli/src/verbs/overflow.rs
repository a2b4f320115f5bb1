//! `trainmon overflow`.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_compare::overflow::{Step, as_json, in_words, steps};
use trainmon_report::{Outcome, Printer};

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

/// Looks for them, and says what came of it.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let path = arguments.capture.as_deref().or(arguments.input_path.as_deref()).unwrap_or(Path::new(""));
    let is_msprobes = arguments.input_path.is_some();
    let output = arguments.output_path.as_deref().or(is_msprobes.then_some(Path::new("output")));
    let steps = steps(path, output);
    printer.answer(&steps, arguments.json.then(|| as_json(&steps)), |steps| in_words(steps))?;
    // msprobe's scripts go on whatever it finds.
    Ok(steps.map_or(Outcome::Failed, |steps| Outcome::of(!is_msprobes && !steps.iter().all(Step::is_clean))))
}
