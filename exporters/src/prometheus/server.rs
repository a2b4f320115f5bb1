//! The HTTP server: one thread, a limited number of connections (`connections`), and a time limit for every wait.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::http::request::Parts;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};
use trainmon_service::http::{self, ACCEPT_PAUSE, Limits, LongLived, ServerThread};

use super::connections::{Connections, Place};
use super::responses::{PageHandler, PageResponse};
use crate::ExportError;

/// At most 15 characters, because Linux cuts the names of threads.
const THREAD: &str = "trainmon-scrape";
const LIMITS: Limits = Limits {
    // No scraper is slower.
    headers: Duration::from_secs(5),
    // Prometheus's own timeout for a scrape.
    whole: Duration::from_secs(10),
};
/// The time beyond the deadline that the thread may take to end.
const JOIN_GRACE: Duration = Duration::from_millis(50);

/// A running server. Dropping it stops it without waiting.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    thread: ServerThread,
}

impl Server {
    /// Listens on `address` and serves on its own thread.
    pub(crate) fn start(address: SocketAddr, pages: PageHandler) -> Result<Self, ExportError> {
        Self::start_with(address, LIMITS, move |request| pages.answer(request))
    }

    fn start_with(address: SocketAddr, limits: Limits, answer: impl Handler) -> Result<Self, ExportError> {
        let bind = |source| ExportError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let start = |what| move |source| ExportError::Start { what, source };
        let runtime = http::runtime().map_err(start("scrape page's runtime"))?;
        let listener = {
            let _in_runtime = runtime.enter();
            TcpListener::from_std(listener).map_err(bind)?
        };
        let serve = move |stopping| serve_until_stopped(listener, limits, answer, stopping);
        let thread = ServerThread::start(THREAD, runtime, serve).map_err(start("scrape page's thread"))?;
        Ok(Self { address, thread })
    }

    /// The address, with the port that the system chose.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listener and lets answers in progress finish until `deadline`.
    pub(crate) fn shutdown(&mut self, deadline: Instant) {
        self.thread.stop(deadline, JOIN_GRACE);
    }
}

/// Answers a request.
trait Handler: Fn(&Parts) -> PageResponse + Clone + Send + Sync + 'static {}
impl<F: Fn(&Parts) -> PageResponse + Clone + Send + Sync + 'static> Handler for F {}

async fn serve_until_stopped(
    listener: TcpListener,
    limits: Limits,
    answer: impl Handler,
    stopping: oneshot::Receiver<Instant>,
) {
    let mut tasks = JoinSet::new();
    let connections = Arc::new(Mutex::new(Connections::default()));
    let deadline = tokio::select! {
        deadline = stopping => deadline.unwrap_or_else(|_dropped| Instant::now()),
        never = accept_connections(&listener, limits, &answer, &connections, &mut tasks) => match never {},
    };
    drop(listener);
    // Open live pages, and idle connections of browsers, would not end by themselves.
    Connections::end_unanswered(&connections);
    let all_done = async { while tasks.join_next().await.is_some() {} };
    // Past the deadline, the runtime closes the rest.
    drop(timeout_at(deadline.into(), all_done).await);
}

async fn accept_connections(
    listener: &TcpListener,
    limits: Limits,
    answer: &impl Handler,
    connections: &Arc<Mutex<Connections>>,
    tasks: &mut JoinSet<()>,
) -> Infallible {
    loop {
        // Removes the results of finished connections.
        while tasks.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => Connections::admit(connections, |place| {
                tasks.spawn(serve_connection(stream, limits, answer.clone(), place))
            }),
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, limits: Limits, answer: impl Handler, place: Place) {
    let answer = |request: Request<_>| {
        place.has_asked();
        let answer = answer(&request.into_parts().0);
        if answer.extensions().get::<LongLived>().is_some() {
            place.is_stream();
        }
        std::future::ready(answer)
    };
    http::serve_connection(stream, limits, answer).await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpStream};

    use bytes::Bytes;

    use super::super::responses::whole;
    use super::*;

    const TEXT: &str = "text/plain";
    const FOR_EVER: Duration = Duration::from_hours(1);

    fn start(limits: Limits, answer: impl Handler) -> Server {
        Server::start_with(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), limits, answer).unwrap()
    }

    fn ask(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream
    }

    #[test]
    fn clients_that_do_not_read_their_answer_keep_nobody_waiting_and_the_oldest_make_room() {
        // More than the sockets' buffers hold.
        let long = Bytes::from(vec![b'x'; 64 << 20]);
        let whole_length = long.len();
        let answer = move |request: &Parts| {
            whole(TEXT, if request.uri.path() == "/long" { long.clone() } else { Bytes::from("short") })
        };
        let server = start(Limits { headers: FOR_EVER, whole: FOR_EVER }, answer);
        let deaf = |_| {
            let stream = ask(server.address(), "/long");
            assert_eq!(stream.peek(&mut [0]).unwrap(), 1, "its answer has begun");
            stream
        };
        let mut deaf: Vec<TcpStream> = (0..40).map(deaf).collect();
        let mut short = String::new();
        ask(server.address(), "/").read_to_string(&mut short).unwrap();
        assert!(short.ends_with("short"), "{short}");
        let mut read = |client: usize| {
            let mut answer = Vec::new();
            // Cut off: an end or a reset.
            drop(deaf[client].read_to_end(&mut answer));
            answer.len()
        };
        assert!(
            read(39) > whole_length && read(0) < whole_length,
            "the youngest gets all of its answer, the oldest was cut off"
        );
    }

    #[test]
    fn a_client_that_never_finishes_its_headers_is_sent_away() {
        let answer = |_: &Parts| whole(TEXT, "page");
        let server = start(Limits { headers: Duration::from_millis(20), whole: FOR_EVER }, answer);
        for said in ["", "GET /metrics HTTP/1.1\r\nHost: lo"] {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(said.as_bytes()).unwrap();
            let mut rest = Vec::new();
            match stream.read_to_end(&mut rest) {
                Ok(_) => assert!(!rest.starts_with(b"HTTP/1.1 200"), "{rest:?}"),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            }
        }
    }
}
