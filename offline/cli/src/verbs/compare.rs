//! The command line of `trainmon compare` and its output.

mod arguments;
mod other_kinds;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trainmon_compare::matching::{ApiMapping, LayerMapping, Mapping, MappingError, Matching};
use trainmon_compare::{
    CaptureAnswer, CaptureVerdict, CompareError, Compared, Format, Meter, Request, RequestError, Tables, Thresholds,
    as_json, in_words,
};
use trainmon_report::{Outcome, Printer, Tone, toned, watched};

pub(crate) use self::arguments::Arguments;
use self::arguments::{FailOn, level, paths};

/// Examples for `--help`.
pub(crate) const EXAMPLES: &str = concat!(
    "Examples:\n",
    "  trainmon compare dump_b/step0 dump_a/step0                 the first divergence in a sentence\n",
    "  trainmon compare dump_b dump_a -o report                   all steps and ranks: an HTML report and tables\n",
    "  trainmon compare dump_b dump_a dump_a2                     two golden runs: their spread sets the tolerance\n",
    "  trainmon compare b/dump.json a/dump.json --json | jq .operator\n",
    "  trainmon compare monitor_b monitor_a                       two monitored runs: the first divergence\n",
    "  trainmon compare b/model.pt a/model.pt                     two checkpoints, tensor by tensor\n",
    "  trainmon compare -tp b/step0 -gp a/step0 -o out            msprobe's spelling; --compat for its exact cells\n",
    "\n",
    "Exit codes: 0 no divergence, 1 divergence or undecided (see --fail-on), 2 an error"
);

/// msprobe's options with one dash and several letters, mapped to long options.
pub(crate) const SPELLINGS: [(&str, &str); 9] = [
    ("-tp", "--target-path"),
    ("-gp", "--golden-path"),
    ("-fm", "--fuzzy-match"),
    ("-dm", "--data-mapping"),
    ("-cm", "--cell-mapping"),
    ("-am", "--api-mapping"),
    ("-lm", "--layer-mapping"),
    ("-da", "--diff-analyze"),
    ("-tensor_log", "--is-print-compare-log"),
];

/// Compares and prints the result.
pub(crate) fn run(arguments: &Arguments, printer: &mut Printer) -> io::Result<Outcome> {
    if let Some(outcome) = other_kinds::run(arguments, printer)? {
        return Ok(outcome);
    }
    let compared = compare(arguments, printer).map_err(other_kinds::named);
    printer.answer(&compared, arguments.json.then(|| as_json(&compared)), |compared| {
        toned(tone(&compared.answer), &in_words(compared))
    })?;
    Ok(compared.map_or(Outcome::Failed, |compared| outcome(&compared.answer, arguments)))
}

fn compare(arguments: &Arguments, printer: &mut Printer) -> Result<Compared, RequestError> {
    let request = request(arguments)?;
    let meter = Arc::<Meter>::default();
    let mut see = |operator: &str| {
        if arguments.is_print_compare_log {
            printer.note(&format!("{operator}\n"));
        }
    };
    let compared = watched("comparing", &|| meter.progress(), || request.run(&meter, &mut see))?;
    // Every file of a capture may cause a note: the first few are enough.
    let (notes, shown) = (meter.notes(), 3);
    notes.iter().take(shown).for_each(|note| printer.note(&format!("note: {note}\n")));
    if notes.len() > shown {
        printer.note(&format!("note: the same applies to {} more files\n", notes.len() - shown));
    }
    if let Some(path) = mapping_file(arguments).filter(|_| !compared.is_mapping_used && !arguments.compat) {
        printer.note(&format!(
            "note: `{}` matches no names: check that its names are those of the target\n",
            path.display()
        ));
    }
    Ok(compared)
}

/// The request, in either spelling.
fn request(arguments: &Arguments) -> Result<Request, CompareError> {
    let (target, goldens) = paths(arguments);
    let is_msprobes = arguments.target_path.is_some();
    let formats = match &arguments.format[..] {
        _ if arguments.xlsx => vec![Format::Xlsx],
        [] if is_msprobes => vec![Format::Csv],
        [] => vec![Format::Csv, Format::Html],
        formats => formats.to_vec(),
    };
    let output = arguments.output_path.clone().or(is_msprobes.then(|| PathBuf::from("output")));
    Ok(Request {
        target: target.to_path_buf(),
        goldens,
        thresholds: arguments.thresholds.as_deref().map(Thresholds::read).transpose()?.unwrap_or_default(),
        matching: matching(arguments)?,
        tables: output.map(|directory| Tables { directory, formats }),
        is_compat: arguments.compat,
        // For two files, msprobe ignores the switch.
        is_diff_analyze: (arguments.compat || is_msprobes) && arguments.diff_analyze && target.is_dir(),
    })
}

fn tone(answer: &CaptureAnswer) -> Tone {
    match answer.verdict {
        CaptureVerdict::Same | CaptureVerdict::Rounding { .. } => Tone::Good,
        CaptureVerdict::Rewritten { .. } | CaptureVerdict::OneSided { .. } | CaptureVerdict::CannotTell { .. } => {
            Tone::Doubtful
        }
        CaptureVerdict::Parts { .. } => Tone::Bad,
    }
}

fn outcome(answer: &CaptureAnswer, arguments: &Arguments) -> Outcome {
    // A caller who asks whether runs agree must not get a yes for an undecided comparison.
    let parts = matches!(answer.verdict, CaptureVerdict::Parts { .. } | CaptureVerdict::CannotTell { .. });
    let is_one_sided = matches!(answer.verdict, CaptureVerdict::OneSided { .. } | CaptureVerdict::Rewritten { .. })
        || !answer.target_only.is_empty()
        || !answer.golden_only.is_empty()
        || answer.unread > 0;
    let fails = match level(arguments) {
        FailOn::Never => false,
        FailOn::Error => parts,
        FailOn::Warning => parts || is_one_sided,
    };
    Outcome::of(fails)
}

/// The mapping file in effect, if any.
fn mapping_file(arguments: &Arguments) -> Option<&Path> {
    let Arguments { data_mapping, cell_mapping, layer_mapping, api_mapping, .. } = arguments;
    match (data_mapping, [cell_mapping, layer_mapping, api_mapping].into_iter().flatten().next()) {
        (Some(path), _) | (None, Some(Some(path))) => Some(path),
        _ => None,
    }
}

/// The matching that the options select; of several, the first in this order, as in msprobe.
fn matching(arguments: &Arguments) -> Result<Matching, MappingError> {
    let Arguments { data_mapping, cell_mapping, layer_mapping, api_mapping, fuzzy_match, .. } = arguments;
    Ok(if let Some(path) = data_mapping {
        Matching::Data(Mapping::read(path)?)
    } else if let Some(path) = cell_mapping {
        Matching::Cell(path.as_deref().map_or(Ok(Mapping::default()), Mapping::read)?)
    } else if let Some(path) = layer_mapping {
        Matching::Layer(path.as_deref().map_or(Ok(LayerMapping::default()), LayerMapping::read)?)
    } else if let Some(path) = api_mapping {
        Matching::Api(path.as_deref().map_or(Ok(ApiMapping::default()), ApiMapping::read)?)
    } else if *fuzzy_match {
        Matching::Sequence
    } else {
        Matching::Name
    })
}
