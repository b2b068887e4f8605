//! Encrypted connections.

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    signal::unix::{SignalKind, signal},
    time::{self, Instant},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use windlass_tls::ServerTls;

/// How often the files are compared with what was read.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How long before it expires a certificate should be renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);

/// The answer to a request that is not encrypted.
const SPEAKS_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 48\r\n\r\n\
    This server speaks TLS here: use https:// for it";

/// The first byte of each connection with TLS: a record of its handshake.
const HANDSHAKE: u8 = 22;

/// Encrypts a connection that has just begun, until `until` at the latest.
pub(super) async fn encrypt(
    mut stream: TcpStream,
    tls: &ServerTls,
    until: Instant,
) -> io::Result<TlsStream<TcpStream>> {
    let handshake = async {
        let mut first = [HANDSHAKE];
        stream.peek(&mut first).await?;
        if first != [HANDSHAKE] {
            refuse(&mut stream).await?;
            return Err(io::ErrorKind::InvalidData.into());
        }
        TlsAcceptor::from(tls.config()).accept(stream).await
    };
    time::timeout_at(until, handshake).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Answers a client that does not encrypt.
async fn refuse(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(SPEAKS_TLS).await?;
    stream.shutdown().await?;
    // What is not read when a connection is closed takes the answer with it.
    while stream.read(&mut [0; 4096]).await? > 0 {}
    Ok(())
}

/// Reads certificates that were replaced: on SIGHUP at once, otherwise within ten seconds.
pub(crate) async fn refresh_certificates(tls: Arc<ServerTls>) {
    warn_of_expiry(&tls);
    let hangup = signal(SignalKind::hangup());
    let mut hangup = hangup.inspect_err(|error| tracing::warn!(%error, "SIGHUP cannot be waited for")).ok();
    loop {
        match &mut hangup {
            Some(hangup) => drop(time::timeout(LOOK_EVERY, hangup.recv()).await),
            None => time::sleep(LOOK_EVERY).await,
        }
        match tls.refresh() {
            Ok(true) => {
                tracing::info!("new connections get the certificate that was replaced");
                warn_of_expiry(&tls);
            }
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "the new certificate cannot be used: the last one stays");
            }
        }
    }
}

fn warn_of_expiry(tls: &ServerTls) {
    let Some(expires_at) = tls.expires_at() else { return };
    match expires_at.duration_since(SystemTime::now()) {
        Err(_) => tracing::error!("the certificate of this server has expired: renew it, clients refuse it"),
        Ok(left) if left < RENEW_BEFORE => {
            let days = left.as_secs() / (24 * 3600);
            tracing::warn!(days, "the certificate of this server expires soon: renew it");
        }
        Ok(_) => {}
    }
}
