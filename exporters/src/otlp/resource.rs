//! Who the points are from: `service.*`, `host.name`, `dl.*`, and what `OTEL_RESOURCE_ATTRIBUTES` adds.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::environment::{Lookup, key_values};
use super::settings::SettingWarning;
use crate::RunInfo;

const ATTRIBUTES_VARIABLE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const NAME_VARIABLE: &str = "OTEL_SERVICE_NAME";
/// Prometheus makes this the label `job`.
const DEFAULT_SERVICE_NAME: &str = "trainmon";

/// A text attribute.
pub(crate) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    key_value(key, Value::StringValue(value.into()))
}

/// A whole number as attribute.
pub(crate) fn number(key: &str, value: i64) -> KeyValue {
    key_value(key, Value::IntValue(value))
}

/// A number as attribute.
pub(crate) fn float(key: &str, value: f64) -> KeyValue {
    key_value(key, Value::DoubleValue(value))
}

fn key_value(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// The resource of every request. What the user says in the environment goes before what is found here.
pub(crate) fn resource(run: &RunInfo, env: Lookup<'_>, warnings: &mut Vec<SettingWarning>) -> Resource {
    let mut attributes = found(run);
    if let Some(list) = env(ATTRIBUTES_VARIABLE) {
        match key_values(&list) {
            Some(pairs) => pairs.into_iter().for_each(|(key, value)| set(&mut attributes, text(&key, value))),
            None => warnings.push(SettingWarning {
                message: format!("`{ATTRIBUTES_VARIABLE}` is not a list of key=value; it is left out"),
                hint: "separate entries with commas, and percent-encode what is special in a value",
            }),
        }
    }
    if let Some(name) = env(NAME_VARIABLE).filter(|name| !name.trim().is_empty()) {
        set(&mut attributes, text("service.name", name));
    }
    Resource { attributes, ..Resource::default() }
}

fn found(run: &RunInfo) -> Vec<KeyValue> {
    let RunInfo { run, rank, local_rank, world_size } = run;
    vec![
        text("service.name", DEFAULT_SERVICE_NAME),
        text("service.instance.id", format!("{run}-rank{rank}")),
        text("host.name", gethostname::gethostname().to_string_lossy()),
        number("process.pid", i64::from(std::process::id())),
        text("telemetry.sdk.name", "trainmon"),
        text("telemetry.sdk.language", "rust"),
        text("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        text("trainmon.run", run),
        number("dl.rank", i64::from(rank.0)),
        number("dl.local_rank", i64::from(local_rank.0)),
        number("dl.world_size", i64::from(*world_size)),
    ]
}

fn set(attributes: &mut Vec<KeyValue>, attribute: KeyValue) {
    match attributes.iter_mut().find(|known| known.key == attribute.key) {
        Some(known) => *known = attribute,
        None => attributes.push(attribute),
    }
}

#[cfg(test)]
mod tests {
    use trainmon_core::Rank;

    use super::*;

    fn value(resource: &Resource, key: &str) -> Option<Value> {
        let mut found = resource.attributes.iter().filter(|attribute| attribute.key == key);
        let first = found.next()?.value.clone()?.value;
        assert!(found.next().is_none(), "{key} twice");
        first
    }

    #[test]
    fn the_environment_adds_to_and_replaces_what_is_found() {
        let run = RunInfo { run: "r".into(), rank: Rank(3), local_rank: Rank(1), world_size: 8 };
        let env = |name: &str| match name {
            ATTRIBUTES_VARIABLE => Some("service.name=a,team=x%20y,dl.tensor_parallel.rank=1".to_owned()),
            NAME_VARIABLE => Some("b".to_owned()),
            _ => None,
        };
        let mut warnings = Vec::new();
        let merged = resource(&run, &env, &mut warnings);
        let is = |text: &str| Some(Value::StringValue(text.to_owned()));
        assert_eq!(value(&merged, "service.name"), is("b"));
        assert_eq!(value(&merged, "service.instance.id"), is("r-rank3"));
        assert_eq!(value(&merged, "team"), is("x y"));
        assert_eq!(value(&merged, "dl.tensor_parallel.rank"), is("1"));
        assert_eq!(value(&merged, "dl.rank"), Some(Value::IntValue(3)));
        assert_eq!(value(&merged, "dl.world_size"), Some(Value::IntValue(8)));
        assert_eq!(warnings, []);
        let plain = resource(&run, &|_| None, &mut warnings);
        assert_eq!(value(&plain, "service.name"), is(DEFAULT_SERVICE_NAME));
        resource(&run, &|name| (name == ATTRIBUTES_VARIABLE).then(|| "broken".to_owned()), &mut warnings);
        assert_eq!(warnings.len(), 1);
    }
}
