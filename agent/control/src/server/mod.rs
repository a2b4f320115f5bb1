//! The server: a unix socket and, if configured, HTTP on this host. One low-priority thread, with limits on everything.

mod answer;
mod unix_socket;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use trainmon_service::http::{self, ACCEPT_PAUSE, Limits, ServerThread};
use trainmon_service::{Notices, step_back};

use self::answer::{Origin, ServerState, answer};
use self::unix_socket::{BoundSocket, bind_socket, is_own_user};
use super::service::ControlService;
use super::token::Token;

/// The maximum number of concurrent connections per listener; further ones wait in the system's backlog. Separate
/// limits keep one listener available when the other is full.
const PLACES_PER_DOOR: usize = 16;
const LIMITS: Limits = Limits {
    // A slower client is none of trainmon's.
    headers: Duration::from_secs(5),
    // A connection serves one request; `flush` may take a while.
    whole: Duration::from_secs(30),
};
/// The interval between accepting two requests, which limits a flood to a small share of one core.
const SPACING: Duration = Duration::from_millis(2);

/// The addresses to listen on.
pub(super) struct Listeners<'a> {
    pub(super) socket: &'a Path,
    pub(super) address: Option<SocketAddr>,
    pub(super) token: Token,
}

/// A running server.
pub(super) struct Server {
    socket: Option<BoundSocket>,
    address: Option<SocketAddr>,
    thread: ServerThread,
}

impl Server {
    /// Listens and serves on its own thread. If one listener fails, the failure is reported and the other one serves.
    pub(super) fn start(listeners: Listeners<'_>, service: ControlService, notices: &Notices) -> io::Result<Self> {
        let Listeners { socket: path, address, token } = listeners;
        let unix = bind_socket(path);
        if let Err(error) = &unix {
            let hint = "set `control.socket` to a path on a local disk";
            notices
                .warn(format!("cannot create the control socket `{}`: {error}", path.display()), Some(hint.to_owned()));
        }
        let tcp = address.map(std::net::TcpListener::bind).transpose();
        if let (Err(error), Some(address)) = (&tcp, address) {
            let hint = "set another port with `control.port`; 0 lets the system choose one";
            notices.warn(format!("cannot listen on control address {address}: {error}"), Some(hint.to_owned()));
        }
        let (unix, tcp) = (unix.ok(), tcp.ok().flatten());
        if unix.is_none() && tcp.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "neither the control socket nor the control port is available",
            ));
        }
        let address = tcp.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
        let runtime = http::runtime()?;
        let (socket, unix) = unix.map(|(socket, listener)| (Some(socket), Some(listener))).unwrap_or_default();
        let (unix, tcp) = {
            let _in_runtime = runtime.enter();
            let tcp = tcp.map(|tcp| tcp.set_nonblocking(true).and_then(|()| TcpListener::from_std(tcp))).transpose()?;
            let unix = unix.map(|unix| unix.set_nonblocking(true).and_then(|()| UnixListener::from_std(unix)));
            (unix.transpose()?, tcp)
        };
        let state = Arc::new(ServerState::new(service, token, address));
        let thread = ServerThread::start("trainmon-ctl", runtime, async |stopping| {
            step_back();
            tokio::select! {
                _ = stopping => {}
                never = serve(unix, tcp, state) => match never {},
            }
        })?;
        Ok(Self { socket, address, thread })
    }

    /// The path of the unix socket.
    pub(super) fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(BoundSocket::path)
    }

    /// The HTTP address, with the port that the system chose.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Stops the server, waiting at most until the deadline.
    pub(super) fn stop(mut self, deadline: Instant) {
        self.thread.stop(deadline, Duration::ZERO);
    }
}

/// Serves on both listeners.
async fn serve(unix: Option<UnixListener>, tcp: Option<TcpListener>, state: Arc<ServerState>) -> Infallible {
    let at_socket = async || match &unix {
        // Connections of other users are refused.
        Some(listener) => listener.accept().await.map(|(stream, _)| Some(stream).filter(is_own_user)),
        None => std::future::pending().await,
    };
    let at_port = async || match &tcp {
        Some(listener) => listener.accept().await.map(|(stream, _)| Some(stream)),
        None => std::future::pending().await,
    };
    let (never, _) =
        tokio::join!(serve_listener(at_socket, Origin::Socket, &state), serve_listener(at_port, Origin::Http, &state));
    never
}

/// Accepts requests on one listener, one at a time and up to the limit.
async fn serve_listener<S>(
    accept: impl AsyncFn() -> io::Result<Option<S>>,
    origin: Origin,
    state: &Arc<ServerState>,
) -> Infallible
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = Arc::new(Semaphore::new(PLACES_PER_DOOR));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            // The semaphore is never closed.
            continue;
        };
        let accepted = accept().await;
        let pause = if accepted.is_ok() { SPACING } else { ACCEPT_PAUSE };
        if let Ok(Some(stream)) = accepted {
            tokio::spawn(serve_connection(stream, origin, Arc::clone(state), place));
        }
        sleep(pause).await;
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    origin: Origin,
    state: Arc<ServerState>,
    place: OwnedSemaphorePermit,
) {
    http::serve_connection(stream, LIMITS, |request| answer(&state, origin, request)).await;
    drop(place);
}
