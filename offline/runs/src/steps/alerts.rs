//! The recorded alerts of a run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;
use trainmon_baseline::journals_in;
use trainmon_core::{
    ALERTS_FILE, Alert, AlertEnd, AlertPhase, AlertRule, AlertScope, AlertSeries, AlertSeverity, AlertSignal,
    Expectation, Group, Kind, MicroStep, Rank, Statistic, Step, layer_of,
};
use trainmon_journal::Recovered;

use super::error::ReadRunError;
use crate::anomaly::findings_file;
use trainmon_baseline::ReadRunError as RanksError;

/// The alerts of a rank.
#[derive(Debug, Default)]
pub struct RankAlerts {
    /// The alerts, oldest first.
    pub alerts: Vec<Alert>,
    /// Warnings about alerts that cannot be read.
    pub unread: Vec<String>,
    /// Whether the run recorded alerts: if not, an empty list proves nothing.
    pub are_recorded: bool,
    /// The run's own final counts, if it ended regularly.
    pub end: Option<AlertEnd>,
    /// Whether the last line of the file records a regular end; `None` without that file.
    pub has_ended: Option<bool>,
}

/// Reads the alerts of a journal, with warnings about unreadable ones.
pub(super) fn of_journal(path: &Path, rank: u32) -> Result<RankAlerts, ReadRunError> {
    let recovered = Recovered::open(path).map_err(RanksError::from)?;
    Ok(parse_lines(path, rank, recovered.alerts().iter().map(String::as_str)))
}

/// Reads the alerts next to a rank's CSV files.
pub(super) fn of_directory(
    directory: &Path,
    rank: u32,
    is_next: &dyn Fn(u64, u64) -> bool,
) -> Result<RankAlerts, ReadRunError> {
    let read = |path: &Path| match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReadRunError::Alerts { path: path.to_path_buf(), source }),
    };
    let file = directory.join(ALERTS_FILE);
    if let Some(lines) = read(&file)? {
        let last = lines.lines().next_back().map(serde_json::from_str::<AlertEnd>);
        let has_ended = Some(last.is_some_and(|end| end.is_ok_and(|end| end.ended)));
        return Ok(RankAlerts { has_ended, ..parse_lines(&file, rank, lines.lines()) });
    }
    // A journal records when an alert began and ended; findings have single steps. It only holds the last steps.
    let mut known = RankAlerts::default();
    for journal in journals_in(directory).unwrap_or_default() {
        match of_journal(&journal, rank) {
            Ok(found) => {
                known.alerts.extend(found.alerts);
                known.unread.extend(found.unread);
                known.are_recorded = true;
            }
            Err(error) => known.unread.push(format!("cannot read the alerts of `{}`: {error}", journal.display())),
        }
    }
    known.alerts.sort_by_key(|alert| alert.step);
    let first_of_journals = known.alerts.first().map_or(u64::MAX, |alert: &Alert| alert.step.0);
    let Some(file) = findings_file(directory, rank) else { return Ok(known) };
    let Some(text) = read(&file)? else { return Ok(known) };
    known.are_recorded = true;
    match serde_json::from_str::<BTreeMap<String, Finding>>(&text) {
        Ok(findings) => {
            let earlier = findings.into_values().filter(|finding| finding.step < first_of_journals).collect();
            known.alerts.splice(0..0, episodes(earlier, is_next));
        }
        // A running training has not written its end yet.
        Err(error) => known.unread.push(format!("`{}` is not a JSON object of findings: {error}", file.display())),
    }
    Ok(known)
}

