//! A client that sends what it is told to, well-formed or not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

/// Longer than the server takes for anything, so that a hanging server fails the test.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where a run's control is.
pub(crate) struct ControlAddresses {
    pub(crate) socket: PathBuf,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) token_file: PathBuf,
}

/// Status code and body.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl ControlAddresses {
    /// From the description in a run directory.
    pub(crate) fn of(directory: &Path) -> Self {
        let text = std::fs::read_to_string(directory.join("control.json")).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let address = json["url"].as_str().map(|url| url.strip_prefix("http://").unwrap().parse().unwrap());
        let path = |key: &str| PathBuf::from(json[key].as_str().unwrap());
        Self { socket: path("socket"), address, token_file: path("token_file") }
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(&self.token_file).unwrap().trim_end().to_owned()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.over_socket(&request("GET", path, &[], ""))
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.over_socket(&request("POST", path, &[], body))
    }

    pub(crate) fn over_socket(&self, text: &str) -> Answer {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        read_answer(&mut stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address.unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn over_http(&self, text: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).unwrap();
        read_answer(&mut stream)
    }

    /// The `Host` header a client of this address sends.
    pub(crate) fn host(&self) -> String {
        format!("Host: {}", self.address.unwrap())
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Authorization: Bearer {}", self.token())
    }
}

/// A request with these header lines.
pub(crate) fn request(method: &str, path: &str, headers: &[&str], body: &str) -> String {
    let length = format!("Content-Length: {}", body.len());
    let head = [&[format!("{method} {path} HTTP/1.1").as_str()], headers, &[&length]].concat().join("\r\n");
    format!("{head}\r\n\r\n{body}")
}

/// Reads to the end of the connection.
pub(crate) fn read_answer(stream: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    // A server that refuses may close while the client still sends.
    let read = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{read:?}: {text:?}"));
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { code, body: serde_json::from_str(body).unwrap_or(Value::Null) }
}
