//! The result as text and as JSON.

use serde_json::{Value, json};

use super::Level;
use super::step::{OverflowError, Step};

/// The text for a terminal.
pub fn in_words(steps: &[Step]) -> String {
    steps.iter().flat_map(Step::lines).map(|line| line + "\n").collect()
}

/// The result, or the error, as JSON.
pub fn as_json(steps: &Result<Vec<Step>, OverflowError>) -> Value {
    match steps {
        Ok(steps) => json!({"steps": steps.iter().map(Step::as_json).collect::<Vec<_>>(), "error": null}),
        Err(error) => json!({"steps": [], "error": trainmon_report::as_json(error)}),
    }
}

impl Step {
    fn count(&self, level: Level) -> usize {
        self.ranks.iter().flat_map(|rank| &rank.anomalies).filter(|anomaly| anomaly.level == level).count()
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (rank, origin) in &self.origins.starts {
            let how = if origin.arrives { "receives" } else { "returns" };
            let given = origin.given.as_ref();
            let given = given.map_or(String::new(), |given| format!(" It received infinity in `{given}`."));
            lines.push(format!(
                "First {}: step {}, rank {rank}, `{}` {how} it in `{}`.{given}",
                origin.what, self.number, origin.name, origin.value
            ));
        }
        if self.is_blind {
            lines.push(format!(
                "Step {}: cannot tell: the capture has no statistics. Capture with task `statistics` or `tensor`.",
                self.number
            ));
        } else if lines.is_empty() {
            lines.push(format!("Step {}: neither NaN nor infinity.", self.number));
        }
        for (rank, operator, givers) in &self.origins.received {
            let givers: Vec<String> = givers.iter().map(ToString::to_string).collect();
            lines.push(format!("  Rank {rank} received it in `{operator}` from rank {}.", givers.join(", ")));
        }
        for rank in self.ranks.iter().filter(|rank| rank.origin.is_none() && !rank.on_purpose.is_empty()) {
            let first = rank.on_purpose.first().map_or("", String::as_str);
            lines.push(format!(
                "  Rank {}: `{first}` received an infinity without effect, which does not count.",
                rank.rank
            ));
        }
        let counts = [Level::Critical, Level::High, Level::Medium].map(|level| (level.word(), self.count(level)));
        let grown = self.count(Level::High);
        if self.origins.starts.is_empty()
            && grown > 0
            && counts.iter().all(|(word, count)| *word == "high" || *count == 0)
        {
            let operators = if grown == 1 { "1 operator returns" } else { &format!("{grown} operators return") };
            lines.push(format!("  {operators} a norm more than 100 times that of the input (level high)."));
        } else if counts.iter().any(|(_, count)| *count > 0) {
            let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
            lines.push(format!("  Operators by level: {}.", counts.join(", ")));
        }
        lines.extend(self.written.iter().map(|path| format!("  {}", path.display())));
        lines
    }

    fn as_json(&self) -> Value {
        let starts = self.origins.starts.iter().map(|(rank, origin)| {
            json!({
                "rank": rank, "operator": origin.name, "value": origin.value, "what": origin.what, "arrives": origin.arrives,
                "given": origin.given,
            })
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
            "step": self.number, "born": starts.collect::<Vec<_>>(), "received": received.collect::<Vec<_>>(),
            "ranks": ranks.collect::<Vec<_>>(), "file": self.written, "cannot_tell": self.is_blind,
        })
    }
}
