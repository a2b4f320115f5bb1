//! The keys of OpenTelemetry export, and the checks beyond the schema.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use smart_default::SmartDefault;

use super::diagnostic::DiagnosticKind as Kind;
use super::report::{Fault, Report};

/// OpenTelemetry export. A missing key takes the value of its standard variable `OTEL_EXPORTER_OTLP_*`; a key takes precedence
/// over its variable.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Otlp {
    /// Export.
    #[default = true]
    pub enabled: bool,
    /// The receiver's `http://` or `https://` URL; trainmon appends `/v1/metrics` and `/v1/logs` over HTTP. Default: this
    /// machine, port 4318 (gRPC: 4317).
    #[schemars(length(min = 1))]
    pub endpoint: Option<String>,
    /// The protocol of requests. Default: `http/protobuf`.
    pub protocol: Option<OtlpProtocol>,
    /// Headers of every request, such as an API key. Their values are never printed.
    pub headers: BTreeMap<String, Secret>,
    /// The timeout of one request, in milliseconds. Default: 10,000.
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: Option<u64>,
    /// The compression of requests. Default: none.
    pub compression: Option<OtlpCompression>,
    /// A PEM file with certificates to trust instead of the system's.
    #[schemars(length(min = 1))]
    pub certificate: Option<PathBuf>,
    /// A PEM file with trainmon's certificate for the receiver.
    #[schemars(length(min = 1))]
    pub client_certificate: Option<PathBuf>,
    /// A PEM file with the private key of that certificate.
    #[schemars(length(min = 1))]
    pub client_key: Option<PathBuf>,
    /// Send every measured statistic of every tensor by name: many series.
    pub per_parameter: bool,
    /// Send alerts as log records. Prometheus accepts metrics only.
    #[default = true]
    pub logs: bool,
    /// Memory for unsent steps, in MiB. Further steps are read from the journal later; without a journal, the oldest are dropped and counted.
    #[schemars(range(min = 1, max = 65_536))]
    // Hours of a large model by layer, minutes of it by parameter.
    #[default = 64]
    pub backlog_mb: u64,
    /// The time for retrying a deferred or unanswered request, in seconds; trainmon then counts it as lost. An unreachable receiver is retried forever.
    #[schemars(range(min = 1, max = 604_800))]
    // Longer than any delay that a receiver may request.
    #[default = 900]
    pub give_up_s: u64,
}

/// The protocol of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OtlpProtocol {
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
    /// Protobuf over HTTP/1.1.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

/// The compression of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpCompression {
    /// Not at all.
    None,
    /// gzip; all receivers support it.
    Gzip,
    /// Zstandard: faster and smaller, but not supported by every receiver (the OpenTelemetry Collector supports it).
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

    /// The text, only for use in the request.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// The replacement that is printed for a secret.
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
    /// Reports combinations that cannot work.
    pub(super) fn check(&self, report: &mut Report<'_>) {
        let Self { endpoint, protocol, headers, certificate, client_certificate, client_key, .. } = self;
        if let Some(endpoint) = endpoint {
            check_endpoint(endpoint, *protocol, report);
        }
        for name in headers.keys().filter(|name| !is_header_name(name)) {
            let key = super::report::join("otlp.headers", name);
            let fault = Fault::new(Kind::OutOfRange, "is not a header name")
                .expected("letters, digits and `-`, as in `x-api-key`");
            report.error(report.place(&key), &key, fault);
        }
        for (given, other, key, missing) in [
            (client_certificate, client_key, "otlp.client_certificate", "client_key"),
            (client_key, client_certificate, "otlp.client_key", "client_certificate"),
        ] {
            if given.is_some() && other.is_none() {
                let fault = Fault::new(Kind::NoEffect, format!("has no effect without `{missing}`"));
                report.warn(report.place(key), key, fault.hint("set both here, or both in the environment"));
            }
        }
        let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        if is_plain && (certificate.is_some() || client_certificate.is_some()) {
            let key = if certificate.is_some() { "otlp.certificate" } else { "otlp.client_certificate" };
            let fault = Fault::new(Kind::NoEffect, "has no effect: the endpoint is `http://`, without encryption");
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
            // The URL is not quoted, because it contains a password.
            let fault = Fault::new(Kind::OutOfRange, "contains a user name").expected("an address without credentials");
            report.error(at, key, fault.hint("put credentials into `headers`; trainmon never prints them"));
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
                let fault = Fault::new(Kind::Conflict, "is usually the port of the other protocol");
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

/// Whether a name is a token of RFC 9110; servers reject other header names.
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
