//! Connections: accepting them, their limits, and letting them end.

use std::{future::Future, io, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time,
};

use super::{App, guard::Hosts, router};

/// Connections at once. Each costs a few KiB; those beyond wait in the system's backlog.
const CONNECTIONS_MAX: usize = 4096;

/// How long a client may take to send the head of a request. The HTTP library counts the time between two
/// requests as well, so this is also how long an idle connection is kept. Client libraries keep theirs for 90 s at
/// most by default: it is they who close them, and no request is sent into a connection that is being closed here.
const HEAD_TIMEOUT: Duration = Duration::from_secs(100);

/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long requests may go on after the server was told to stop.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait when no connection can be accepted, for want of file descriptors mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests until `shutdown`. Then polls and streams end, and other requests are waited for a while.
///
/// # Errors
/// When the address the listener is bound to cannot be told.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let hosts = Hosts::of_listener(listener.local_addr()?.ip());
    app.hosts.get_or_init(|| hosts);
    let router = router(app.clone());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, router.clone(), app.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    app.shutdown.begin();
    let all = async { while connections.join_next().await.is_some() {} };
    if time::timeout(END_TIMEOUT, all).await.is_err() {
        tracing::warn!(count = connections.len(), "requests were cut off by the shutdown");
        connections.shutdown().await;
    }
    Ok(())
}

/// One connection, from its first request to its end.
async fn connection(stream: TcpStream, router: Router, app: Arc<App>) {
    // Answers are written whole, so there is nothing to gain from waiting for more.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection ended at once");
        return;
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(HEAD_BYTES_MAX)
        .keep_alive(true)
        // A client that closes its side is gone: the request it waited for is dropped, and so is a worker's poll.
        .half_close(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = app.shutdown.begun() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
