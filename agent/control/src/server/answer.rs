//! Answers one request in JSON.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::service::{ControlService, Refusal};
use crate::token::Token;

/// The maximum size of a request: a change has a few hundred bytes; this is thousands of target names.
const MAX_BODY_BYTES: usize = 64 << 10;
/// The time limit for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long `flush` waits for the exporters.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
const FLUSH_LOOK_EVERY: Duration = Duration::from_millis(20);
/// A status younger than this is reused for the next request.
const STATUS_KEPT: Duration = Duration::from_millis(20);

type JsonResponse = Response<Full<Bytes>>;

/// The listener that a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The unix socket: file mode and kernel identify the user.
    Socket,
    /// HTTP: the token identifies the user.
    Http,
}

/// The state for answering requests.
pub(super) struct ServerState {
    service: ControlService,
    token: Token,
    /// The allowed `Host` headers: names of this host with the server's port. Others come from a page whose name was
    /// redirected to this address.
    hosts: Vec<String>,
    status: Mutex<Option<(Instant, Bytes)>>,
}

impl ServerState {
    pub(super) fn new(service: ControlService, token: Token, address: Option<SocketAddr>) -> Self {
        let names = |address: SocketAddr| {
            let port = address.port();
            [address.to_string(), format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")]
        };
        Self { service, token, hosts: address.map(names).into_iter().flatten().collect(), status: Mutex::default() }
    }

    /// The status as text, generated at most every few milliseconds.
    fn status(&self) -> Bytes {
        let mut kept = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = kept.as_ref().filter(|(made, _)| made.elapsed() < STATUS_KEPT) {
            return text.clone();
        }
        let text = Bytes::from(self.service.status().to_string() + "\n");
        *kept = Some((Instant::now(), text.clone()));
        text
    }

    /// Refuses a request from another origin or without the token.
    fn refuse(&self, origin: Origin, request: &Request<Incoming>) -> Option<JsonResponse> {
        if origin == Origin::Socket {
            return None;
        }
        let header = |name| request.headers().get(name).map(HeaderValue::as_bytes);
        let is_ours = header(HOST).is_some_and(|host| self.hosts.iter().any(|name| name.as_bytes() == host));
        if !is_ours {
            let hint = format!("use http://{}", self.hosts.first().map_or("127.0.0.1", String::as_str));
            return Some(error(StatusCode::MISDIRECTED_REQUEST, "the `Host` header names another host", &hint));
        }
        if !header(AUTHORIZATION).is_some_and(|given| self.token.is_in(given)) {
            let hint = "send `Authorization: Bearer TOKEN` with the contents of the token file, or use `trainmon ctl`";
            let mut refusal = error(StatusCode::UNAUTHORIZED, "the token is missing or wrong", hint);
            refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return Some(refusal);
        }
        None
    }
}

/// Answers a request. No path or name in a request ever reaches the file system.
pub(super) async fn answer(state: &ServerState, origin: Origin, request: Request<Incoming>) -> JsonResponse {
    if let Some(refusal) = state.refuse(origin, &request) {
        return refusal;
    }
    let wanted = match request.uri().path() {
        "/status" => Method::GET,
        "/set" | "/dump" | "/pause" | "/resume" | "/flush" => Method::POST,
        _ => {
            let hint = "use GET /status, or POST /set, /dump, /pause, /resume or /flush";
            return error(StatusCode::NOT_FOUND, "no such path", hint);
        }
    };
    if *request.method() != wanted {
        let mut refusal = error(StatusCode::METHOD_NOT_ALLOWED, "wrong method", &format!("use {wanted}"));
        if let Ok(allowed) = HeaderValue::from_str(wanted.as_str()) {
            refusal.headers_mut().insert(ALLOW, allowed);
        }
        return refusal;
    }
    let path = request.uri().path().to_owned();
    match path.as_str() {
        "/status" => response(StatusCode::OK, state.status()),
        "/pause" => told(state.service.pause()),
        "/resume" => told(state.service.resume()),
        "/flush" => flush(&state.service).await,
        path => match text_of(request.into_body()).await {
            Ok(text) if path == "/dump" => told(state.service.dump(&text)),
            Ok(text) => told(state.service.set(&text)),
            Err(refusal) => refusal,
        },
    }
}

async fn text_of(body: Incoming) -> Result<String, JsonResponse> {
    let too_large = || {
        let message = format!("the request has more than {MAX_BODY_BYTES} bytes");
        error(
            StatusCode::PAYLOAD_TOO_LARGE,
            &message,
            "set fewer targets; a target covers all names that begin with it",
        )
    };
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let collected = match timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(collected)) => collected,
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
        Ok(Err(_)) => return Err(error(StatusCode::BAD_REQUEST, "the request is incomplete", "send it again")),
        Err(_) => {
            return Err(error(StatusCode::REQUEST_TIMEOUT, "the request took too long", "send the whole body at once"));
        }
    };
    String::from_utf8(collected.to_bytes().into())
        .map_err(|_not_text| error(StatusCode::BAD_REQUEST, "the request is not UTF-8", "send JSON"))
}

async fn flush(service: &ControlService) -> JsonResponse {
    let mark = service.mark();
    let deadline = Instant::now() + FLUSH_TIMEOUT;
    while !service.is_delivered(mark) {
        if Instant::now() >= deadline {
            let message = format!("not everything was delivered within {} s", FLUSH_TIMEOUT.as_secs());
            return error(StatusCode::GATEWAY_TIMEOUT, &message, "`status` shows the queue of each exporter");
        }
        sleep(FLUSH_LOOK_EVERY).await;
    }
    response(StatusCode::OK, (json!({"records": mark.accepted}).to_string() + "\n").into())
}

fn told(outcome: Result<Value, Refusal>) -> JsonResponse {
    match outcome {
        Ok(value) => response(StatusCode::ACCEPTED, (value.to_string() + "\n").into()),
        Err(refusal) => {
            let status = match refusal {
                Refusal::Change { .. } | Refusal::Capture { .. } | Refusal::EmptyWindow(_) => {
                    StatusCode::UNPROCESSABLE_ENTITY
                }
                Refusal::FixedTargets | Refusal::NoCapture { .. } => StatusCode::CONFLICT,
                Refusal::TooMany => StatusCode::TOO_MANY_REQUESTS,
                Refusal::Over => StatusCode::SERVICE_UNAVAILABLE,
            };
            error(status, &refusal.to_string(), &refusal.hint())
        }
    }
}

fn error(status: StatusCode, message: &str, hint: &str) -> JsonResponse {
    response(status, (json!({"error": message, "hint": hint}).to_string() + "\n").into())
}

fn response(status: StatusCode, body: Bytes) -> JsonResponse {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
