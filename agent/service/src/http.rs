//! An HTTP/1.1 server on a thread of its own: what the scrape page and live control share. Who may connect, and how
//! many, is theirs to decide.

use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::sleep;

/// After a failed accept (out of file descriptors, say): long enough not to spin, short against a scrape.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection may stay. One serves one request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until its request line and headers are there.
    pub headers: Duration,
    /// Until its answer is read, from the beginning on.
    pub whole: Duration,
}

/// An extension of an answer that goes on for as long as its reader listens: [`Limits::whole`] does not end it.
#[derive(Clone, Copy, Debug)]
pub struct LongLived;

/// A running server. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct ServerThread {
    stop: Option<oneshot::Sender<Instant>>,
    stopped: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// The runtime of one server: listeners are registered with it before its thread starts.
///
/// # Errors
/// The system has no room for one.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

impl ServerThread {
    /// Serves on a thread of this name (Linux cuts it after fifteen characters) until `serve` returns: it is told the
    /// deadline when the server is to stop.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start<F: Future<Output = ()>>(
        name: &str,
        runtime: Runtime,
        serve: impl FnOnce(oneshot::Receiver<Instant>) -> F + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopping) = oneshot::channel();
        let (alive, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(serve(stopping));
            // Ends what is left of the connections.
            drop(runtime);
            // Whoever waits for the end sees the channel close.
            drop::<mpsc::Sender<()>>(alive);
        })?;
        Ok(Self { stop: Some(stop), stopped, thread: Some(thread) })
    }

    /// Asks the server to stop by the deadline, and waits no longer than `grace` beyond that.
    pub fn stop(&mut self, deadline: Instant, grace: Duration) {
        let Some(stop) = self.stop.take() else { return };
        // An error means the thread is gone already.
        stop.send(deadline).unwrap_or_default();
        let wait = deadline.saturating_duration_since(Instant::now()) + grace;
        let ended = self.stopped.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            // A panic there took the server with it; nothing to add at shutdown.
            drop(thread.join());
        }
    }
}

/// Answers the one request of a connection.
pub async fn serve_connection<F, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    limits: Limits,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let is_long_lived = AtomicBool::new(false);
    let service = service_fn(|request| {
        let answer = answer(request);
        let is_long_lived = &is_long_lived;
        async move {
            let answer = answer.await;
            is_long_lived.store(answer.extensions().get::<LongLived>().is_some(), Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let too_long = async {
        sleep(limits.whole).await;
        if is_long_lived.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    };
    // What a client breaks is its own loss.
    tokio::select! {
        _ended = connection => {}
        () = too_long => {}
    }
}
