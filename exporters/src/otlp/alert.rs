//! Alerts as log records: an event with the message as text, and the values as attributes.

use std::time::SystemTime;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use trainmon_core::{Alert, AlertPhase, AlertSeries, AlertSeverity, Expectation};

use super::resource::{flag, float, number, text};
use super::step::unix_nanoseconds;

/// The event name by which backends find all alerts.
const EVENT_NAME: &str = "training.alert";

/// The log record of an alert.
pub(crate) fn log_record(alert: &Alert) -> LogRecord {
    let Alert {
        rule,
        severity,
        phase,
        findings,
        step,
        rank,
        time,
        series,
        value,
        expected,
        message,
        moved_first,
        incident,
    } = alert;
    let AlertSeries { scope, name, signal, statistic, layer, micro_step, vpp_stage } = series;
    let Expectation { typical, lower, upper } = expected;
    let severity_number = match (phase, severity) {
        // The end of an alert is informational, however severe it was.
        (AlertPhase::Ends, _) | (_, AlertSeverity::Info) => SeverityNumber::Info,
        (_, AlertSeverity::Warning) => SeverityNumber::Warn,
        (_, AlertSeverity::Critical) => SeverityNumber::Error,
    };
    let mut attributes = vec![
        text("training.alert.rule", rule.name()),
        text("training.alert.severity", severity.name()),
        text("training.alert.phase", if *phase == AlertPhase::Begins { "begins" } else { "ends" }),
        number("training.alert.findings", *findings as i64),
        number("training.step", step.0 as i64),
        number("dl.rank", i64::from(rank.0)),
        text("training.alert.scope", scope.name()),
        text("training.alert.signal", signal.name()),
        float("training.alert.value", *value),
    ];
    let words = [("training.alert.name", Some(name.as_str())), ("training.alert.layer", layer.as_deref())];
    attributes.extend(words.into_iter().filter_map(|(key, word)| Some(text(key, word.filter(|w| !w.is_empty())?))));
    attributes.extend(statistic.map(|statistic| text("training.alert.statistic", statistic.name())));
    let bounds = [("typical", typical), ("lower", lower), ("upper", upper)];
    attributes.extend(
        bounds
            .into_iter()
            .filter_map(|(which, bound)| Some(float(&format!("training.alert.expected.{which}"), (*bound)?))),
    );
    let places = [("training.alert.micro_step", micro_step.0), ("training.alert.vpp_stage", *vpp_stage)];
    attributes.extend(places.into_iter().filter(|(_, place)| *place > 0).map(|(key, p)| number(key, i64::from(p))));
    attributes.extend(moved_first.as_ref().map(|first| text("training.alert.moved_first", first.to_string())));
    if let Some(incident) = incident {
        attributes.push(number("training.alert.incident", incident.step.0 as i64));
        attributes.push(flag("training.alert.headline", incident.headline));
    }
    LogRecord {
        time_unix_nano: unix_nanoseconds(*time),
        observed_time_unix_nano: unix_nanoseconds(SystemTime::now()),
        severity_number: severity_number.into(),
        severity_text: severity.name().to_owned(),
        event_name: EVENT_NAME.to_owned(),
        body: Some(AnyValue { value: Some(Value::StringValue(message.clone())) }),
        attributes,
        ..LogRecord::default()
    }
}
