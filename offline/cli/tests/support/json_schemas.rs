//! What every `--json` prints is what docs/schemas says.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::ProgramOutput;

/// Fails where the output is no JSON of the command's schema. A usage error prints none.
pub(super) fn check(command: &Command, output: &ProgramOutput) {
    let arguments: Vec<&str> = command.get_args().filter_map(|argument| argument.to_str()).collect();
    if output.code == Some(2) && output.out.is_empty() {
        return;
    }
    let printed: Value =
        serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"));
    let Some(name) = schema_of(&arguments, &printed) else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(format!("{name}.json"));
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("a schema")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let faults: Vec<String> =
        validator.iter_errors(&printed).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(faults.is_empty(), "{name}.json does not describe what {arguments:?} printed: {faults:#?}");
}

/// The schema's name; none for a failed comparison, which may be of anything, and for orders to a training.
fn schema_of(arguments: &[&str], printed: &Value) -> Option<String> {
    let name = match *arguments.first()? {
        "compare" => format!("compare-{}", printed["compared"].as_str()?.trim_end_matches('s')),
        "ctl" => arguments.contains(&"status").then(|| "ctl-status".to_owned())?,
        name => name.to_owned(),
    };
    Some(match &*name {
        "compare-capture" => "compare-captures".to_owned(),
        "compare-run" => "compare-runs".to_owned(),
        _ => name,
    })
}
