//! Merges the settings: the config, then the signal's variable, then the general variable, then the standard's default.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use trainmon_core::config::{Otlp, OtlpCompression, OtlpProtocol, Secret};

use super::environment::{EnvVariable, Lookup, SettingWarning, Signal, key_values, look_up};
use crate::ExportError;

/// The specification's default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings for sending points, or log records.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) signal: Signal,
    pub(crate) protocol: OtlpProtocol,
    /// The complete address; over HTTP with its path.
    pub(crate) address: Uri,
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) timeout: Duration,
    /// How long a request is retried that a reachable receiver does not accept.
    pub(crate) give_up_after: Duration,
    pub(crate) compression: OtlpCompression,
    pub(crate) tls: Option<Tls>,
}

/// The TLS files. Defaults: the system's certificates, and no client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) certificate: Option<PathBuf>,
    /// Client certificate and key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl Settings {
    /// Merges config and environment for one signal.
    ///
    /// # Errors
    /// The address is invalid, without which nothing can be exported.
    pub(crate) fn resolve(
        config: &Otlp,
        signal: Signal,
        env: Lookup<'_>,
        warnings: &mut Vec<SettingWarning>,
    ) -> Result<Self, ExportError> {
        let mut reader = Reader { signal, env, warnings };
        let protocol = reader.protocol(config);
        let address = reader.address(config, protocol)?;
        let is_encrypted = address.scheme_str() == Some("https");
        Ok(Self {
            signal,
            protocol,
            headers: reader.headers(config),
            timeout: reader.timeout(config),
            give_up_after: Duration::from_secs(config.give_up_s),
            compression: reader.compression(config),
            tls: is_encrypted.then(|| reader.tls(config)),
            address,
        })
    }
}

impl Settings {
    /// The address for messages, without its query, which may contain a key.
    pub(crate) fn printable_address(&self) -> String {
        let part = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let authority = part(self.address.authority().map(hyper::http::uri::Authority::as_str));
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{}://{host}{}", part(self.address.scheme_str()), self.address.path())
    }
}

struct Reader<'a> {
    signal: Signal,
    env: Lookup<'a>,
    warnings: &'a mut Vec<SettingWarning>,
}

