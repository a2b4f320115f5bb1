//! Applies the rules to a recorded run, ours or msprobe's, or to another tool's log: the alerts that they would have raised.

mod coverage;
mod error;
mod report;

use std::collections::HashSet;
use std::path::Path;

use trainmon_alerts::RecordedRules;
use trainmon_core::config::{Alerting, Config};
use trainmon_core::{Alert, AlertPhase, AlertRule, StepBatch};
use trainmon_report::{Progress, first_of, quoted};

use self::coverage::Coverage;
pub use self::error::JudgeError;
pub use self::report::{Judged, JudgedRank, as_json};
use crate::steps::{ColumnNames, Log, RankChoice, RecordedRank, RecordedRun};

/// The options.
#[derive(Clone, Copy, Debug)]
pub struct JudgeOptions<'a> {
    /// The ranks.
    pub ranks: RankChoice,
    /// The columns of another tool's log.
    pub columns: &'a ColumnNames,
    /// The rules.
    pub alerting: &'a Alerting,
}

/// Names that a hint lists.
const SHOWN: usize = 8;

/// Applies the rules to the steps in `path`, rank after rank. `tell` receives the progress.
///
/// Nothing is written, and no action of a rule is executed. Memory: one step, and the state of the rules. Cost: each file is
/// read once.
///
/// # Errors
/// There is neither a run nor a log, the rank does not exist, a file is damaged, there is no step, or no rule applies to the
/// recorded signals.
pub fn judge(path: &Path, options: JudgeOptions<'_>, tell: &mut dyn FnMut(Progress)) -> Result<Judged, JudgeError> {
    let JudgeOptions { ranks, columns, alerting } = options;
    let run = RecordedRun::open_any(path, ranks, columns)?;
    let mut judge =
        Judge { alerting, coverage: Coverage::default(), findings: Default::default(), judged: empty(&run) };
    let (total, mut done) = (run.bytes(), 0);
    for rank in &run.ranks {
        judge.look_at(rank, &mut |bytes| tell(Progress { done: done + bytes, total }))?;
        done += rank.bytes();
    }
    let Judge { coverage, findings, mut judged, .. } = judge;
    if judged.ranks.iter().all(|rank| rank.steps == 0) {
        return Err(JudgeError::NoSteps { path: path.to_path_buf() });
    }
    if !coverage.is_any(alerting) {
        let (path, missing) = (path.to_path_buf(), Coverage::wanted(alerting));
        return Err(JudgeError::NothingToJudge { path, missing, hint: hint(run.log.as_deref()) });
    }
    judged.alerts.sort_by_key(|alert| (alert.step, alert.rank));
    judged.not_judged = coverage.not_judged(alerting);
    let by_rule = AlertRule::ALL.into_iter().zip(findings);
    judged.findings = by_rule.filter(|(_, count)| *count > 0).map(|(rule, count)| (rule.name(), count)).collect();
    Ok(judged)
}

fn empty(run: &RecordedRun) -> Judged {
    Judged {
        run: run.name.clone(),
        newest: run.newest.clone(),
        log: run.log.clone(),
        ranks: Vec::new(),
        alerts: Vec::new(),
        going_on: 0,
        findings: Vec::new(),
        unsaid: 0,
        not_judged: Vec::new(),
        warnings: Vec::new(),
    }
}

/// The hint if no rule applies.
fn hint(log: Option<&Log>) -> String {
    match log {
        Some(log) if log.names.is_empty() => "there is no other column: is it the log of a training?".to_owned(),
        Some(log) => {
            let listed = first_of(log.names.iter().map(quoted), SHOWN);
            format!("name a column with `--loss` or `--grad-norm`: {listed}")
        }
        None => "pass rules for the recorded signals with `--config`".to_owned(),
    }
}

/// The state of the rules, rank after rank.
struct Judge<'a> {
    alerting: &'a Alerting,
    coverage: Coverage,
    findings: [u64; AlertRule::ALL.len()],
    judged: Judged,
}

impl Judge<'_> {
    fn look_at(&mut self, rank: &RecordedRank, tell: &mut dyn FnMut(u64)) -> Result<(), JudgeError> {
        let mut reader = rank.open()?;
        let config = Config { alert: self.alerting.clone(), ..reader.config().clone() };
        let mut rules = RecordedRules::new(&config, rank.run().rank);
        let mut of_rank = JudgedRank { rank: rank.run().rank.0, ..JudgedRank::default() };
        let mut open: HashSet<(AlertRule, String)> = HashSet::new();
        let mut batch = StepBatch::default();
        while reader.next(&mut batch)? {
            let step = batch.step.0;
            of_rank.range = Some((of_rank.range.map_or(step, |(first, _)| first), step));
            of_rank.steps += 1;
            self.coverage.add(&batch);
            let verdict = rules.look_at(&batch, reader.names());
            for alert in &verdict.alerts {
                note_open(&mut open, alert);
            }
            self.judged.unsaid += verdict.unsaid.iter().map(|(_, count)| count).sum::<u64>();
            self.judged.alerts.extend(verdict.alerts);
            self.judged.warnings.extend(verdict.notice);
            tell(reader.bytes_read());
        }
        self.judged.going_on += open.len();
        self.judged.warnings.extend_from_slice(reader.warnings());
        self.judged.ranks.push(of_rank);
        let totals = rules.totals().snapshot();
        for (sum, count) in self.findings.iter_mut().zip(totals.findings) {
            *sum += count;
        }
        if totals.series_overflow > 0 {
            let most = self.alerting.max_series;
            let (rank, ignored) = (rank.run().rank, totals.series_overflow);
            self.judged.warnings.push(format!(
                "rank {rank}: {ignored} values were ignored, because at most {most} series are tracked (`max_series`)"
            ));
        }
        Ok(())
    }
}

fn note_open(open: &mut HashSet<(AlertRule, String)>, alert: &Alert) {
    let series = (alert.rule, alert.series.to_string());
    match alert.phase {
        AlertPhase::Begins => open.insert(series),
        AlertPhase::Ends => open.remove(&series),
    };
}
