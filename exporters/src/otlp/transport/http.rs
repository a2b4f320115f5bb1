//! OTLP over HTTP/1.1 with protobuf bodies.

use std::io::Write as _;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri, body::Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{CaptureConnection, HttpConnector, capture_connection};
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use trainmon_core::config::OtlpCompression;

use super::grpc::taken;
use super::{ReceiverAnswer, USER_AGENT, connect_timeout, in_a_line, quoted, tls};
use crate::ExportError;
use crate::otlp::environment::Signal;
use crate::otlp::settings::Settings;

const PROTOBUF: &str = "application/x-protobuf";
/// The maximum size of a response that is read; usual ones have a few hundred bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The fastest level; points still compress thirtyfold.
const ZSTD_LEVEL: i32 = 1;

/// A client that keeps its connection between requests.
pub(crate) struct HttpTransport {
    signal: Signal,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// The connection of the latest request.
    connection: Option<CaptureConnection>,
    address: Uri,
    headers: HeaderMap,
    compression: OtlpCompression,
}

impl HttpTransport {
    pub(super) fn new(settings: &Settings) -> Result<Self, ExportError> {
        let Settings { signal, protocol: _, address, headers: extra, timeout, give_up_after: _, compression, tls } =
            settings;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let encoding = match compression {
            OtlpCompression::None => None,
            OtlpCompression::Gzip => Some("gzip"),
            OtlpCompression::Zstd => Some("zstd"),
        };
        headers.extend(encoding.map(|encoding| (header::CONTENT_ENCODING, HeaderValue::from_static(encoding))));
        for (name, value) in extra {
            let unusable = || ExportError::OtlpHeader { name: name.clone() };
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_its_value_is_secret| unusable())?;
            let mut value = HeaderValue::from_str(value.reveal()).map_err(|_its_value_is_secret| unusable())?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        let mut plain = HttpConnector::new();
        plain.enforce_http(false);
        plain.set_connect_timeout(Some(connect_timeout(*timeout)));
        plain.set_nodelay(true);
        let tls = match tls {
            Some(tls) => tls::client_config(tls)?,
            None => tls::without_roots(),
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
        let connector = connector.https_or_http().enable_http1().wrap_connector(plain);
        let client = Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(90)).build(connector);
        let (signal, address, compression) = (*signal, address.clone(), *compression);
        Ok(Self { signal, client, connection: None, address, headers, compression })
    }

    /// Whether the latest request had a connection. If not (an unresolved name, a hanging handshake), the receiver was
    /// not reached.
    pub(super) fn was_connected(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.connection_metadata().is_some())
    }

    pub(super) async fn send(&mut self, body: Bytes) -> ReceiverAnswer {
        let body = match compressed(body, self.compression) {
            Ok(body) => body,
            Err(error) => {
                let (why, hint) = (error.to_string(), "set `otlp.compression` to none");
                return ReceiverAnswer::Refused { why, hint, for_content: false };
            }
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.address.clone();
        *request.headers_mut() = self.headers.clone();
        self.connection = Some(capture_connection(&mut request));
        match self.client.request(request).await {
            Ok(response) => self.judge(response).await,
            Err(error) => ReceiverAnswer::Later { why: in_a_line(&error), after: None, reached: !error.is_connect() },
        }
    }

    /// Classifies a response, following the protocol's table of status codes.
    async fn judge(&self, response: Response<Incoming>) -> ReceiverAnswer {
        let (parts, body) = response.into_parts();
        let after = retry_after(&parts.headers, SystemTime::now());
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes);
        let is_protobuf = parts.headers.get(header::CONTENT_TYPE).is_some_and(is_protobuf);
        match parts.status {
            // The status line arrived: whatever happened to the body, the receiver has the points.
            status if status.is_success() => taken(self.signal, body.ok().filter(|_| is_protobuf).unwrap_or_default()),
            status => {
                let why = said(status, &body.unwrap_or_default(), is_protobuf);
                if is_temporary(status) {
                    ReceiverAnswer::Later { why, after, reached: true }
                } else {
                    ReceiverAnswer::Refused { why, hint: hint(status), for_content: is_for_content(status) }
                }
            }
        }
    }
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Whether the status is about the contents of the request, not about its sender or address.
fn is_for_content(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::INTERNAL_SERVER_ERROR
    )
}

/// Ignores parameters after the type.
fn is_protobuf(content_type: &HeaderValue) -> bool {
    let kind = content_type.to_str().ok().and_then(|text| text.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(PROTOBUF)
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "check `otlp.headers` or OTEL_EXPORTER_OTLP_HEADERS",
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            "check the path of `otlp.endpoint`; if the receiver has no logs, set `\"logs\": false`"
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "the receiver does not support this compression: set `otlp.compression`",
        _ => "check the receiver's log",
    }
}

/// The status and the body: the protocol's own message, or the beginning of a text.
fn said(status: StatusCode, body: &Bytes, is_protobuf: bool) -> String {
    let message = if is_protobuf {
        tonic_types::Status::decode(body.clone()).map(|status| status.message).unwrap_or_default()
    } else {
        String::from_utf8_lossy(body).into_owned()
    };
    if message.trim().is_empty() { status.to_string() } else { format!("{status}: {}", quoted(&message)) }
}

/// Parses seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
}

fn compressed(body: Bytes, compression: OtlpCompression) -> std::io::Result<Bytes> {
    Ok(match compression {
        OtlpCompression::None => body,
        OtlpCompression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&body)?;
            encoder.finish()?.into()
        }
        OtlpCompression::Zstd => zstd::encode_all(&*body, ZSTD_LEVEL)?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_are_judged_by_the_protocols_table() {
        for code in 300..600 {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(is_temporary(status), matches!(code, 429 | 502 | 503 | 504), "{code}");
        }
    }

    #[test]
    fn a_content_type_may_have_parameters() {
        for (text, expected) in [
            ("application/x-protobuf", true),
            ("Application/X-Protobuf; charset=utf-8", true),
            ("application/x-protobuf2", false),
            ("text/plain; application/x-protobuf", false),
        ] {
            assert_eq!(is_protobuf(&HeaderValue::from_static(text)), expected, "{text}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let of = |text: &str| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
            let headers = [(header::RETRY_AFTER, HeaderValue::from_str(text).unwrap())].into_iter().collect();
            retry_after(&headers, now)
        };
        assert_eq!(of("12"), Some(Duration::from_secs(12)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:47 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(of("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(of("soon"), None);
    }
}
