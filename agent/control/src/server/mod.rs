//! The server: a unix socket, and HTTP on this machine if asked for. One thread of low priority, everything bounded.

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

/// A few people and scripts; the next one waits in the system's backlog. A crowd at one door leaves the other one free.
const PLACES_PER_DOOR: usize = 16;
const LIMITS: Limits = Limits {
    // A client slower with its request line and headers is not one of ours.
    headers: Duration::from_secs(5),
    // One connection serves one request; `flush` may take a while.
    whole: Duration::from_secs(30),
};
/// Between two requests taken up: a flood costs a bounded share of one core, the rest waits outside.
const SPACING: Duration = Duration::from_millis(2);

/// Where to listen.
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
    /// Listens and serves on a thread of its own. A door that does not open is said; the other one serves.
    pub(super) fn start(listeners: Listeners<'_>, service: ControlService, notices: &Notices) -> io::Result<Self> {
        let Listeners { socket: path, address, token } = listeners;
        let unix = bind_socket(path);
        if let Err(error) = &unix {
            let hint = "name one in a directory of this machine's own disk with `control.socket`";
            notices.warn(format!("no control socket `{}`: {error}", path.display()), Some(hint.to_owned()));
        }
        let tcp = address.map(std::net::TcpListener::bind).transpose();
        if let (Err(error), Some(address)) = (&tcp, address) {
            let hint = "choose another with `control.port`; 0 lets the system choose";
            notices.warn(format!("no control port at {address}: {error}"), Some(hint.to_owned()));
        }
        let (unix, tcp) = (unix.ok(), tcp.ok().flatten());
        if unix.is_none() && tcp.is_none() {
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "no door could be opened"));
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

    /// Where the unix socket is.
    pub(super) fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(BoundSocket::path)
    }

    /// Where HTTP is, the port chosen by the system included.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Ends it, and waits no longer than the deadline.
    pub(super) fn stop(mut self, deadline: Instant) {
        self.thread.stop(deadline, Duration::ZERO);
    }
}

/// Serves at both doors.
async fn serve(unix: Option<UnixListener>, tcp: Option<TcpListener>, state: Arc<ServerState>) -> Infallible {
    let at_socket = async || match &unix {
        // Whoever else may connect has no business here.
        Some(listener) => listener.accept().await.map(|(stream, _)| Some(stream).filter(is_own_user)),
        None => std::future::pending().await,
    };
    let at_port = async || match &tcp {
        Some(listener) => listener.accept().await.map(|(stream, _)| Some(stream)),
        None => std::future::pending().await,
    };
    let (never, _) =
        tokio::join!(keep_door(at_socket, Origin::Socket, &state), keep_door(at_port, Origin::Http, &state));
    never
}

/// Takes requests at one door, one at a time and not too many.
async fn keep_door<S>(
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
