//! The summary sentence and the next steps.

use std::collections::BTreeSet;
use std::path::Path;

use trainmon_core::{AlertRule, INCIDENT_STEPS, shell_word, shown_name};
use trainmon_runs::steps::ColumnNames;

use super::document::{Certainty, Direction, Moved, NextStep, Report, ReportedAlert, StandsOut, StandsOutKind};
use super::gaps::{Coverage, capitalised};

/// How many steps before the first sign a second run should measure everything.
const LEAD: u64 = 5;

/// At most this many series of the optimizer's state move together by chance.
const ALONE: usize = 8;

/// The sentence that summarizes the run.
pub(super) fn summary(report: &Report, coverage: &Coverage) -> String {
    let alerts = report.alerts.len() as u64 + report.left_out.alerts;
    let steps: u64 = report.ranks.iter().map(|rank| rank.steps).max().unwrap_or(0);
    let seen = format!("{steps} steps, {} series", coverage.series());
    if !coverage.has_steps() && alerts == 0 {
        return "The run has no steps yet.".to_owned();
    }
    let alert = first_alert(report, alerts).map_or_else(|| coverage.without_alert(), |first| format!("{first} "));
    let Some(first) = first_certain(report) else {
        let moved = report.moved.len() as u64 + report.left_out.moved;
        // A parameter that starts small grows most in healthy trainings.
        let leads = |one: &&StandsOut| one.kind != StandsOutKind::Grown;
        if let Some(first) = report.stands_out.iter().find(leads) {
            let others = match report.stands_out.len() - 1 {
                0 => String::new(),
                1 => " 1 other finding.".to_owned(),
                others => format!(" {others} other findings."),
            };
            return format!("{alert}{}.{others} ({seen})", capitalised(&first.words));
        }
        return match moved {
            0 => format!("{alert}No series left its usual range ({seen})."),
            1 => format!("{alert}1 series may have left its usual range, which can be chance ({seen})."),
            _ => format!("{alert}{moved} series may have left their usual range, which can be chance ({seen})."),
        };
    };
    let certainty = match first.certainty {
        Certainty::Certain => "It is certain".to_owned(),
        certainty => format!("It is {} ({:.0} deviations)", certainty.words(), first.deviations),
    };
    let others = report.moved.len() as u64 + report.left_out.moved - 1;
    let others = match others {
        0 => String::new(),
        1 => "; 1 other series moved too".to_owned(),
        others => format!("; {others} other series moved too"),
    };
    format!("{alert}{certainty} that {}{others} ({seen}).", movement_in_words(first))
}

/// The summary of the first alert, which comes first: the run's own rules saw every step. Alerts of all ranks that
/// begin within a few steps of each other count as one incident.
fn first_alert(report: &Report, alerts: u64) -> Option<String> {
    let message = &report.alerts.first()?.message;
    let is_next = |a: &ReportedAlert, b: &ReportedAlert| b.step.saturating_sub(a.step) <= INCIDENT_STEPS;
    let incidents: Vec<&[ReportedAlert]> = report.alerts.chunk_by(is_next).collect();
    let ranks: BTreeSet<u32> = report.alerts.iter().map(|alert| alert.rank).collect();
    let on = if ranks.len() > 1 { format!(" on {} ranks", ranks.len()) } else { String::new() };
    let beginning = match incidents.len() {
        _ if alerts == 1 => "One alert".to_owned(),
        // The steps of the omitted alerts are unknown, so incidents cannot be counted.
        _ if report.left_out.alerts > 0 => format!("{alerts} alerts{on}, the first"),
        1 => format!("One incident ({alerts} alerts{on})"),
        several => format!("{several} incidents ({alerts} alerts{on}), the first"),
    };
    Some(format!("{beginning}: {message}."))
}

/// The earliest departure that is unlikely to be chance. Within one step, a non-finite value comes first, then causes
/// before their effects, and a tensor before a sum over all tensors.
pub(super) fn first_certain(report: &Report) -> Option<&Moved> {
    let is_told = |moved: &&Moved| is_beyond_chance(moved, report);
    let first = report.moved.iter().find(is_told)?;
    if first.signal != "grad_norm" {
        return Some(first);
    }
    let mut of_step = report.moved.iter().filter(|moved| moved.step == first.step).filter(is_told);
    Some(of_step.find(|moved| moved.tensor.is_some() && moved.signal.starts_with("grad")).unwrap_or(first))
}