fn parse_lines<'a>(path: &Path, rank: u32, lines: impl Iterator<Item = &'a str>) -> RankAlerts {
    let mut known = RankAlerts { are_recorded: true, ..RankAlerts::default() };
    let mut unreadable = 0_u64;
    for line in lines.filter(|line| !line.is_empty()) {
        match serde_json::from_str::<Alert>(line) {
            Ok(alert) if alert.rank.0 == rank => known.alerts.push(alert),
            Ok(_) => {}
            Err(_) => match serde_json::from_str::<AlertEnd>(line) {
                // A run that was resumed in its directory has one per start.
                Ok(end) => {
                    let sums = &mut known.end.get_or_insert_default().findings;
                    end.findings.into_iter().for_each(|(rule, count)| *sums.entry(rule).or_default() += count);
                }
                Err(_) => unreadable += 1,
            },
        }
    }
    known.alerts.sort_by_key(|alert| alert.step);
    if unreadable > 0 {
        known.unread.push(format!("`{}`: skipped {unreadable} alerts that this version cannot read", path.display()));
    }
    known
}

/// A finding in `anomaly.json`.
#[derive(Clone, Debug, Deserialize)]
struct Finding {
    rank: u32,
    step: u64,
    #[serde(default)]
    micro_step: u32,
    #[serde(default)]
    vpp_stage: u32,
    tag_name: String,
    message: String,
}

/// The parts of a finding's message.
#[derive(Clone, Debug, PartialEq)]
struct FindingParts {
    rule: AlertRule,
    statistic: Option<Statistic>,
    value: f64,
    before: Option<f64>,
}

/// The tag, rule and statistic of a finding.
type SeriesKey = (String, &'static str, Option<&'static str>);

/// Joins findings of one rule on one series in consecutive steps into one alert.
fn episodes(findings: Vec<Finding>, is_next: &dyn Fn(u64, u64) -> bool) -> Vec<Alert> {
    let mut by_series: BTreeMap<SeriesKey, Vec<(Finding, FindingParts)>> = BTreeMap::new();
    for finding in findings {
        let Some(parts) = parts_of(&finding.message) else { continue };
        let key = (finding.tag_name.clone(), parts.rule.name(), parts.statistic.map(Statistic::name));
        by_series.entry(key).or_default().push((finding, parts));
    }
    let mut alerts = Vec::new();
    for mut of_series in by_series.into_values() {
        of_series.sort_by_key(|(finding, _)| finding.step);
        for episode in of_series.chunk_by(|(a, _), (b, _)| a.step == b.step || is_next(a.step, b.step)) {
            if let [(first, parts), ..] = episode {
                alerts.push(alert(first, parts, episode.len() as u64));
            }
        }
    }
    alerts.sort_by_key(|alert| alert.step);
    alerts
}

fn alert(finding: &Finding, parts: &FindingParts, findings: u64) -> Alert {
    let severity = match parts.rule {
        AlertRule::AnomalyNan | AlertRule::NonFinite | AlertRule::Stall | AlertRule::ReplicaMismatch => {
            AlertSeverity::Critical
        }
        _ => AlertSeverity::Warning,
    };
    let mut alert = Alert {
        rule: parts.rule,
        severity,
        phase: AlertPhase::Begins,
        findings,
        step: Step(finding.step),
        rank: Rank(finding.rank),
        time: SystemTime::UNIX_EPOCH,
        series: series(finding, parts.statistic),
        value: parts.value,
        expected: Expectation { typical: parts.before, lower: None, upper: None },
        message: String::new(),
        moved_first: None,
        incident: None,
    };
    alert.message = format!("{}: {}", alert.rule, alert.value_sentence(alert.step));
    alert
}

/// `0:fc1.weight/rank0/acc_grad`, `0:fc1.input:0/rank0/actv_grad`, `0:global/rank0/loss`.
fn series(finding: &Finding, statistic: Option<Statistic>) -> AlertSeries {
    let mut parts = finding.tag_name.rsplitn(3, '/');
    let (kind, _rank, place) = (parts.next().unwrap_or(""), parts.next(), parts.next().unwrap_or(&finding.tag_name));
    let name = place.split_once(':').map_or(place, |(_, name)| name);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = name.rsplit_once(':').filter(|(_, micro)| is_number(micro)).map_or(name, |(name, _)| name);
    let signal = match kind {
        "acc_grad" => AlertSignal::Kind(Kind::GradUnreduced),
        "post_grad" => AlertSignal::Kind(Kind::GradReduced),
        kind => AlertSignal::from_name(kind).unwrap_or(AlertSignal::Grad),
    };
    if name == AlertScope::Global.name() {
        return AlertSeries::global(signal, statistic);
    }
    let scope = match name {
        name if Group::ALL.iter().any(|group| group.name() == name) => AlertScope::Group,
        name if layer_of(name) == name => AlertScope::Layer,
        _ => AlertScope::Tensor,
    };
    AlertSeries {
        scope,
        name: name.to_owned(),
        signal,
        statistic,
        layer: (scope != AlertScope::Group).then(|| layer_of(name).to_owned()),
        micro_step: MicroStep(finding.micro_step),
        vpp_stage: finding.vpp_stage,
    }
}

