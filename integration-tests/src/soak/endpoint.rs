//! A receiver that comes and goes: it takes requests, then closes every connection, then hangs, and so on.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::Flaps;

/// The largest request that is read: the exporter cuts at 2 MiB.
const MOST_BYTES: u64 = 16 << 20;

/// What the endpoint does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Up,
    Down,
    Hanging,
}

/// What became of the requests and connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Requests answered with success.
    pub taken: u64,
    /// Connections closed before anything was read.
    pub refused: u64,
    /// Requests read and never answered.
    pub unanswered: u64,
}

/// The endpoint, on threads of its own until it is dropped.
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    flaps: Flaps,
    started: Instant,
    /// From then on it stays up.
    is_calm: AtomicBool,
    is_over: AtomicBool,
    taken: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Endpoint {
    pub(super) fn start(flaps: Flaps) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            flaps,
            started: Instant::now(),
            is_calm: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            open: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let accept = move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.is_over.load(Ordering::SeqCst) {
                    return;
                }
                accepting.serve_in_background(client);
            }
        };
        std::thread::Builder::new().name("endpoint".to_owned()).spawn(accept)?;
        let breaking = Arc::clone(&shared);
        std::thread::Builder::new().name("endpoint-breaks".to_owned()).spawn(move || breaking.break_at_changes())?;
        Ok(Self { address, shared })
    }

    /// From now on it is up.
    pub(super) fn calm(&self) {
        self.shared.is_calm.store(true, Ordering::SeqCst);
    }

    pub(super) fn served(&self) -> Served {
        let Shared { taken, refused, unanswered, .. } = &*self.shared;
        let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Served { taken: of(taken), refused: of(refused), unanswered: of(unanswered) }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
        self.shared.close_all();
    }
}

impl Shared {
    fn phase(&self) -> Phase {
        let Flaps { up, down, hanging } = self.flaps;
        if self.is_calm.load(Ordering::SeqCst) {
            return Phase::Up;
        }
        let cycle = (up + down + hanging).as_nanos().max(1);
        let moment = self.started.elapsed().as_nanos() % cycle;
        match moment {
            moment if moment < up.as_nanos() => Phase::Up,
            moment if moment < (up + down).as_nanos() => Phase::Down,
            _ => Phase::Hanging,
        }
    }

    /// A phase ends for the connections that are open, too.
    fn break_at_changes(&self) {
        let mut before = self.phase();
        while !self.is_over.load(Ordering::SeqCst) {
            let now = self.phase();
            if now != before {
                self.close_all();
                before = now;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_all(&self) {
        for stream in self.open().drain(..) {
            // One that its client has closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    fn serve_in_background(self: &Arc<Self>, client: TcpStream) {
        if self.phase() == Phase::Down {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return;
        }
        if let Ok(known) = client.try_clone() {
            self.open().push(known);
        }
        let shared = Arc::clone(self);
        // A client that breaks off, or was broken off, ends the thread.
        let serve = move || drop(shared.serve(&client));
        drop(std::thread::Builder::new().name("endpoint-client".to_owned()).spawn(serve));
    }

    fn serve(&self, client: &TcpStream) -> Result<()> {
        let mut reader = BufReader::new(client);
        loop {
            read_request(&mut reader)?;
            if self.phase() == Phase::Hanging {
                self.unanswered.fetch_add(1, Ordering::SeqCst);
                // Until the phase is over: nothing more is said.
                std::io::copy(&mut reader, &mut std::io::sink())?;
                return Ok(());
            }
            self.taken.fetch_add(1, Ordering::SeqCst);
            let mut client = client;
            client
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")?;
        }
    }
}

/// Reads one request to its end.
fn read_request(reader: &mut BufReader<&TcpStream>) -> Result<()> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            bail!("the client is gone");
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse::<u64>().context("content-length")?;
        }
        if line == "\r\n" {
            break;
        }
    }
    anyhow::ensure!(length <= MOST_BYTES, "a request of {length} bytes");
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    Ok(())
}
