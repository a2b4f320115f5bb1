//! The resource attributes: `service.*`, `host.name`, `dl.*`, and those in `OTEL_RESOURCE_ATTRIBUTES`.

use std::io;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::environment::SettingWarning;
use super::environment::{Lookup, key_values};
use crate::RunInfo;

const ATTRIBUTES_VARIABLE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const NAME_VARIABLE: &str = "OTEL_SERVICE_NAME";
/// Prometheus converts it to the label `job`.
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

/// A boolean attribute.
pub(crate) fn flag(key: &str, value: bool) -> KeyValue {
    key_value(key, Value::BoolValue(value))
}

fn key_value(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// The resource of every request, created once per exporter. The user's environment variables override detected values.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn resource(run: &RunInfo, env: Lookup<'_>, warnings: &mut Vec<SettingWarning>) -> io::Result<Resource> {
    let mut attributes = found(run, random_uuid()?);
    if let Some(list) = env(ATTRIBUTES_VARIABLE) {
        match key_values(&list) {
            Some(pairs) => pairs.into_iter().for_each(|(key, value)| set(&mut attributes, text(&key, value))),
            None => warnings.push(SettingWarning {
                message: format!("`{ATTRIBUTES_VARIABLE}` is not a list of key=value and is ignored"),
                hint: "separate entries with commas, and percent-encode special characters in values",
            }),
        }
    }
    if let Some(name) = env(NAME_VARIABLE).filter(|name| !name.trim().is_empty()) {
        set(&mut attributes, text("service.name", name));
    }
    Ok(Resource { attributes, ..Resource::default() })
}

/// A version 4 UUID. Names of runs repeat (most have none, a restarted one keeps its own), and the points of two runs
/// must not become one series.
fn random_uuid() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    // Version 4, and the variant of RFC 9562.
    let bits = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let digits = format!("{bits:032x}");
    let (time, rest) = digits.split_at(8);
    Ok(format!("{time}-{}-{}-{}-{}", &rest[..4], &rest[4..8], &rest[8..12], &rest[12..]))
}

fn found(run: &RunInfo, instance: String) -> Vec<KeyValue> {
    let RunInfo { run, rank, local_rank, world_size } = run;
    vec![
        text("service.name", DEFAULT_SERVICE_NAME),
        text("service.instance.id", instance),
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
    use std::collections::BTreeSet;

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
        let merged = resource(&run, &env, &mut warnings).unwrap();
        let is = |text: &str| Some(Value::StringValue(text.to_owned()));
        assert_eq!(value(&merged, "service.name"), is("b"));
        assert_eq!(value(&merged, "team"), is("x y"));
        assert_eq!(value(&merged, "dl.tensor_parallel.rank"), is("1"));
        assert_eq!(value(&merged, "dl.rank"), Some(Value::IntValue(3)));
        assert_eq!(value(&merged, "dl.world_size"), Some(Value::IntValue(8)));
        assert_eq!(warnings, []);
        let plain = resource(&run, &|_| None, &mut warnings).unwrap();
        assert_eq!(value(&plain, "service.name"), is(DEFAULT_SERVICE_NAME));
        let broken = |name: &str| (name == ATTRIBUTES_VARIABLE).then(|| "broken".to_owned());
        resource(&run, &broken, &mut warnings).unwrap();
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn every_run_is_an_instance_of_its_own_unless_the_environment_names_it() {
        let run = RunInfo { run: "trainmon".into(), rank: Rank(0), local_rank: Rank(0), world_size: 1 };
        let instance =
            |env: Lookup<'_>| match value(&resource(&run, env, &mut Vec::new()).unwrap(), "service.instance.id") {
                Some(Value::StringValue(text)) => text,
                other => panic!("{other:?}"),
            };
        let ids: Vec<String> = (0..64).map(|_| instance(&|_| None)).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        for id in &ids {
            let shape: String = id.chars().map(|digit| if digit.is_ascii_hexdigit() { 'x' } else { digit }).collect();
            assert_eq!(shape, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
            assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "version 4: {id}");
        }
        let named = |name: &str| (name == ATTRIBUTES_VARIABLE).then(|| "service.instance.id=pod-7".to_owned());
        assert_eq!(instance(&named), "pod-7");
    }
}
