//! The command line of `trainmon graph` and its output.

use std::io;
use std::path::{Path, PathBuf};

use trainmon_compare::matching::LayerMapping;
use trainmon_graph::{GraphError, GraphRequest, NodeMatching, WrittenGraph, as_json, write};
use trainmon_report::{Outcome, Printer, shown};

/// Examples for `--help`.
pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon graph dump/step0/rank0 -o graphs              the modules and operators of one rank\n",
    "  trainmon graph dump_b dump_a -o graphs                 two runs: all steps and ranks of both\n",
    "  trainmon graph dump_b dump_a -o graphs --layer-mapping names.yaml\n",
    "  trainmon graph_visualize -tp dump_b -gp dump_a -o graphs -oc      msprobe's spelling\n",
    "  tensorboard --logdir graphs                            opens the file, with msprobe's plugin\n",
    "\n",
    "Exit codes: 0 the file is written, 2 an error"
);

/// msprobe's options with one dash and several letters, mapped to long options.
pub(crate) const SPELLINGS: [(&str, &str); 7] = [
    ("-tp", "--target-path"),
    ("-gp", "--golden-path"),
    ("-oc", "--overflow-check"),
    ("-fm", "--fuzzy-match"),
    ("-lm", "--layer-mapping"),
    ("-tensor_log", "--is-print-compare-log"),
    ("-progress_log", "--is-print-progress-log"),
];

/// The arguments.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Arguments {
    /// A capture: the directory of a rank or a step, or the one that contains the steps
    #[arg(required_unless_present = "target_path")]
    target: Option<PathBuf>,
    /// The baseline to compare with, of the same kind
    golden: Option<PathBuf>,
    /// msprobe's spelling of TARGET: -tp
    #[arg(long, value_name = "TARGET", conflicts_with = "target")]
    target_path: Option<PathBuf>,
    /// msprobe's spelling of GOLDEN: -gp
    #[arg(long, value_name = "GOLDEN", conflicts_with = "golden", requires = "target_path")]
    golden_path: Option<PathBuf>,
    /// The directory for `build_<time>.vis.db` or `compare_<time>.vis.db`
    #[arg(short, long, value_name = "DIR")]
    output_path: PathBuf,
    /// Mark operators with NaN, infinity or a norm that grows 100 times: -oc
    #[arg(long)]
    overflow_check: bool,
    /// Pair the operators in a module by their order instead of by the number of their call: -fm
    #[arg(long, conflicts_with = "layer_mapping")]
    fuzzy_match: bool,
    /// Pair modules by their paths below a class, `class: {path: path}`; without a file, by their own paths: -lm
    #[arg(long, value_name = "YAML", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "how clap says that the file may be left out")]
    layer_mapping: Option<Option<PathBuf>>,
    /// msprobe's switch, without effect: `-tensor_log`
    #[arg(long, hide = true)]
    is_print_compare_log: bool,
    /// msprobe's switch, without effect: `-progress_log`
    #[arg(long, hide = true)]
    is_print_progress_log: bool,
    /// Print one JSON object, also on failure
    #[arg(long)]
    json: bool,
}

/// Writes the file and prints its path.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    let request = request(arguments);
    let written = shown("building the graph", |progress| request.and_then(|request| write(&request, progress)));
    if let (Ok(written), false) = (&written, arguments.json) {
        for warning in &written.warnings {
            printer.warning(warning, "", None);
        }
    }
    printer.answer(&written, arguments.json.then(|| as_json(&written)), WrittenGraph::in_words)?;
    Ok(Outcome::of_work(&written))
}

fn request(arguments: &Arguments) -> Result<GraphRequest, GraphError> {
    let Arguments { target, golden, target_path, golden_path, output_path, overflow_check, .. } = arguments;
    let target = target.as_deref().or(target_path.as_deref()).unwrap_or(Path::new(""));
    let matching = match &arguments.layer_mapping {
        Some(None) => NodeMatching::Layer(LayerMapping::default()),
        Some(Some(path)) => NodeMatching::Layer(LayerMapping::read(path)?),
        None if arguments.fuzzy_match => NodeMatching::Fuzzy,
        None => NodeMatching::Name,
    };
    Ok(GraphRequest {
        target: target.to_path_buf(),
        golden: golden.clone().or_else(|| golden_path.clone()),
        output: output_path.clone(),
        matching,
        is_overflow_checked: *overflow_check,
    })
}
