//! OTLP over gRPC.

use bytes::{Buf as _, BufMut as _, Bytes};
use hyper::http::uri::PathAndQuery;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message as _;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;
use trainmon_core::config::OtlpCompression;

use super::{ReceiverAnswer, USER_AGENT, connect_timeout, in_a_line, quoted, tls};
use crate::ExportError;
use crate::otlp::environment::Signal;
use crate::otlp::settings::Settings;

/// A channel that connects for a request, and again after the connection broke.
pub(crate) struct GrpcTransport {
    signal: Signal,
    endpoint: Endpoint,
    channel: Channel,
    headers: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
    compression: Option<CompressionEncoding>,
}

impl GrpcTransport {
    pub(super) fn new(settings: &Settings) -> Result<Self, ExportError> {
        let Settings { signal, protocol: _, address, headers, timeout, give_up_after: _, compression, tls } = settings;
        let refused = |source: tonic::transport::Error| ExportError::OtlpConnection { source: Box::new(source) };
        let mut endpoint = Endpoint::from(address.clone()).connect_timeout(connect_timeout(*timeout));
        endpoint = endpoint.user_agent(USER_AGENT).map_err(refused)?;
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls::grpc_config(tls)?).map_err(refused)?;
        }
        let headers = headers
            .iter()
            .map(|(name, value)| {
                let unusable = || ExportError::OtlpHeader { name: name.clone() };
                let key = AsciiMetadataKey::from_bytes(name.as_bytes()).map_err(|_its_value_is_secret| unusable())?;
                let mut value =
                    AsciiMetadataValue::try_from(value.reveal()).map_err(|_its_value_is_secret| unusable())?;
                value.set_sensitive(true);
                Ok((key, value))
            })
            .collect::<Result<_, ExportError>>()?;
        let compression = match compression {
            OtlpCompression::None => None,
            OtlpCompression::Gzip => Some(CompressionEncoding::Gzip),
            OtlpCompression::Zstd => Some(CompressionEncoding::Zstd),
        };
        Ok(Self { signal: *signal, channel: endpoint.connect_lazy(), endpoint, headers, compression })
    }

    /// Drops the connection.
    pub(super) fn reconnect(&mut self) {
        self.channel = self.endpoint.connect_lazy();
    }

    pub(super) async fn send(&mut self, body: Bytes) -> ReceiverAnswer {
        let mut grpc = Grpc::new(self.channel.clone()).accept_compressed(CompressionEncoding::Gzip);
        if let Some(encoding) = self.compression {
            grpc = grpc.send_compressed(encoding);
        }
        if let Err(error) = grpc.ready().await {
            return ReceiverAnswer::Later { why: in_a_line(&error), after: None, reached: false };
        }
        let mut request = Request::new(body);
        for (key, value) in &self.headers {
            request.metadata_mut().insert(key.clone(), value.clone());
        }
        let path = PathAndQuery::from_static(self.signal.grpc_path());
        match grpc.unary(request, path, RawCodec).await {
            Ok(response) => taken(self.signal, response.into_inner()),
            Err(status) => judge(&status),
        }
    }
}

/// The number of rejected points in a response. An unreadable response rejects nothing: it is a success.
pub(super) fn taken(signal: Signal, body: Bytes) -> ReceiverAnswer {
    let (rejected, message) = match signal {
        Signal::Metrics => {
            let partial = ExportMetricsServiceResponse::decode(body).unwrap_or_default().partial_success;
            partial.map(|partial| (partial.rejected_data_points, partial.error_message)).unwrap_or_default()
        }
        Signal::Logs => {
            let partial = ExportLogsServiceResponse::decode(body).unwrap_or_default().partial_success;
            partial.map(|partial| (partial.rejected_log_records, partial.error_message)).unwrap_or_default()
        }
    };
    ReceiverAnswer::Taken { rejected: u64::try_from(rejected).unwrap_or(0), message: quoted(&message) }
}

/// Classifies a status, following the protocol's table of codes.
fn judge(status: &Status) -> ReceiverAnswer {
    let after = status.get_details_retry_info().and_then(|info| info.retry_delay);
    let is_broken_connection = std::error::Error::source(status).is_some();
    let is_temporary = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // Either the receiver says when it has capacity again, or it never will.
        Code::ResourceExhausted => after.is_some(),
        // Not from the receiver: the connection broke during the request.
        Code::Unknown | Code::Internal => is_broken_connection,
        _ => false,
    };
    if is_temporary {
        let why = if is_broken_connection { in_a_line(status) } else { said(status) };
        return ReceiverAnswer::Later { why, after, reached: !is_unreachable(status) };
    }
    let hint = match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => "check `otlp.headers` or OTEL_EXPORTER_OTLP_HEADERS",
        Code::Unimplemented => {
            "the receiver does not support this service or compression: check `otlp.protocol`, the port and `otlp.compression`"
        }
        _ => "check the receiver's log",
    };
    let for_content = matches!(
        status.code(),
        Code::InvalidArgument | Code::ResourceExhausted | Code::FailedPrecondition | Code::Internal | Code::Unknown
    );
    ReceiverAnswer::Refused { why: said(status), hint, for_content }
}

/// Whether there was no connection.
fn is_unreachable(status: &Status) -> bool {
    let first: Option<&dyn std::error::Error> = std::error::Error::source(status);
    let mut causes = std::iter::successors(first, |&cause| cause.source());
    causes.any(<dyn std::error::Error>::is::<tonic::ConnectError>)
}

fn said(status: &Status) -> String {
    let code = status.code();
    if status.message().is_empty() { format!("{code:?}") } else { format!("{code:?}: {}", quoted(status.message())) }
}

/// A codec for encoded messages: a retry sends the same bytes.
#[derive(Clone, Copy, Debug)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic_types::ErrorDetails;

    use super::*;

    fn is_temporary(status: &Status) -> bool {
        matches!(judge(status), ReceiverAnswer::Later { .. })
    }

    #[test]
    fn codes_are_judged_by_the_protocols_table() {
        use Code::{
            Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, FailedPrecondition, Internal,
            InvalidArgument, NotFound, OutOfRange, PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable,
            Unimplemented, Unknown,
        };
        for code in [Cancelled, DeadlineExceeded, Aborted, OutOfRange, Unavailable, DataLoss] {
            assert!(is_temporary(&Status::new(code, "")), "{code:?}");
        }
        for code in [Unknown, InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated] {
            assert!(!is_temporary(&Status::new(code, "")), "{code:?}");
        }
        for code in [FailedPrecondition, Unimplemented, Internal, ResourceExhausted] {
            assert!(!is_temporary(&Status::new(code, "")), "{code:?}");
        }
    }

    #[test]
    fn a_receiver_without_room_is_asked_again_only_when_it_says_when() {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
        let status = Status::with_error_details(Code::ResourceExhausted, "full", details);
        let expected = ReceiverAnswer::Later {
            why: "ResourceExhausted: full".into(),
            after: Some(Duration::from_secs(3)),
            reached: true,
        };
        assert_eq!(judge(&status), expected);
    }
}
