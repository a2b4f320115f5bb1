//! One request and what became of it, over either protocol.

mod grpc;
mod http;
mod tls;

use std::time::Duration;

use bytes::Bytes;
use trainmon_core::config::OtlpProtocol;

use self::grpc::GrpcTransport;
use self::http::HttpTransport;
use super::settings::Settings;
use crate::ExportError;

/// How our requests introduce themselves.
const USER_AGENT: &str = concat!("trainmon-otlp-rust/", env!("CARGO_PKG_VERSION"));
/// A receiver's words are quoted up to here.
const MAX_QUOTED_CHARS: usize = 200;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was taken, but for so many points.
    Taken { rejected: u64, message: String },
    /// It will never be taken.
    Refused { why: String, hint: &'static str },
    /// It may be taken later, after this time if the receiver says so.
    Later { why: String, after: Option<Duration> },
}

/// A connection to a receiver, made when it is needed.
pub(crate) enum Transport {
    Grpc(Box<GrpcTransport>),
    Http(Box<HttpTransport>),
}

impl Transport {
    /// Reads certificates; connects to nothing. To be called inside the runtime.
    ///
    /// # Errors
    /// A certificate cannot be read, or a header cannot be sent.
    pub(crate) fn new(settings: &Settings) -> Result<Self, ExportError> {
        Ok(match settings.protocol {
            OtlpProtocol::Grpc => Self::Grpc(Box::new(GrpcTransport::new(settings)?)),
            OtlpProtocol::HttpProtobuf => Self::Http(Box::new(HttpTransport::new(settings)?)),
        })
    }

    /// Sends one request, within the configured time.
    pub(crate) async fn send(&mut self, body: Bytes, timeout: Duration) -> Answer {
        let answer = match self {
            Self::Grpc(grpc) => tokio::time::timeout(timeout, grpc.send(body)).await,
            Self::Http(http) => tokio::time::timeout(timeout, http.send(body)).await,
        };
        answer.unwrap_or_else(|_elapsed| {
            // A connection that swallows requests would swallow the next one too.
            if let Self::Grpc(grpc) = self {
                grpc.reconnect();
            }
            Answer::Later { why: format!("no answer within {timeout:?}"), after: None }
        })
    }
}

/// The beginning of what a receiver said, in one line.
fn quoted(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(MAX_QUOTED_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// An error with its causes.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        // Wrappers of hyper and tonic often repeat what they wrap.
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    quoted(&text)
}
