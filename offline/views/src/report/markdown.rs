//! The report as Markdown.

use super::advice::{movement_in_words, short};
use super::document::{CurveSummary, LeftOut, Moved, NextStep, RankSummary, Report, ReportedAlert};

/// Writes the report as Markdown. Names from files are in code spans so that they are not parsed as Markdown.
pub(super) fn markdown(report: &Report) -> String {
    let method = &report.method;
    let found = format!(
        "\n## Method\n\n{}\n{} series. A value of a curve covers at most {} steps, a value of a tensor at most {} \
         measured steps.\n",
        method.words, method.series, method.steps_per_value, method.steps_per_tensor_value
    );
    [
        format!("# Run {}\n\n{}\n", code(&report.run), prose(&report.summary)),
        section("What was read", report.read.iter().map(|line| prose(line))),
        section("Next steps", report.next.iter().map(next_step)),
        section("Series that moved, the earliest first", report.moved.iter().map(moved)),
        section("Other findings", report.stands_out.iter().map(|one| prose(&one.words))),
        section("Alerts", report.alerts.iter().map(alert)),
        curves(&report.curves),
        ranks(&report.ranks),
        section("Gaps in the measurements", report.not_measured.iter().map(|gap| prose(gap))),
        section("Warnings", report.warnings.iter().map(|warning| prose(warning))),
        found,
        left_out(&report.left_out),
    ]
    .concat()
}

fn section(title: &str, lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { String::new() } else { format!("\n## {title}\n\n- {}\n", lines.join("\n- ")) }
}

fn next_step(NextStep { question, action, command }: &NextStep) -> String {
    let command = command.as_ref().map_or_else(String::new, |command| format!(" {}", code(command)));
    format!("**{}** {}{command}", prose(question), prose(action))
}

fn moved(moved: &Moved) -> String {
    let number = if moved.deviations.is_finite() {
        format!("{:.1} deviations of the {} values before", moved.deviations, moved.held_against)
    } else {
        "a non-finite value".to_owned()
    };
    format!("{} ({}: {number})", code(&movement_in_words(moved)), moved.certainty.words())
}

fn alert(alert: &ReportedAlert) -> String {
    let ReportedAlert { step, rank, rule, severity, findings, series, value, usual, bound, moved_first, .. } = alert;
    let usual = usual.map_or_else(String::new, |usual| format!(", usually {}", short(usual)));
    let bound = bound.map_or_else(String::new, |bound| format!(", threshold {}", short(bound)));
    let first = moved_first.as_ref().map_or_else(String::new, |first| format!("; moved first: {}", code(first)));
    let findings = if *findings > 1 { format!(", {findings} findings") } else { String::new() };
    format!(
        "step {step}, rank {rank}: {rule} ({}{findings}), {} is {}{usual}{bound}{first}",
        severity.name(),
        code(series),
        short(*value)
    )
}

fn curves(curves: &[CurveSummary]) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), short);
    let row = |curve: &CurveSummary| {
        let CurveSummary { rank, name, first, last, smallest, largest, largest_at, not_finite } = curve;
        let at = largest_at.map_or_else(String::new, |step| format!(" at {step}"));
        format!(
            "| {rank} | {} | {} | {} | {} | {}{at} | {not_finite} |\n",
            code(name),
            number(*first),
            number(*last),
            number(*smallest),
            number(*largest)
        )
    };
    let rows: String = curves.iter().map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "\n## Curves\n\n| rank | curve | first | newest | smallest | largest | not finite |\n|---|---|---|---|---|---|---|\n{rows}"
    )
}

fn ranks(ranks: &[RankSummary]) -> String {
    let row = |rank: &RankSummary| {
        let RankSummary { rank, steps, range, measured_steps, alerts, moved, dropped } = rank;
        let range = range.map_or_else(|| "–".to_owned(), |(first, last)| format!("{first} to {last}"));
        format!("| {rank} | {steps} | {range} | {measured_steps} | {moved} | {alerts} | {dropped} |\n")
    };
    let rows: String = ranks.iter().map(row).collect();
    format!(
        "\n## Ranks\n\n| rank | steps | range | measured | series moved | alerts | records dropped |\n|---|---|---|---|---|---|---|\n{rows}"
    )
}

fn left_out(left_out: &LeftOut) -> String {
    let LeftOut { alerts, moved, curves, ranks, sentences, shortened } = *left_out;
    let counts = [
        (moved, "series that moved"),
        (alerts, "alerts"),
        (curves, "curves"),
        (ranks, "ranks"),
        (sentences, "sentences"),
        (shortened, "long names shortened"),
    ];
    let told: Vec<String> =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if told.is_empty() { String::new() } else { format!("\nOmitted to limit the size: {}.\n", told.join(", ")) }
}

/// A text from a file as a code span: its fence is longer than any in the text, and it stays on one table row.
fn code(text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let inside = text.replace(['\n', '\r'], " ").replace('|', "\\|");
    let space = if longest > 0 { " " } else { "" };
    format!("{fence}{space}{inside}{space}{fence}")
}

/// Our own sentence, which may contain names: characters special to Markdown or HTML are escaped outside code spans.
fn prose(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('<', "&lt;").replace('*', "\\*").replace('|', "\\|")
}
