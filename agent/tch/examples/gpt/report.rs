//! The output for the user: a progress line, and a summary at the end.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use trainmon_agent::Report;
use trainmon_agent::core::shell_word;
use trainmon_tch::Monitor;

use crate::captures::Finished;
use crate::trainer::Figures;

/// The interval of printed lines. A terminal shows one line instead, redrawn in every step.
const STEPS_PER_LINE: u64 = 10;

/// The progress of a training.
pub(crate) struct Progress {
    /// The number of the last step. Steps begin at 0, as in the CSV files, on the page and in `spike@200`.
    last_step: u64,
    start: Instant,
    monitor: Option<Monitor>,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new(steps: u64, monitor: Option<Monitor>) -> Self {
        Self { last_step: steps - 1, start: Instant::now(), monitor, is_terminal: std::io::stdout().is_terminal() }
    }

    /// Shows a finished step.
    pub(crate) fn show(&self, figures: &Figures) {
        let Figures { step, loss, grad_norm, ref note } = *figures;
        let last = self.last_step;
        let rate = (step + 1) as f64 / self.start.elapsed().as_secs_f64();
        let width = last.to_string().len();
        let share = self.monitor.as_ref().map(|monitor| monitor.cost().share_of_step).filter(|share| share.is_finite());
        let share = share.map(|share| format!("  trainmon {:.2} % of the step", 100.0 * share)).unwrap_or_default();
        let remark = note.as_ref().map(|note| format!("  ({note})")).unwrap_or_default();
        let line = format!(
            "step {step:>width$}/{last}  loss {loss:7.4}  grad norm {grad_norm:8.4}  {rate:5.2} steps/s{share}{remark}"
        );
        if self.is_terminal {
            let end = if note.is_some() || step == last { "\n" } else { "" };
            print!("\r\x1b[2K{line}{end}");
            // Training continues if the progress line cannot be drawn.
            drop(std::io::stdout().flush());
        } else if note.is_some() || step.is_multiple_of(STEPS_PER_LINE) || step == last {
            println!("{line}");
        }
    }
}

/// Prints the report, the output locations, and commands to continue with.
pub(crate) fn show_closing_words(report: Option<&Report>, captures: &[Finished]) {
    if let Some(report) = report {
        println!("\n{report}");
        if !report.balances() {
            println!("the counters are inconsistent; this is a bug in trainmon: please report it");
        }
    }
    let sinks = report.map_or(&[][..], |report| &report.sinks);
    if !sinks.is_empty() || !captures.is_empty() {
        println!("\nOpen next:");
    }
    for sink in sinks {
        let what = match sink.name {
            "csv" => "one CSV file per signal with a row per tensor and step; `steps.csv` has the values of each step",
            "prometheus" => "the live page and the scrape page, available while a training runs",
            _ => "its output",
        };
        for place in &sink.locations {
            println!("  {place}  ({}: {what})", sink.name);
        }
    }
    for capture in captures {
        show_capture(capture);
    }
}

/// Prints the location of a capture and the command that compares it.
fn show_capture(Finished { step, entries, directory, earlier }: &Finished) {
    let here = directory.display().to_string();
    println!("  {here}  (capture of step {step}, calls: {entries})");
    match earlier {
        Some(earlier) => {
            let earlier = earlier.display().to_string();
            println!("  {earlier}  (an earlier run's capture of this step)");
            println!("  to compare both: trainmon compare {} {}", shell_word(&here), shell_word(&earlier));
        }
        None => println!("  to compare it with that of another run: trainmon compare {} OTHER", shell_word(&here)),
    }
}
