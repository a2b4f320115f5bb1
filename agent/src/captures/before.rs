//! The steps before a capture: with a journal all their rows, else only each step's own numbers.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use trainmon_core::config::Config;
use trainmon_core::{Record, Step, StepBatch, TensorInfo, TensorTable};
use trainmon_journal::JournalView;

/// The number of steps before a capture that are written.
const STEPS: u64 = 50;
/// The maximum number of rows that are written, about 40 MiB.
const MAX_ROWS: usize = 200_000;

/// Numbers of the latest steps, such as loss and learning rate. The worker adds them.
#[derive(Debug, Default)]
pub(crate) struct RecentSteps(Mutex<VecDeque<Value>>);

impl RecentSteps {
    /// Adds a step that has ended.
    pub(crate) fn add(&self, batch: &StepBatch) {
        let mut steps = self.0.lock();
        if steps.len() as u64 > STEPS {
            steps.pop_front();
        }
        steps.push_back(facts(batch));
    }

    fn before(&self, step: Step) -> Vec<Value> {
        let steps = self.0.lock();
        let is_before = |facts: &&Value| facts["step"].as_u64().is_some_and(|number| number < step.0);
        steps.iter().filter(is_before).cloned().collect()
    }
}

/// The sources of earlier steps: the journal, or the latest steps in memory.
#[derive(Clone, Default)]
pub(crate) struct StepsBefore {
    journal: Option<JournalView>,
    recent: Arc<RecentSteps>,
    tensors: TensorTable,
}

impl StepsBefore {
    pub(crate) fn new(journal: Option<JournalView>, recent: Arc<RecentSteps>, tensors: TensorTable) -> Self {
        Self { journal, recent, tensors }
    }

    /// Prepares to write the steps before `step`. Reads nothing yet.
    pub(crate) fn look(&self, config: &Config, step: Step) -> Before {
        Before { sources: self.clone(), config: config.clone(), step }
    }
}

/// The steps before a captured step. They are read when they are written.
pub(crate) struct Before {
    sources: StepsBefore,
    config: Config,
    step: Step,
}

impl Before {
    /// Writes a line of JSON per step. If the journal has the step, a line for each of its rows follows.
    ///
    /// # Errors
    /// Errors of the writer.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let StepsBefore { journal, recent, tensors } = &self.sources;
        let Some(journal) = journal.as_ref().filter(|_| self.step.0 > 0) else {
            return recent.before(self.step).iter().try_for_each(|facts| writeln!(out, "{facts}"));
        };
        let mut names = Vec::new();
        tensors.sync_into(&mut names);
        let first = Step(self.step.0.saturating_sub(STEPS));
        let mut rows = 0;
        for number in first.0..self.step.0 {
            // One step at a time, because a step may be large.
            for batch in journal.read_steps(Step(number)..=Step(number)) {
                writeln!(out, "{}", facts(&batch))?;
                for record in batch.records.iter().take(MAX_ROWS - rows) {
                    rows += 1;
                    writeln!(out, "{}", row(&self.config, &names, &batch, record))?;
                }
            }
        }
        Ok(())
    }
}

/// A step's own numbers as JSON.
fn facts(batch: &StepBatch) -> Value {
    json!({
        "step": batch.step.0,
        "time_ms": batch.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
        "seconds": batch.duration.map(|duration| duration.as_secs_f64()),
        "loss": batch.loss.map(number),
        "learning_rate": batch.learning_rate.map(number),
        "grad_norm": batch.grad_norm().map(number),
        "framework_grad_norm": batch.framework_grad_norm.map(number),
        "skipped_steps": batch.skipped_steps,
    })
}

/// A record as JSON, with the columns of the CSV files.
fn row(config: &Config, names: &[TensorInfo], batch: &StepBatch, record: &Record) -> Value {
    let info = names.get(record.tensor.index());
    let mut row = Map::new();
    row.insert("step".to_owned(), json!(batch.step.0));
    row.insert("kind".to_owned(), json!(record.kind.name()));
    row.insert("name".to_owned(), json!(info.map_or("?", |info| &*info.name)));
    row.insert("vpp_stage".to_owned(), json!(info.map_or(0, |info| info.vpp_stage)));
    row.insert("micro_step".to_owned(), json!(record.micro_step.0));
    let Some(reading) = &record.reading else { return Value::Object(row) };
    let columns = record.kind.value_columns();
    if columns.is_empty() {
        let measured = batch.ops_of(config, record.kind);
        row.extend(measured.iter().map(|&it| (it.name().to_owned(), number(reading.value(it)))));
    } else {
        row.extend(columns.iter().zip(reading.values()).map(|(name, value)| ((*name).to_owned(), number(*value))));
    }
    Value::Object(row)
}

/// A number as JSON; a string if it is not finite.
fn number(value: f64) -> Value {
    trainmon_core::number::serialize(&value, serde_json::value::Serializer).unwrap_or(Value::Null)
}