/// `Rule X reports anomaly signal in ('<tag>', '<op>') at step 7, current value 1.0, history mean 0.5.`
fn parts_of(message: &str) -> Option<FindingParts> {
    let (rule, rest) = message.strip_prefix("Rule ")?.split_once(" reports anomaly signal in ")?;
    let rule = AlertRule::ALL.into_iter().find(|known| known.name() == rule)?;
    let (series, numbers) = rest.rsplit_once(" at step ")?;
    let statistic = series.rsplit_once(", '").and_then(|(_, op)| Statistic::from_name(op.trim_end_matches("')")));
    let (_, numbers) = numbers.split_once(", current value ")?;
    let (value, before) = numbers.split_once(", history mean ")?;
    let before: f64 = before.trim_end_matches('.').parse().ok()?;
    Some(FindingParts { rule, statistic, value: value.parse().ok()?, before: (!before.is_nan()).then_some(before) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(step: u64, tag: &str, rule: &str) -> Finding {
        let message = format!(
            "Rule {rule} reports anomaly signal in ('{tag}', 'norm') at step {step}, current value 0.5, history mean nan."
        );
        Finding { rank: 0, step, micro_step: 0, vpp_stage: 0, tag_name: tag.to_owned(), message }
    }

    #[test]
    fn a_finding_says_rule_statistic_value_and_what_was_before() {
        let message = "Rule AnomalyTurbulence reports anomaly signal in ('0:a/rank0/acc_grad', 'mean') at step 1, \
                       current value 7.4e-09, history mean 3.5e-09.";
        let expected = FindingParts {
            rule: AlertRule::AnomalyTurbulence,
            statistic: Some(Statistic::Mean),
            value: 7.4e-9,
            before: Some(3.5e-9),
        };
        assert_eq!(parts_of(message), Some(expected));
        assert_eq!(parts_of("something else"), None);
    }

    #[test]
    fn a_tag_is_a_series() {
        for (tag, expected) in [
            ("0:blocks.3.attn.weight/rank0/acc_grad", "grad_unreduced norm of blocks.3.attn.weight"),
            ("1:.input:0/rank2/actv_grad", "actv_grad norm of the model's input"),
            ("0:blocks.3/rank0/grad", "gradient norm of layer blocks.3"),
            ("0:attn/rank0/grad", "gradient norm of group attn"),
            ("0:global/rank0/loss", "loss norm"),
        ] {
            let series = series(&finding(0, tag, "Spike"), Some(Statistic::Norm));
            assert_eq!(series.to_string(), expected, "{tag}");
        }
    }

    #[test]
    fn findings_in_steps_that_follow_each_other_are_one_alert() {
        let at = |step| finding(step, "0:a.weight/rank0/post_grad", "Spike");
        let mut findings: Vec<Finding> = [3, 1, 2, 9].map(at).into();
        findings.push(finding(1, "0:a.weight/rank0/post_grad", "NonFinite"));
        let alerts = episodes(findings, &|a, b| b == a + 1);
        let told: Vec<_> = alerts.iter().map(|alert| (alert.step.0, alert.rule.name(), alert.findings)).collect();
        assert_eq!(told, [(1, "NonFinite", 1), (1, "Spike", 3), (9, "Spike", 1)]);
        assert_eq!(alerts[1].message, "Spike: grad_reduced norm of `a.weight` is 0.5 at step 1 on rank 0");
    }
}
