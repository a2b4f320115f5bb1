//! The response to each request.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode, Uri};
use trainmon_history::Cursor;
use trainmon_service::http::LongLived;

use super::hosts::{KnownHosts, REFUSAL};
use super::live::{Events, LiveRun, SharedLiveRun};
use super::page::PageSource;

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// For responses other than the live page: nothing in them may be run or loaded.
const NOTHING_ALLOWED: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The sources of all responses.
#[derive(Clone, Debug)]
pub(crate) struct PageHandler {
    pub(crate) page: Arc<PageSource>,
    /// `None` if the live page is disabled.
    pub(crate) live: Option<SharedLiveRun>,
    pub(crate) hosts: KnownHosts,
}

/// A whole body, or an event stream until the server ends or the reader has to start over.
type ResponseBody = Either<Full<Bytes>, Events>;

pub(crate) type PageResponse = Response<ResponseBody>;

impl PageHandler {
    pub(crate) fn answer(&self, request: &Parts) -> PageResponse {
        let (method, uri) = (&request.method, &request.uri);
        let of_page = |path| matches!(path, "/api/overview" | "/api/heatmap" | "/api/events");
        let path = uri.path();
        let live = self.live.as_ref().filter(|_| of_page(path));
        if live.is_none() && !matches!(path, "/" | "/metrics" | "/healthz" | "/top") {
            return refusal(StatusCode::NOT_FOUND, "no such path; available: /, /metrics, /healthz and /top\n");
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut refusal = refusal(StatusCode::METHOD_NOT_ALLOWED, "method not allowed; use GET or HEAD\n");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        // Scrapers may use any host name; the live page and its data are for browsers.
        if !matches!(path, "/metrics" | "/healthz") && !self.hosts.allows(request) {
            return refusal(StatusCode::FORBIDDEN, REFUSAL);
        }
        let now = Instant::now();
        match (path, live) {
            ("/api/overview", Some(live)) => whole(JSON, live.overview(&self.page, now)),
            ("/api/heatmap", Some(live)) => heat_map(live, uri),
            ("/api/events", Some(live)) => self.events(live, uri),
            ("/metrics", _) => whole(METRICS, self.page.metrics(now)),
            ("/healthz", _) => whole(JSON, self.page.health(now).to_string()),
            ("/top", _) => whole(JSON, self.page.top().to_string()),
            _ if self.live.is_some() => {
                let mut page = whole(HTML, trainmon_web::RUN_PAGE);
                let policy = HeaderValue::from_static(trainmon_web::CONTENT_SECURITY_POLICY);
                page.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
                page
            }
            _ => whole(HTML, self.page.index()),
        }
    }

    fn events(&self, live: &SharedLiveRun, uri: &Uri) -> PageResponse {
        let number = |key| parameter(uri, key).map_or(Ok(0), |text| text.parse::<u64>().map_err(|_not_a_number| key));
        let cursor = || {
            let bins = usize::try_from(number("bins")?).map_err(|_too_large| "bins")?;
            Ok(Cursor { generation: number("generation")?, bins, alerts: number("alerts")? })
        };
        match cursor() {
            Ok(cursor) => {
                let events = Events::new(Arc::clone(&self.page), Arc::clone(live), cursor);
                let mut answer = response(StatusCode::OK, EVENTS, Either::Right(events));
                answer.extensions_mut().insert(LongLived);
                answer
            }
            Err(key) => bad_number(key),
        }
    }
}

fn heat_map(live: &LiveRun, uri: &Uri) -> PageResponse {
    let (Some(kind), Some(statistic)) = (parameter(uri, "kind"), parameter(uri, "statistic")) else {
        return refusal(
            StatusCode::BAD_REQUEST,
            "kind and statistic are required: /api/heatmap?kind=grad_reduced&statistic=norm\n",
        );
    };
    let Ok(from) = parameter(uri, "from").map_or(Ok(0), str::parse) else { return bad_number("from") };
    match live.heat_map(kind, statistic, from) {
        Some(map) => whole(JSON, map),
        None => refusal(StatusCode::NOT_FOUND, format!("no such heat map; available: {}\n", live.heat_maps())),
    }
}

/// A parameter of the query. Kinds, statistics and numbers contain no encoded characters.
fn parameter<'u>(uri: &'u Uri, key: &str) -> Option<&'u str> {
    uri.query()?
        .split('&')
        .find_map(|pair| pair.split_once('=').filter(|(name, _)| *name == key))
        .map(|(_, value)| value)
}

fn bad_number(key: &str) -> PageResponse {
    refusal(StatusCode::BAD_REQUEST, format!("`{key}` must be a whole number\n"))
}

fn refusal(status: StatusCode, message: impl Into<Bytes>) -> PageResponse {
    response(status, TEXT, Either::Left(Full::new(message.into())))
}

pub(super) fn whole(content_type: &'static str, body: impl Into<Bytes>) -> PageResponse {
    response(StatusCode::OK, content_type, Either::Left(Full::new(body.into())))
}

fn response(status: StatusCode, content_type: &'static str, body: ResponseBody) -> PageResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // Pages of other origins must not read this: there is no `Access-Control-Allow-Origin`.
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, NOTHING_ALLOWED),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
