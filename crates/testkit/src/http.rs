//! One HTTP request to a server on this machine.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

/// The timeout of one request.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Sends a request and returns the body of the answer.
///
/// # Errors
/// When there is no response, or its status is not 200.
pub(crate) fn ask(port: u16, method: &str, path: &str, body: &str) -> Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    // With HTTP 1.0 the response is not chunked, and the server closes the connection after it.
    write!(stream, "{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end of its head")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "{method} {path}: {status}: {}", body.trim());
    Ok(body.to_owned())
}
