//! What a conversion says: to people, and as JSON.

use serde_json::{Value, json};
use trainmon_report::result_as_json;

use super::converted::{Converted, ConvertedRun};
use super::error::ConvertError;

impl Converted {
    /// For a terminal.
    pub fn in_words(&self) -> String {
        let line = |run: &ConvertedRun| {
            let steps =
                run.steps.map_or_else(|| "no steps".to_owned(), |(first, last)| format!("steps {first} to {last}"));
            let ConvertedRun { out, kinds, tags, values, .. } = run;
            format!("{}: {steps}, {values} values, {tags} tags, {} kinds\n", out.display(), kinds.len())
        };
        let lines: String = self.runs.iter().map(line).collect();
        lines + &format!("look at it: tensorboard --logdir {}\n", self.out.display())
    }
}

/// For programs, a failure too.
pub fn as_json(outcome: &Result<Converted, ConvertError>) -> Value {
    result_as_json(outcome, json!({"out": null, "newest": null, "runs": [], "warnings": []}))
}
