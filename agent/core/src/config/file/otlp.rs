//! The keys of OpenTelemetry export.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::otlp::{OtlpCompression, OtlpProtocol, Secret};

/// OpenTelemetry export. What a key leaves open the standard variables `OTEL_EXPORTER_OTLP_*` say; what stands here goes
/// before them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(in crate::config) struct OtlpFile {
    /// Export.
    pub(in crate::config) enabled: bool,
    /// The receiver's address with `http://` or `https://`; over HTTP `/v1/metrics` and `/v1/logs` are appended. Absent:
    /// this machine, port 4318, or 4317 for gRPC.
    #[schemars(length(min = 1))]
    pub(in crate::config) endpoint: Option<String>,
    /// How requests travel. Absent: `http/protobuf`.
    pub(in crate::config) protocol: Option<OtlpProtocol>,
    /// Headers of every request: an API key, say. Their values are never printed.
    pub(in crate::config) headers: BTreeMap<String, Secret>,
    /// How long one request may take, in milliseconds. Absent: 10,000.
    #[schemars(range(min = 1, max = 600_000))]
    pub(in crate::config) timeout_ms: Option<u64>,
    /// How requests are compressed. Absent: not at all.
    pub(in crate::config) compression: Option<OtlpCompression>,
    /// A PEM file with the certificates to trust in place of the system's.
    #[schemars(length(min = 1))]
    pub(in crate::config) certificate: Option<PathBuf>,
    /// A PEM file with the certificate that the receiver knows us by.
    #[schemars(length(min = 1))]
    pub(in crate::config) client_certificate: Option<PathBuf>,
    /// A PEM file with the private key of that certificate.
    #[schemars(length(min = 1))]
    pub(in crate::config) client_key: Option<PathBuf>,
    /// Every measured statistic of every tensor, by name: many series.
    pub(in crate::config) per_parameter: bool,
    /// Alerts as log records. A receiver of metrics alone (Prometheus) has no place for them.
    pub(in crate::config) logs: bool,
    /// Memory for what waits for the receiver, in MiB. What has no room is read from the journal later; without one the
    /// oldest steps are dropped and counted.
    #[schemars(range(min = 1, max = 65_536))]
    pub(in crate::config) backlog_mb: u64,
    /// How long a request is tried again that the receiver puts off or does not answer, in seconds; then it is lost and
    /// counted, and the next one is sent. A receiver that cannot be reached at all is waited for without end.
    #[schemars(range(min = 1, max = 604_800))]
    pub(in crate::config) give_up_s: u64,
}

impl Default for OtlpFile {
    fn default() -> Self {
        Self {
            enabled: true,
            endpoint: None,
            protocol: None,
            headers: BTreeMap::new(),
            timeout_ms: None,
            compression: None,
            certificate: None,
            client_certificate: None,
            client_key: None,
            per_parameter: false,
            logs: true,
            // Hours of a large model by layer, minutes of it by parameter.
            backlog_mb: 64,
            // Longer than any wait that a receiver may order.
            give_up_s: 900,
        }
    }
}
