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
fn schema_of<'a>(arguments: &[&'a str], printed: &Value) -> Option<&'a str> {
    Some(match *arguments.first()? {
        "compare" => match printed["compared"].as_str()? {
            "captures" => "compare-captures",
            "runs" => "compare-runs",
            _ => "compare-checkpoint",
        },
        "ctl" => arguments.contains(&"status").then_some("ctl-status")?,
        "graph_visualize" => "graph",
        name => name,
    })
}
