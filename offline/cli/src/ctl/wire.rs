//! One request and one response per connection.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::endpoint::Endpoint;
use super::error::ControlError;

/// The timeout: longer than a run takes for any request, including `flush`.
const TIMEOUT: Duration = Duration::from_secs(40);
/// The largest response: a status with thousands of targets is much smaller.
const MAX_RESPONSE_BYTES: u64 = 16 << 20;
const MAX_HEADERS: usize = 32;

/// A response of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Response {
    /// The HTTP status code.
    pub(crate) code: u16,
    /// The body.
    pub(crate) body: Value,
}

impl Endpoint {
    /// Sends a request and returns the body of a successful response.
    ///
    /// # Errors
    /// The run does not respond, or rejects the request.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Result<Value, ControlError> {
        let Response { code, body } = self.send(method, path, body)?;
        if (200..300).contains(&code) {
            return Ok(body);
        }
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        let message = if text("error").is_empty() { format!("HTTP {code}") } else { text("error") };
        Err(ControlError::Refused { message, hint: text("hint") })
    }

    /// Sends a request and returns the response, successful or not.
    ///
    /// # Errors
    /// The run does not respond, or the response is invalid.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Result<Response, ControlError> {
        let answer = match self {
            Self::Socket(socket) => connect(socket).and_then(|stream| {
                stream.set_read_timeout(Some(TIMEOUT))?;
                exchange(stream, &request(method, path, "Host: localhost\r\n", body))
            }),
            Self::Http { address, token } => TcpStream::connect_timeout(address, TIMEOUT).and_then(|stream| {
                stream.set_read_timeout(Some(TIMEOUT))?;
                let headers = format!("Host: {address}\r\nAuthorization: Bearer {token}\r\n");
                exchange(stream, &request(method, path, &headers, body))
            }),
        };
        let bytes = answer.map_err(|source| ControlError::Connect { at: self.name(), source })?;
        parse(&bytes).map_err(|why| ControlError::NoSense { at: self.name(), why })
    }
}

/// Connects to a socket. A socket address has at most 107 bytes; for a longer path, the descriptor of its directory is
/// used.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    match (UnixStream::connect(socket), socket.parent(), socket.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::InvalidInput => {
            let directory = File::open(parent)?;
            UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name))
        }
        (connected, ..) => connected,
    }
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<Vec<u8>> {
    // A run that rejects a large request responds before it has read all of it.
    let sent = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let read = stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut bytes);
    if bytes.is_empty() { sent.and(read).map(|_| bytes) } else { Ok(bytes) }
}

/// Parses the status line and the body of a response that ends with its connection.
fn parse(bytes: &[u8]) -> Result<Response, String> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(bytes).map_err(|error| error.to_string())? {
        httparse::Status::Complete(head) => head,
        httparse::Status::Partial => return Err("the response is truncated".to_owned()),
    };
    let code = response.code.ok_or("no status code")?;
    let body = serde_json::from_slice(&bytes[head..]).map_err(|error| format!("HTTP {code} without JSON: {error}"))?;
    Ok(Response { code, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_status_and_json_and_nothing_else_passes_for_one() {
        let answer = parse(b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\n\r\n{\"id\": 7}\n").unwrap();
        assert_eq!((answer.code, answer.body["id"].as_u64()), (202, Some(7)));
        for wrong in [&b""[..], b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n\r\n<html>", b"HTTP/1.1 200 OK\r\nA"] {
            assert!(parse(wrong).is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn a_socket_whose_path_is_longer_than_an_address_is_reached() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("d".repeat(120));
        std::fs::create_dir(&directory).unwrap();
        // Bound by its short name, and moved.
        let listener = std::os::unix::net::UnixListener::bind(base.path().join("s")).unwrap();
        std::fs::rename(base.path().join("s"), directory.join("control.sock")).unwrap();
        let answer = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 1024];
            assert!(stream.read(&mut bytes).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"step\": 3}").unwrap();
        };
        let answering = std::thread::Builder::new().name("answering".to_owned()).spawn(answer).unwrap();
        let endpoint = Endpoint::Socket(directory.join("control.sock"));
        assert_eq!(endpoint.ask("GET", "/status", "").unwrap()["step"], 3);
        answering.join().unwrap();
        let nobody = connect(&directory.join("other.sock")).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::NotFound);
    }
}
