//! An HTTP/1.1 server on its own thread, shared by the metrics page and live control, which decide who may connect and
//! how many connections are allowed.

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

/// The pause after a failed accept (for example, out of file descriptors): long enough not to spin, short compared with
/// a scrape interval.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time limits of a connection, which serves one request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the request line and headers have arrived.
    pub headers: Duration,
    /// Until the client has read the response, counted from the start.
    pub whole: Duration,
}

/// A response extension for streams without an end: [`Limits::whole`] does not apply to them.
#[derive(Clone, Copy, Debug)]
pub struct LongLived;

/// A running server. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct ServerThread {
    stop: Option<oneshot::Sender<Instant>>,
    stopped: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// Creates the runtime of one server. Listeners are registered with it before its thread starts.
///
/// # Errors
/// The system lacks the resources for a runtime.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

impl ServerThread {
    /// Runs `serve` on a thread of this name (Linux cuts it after 15 characters) until it returns. `serve` receives the
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
            // Closes the remaining connections.
            drop(runtime);
            // `stop` waits until this channel closes.
            drop::<mpsc::Sender<()>>(alive);
        })?;
        Ok(Self { stop: Some(stop), stopped, thread: Some(thread) })
    }

    /// Requests a stop by the deadline, and waits at most `grace` beyond it.
    pub fn stop(&mut self, deadline: Instant, grace: Duration) {
        let Some(stop) = self.stop.take() else { return };
        // An error means that the thread has already ended.
        stop.send(deadline).unwrap_or_default();
        let wait = deadline.saturating_duration_since(Instant::now()) + grace;
        let ended = self.stopped.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            // A panic in the thread ended the server; shutdown has nothing to add.
            drop(thread.join());
        }
    }
}

/// Answers the single request of a connection.
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
    // An error of the client affects only the client.
    tokio::select! {
        _ended = connection => {}
        () = too_long => {}
    }
}