/// Whether a movement is unlikely to be chance: among thousands of series some jump by chance. It must be a non-finite
/// value, a number of the whole run, a far move of a gradient, activation or parameter, or one of several series that
/// move at once.
fn is_beyond_chance(moved: &Moved, report: &Report) -> bool {
    if is_of_the_machine(moved) {
        return false;
    }
    let is_state =
        ["exp_", "max_exp", "square_avg", "grad_avg", "sum", "optimizer_state", "update", "momentum", "mg_direction"]
            .iter()
            .any(|of| moved.signal.starts_with(of));
    let least = if moved.tensor.is_none() && !is_state { Certainty::Likely } else { Certainty::VeryLikely };
    if moved.certainty == Certainty::Certain {
        return true;
    }
    let together = || report.moved.iter().filter(|one| one.step.abs_diff(moved.step) <= 1).count();
    // Updates shrink with the learning rate.
    let is_fall_of_update = moved.direction == Direction::Falls && moved.signal.starts_with("update");
    let is_alarming = !is_state || (!is_fall_of_update && together() > ALONE);
    moved.certainty >= least && is_alarming
}

/// Times describe the machine, not the training's numbers.
fn is_of_the_machine(moved: &Moved) -> bool {
    moved.signal.ends_with("_seconds") || moved.signal == "comm_time"
}

/// `the norm of grad_reduced of blocks.3.fc.weight rises at step 7 on rank 0, from 1.0 to 50`.
pub(super) fn movement_in_words(moved: &Moved) -> String {
    let Moved { step, step_up_to, rank, signal, statistic, tensor, direction, value, usual, returned, .. } = moved;
    let what = match (tensor, statistic) {
        (Some(tensor), Some(statistic)) => format!("{signal} {statistic} of {}", shown_name(tensor)),
        _ => signal.clone(),
    };
    let when = if step == step_up_to { format!("step {step}") } else { format!("steps {step} to {step_up_to}") };
    let how = match direction {
        Direction::Rises => "rises",
        Direction::Falls => "falls",
        Direction::NotFinite => "is not finite",
    };
    let from = match usual {
        // For a non-finite value, a curve keeps no other number.
        Some(usual) if *direction == Direction::NotFinite => format!(", usually {}", short(*usual)),
        Some(usual) => format!(", from {} to {}", short(*usual), short(*value)),
        None => String::new(),
    };
    let end = if *returned { ", and returned" } else { "" };
    format!("{what} {how} at {when} on rank {rank}{from}{end}")
}

/// A number with four digits.
pub(super) fn short(value: f64) -> String {
    trainmon_core::short(value, 4)
}

/// The subject of a report, for the commands in it.
#[derive(Debug)]
pub(super) struct Subject {
    /// The path, quoted for a shell, with the options that name columns.
    words: String,
    /// Whether it is another tool's log, which commands for runs do not accept.
    is_log: bool,
}

impl Subject {
    pub(super) fn new(path: &Path, columns: &ColumnNames, is_log: bool) -> Self {
        let ColumnNames { step, loss, grad_norm, learning_rate } = columns;
        let options = [("--loss", loss), ("--grad-norm", grad_norm), ("--lr", learning_rate), ("--step", step)];
        let named =
            options.iter().filter_map(|(option, name)| Some(format!(" {option} {}", shell_word(name.as_ref()?))));
        let words = shell_word(&path.display().to_string()).into_owned() + &named.collect::<String>();
        Self { words, is_log }
    }
}

