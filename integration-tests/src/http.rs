//! Just enough HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result, ensure};

use crate::wait::PATIENCE;

/// The body of a page that answers 200.
///
/// # Errors
/// Nobody listens, or the answer is another.
pub fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{path}: {head}");
    Ok(body.to_owned())
}
