//! Encrypted connections.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    signal::unix::{SignalKind, signal},
    time::{self, Instant},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use windlass_tls::ServerTls;

/// How often the files are compared with what was read.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The answer to a request that is not encrypted.
const SPEAKS_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 48\r\n\r\n\
    This server speaks TLS here: use https:// for it";

/// Encrypts a connection that has just begun, until `until` at the latest.
pub(super) async fn encrypt(
    stream: TcpStream,
    tls: &ServerTls,
    until: Instant,
) -> io::Result<TlsStream<TcpStream>> {
    let handshake = TlsAcceptor::from(tls.config()).accept(stream).into_fallible();
    match time::timeout_at(until, handshake).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err((error, mut stream))) => {
            if is_plain(&error) {
                let _ = time::timeout_at(until, stream.write_all(SPEAKS_TLS)).await;
            }
            Err(error)
        }
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Whether the client began with something else than TLS.
fn is_plain(error: &io::Error) -> bool {
    use tokio_rustls::rustls::{Error, InvalidMessage};

    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}

/// Reads certificates that were replaced: on SIGHUP at once, otherwise within ten seconds.
pub(crate) async fn refresh_certificates(tls: Arc<ServerTls>) {
    let hangup = signal(SignalKind::hangup());
    let mut hangup = hangup.inspect_err(|error| tracing::warn!(%error, "SIGHUP cannot be waited for")).ok();
    loop {
        match &mut hangup {
            Some(hangup) => drop(time::timeout(LOOK_EVERY, hangup.recv()).await),
            None => time::sleep(LOOK_EVERY).await,
        }
        match tls.refresh() {
            Ok(true) => tracing::info!("new connections get the certificate that was replaced"),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "the new certificate cannot be used: the last one stays");
            }
        }
    }
}
