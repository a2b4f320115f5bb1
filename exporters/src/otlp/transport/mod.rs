//! One request and its outcome, over either protocol.

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

/// The user agent of the requests.
const USER_AGENT: &str = concat!("trainmon-otlp-rust/", env!("CARGO_PKG_VERSION"));
/// The maximum number of quoted characters of a receiver's message.
const MAX_QUOTED_CHARS: usize = 200;

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReceiverAnswer {
    /// Accepted, except for this many points.
    Taken { rejected: u64, message: String },
    /// Refused for good. `for_content`: another request may be accepted.
    Refused { why: String, hint: &'static str, for_content: bool },
    /// Deferred, for `after` if the receiver sets a time. `reached`: the receiver got the request, as far as is known,
    /// or had the time to.
    Later { why: String, after: Option<Duration>, reached: bool },
}

/// A connection to a receiver, created on demand.
pub(crate) enum Transport {
    Grpc(Box<GrpcTransport>),
    Http(Box<HttpTransport>),
}

impl Transport {
    /// Reads certificates without connecting. Call it inside the runtime.
    ///
    /// # Errors
    /// A certificate cannot be read, or a header is invalid.
    pub(crate) fn new(settings: &Settings) -> Result<Self, ExportError> {
        Ok(match settings.protocol {
            OtlpProtocol::Grpc => Self::Grpc(Box::new(GrpcTransport::new(settings)?)),
            OtlpProtocol::HttpProtobuf => Self::Http(Box::new(HttpTransport::new(settings)?)),
        })
    }

    /// Sends one request, within the configured time.
    pub(crate) async fn send(&mut self, body: Bytes, timeout: Duration) -> ReceiverAnswer {
        let answer = match self {
            Self::Grpc(grpc) => tokio::time::timeout(timeout, grpc.send(body)).await,
            Self::Http(http) => tokio::time::timeout(timeout, http.send(body)).await,
        };
        answer.unwrap_or_else(|_elapsed| {
            let reached = match self {
                // A connection that lost this request would lose the next one, too.
                Self::Grpc(grpc) => {
                    grpc.reconnect();
                    true
                }
                Self::Http(http) => http.was_connected(),
            };
            ReceiverAnswer::Later { why: format!("no answer within {timeout:?}"), after: None, reached }
        })
    }
}

/// The time for connecting; the rest is for the answer.
fn connect_timeout(timeout: Duration) -> Duration {
    timeout.mul_f64(0.8)
}

/// The beginning of a receiver's message, on one line.
fn quoted(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(MAX_QUOTED_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// The beginning of an error and its causes.
fn in_a_line(error: &dyn std::error::Error) -> String {
    quoted(&trainmon_core::with_causes(error))
}

#[cfg(test)]
mod tests {
    use trainmon_core::config::OtlpCompression;

    use super::*;
    use crate::otlp::environment::Signal;

    #[test]
    fn a_receiver_that_is_not_there_was_not_reached_and_one_that_says_nothing_was() {
        // The kernel alone answers: nobody accepts.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let silent = format!("http://{}", listener.local_addr().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for protocol in [OtlpProtocol::Grpc, OtlpProtocol::HttpProtobuf] {
            // Nobody listens on port 1.
            for (address, timeout, expected) in [("http://127.0.0.1:1", 60_000, false), (silent.as_str(), 300, true)] {
                let timeout = Duration::from_millis(timeout);
                let settings = Settings {
                    signal: Signal::Metrics,
                    protocol,
                    address: address.parse().unwrap(),
                    headers: Vec::new(),
                    timeout,
                    give_up_after: timeout,
                    compression: OtlpCompression::None,
                    tls: None,
                };
                let _inside = runtime.enter();
                let mut transport = Transport::new(&settings).unwrap();
                let answer = runtime.block_on(transport.send(Bytes::new(), timeout));
                let ReceiverAnswer::Later { reached, why, .. } = answer else { panic!("{answer:?}") };
                assert_eq!(reached, expected, "{protocol:?} {address}: {why}");
            }
        }
    }
}
