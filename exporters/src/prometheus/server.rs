//! The HTTP server: one thread, bounded connections, every wait with an end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

use super::page::Pages;
use crate::ExportError;

/// Of fifteen characters only: Linux cuts a thread's name there.
const THREAD: &str = "trainmon-scrape";
/// Several scrapers and a few people; each may hold a page in memory (3 MB at 20 k series). The next one waits in the
/// system's backlog for a place.
const MAX_CONNECTIONS: usize = 32;
/// A client that is slower with its request line and headers is not one of ours.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Prometheus gives up on a scrape after as long. One connection serves one request, so this bounds a client that
/// does not read its answer as well.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// After a failed accept (out of file descriptors, say): long enough not to spin, short against a scrape.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What the thread may need beyond the deadline to be gone.
const JOIN_GRACE: Duration = Duration::from_millis(50);

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A running server. Dropping it stops it without waiting.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<Instant>>,
    stopped: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` and serves on a thread of its own.
    pub(crate) fn start(address: SocketAddr, pages: Arc<Pages>) -> Result<Self, ExportError> {
        let bind = |source| ExportError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let start = |what| move |source| ExportError::Start { what, source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(start("scrape page's runtime"))?;
        let listener = {
            let _in_runtime = runtime.enter();
            TcpListener::from_std(listener).map_err(bind)?
        };
        let (stop, stopping) = oneshot::channel();
        let (alive, stopped) = mpsc::channel();
        let serve = move || {
            runtime.block_on(serve_until_stopped(listener, pages, stopping));
            // Ends what is left of the connections.
            drop(runtime);
            // Whoever waits for the end sees the channel close.
            drop(alive);
        };
        let thread =
            thread::Builder::new().name(THREAD.to_owned()).spawn(serve).map_err(start("scrape page's thread"))?;
        Ok(Self { address, stop: Some(stop), stopped, thread: Some(thread) })
    }

    /// Where it listens, the port chosen by the system included.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listener, lets answers in progress finish until `deadline`, and waits no longer than that.
    pub(crate) fn shutdown(&mut self, deadline: Instant) {
        let Some(stop) = self.stop.take() else { return };
        // An error means the thread is gone already.
        stop.send(deadline).unwrap_or_default();
        let wait = deadline.saturating_duration_since(Instant::now()) + JOIN_GRACE;
        let ended = self.stopped.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            // A panic there took the page with it; nothing to add at shutdown.
            drop(thread.join());
        }
    }
}

async fn serve_until_stopped(listener: TcpListener, pages: Arc<Pages>, stopping: oneshot::Receiver<Instant>) {
    let mut connections = JoinSet::new();
    let deadline = tokio::select! {
        deadline = stopping => deadline.unwrap_or_else(|_dropped| Instant::now()),
        never = accept_connections(&listener, &pages, &mut connections) => match never {},
    };
    drop(listener);
    let all_done = async { while connections.join_next().await.is_some() {} };
    // Past the deadline the rest is cut off with the runtime.
    drop(timeout_at(deadline.into(), all_done).await);
}

async fn accept_connections(listener: &TcpListener, pages: &Arc<Pages>, connections: &mut JoinSet<()>) -> Infallible {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Finished connections leave their results here.
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            // The semaphore is never closed.
            continue;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = Arc::clone(pages);
                connections.spawn(async move {
                    serve_connection(stream, pages).await;
                    drop(place);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, pages: Arc<Pages>) {
    let service = service_fn(move |request: Request<_>| {
        let response = answer(&pages, request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // What a client breaks is its own loss.
    drop(timeout(CONNECTION_TIMEOUT, connection).await);
}

fn answer(pages: &Pages, method: &Method, path: &str) -> Response<Full<Bytes>> {
    if !matches!(path, "/" | "/metrics" | "/healthz" | "/top") {
        return response(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "there is /metrics, /healthz and /top\n");
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", "GET or HEAD\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match path {
        "/metrics" => response(StatusCode::OK, TEXT_FORMAT, pages.metrics(Instant::now())),
        "/healthz" => response(StatusCode::OK, "application/json", pages.health(Instant::now()).to_string()),
        "/top" => response(StatusCode::OK, "application/json", pages.top().to_string()),
        _ => response(StatusCode::OK, "text/html; charset=utf-8", pages.index()),
    }
}

fn response(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The error of a port that cannot be: the first port plus the local rank leaves 16 bits.
pub(crate) fn no_such_port(address: SocketAddr, local_rank: u32) -> ExportError {
    let message = format!("port {} + local rank {local_rank} is above 65535", address.port());
    ExportError::Bind { address, source: io::Error::new(io::ErrorKind::InvalidInput, message) }
}
