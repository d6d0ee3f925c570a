//! The listener: connections with limits, signals, an end that finishes what was taken.

use crate::api;
use crate::queue;
use crate::settings::Settings;
use crate::stall::Impatient;
use crate::state::App;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use sparing_model::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;

/// Threads that read requests and turn short texts into tokens.
pub(crate) const WORKERS: usize = 2;
/// Threads for long texts and for compiling plans.
const HELPERS: usize = 8;
/// Headers of a request, and their bytes.
const HEADERS: (usize, usize) = (64, 64 << 10);
/// Bytes that the kernel keeps for a client who has not taken them yet, as far as it grants them. Left to itself it
/// keeps megabytes, and a third of that must be taken before a slow reader is seen to take anything (`stall.rs`).
const UNSENT: u32 = 512 << 10;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// A server that listens and is ready to run.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Begins to listen; requests wait until [`Server::run`].
    pub async fn bind(settings: Settings) -> Result<Server, Error> {
        settings.check()?;
        let wanted = settings.address;
        let failed = |e: std::io::Error| {
            Error::new(format!("{wanted}: cannot listen there ({e}); choose another --port or --host"))
        };
        let listener = listen(wanted).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Server { app: Arc::new(App::new(settings)), listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loads the models, answering that it is not ready meanwhile, and serves until `stop`; then finishes what it took.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let Server { app, listener, .. } = self;
        let limits = app.settings.limits.clone();
        let failed = |e: std::io::Error| Error::new(format!("the dispatcher's thread does not start ({e})"));
        let dispatcher = queue::start(app.queue.clone(), limits.batch_tokens, app.metrics.clone()).map_err(failed)?;
        let router = api::router(app.clone());
        let connections = Connections::new(&app);
        let outcome = {
            let accept = connections.accept(&listener, router);
            let load = async {
                match app.reload().await {
                    Ok(()) => reload_when_asked(&app).await,
                    Err(error) => error,
                }
            };
            tokio::select! {
                () = accept => Ok(()),
                error = load => Err(error),
                () = stop => Ok(()),
            }
        };
        app.leave();
        drop(listener);
        app.log.event("stopping", &[]);
        connections.finish(limits.farewell).await;
        app.queue.close();
        // The dispatcher ends by itself; a batch that outlives the farewell is not waited for.
        if outcome.is_ok() {
            let _ = tokio::time::timeout(limits.farewell, tokio::task::spawn_blocking(move || dispatcher.join())).await;
        }
        outcome
    }
}

/// Listens; connections have the listener's buffer.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that was stopped can be started again at once. On Windows this would let two servers listen there.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(UNSENT)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Open connections.
struct Connections {
    http: hyper::server::conn::http1::Builder,
    graceful: GracefulShutdown,
    room: Arc<Semaphore>,
    stall: Duration,
}

impl Connections {
    fn new(app: &App) -> Connections {
        let limits = &app.settings.limits;
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_headers(HEADERS.0).max_buf_size(HEADERS.1);
        let room = Arc::new(Semaphore::new(limits.connections));
        Connections { http, graceful: GracefulShutdown::new(), room, stall: limits.stall }
    }

    /// Accepts connections for ever; with too many open, new ones wait at the door.
    async fn accept(&self, listener: &TcpListener, router: axum::Router) {
        loop {
            let Ok(room) = self.room.clone().acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                // A client that left again, or no file handles: others may do better in a moment.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let service = TowerToHyperService::new(router.clone());
            let stream = TokioIo::new(Impatient::new(stream, self.stall));
            let connection = self.graceful.watch(self.http.serve_connection(stream, service));
            tokio::spawn(async move {
                // A connection that breaks concerns nobody but its client.
                let _ = connection.await;
                drop(room);
            });
        }
    }

    /// Lets requests that were taken end, for a while.
    async fn finish(self, farewell: Duration) {
        let _ = tokio::time::timeout(farewell, self.graceful.shutdown()).await;
    }
}

/// Reads the models again at every SIGHUP, for ever.
async fn reload_when_asked(app: &Arc<App>) -> Error {
    #[cfg(unix)]
    if let Ok(mut signal) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) {
        while signal.recv().await.is_some() {
            // What goes wrong is in the log, and the models that are there stay.
            let _ = app.reload().await;
        }
    }
    std::future::pending().await
}

/// Serves until Ctrl-C or a termination signal. `listening` is told the address.
pub fn serve(settings: Settings, listening: impl FnOnce(SocketAddr)) -> Result<(), Error> {
    let failed = |e: std::io::Error| Error::new(format!("the server's threads do not start ({e})"));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKERS).max_blocking_threads(HELPERS).enable_all().build().map_err(failed)?;
    let outcome = runtime.block_on(async {
        let server = Server::bind(settings).await?;
        listening(server.address());
        server.run(asked_to_stop()).await
    });
    runtime.shutdown_background();
    outcome
}

/// Ends when the process is asked to.
async fn asked_to_stop() {
    let interrupted = async {
        // Without a handler Ctrl-C simply ends the process: still correct, only less kind.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => _ = signal.recv().await,
            Err(_) => std::future::pending::<()>().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        () = interrupted => {}
        () = terminated => {}
    }
}
