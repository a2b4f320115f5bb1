//! The command line of `trainmon overflow` and its output.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_compare::overflow::{Step, as_json, in_words, steps};
use trainmon_report::{Outcome, Printer};

/// Examples for `--help`.
pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon overflow dump/step3             the origin of NaN and infinity in the step, over all ranks\n",
    "  trainmon overflow dump --json | jq '.steps[0].born'\n",
    "  trainmon overflow_check -i dump/step3 -o out   msprobe's spelling: writes its JSON to out\n",
    "\n",
    "Exit codes: 0 no NaN or infinity (with msprobe's -i also if there are some), 1 NaN or infinity found, or ",
    "undecided, 2 an error"
);

/// The arguments.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A capture: a dump.json, the directory of a rank or a step, or the one that contains the steps
    #[arg(required_unless_present = "input_path")]
    capture: Option<PathBuf>,
    /// msprobe's spelling of CAPTURE
    #[arg(short, long, visible_alias = "input_path", value_name = "CAPTURE", conflicts_with = "capture")]
    input_path: Option<PathBuf>,
    /// Write msprobe's `anomaly_analyze_….json` to this directory, by msprobe's own rules [default with -i: ./output]
    #[arg(short, long, visible_alias = "output_path", value_name = "DIR")]
    output_path: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Searches the capture and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let path = arguments.capture.as_deref().or(arguments.input_path.as_deref()).unwrap_or(Path::new(""));
    let is_msprobes = arguments.input_path.is_some();
    let output = arguments.output_path.as_deref().or(is_msprobes.then_some(Path::new("output")));
    let steps = steps(path, output);
    printer.answer(&steps, arguments.json.then(|| as_json(&steps)), |steps| in_words(steps))?;
    // msprobe's scripts continue with any result.
    Ok(steps.map_or(Outcome::Failed, |steps| Outcome::of(!is_msprobes && !steps.iter().all(Step::is_clean))))
}
