//! Connections: accepting them, their times, and letting them end.

pub(super) mod budget;
pub(super) mod connections;
pub(super) mod encryption;
pub(super) mod guard;
pub(super) mod receive;
pub(super) mod shutdown;
mod stages;

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request, Response, header},
    response::IntoResponse as _,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{self, Instant, Sleep},
};
use tower_service::Service as _;
use utoipa_axum::router::OpenApiRouter;

use crate::http::{
    App,
    answer::problem::Refused,
    answering, openapi,
    serving::{
        connections::{Connection, Connections},
        guard::Hosts,
        stages::{UnderWay, WatchedStream},
    },
};

/// How long a connection is kept between two requests. Client libraries keep theirs for 90 s at most by default: it is
/// they who close them, and no request is sent into a connection that is being closed here.
const IDLE_TIMEOUT: Duration = Duration::from_secs(100);

/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long requests may go on after the server has begun to stop.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait when no connection can be accepted, for want of file descriptors mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests until `shutdown`. Then polls and streams end, and other requests are waited for a while.
///
/// # Errors
/// When the address the listener is bound to cannot be read.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_routes(listener, openapi::router(), app, shutdown).await
}

/// Answers requests of the job API alone, until the server stops.
///
/// # Errors
/// When the address the listener is bound to cannot be read.
pub(crate) async fn serve_jobs(listener: TcpListener, app: Arc<App>) -> io::Result<()> {
    let shutdown = app.clone();
    serve_routes(listener, openapi::jobs_router(), app, async move { shutdown.shutdown.begun().await }).await
}

async fn serve_routes(
    listener: TcpListener,
    routes: OpenApiRouter<Arc<App>>,
    app: Arc<App>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let hosts = Hosts::of_listener(listener.local_addr()?.ip());
    let router = answering(routes, app.clone(), hosts);
    let connections = Arc::new(Connections::new(app.clients.connections));
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, client)) => accept(&mut tasks, &connections, (stream, client.ip()), &router, &app),
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = tasks.join_next() => {}
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    app.shutdown.begin();
    let all = async { while tasks.join_next().await.is_some() {} };
    if time::timeout(END_TIMEOUT, all).await.is_err() {
        tracing::warn!(count = tasks.len(), "requests were cut off by the shutdown");
        tasks.shutdown().await;
    }
    Ok(())
}

/// Serves a connection beside others, where there is room for it.
fn accept(
    tasks: &mut JoinSet<()>,
    connections: &Arc<Connections>,
    (stream, client): (TcpStream, IpAddr),
    router: &Router,
    app: &Arc<App>,
) {
    // The same client over IPv4 and over IPv6 that carries IPv4 is one.
    let Some(connection) = connections.accept(client.to_canonical()) else {
        app.metrics.connection_refused();
        return;
    };
    let (router, app, all) = (router.clone(), app.clone(), connections.clone());
    let entered = Entered { connections: all, connection: connection.clone() };
    let abort = tasks.spawn(async move { serve_one(stream, entered, router, app).await });
    connections.closes_by(&connection, abort);
}

/// Leaves the table of connections when it is dropped, however the connection ends.
struct Entered {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.connections.end(&self.connection);
    }
}

/// One connection, from its first request to its end.
async fn serve_one(stream: TcpStream, entered: Entered, router: Router, app: Arc<App>) {
    // Answers are written whole, so there is nothing to gain from waiting for more.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection ended at once");
        return;
    }
    let Some(tls) = &app.tls else { return serve_stream(stream, entered, router, app).await };
    match encryption::encrypt(stream, tls, Instant::now() + app.clients.head_timeout).await {
        Ok(stream) => serve_stream(stream, entered, router, app).await,
        Err(error) => {
            tracing::debug!(client = %entered.connection.client(), %error, "a connection was not encrypted")
        }
    }
}

/// Serves requests on a stream.
async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    entered: Entered,
    router: Router,
    app: Arc<App>,
) {
    let connection = &entered.connection;
    let head_timeout = app.clients.head_timeout;
    let service = service_fn(|request| answer(request, connection.clone(), router.clone()));
    let io = TokioIo::new(WatchedStream { stream, connection: connection.clone() });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        // The library counts the time between two requests as well.
        .header_read_timeout(IDLE_TIMEOUT)
        .max_header_size(HEAD_BYTES_MAX)
        .keep_alive(true)
        // A client that closes its side is gone: the request it waited for is dropped, and so is a worker's poll.
        .half_close(false)
        .serve_connection(io, service);
    let mut served = pin!(served);
    let mut head_until = pin!(time::sleep(head_timeout));
    let ended = tokio::select! {
        ended = poll_fn(|cx| poll_served(served.as_mut(), head_until.as_mut(), connection, head_timeout, cx)) => ended,
        () = app.shutdown.begun() => {
            served.as_mut().graceful_shutdown();
            poll_fn(|cx| poll_served(served.as_mut(), head_until.as_mut(), connection, head_timeout, cx)).await
        }
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "a connection ended early"),
        None => tracing::debug!(client = %connection.client(), "a request did not come in time"),
    }
}

/// Polls a connection, and the clock of its head after it: what came may have completed the head. Nothing when the head
/// of a request did not come in time.
fn poll_served(
    served: Pin<&mut impl Future<Output = hyper::Result<()>>>,
    mut head_until: Pin<&mut Sleep>,
    connection: &Connection,
    head_timeout: Duration,
    cx: &mut Context<'_>,
) -> Poll<Option<hyper::Result<()>>> {
    if let Poll::Ready(ended) = served.poll(cx) {
        return Poll::Ready(Some(ended));
    }
    let Some(since) = connection.head_since() else { return Poll::Pending };
    if head_until.deadline() != since + head_timeout {
        head_until.as_mut().reset(since + head_timeout);
    }
    head_until.poll(cx).map(|()| None)
}

/// Answers a request of a connection.
async fn answer(
    request: Request<Incoming>,
    connection: Arc<Connection>,
    mut router: Router,
) -> Result<Response<Body>, Infallible> {
    let under_way = UnderWay::begin(connection.clone());
    if connection.is_reserved() && !may_use_reserve(request.uri().path()) {
        return Ok(close(Refused::too_many_connections().into_response()));
    }
    let is_reserved = connection.is_reserved();
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(connection);
    let response = router.call(request).await?;
    let response = response.map(|body| under_way.answer(body));
    Ok(if is_reserved { close(response) } else { response })
}

/// What is served while every ordinary connection is busy. Exchanges are those of known sessions only.
fn may_use_reserve(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/metrics" | super::EXCHANGE)
}

/// The connection is closed after this answer: others need its place.
fn close(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
