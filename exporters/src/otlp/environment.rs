//! The standard environment variables `OTEL_EXPORTER_OTLP_*`, and the lists in them.

use percent_encoding::percent_decode_str;

use crate::DeliveryReport;

/// Looks up an environment variable. An empty one counts as unset, as the specification requires.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The type of data, with its names in variables and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Metrics,
    Logs,
}

impl Signal {
    /// The part of `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`.
    const fn word(self) -> &'static str {
        match self {
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }

    /// The name in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }

    /// Reports the outcome of records, or of alerts.
    pub(crate) fn settle(self, settlement: &dyn DeliveryReport, delivered: u64, lost: u64) {
        match self {
            Self::Metrics => {
                settlement.failed(lost);
                settlement.exported(delivered);
            }
            Self::Logs => {
                settlement.alerts_lost(lost);
                settlement.alerts_delivered(delivered);
            }
        }
    }

    /// The path appended to a base address over HTTP.
    pub(crate) const fn http_path(self) -> &'static str {
        match self {
            Self::Metrics => "v1/metrics",
            Self::Logs => "v1/logs",
        }
    }

    /// The gRPC method.
    pub(crate) const fn grpc_path(self) -> &'static str {
        match self {
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }
}

/// A variable's name and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnvVariable {
    pub(crate) variable: String,
    pub(crate) value: String,
    /// Whether it applies to this signal only.
    pub(crate) is_specific: bool,
}

/// The variable for this signal, else the general one.
pub(crate) fn look_up(env: Lookup<'_>, signal: Signal, name: &str) -> Option<EnvVariable> {
    let specific = (format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.word()), true);
    let general = (format!("OTEL_EXPORTER_OTLP_{name}"), false);
    [specific, general].into_iter().find_map(|(variable, is_specific)| {
        let value = env(&variable).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())?;
        Some(EnvVariable { variable, value, is_specific })
    })
}

/// An invalid environment variable that was ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingWarning {
    /// The variable and the reason, without values of headers.
    pub message: String,
    /// What to do.
    pub hint: &'static str,
}

/// The specification's switch that disables OpenTelemetry in a process.
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// Whether the environment disables exports: `OTEL_SDK_DISABLED` is `true`, in any case of letters. The second part is
/// a warning about a value that is neither `true` nor `false`, which counts as `false`.
pub fn is_disabled(env: Lookup<'_>) -> (bool, Option<SettingWarning>) {
    let value = env(DISABLED).unwrap_or_default();
    let is = |word: &str| value.trim().eq_ignore_ascii_case(word);
    let makes_no_sense = !["true", "false", ""].into_iter().any(is);
    let warning = makes_no_sense.then(|| SettingWarning {
        message: format!("`{DISABLED}`: expected true or false, found `{value}`"),
        hint: "the export stays enabled; set the variable to true to disable it",
    });
    (is("true"), warning)
}

/// Parses a list `key=value,key=value` with percent-encoded values, as in `OTEL_EXPORTER_OTLP_HEADERS` and
/// `OTEL_RESOURCE_ATTRIBUTES`. `None` if any entry is invalid: the specification requires the whole list to be ignored.
pub(crate) fn key_values(text: &str) -> Option<Vec<(String, String)>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (key, value) = entry.split_once('=')?;
            let decode = |text: &str| Some(percent_decode_str(text.trim()).decode_utf8().ok()?.into_owned());
            let key = decode(key).filter(|key| !key.is_empty())?;
            Some((key, decode(value)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_in_any_case_switches_the_export_off_and_what_makes_no_sense_is_told() {
        let ask =
            |value: Option<&str>| is_disabled(&|name| value.filter(|_| name == "OTEL_SDK_DISABLED").map(str::to_owned));
        for off in ["true", "TRUE", "True", " true "] {
            assert_eq!(ask(Some(off)), (true, None), "{off}");
        }
        for on in [None, Some(""), Some("false"), Some("False")] {
            assert_eq!(ask(on), (false, None), "{on:?}");
        }
        let (is_off, warning) = ask(Some("1"));
        assert!(!is_off && warning.unwrap().message.contains("expected true or false, found `1`"));
    }

    #[test]
    fn lists_are_decoded_or_left_out_whole() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(key_values(" a=1 , b = x%2Cy%3D%20z ,"), Some(vec![pair("a", "1"), pair("b", "x,y= z")]));
        assert_eq!(key_values("a=b=c"), Some(vec![pair("a", "b=c")]));
        assert_eq!(key_values(""), Some(Vec::new()));
        for broken in ["a", "=1", "a=1,b", "a=%ff%fe"] {
            assert_eq!(key_values(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_signals_own_variable_goes_before_the_general_one() {
        let env = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("general".to_owned()),
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT" => Some("logs".to_owned()),
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT" => Some(" ".to_owned()),
            _ => None,
        };
        let found = |signal| look_up(&env, signal, "ENDPOINT").map(|found| (found.value, found.is_specific));
        assert_eq!(found(Signal::Logs), Some(("logs".to_owned(), true)));
        assert_eq!(found(Signal::Metrics), Some(("general".to_owned(), false)));
    }
}