impl Reader<'_> {
    fn find(&self, name: &str) -> Option<EnvVariable> {
        look_up(self.env, self.signal, name)
    }

    fn warn(&mut self, message: String, hint: &'static str) {
        let warning = SettingWarning { message, hint };
        // A general variable is read for metrics and for logs.
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn protocol(&mut self, config: &Otlp) -> OtlpProtocol {
        if let Some(protocol) = config.protocol {
            return protocol;
        }
        let Some(EnvVariable { variable, value, .. }) = self.find("PROTOCOL") else {
            return OtlpProtocol::HttpProtobuf;
        };
        match value.as_str() {
            "grpc" => OtlpProtocol::Grpc,
            "http/protobuf" => OtlpProtocol::HttpProtobuf,
            _ => {
                let message = format!("`{variable}`: expected grpc or http/protobuf, found `{value}`");
                self.warn(message, "trainmon uses http/protobuf; set the variable to one of these");
                OtlpProtocol::HttpProtobuf
            }
        }
    }

    fn compression(&mut self, config: &Otlp) -> OtlpCompression {
        if let Some(compression) = config.compression {
            return compression;
        }
        let Some(EnvVariable { variable, value, .. }) = self.find("COMPRESSION") else { return OtlpCompression::None };
        match value.as_str() {
            "none" => OtlpCompression::None,
            "gzip" => OtlpCompression::Gzip,
            "zstd" => OtlpCompression::Zstd,
            _ => {
                let message = format!("`{variable}`: expected none, gzip or zstd, found `{value}`");
                self.warn(message, "trainmon uses no compression; set the variable to one of these");
                OtlpCompression::None
            }
        }
    }

    fn timeout(&mut self, config: &Otlp) -> Duration {
        if let Some(milliseconds) = config.timeout_ms {
            return Duration::from_millis(milliseconds);
        }
        let Some(EnvVariable { variable, value, .. }) = self.find("TIMEOUT") else { return DEFAULT_TIMEOUT };
        if let Some(milliseconds) = value.parse::<u64>().ok().filter(|&milliseconds| milliseconds > 0) {
            return Duration::from_millis(milliseconds);
        }
        self.warn(
            format!("`{variable}`: expected milliseconds, found `{value}`"),
            "trainmon uses 10 s; set the variable to a number of milliseconds",
        );
        DEFAULT_TIMEOUT
    }

    fn headers(&mut self, config: &Otlp) -> Vec<(String, Secret)> {
        let lowered = |name: &str| name.to_ascii_lowercase();
        if !config.headers.is_empty() {
            return config.headers.iter().map(|(name, value)| (lowered(name), value.clone())).collect();
        }
        let Some(EnvVariable { variable, value, .. }) = self.find("HEADERS") else { return Vec::new() };
        if let Some(pairs) = key_values(&value) {
            return pairs.into_iter().map(|(name, value)| (lowered(&name), Secret::new(value))).collect();
        }
        let hint = "separate entries with commas, and percent-encode special characters in values";
        self.warn(format!("`{variable}` is not a list of name=value and is ignored"), hint);
        Vec::new()
    }

    fn tls(&mut self, config: &Otlp) -> Tls {
        let file =
            |given: &Option<PathBuf>, name: &str| given.clone().or_else(|| Some(PathBuf::from(self.find(name)?.value)));
        let certificate = file(&config.certificate, "CERTIFICATE");
        let own = file(&config.client_certificate, "CLIENT_CERTIFICATE");
        let key = file(&config.client_key, "CLIENT_KEY");
        let is_half = own.is_some() != key.is_some();
        if is_half {
            let message = "only one of client certificate and client key is set; neither is used".to_owned();
            self.warn(message, "set both");
        }
        Tls { certificate, identity: own.zip(key) }
    }

    fn address(&mut self, config: &Otlp, protocol: OtlpProtocol) -> Result<Uri, ExportError> {
        let is_http = protocol == OtlpProtocol::HttpProtobuf;
        let (source, text, is_complete) = match (&config.endpoint, self.find("ENDPOINT")) {
            (Some(endpoint), _) => ("otlp.endpoint".to_owned(), endpoint.clone(), false),
            (None, Some(found)) => (found.variable, found.value, found.is_specific),
            (None, None) => {
                let port = if is_http { 4318 } else { 4317 };
                ("the default".to_owned(), format!("http://localhost:{port}"), false)
            }
        };
        let text = if text.contains("://") { text } else { format!("{}://{text}", self.bare_scheme(protocol)) };
        let text = if is_http && !is_complete {
            let (base, query) = text.split_at(text.find('?').unwrap_or(text.len()));
            format!("{}/{}{query}", base.trim_end_matches('/'), self.signal.http_path())
        } else {
            text
        };
        let usable = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && !has_credentials(uri);
        text.parse::<Uri>().ok().filter(usable).ok_or(ExportError::OtlpEndpoint { source_name: source })
    }

    /// The scheme for an address without one.
    fn bare_scheme(&self, protocol: OtlpProtocol) -> &'static str {
        let is_insecure = self.find("INSECURE").is_some_and(|found| found.value.eq_ignore_ascii_case("true"));
        if protocol == OtlpProtocol::Grpc && !is_insecure { "https" } else { "http" }
    }
}

