//! The keys of OpenTelemetry export, and the checks they need beyond the schema's.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use smart_default::SmartDefault;

use super::diagnostic::DiagnosticKind as Kind;
use super::report::{Fault, Report};

/// OpenTelemetry export. What a key leaves open the standard variables `OTEL_EXPORTER_OTLP_*` say; what stands here goes
/// before them.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Otlp {
    /// Export.
    #[default = true]
    pub enabled: bool,
    /// The receiver's address with `http://` or `https://`; over HTTP `/v1/metrics` and `/v1/logs` are appended. Absent:
    /// this machine, port 4318, or 4317 for gRPC.
    #[schemars(length(min = 1))]
    pub endpoint: Option<String>,
    /// How requests travel. Absent: `http/protobuf`.
    pub protocol: Option<OtlpProtocol>,
    /// Headers of every request: an API key, say. Their values are never printed.
    pub headers: BTreeMap<String, Secret>,
    /// How long one request may take, in milliseconds. Absent: 10,000.
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: Option<u64>,
    /// How requests are compressed. Absent: not at all.
    pub compression: Option<OtlpCompression>,
    /// A PEM file with the certificates to trust in place of the system's.
    #[schemars(length(min = 1))]
    pub certificate: Option<PathBuf>,
    /// A PEM file with the certificate that the receiver knows us by.
    #[schemars(length(min = 1))]
    pub client_certificate: Option<PathBuf>,
    /// A PEM file with the private key of that certificate.
    #[schemars(length(min = 1))]
    pub client_key: Option<PathBuf>,
    /// Every measured statistic of every tensor, by name: many series.
    pub per_parameter: bool,
    /// Alerts as log records. A receiver of metrics alone (Prometheus) has no place for them.
    #[default = true]
    pub logs: bool,
    /// Memory for what waits for the receiver, in MiB. What has no room is read from the journal later; without one the
    /// oldest steps are dropped and counted.
    #[schemars(range(min = 1, max = 65_536))]
    // Hours of a large model by layer, minutes of it by parameter.
    #[default = 64]
    pub backlog_mb: u64,
    /// How long a request is tried again that the receiver puts off or does not answer, in seconds; then it is lost and
    /// counted, and the next one is sent. A receiver that cannot be reached at all is waited for without end.
    #[schemars(range(min = 1, max = 604_800))]
    // Longer than any wait that a receiver may order.
    #[default = 900]
    pub give_up_s: u64,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OtlpProtocol {
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
    /// Protobuf over HTTP/1.1.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

/// How requests are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpCompression {
    /// Not at all.
    None,
    /// gzip: every receiver understands it.
    Gzip,
    /// Zstandard: quicker and smaller, yet not every receiver understands it (the OpenTelemetry Collector does).
    Zstd,
}

/// A text that is never printed: neither as debug output nor as JSON.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text: for the request it belongs into, and nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// What is printed in a secret's place.
const HIDDEN: &str = "(hidden)";

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "x-secret": true })
    }
}

impl Otlp {
    /// Reports what cannot work.
    pub(super) fn check(&self, report: &mut Report<'_>) {
        let Self { endpoint, protocol, headers, certificate, client_certificate, client_key, .. } = self;
        if let Some(endpoint) = endpoint {
            check_endpoint(endpoint, *protocol, report);
        }
        for name in headers.keys().filter(|name| !is_header_name(name)) {
            let key = super::report::join("otlp.headers", name);
            let fault =
                Fault::new(Kind::OutOfRange, "is no header").expected("letters, digits and `-`, as in `x-api-key`");
            report.error(report.place(&key), &key, fault);
        }
        for (given, other, key, missing) in [
            (client_certificate, client_key, "otlp.client_certificate", "client_key"),
            (client_key, client_certificate, "otlp.client_key", "client_certificate"),
        ] {
            if given.is_some() && other.is_none() {
                let fault = Fault::new(Kind::NoEffect, format!("has no effect without `{missing}`"));
                report.warn(report.place(key), key, fault.hint("give both, here or both in the environment"));
            }
        }
        let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        if is_plain && (certificate.is_some() || client_certificate.is_some()) {
            let key = if certificate.is_some() { "otlp.certificate" } else { "otlp.client_certificate" };
            let fault = Fault::new(Kind::NoEffect, "has no effect: the endpoint is `http://`, which encrypts nothing");
            report.warn(report.place(key), key, fault.hint("write `https://`"));
        }
    }
}