/// The open questions, the most informative first.
pub(super) fn next_steps(report: &Report, coverage: &Coverage, run: &Subject) -> Vec<NextStep> {
    let mut next = Vec::new();
    let first = first_certain(report);
    if let Some(first) = first {
        of_movement(first, coverage, run, &mut next);
        of_ranks(first, coverage, &mut next);
    }
    if report.alerts.iter().any(|alert| alert.rule == AlertRule::NormMismatch) {
        next.push(NextStep {
            question: "Which of the two gradient norms is correct?".to_owned(),
            action:
                "Check clipping and parameters outside the optimizer: the framework's norm and the monitor's norm differ."
                    .to_owned(),
            command: None,
        });
    }
    let first_rank = report.ranks.first().map_or(0, |rank| rank.rank);
    let is_covered = coverage.has(&["grad_unreduced", "grad_reduced"]);
    if !is_covered {
        next.push(NextStep {
            question: "Which layer causes it?".to_owned(),
            action: "Measure weight gradients: the report has no data by layer without them.".to_owned(),
            command: Some("trainmon run --config monitor.json train.py   # {\"wg_distribution\": true}".to_owned()),
        });
    }
    if first.is_some() || !report.alerts.is_empty() {
        next.push(NextStep {
            question: "When was the run last normal?".to_owned(),
            action: "Look at the curves and layers step by step.".to_owned(),
            command: Some(format!("trainmon plot {} --rank {first_rank}", run.words)),
        });
    }
    next
}

fn of_movement(first: &Moved, coverage: &Coverage, run: &Subject, next: &mut Vec<NextStep>) {
    let before = first.step.saturating_sub(LEAD);
    let place = first.layer.clone().or_else(|| first.tensor.clone());
    if first.signal == "learning_rate" {
        next.push(NextStep {
            question: "Was the change of the learning rate intended?".to_owned(),
            action: format!("Check the schedule at step {}: all later changes may follow from it.", first.step),
            command: None,
        });
        return;
    }
    if is_of_the_machine(first) {
        next.push(NextStep {
            question: "Which rank is slow, and in which operation?".to_owned(),
            action: "Measure collective operations on all ranks (`cc_distribution`) and compare their times."
                .to_owned(),
            command: None,
        });
        return;
    }
    next.push(NextStep {
        question: "Is the cause the data or the machine?".to_owned(),
        action: format!(
            "Run again from a checkpoint before step {} with the same order of data. If the change recurs at the same step, \
             the cause is the data or the code. Otherwise it is noise or the machine.",
            first.step
        ),
        command: (!run.is_log).then(|| format!("trainmon compare-runs SECOND_RUN {}", run.words)),
    });
    if !coverage.has(&["actv"]) {
        let at = place.map_or_else(String::new, |layer| format!(" of {layer}"));
        next.push(NextStep {
            question: "Does the value come from the activations or from the backward pass?".to_owned(),
            action: format!("Measure activations and their gradients{at} in every step from step {before} on."),
            command: Some(if run.is_log {
                "trainmon run --config monitor.json train.py   # {\"xy_distribution\": true}".to_owned()
            } else {
                "trainmon ctl RUN set --on activations --every 1".to_owned()
            }),
        });
    }
    if first.direction == Direction::NotFinite {
        next.push(NextStep {
            question: "Which operator produces the first non-finite value?".to_owned(),
            action: format!(
                "Capture steps {before} to {} with msprobe, level `mix`, on rank {}.",
                first.step, first.rank
            ),
            command: Some("trainmon overflow DUMP".to_owned()),
        });
    } else {
        next.push(NextStep {
            question: "Which operator differs from a good run?".to_owned(),
            action: format!(
                "Capture step {} of this run and of a good one with msprobe, and compare the captures.",
                first.step
            ),
            command: Some("trainmon compare DUMP GOOD_DUMP".to_owned()),
        });
    }
}

/// Advice for a run in which some of the ranks moved and others did not.
fn of_ranks(first: &Moved, coverage: &Coverage, next: &mut Vec<NextStep>) {
    if coverage.ranks() < 2 {
        return;
    }
    if let Some(only) = coverage.moved_alone() {
        next.push(NextStep {
            question: format!("Why is only rank {only} affected?"),
            action: format!(
                "No other rank shows a departure: move rank {only} to another machine, or swap its data with another rank's, and \
                 run again from a checkpoint before step {}.",
                first.step
            ),
            command: None,
        });
    }
}