fn has_credentials(uri: &Uri) -> bool {
    uri.authority().is_some_and(|authority| authority.as_str().contains('@'))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn config() -> Otlp {
        Otlp {
            enabled: true,
            endpoint: None,
            protocol: None,
            headers: std::collections::BTreeMap::new(),
            timeout_ms: None,
            compression: None,
            certificate: None,
            client_certificate: None,
            client_key: None,
            per_parameter: false,
            logs: true,
            backlog_mb: 64,
            give_up_s: 900,
        }
    }

    fn resolve(config: &Otlp, signal: Signal, env: &[(&str, &str)]) -> (Settings, Vec<SettingWarning>) {
        let env: HashMap<&str, &str> = env.iter().copied().collect();
        let mut warnings = Vec::new();
        let lookup = |name: &str| env.get(name).map(|&value| value.to_owned());
        let settings = Settings::resolve(config, signal, &lookup, &mut warnings).unwrap();
        (settings, warnings)
    }

    fn address(config: &Otlp, signal: Signal, env: &[(&str, &str)]) -> String {
        resolve(config, signal, env).0.address.to_string()
    }

    #[test]
    fn a_base_address_gets_the_signals_path_over_http_and_a_signals_own_address_is_used_as_it_is() {
        let plain = config();
        assert_eq!(address(&plain, Signal::Metrics, &[]), "http://localhost:4318/v1/metrics");
        let base = [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c:4318/base/")];
        assert_eq!(address(&plain, Signal::Metrics, &base), "https://c:4318/base/v1/metrics");
        assert_eq!(address(&plain, Signal::Logs, &base), "https://c:4318/base/v1/logs");
        let own = [base[0], ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m/in")];
        assert_eq!(address(&plain, Signal::Metrics, &own), "http://m/in");
        assert_eq!(address(&plain, Signal::Logs, &own), "https://c:4318/base/v1/logs");
        let file = Otlp { endpoint: Some("http://file:1".to_owned()), ..config() };
        assert_eq!(address(&file, Signal::Metrics, &own), "http://file:1/v1/metrics");
        let query = Otlp { endpoint: Some("http://file:1/in/?key=s3cret".to_owned()), ..config() };
        assert_eq!(address(&query, Signal::Metrics, &[]), "http://file:1/in/v1/metrics?key=s3cret");
        let printed = resolve(&query, Signal::Metrics, &[]).0.printable_address();
        assert_eq!(printed, "http://file:1/in/v1/metrics");
    }

    #[test]
    fn grpc_has_its_own_port_and_is_encrypted_unless_told_otherwise() {
        let grpc = Otlp { protocol: Some(OtlpProtocol::Grpc), ..config() };
        assert_eq!(address(&grpc, Signal::Metrics, &[]), "http://localhost:4317/");
        let bare = ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317");
        assert_eq!(address(&grpc, Signal::Metrics, &[bare]), "https://c:4317/");
        assert_eq!(address(&grpc, Signal::Metrics, &[bare, ("OTEL_EXPORTER_OTLP_INSECURE", "true")]), "http://c:4317/");
        assert_eq!(address(&config(), Signal::Metrics, &[bare]), "http://c:4317/v1/metrics");
    }

    #[test]
    fn the_file_goes_before_the_signals_variable_and_that_before_the_general_one() {
        let env = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "2000"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=s%20t"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"),
        ];
        let (metrics, warnings) = resolve(&config(), Signal::Metrics, &env);
        assert_eq!(warnings, []);
        assert_eq!((metrics.protocol, metrics.timeout.as_millis()), (OtlpProtocol::Grpc, 2000));
        assert_eq!((metrics.headers[0].0.as_str(), metrics.headers[0].1.reveal()), ("x-key", "s t"));
        assert_eq!(metrics.tls, Some(Tls { certificate: Some("ca.pem".into()), identity: None }));
        assert_eq!(resolve(&config(), Signal::Logs, &env).0.timeout.as_millis(), 1000);
        let file = Otlp {
            protocol: Some(OtlpProtocol::HttpProtobuf),
            timeout_ms: Some(7),
            compression: Some(OtlpCompression::None),
            headers: [("Other".to_owned(), Secret::new("v"))].into(),
            ..config()
        };
        let (metrics, _) = resolve(&file, Signal::Metrics, &env);
        assert_eq!((metrics.protocol, metrics.timeout.as_millis()), (OtlpProtocol::HttpProtobuf, 7));
        assert_eq!(metrics.compression, OtlpCompression::None);
        assert_eq!(metrics.headers.len(), 1);
    }

    #[test]
    fn a_variable_that_makes_no_sense_is_left_out_with_a_word_and_secrets_are_not_quoted() {
        let env = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "lz4"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"),
        ];
        let (settings, warnings) = resolve(&config(), Signal::Metrics, &env);
        assert_eq!(settings.protocol, OtlpProtocol::HttpProtobuf);
        assert_eq!(settings.timeout, DEFAULT_TIMEOUT);
        assert_eq!(warnings.len(), 4);
        assert!(!format!("{warnings:?}").contains("s3cret"), "{warnings:?}");
        let lookup = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://u:s3cret@h".to_owned());
        let error = Settings::resolve(&config(), Signal::Metrics, &lookup, &mut Vec::new()).unwrap_err();
        assert!(!error.to_string().contains("s3cret") && error.to_string().contains("OTEL_EXPORTER_OTLP_ENDPOINT"));
    }
}