fn check_endpoint(endpoint: &str, protocol: Option<OtlpProtocol>, report: &mut Report<'_>) {
    let key = "otlp.endpoint";
    let at = report.place(key);
    let rest = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split(['/', '?']).next().unwrap_or(rest));
    match host {
        Some(host) if host.contains('@') => {
            // The address itself is not quoted: it holds a password.
            let fault =
                Fault::new(Kind::OutOfRange, "has a user name in it").expected("an address without credentials");
            report.error(at, key, fault.hint("put credentials into `headers`, which are never printed"));
        }
        Some(host) if !host.is_empty() => {
            let port = host.rsplit_once(':').map(|(_, port)| port);
            let usual = match protocol {
                Some(OtlpProtocol::Grpc) => {
                    ("4318", "gRPC's port is 4317; 4318 is for `\"protocol\": \"http/protobuf\"`")
                }
                Some(OtlpProtocol::HttpProtobuf) => {
                    ("4317", "HTTP's port is 4318; 4317 is for `\"protocol\": \"grpc\"`")
                }
                None => return,
            };
            if port == Some(usual.0) {
                let fault = Fault::new(Kind::Conflict, "is usually the other protocol's port");
                report.warn(at, key, fault.hint(usual.1));
            }
        }
        _ => {
            let fault =
                Fault::new(Kind::OutOfRange, format!("{endpoint:?}")).expected("an http:// or https:// address");
            report.error(at, key, fault.hint("write \"http://localhost:4318\""));
        }
    }
}

/// A token of RFC 9110, lest a request be built that no server takes.
fn is_header_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn parse(text: &str) -> Result<Vec<String>, Vec<String>> {
        let told = |list: Vec<crate::config::Diagnostic>| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        Config::parse(text, "c.json", &|_| None)
            .map(|parsed| told(parsed.warnings))
            .map_err(|errors| told(errors.errors))
    }

    fn with(members: &str) -> String {
        format!("{{\"wg_distribution\": true, \"otlp\": {{{members}}}}}")
    }

    #[test]
    fn header_values_appear_nowhere() {
        let text = with(r#""headers": {"authorization": "Bearer s3cret"}"#);
        let config = Config::parse(&text, "c.json", &|_| None).unwrap().config;
        let otlp = config.otlp.as_ref().unwrap();
        assert_eq!(otlp.headers["authorization"].reveal(), "Bearer s3cret");
        let printed = serde_json::to_string(&config).unwrap() + &format!("{config:?}");
        assert!(!printed.contains("s3cret") && printed.contains("(hidden)"), "{printed}");
        for wrong in ["730035", "[\"730035\"]", "true"] {
            let errors = parse(&with(&format!(r#""headers": {{"authorization": {wrong}}}"#))).unwrap_err().join("\n");
            assert!(errors.contains("otlp.headers.authorization") && !errors.contains("730035"), "{errors}");
        }
        let errors = parse(&with(r#""endpoint": "http://me:s3cret@host:4318""#)).unwrap_err().join("\n");
        assert!(errors.contains("without credentials") && !errors.contains("s3cret"), "{errors}");
    }

    #[test]
    fn nonsense_is_refused_or_warned_about() {
        for wrong in [
            r#""endpoint": "collector:4317""#,
            r#""endpoint": "http://""#,
            r#""protocol": "http/json""#,
            r#""compression": "brotli""#,
            r#""headers": {"a b": "c"}"#,
            r#""timeout_ms": 0"#,
        ] {
            assert_eq!(parse(&with(wrong)).unwrap_err().len(), 1, "{wrong}");
        }
        for odd in [
            r#""endpoint": "http://h:4317", "protocol": "http/protobuf""#,
            r#""endpoint": "http://h:4318", "protocol": "grpc""#,
            r#""endpoint": "http://h", "certificate": "ca.pem""#,
            r#""client_key": "key.pem""#,
        ] {
            assert_eq!(parse(&with(odd)).unwrap().len(), 1, "{odd}");
        }
        assert_eq!(parse(&with(r#""endpoint": "https://h:4318/base", "certificate": "ca.pem""#)), Ok(Vec::new()));
        let off = r#"{"wg_distribution": true, "format": ["csv", "otlp"], "otlp": {"enabled": false}}"#;
        assert_eq!(parse(off).unwrap().len(), 1);
        let monitors = r#"{"monitors": {"module": {}}, "format": "otlp"}"#;
        assert!(Config::parse(monitors, "c.json", &|_| None).unwrap().config.otlp.is_some());
    }
}
