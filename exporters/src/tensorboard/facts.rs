//! The run's own numbers, as in `steps.csv`.

use trainmon_core::StepBatch;
use trainmon_run_files::StepColumn;

/// The tag of a column of `steps.csv`: `run/…` for the training, `monitor/…` for the monitor.
pub fn fact_tag(column: StepColumn) -> String {
    format!("{}/{}", if column.is_of_training() { "run" } else { "monitor" }, column.name())
}

/// The tags and numbers of a step, in order of the columns. Excludes `unix_seconds`, which is the points' own time.
pub(super) fn facts_of(batch: &StepBatch) -> Vec<(String, f64)> {
    let facts = StepColumn::ALL.into_iter().filter(|column| *column != StepColumn::UnixSeconds);
    facts.filter_map(|column| Some((fact_tag(column), column.number(batch)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_the_training_is_told_apart_from_what_is_about_the_monitor() {
        let of_training = StepColumn::ALL.into_iter().filter(|column| column.is_of_training()).map(fact_tag);
        let expected = "run/unix_seconds run/step_seconds run/loss run/learning_rate run/grad_norm \
                        run/framework_grad_norm run/grad_norm_ratio";
        assert_eq!(of_training.collect::<Vec<_>>().join(" "), expected);
        assert_eq!(fact_tag(StepColumn::Dropped), "monitor/dropped_total");
    }
}
