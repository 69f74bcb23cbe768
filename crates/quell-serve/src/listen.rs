//! The listeners, and the life of each connection.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use crate::connection::{Clock, TimedBody, TimedSocket};
use crate::state::{self, Peer, State};

/// How many connections there are at most.
const CONNECTIONS: usize = 2048;
/// How many headers a request may have.
const HEADERS: usize = 64;
/// How long the head of a request may be.
const HEAD: usize = 64 * 1024;
/// How long to wait when there are no descriptors left. No event reports that there are again.
const STARVED: Duration = Duration::from_millis(100);

/// The connections there are.
#[derive(Debug, Default)]
pub struct Connections {
    clocks: Mutex<(u64, HashMap<u64, Arc<Clock>>)>,
}

impl Connections {
    /// A place for another one. If there are too many, the one that has been idle for longest ends; if none is idle there is no place.
    fn take(self: &Arc<Self>) -> Option<OpenConnection> {
        let mut clocks = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, all) = &mut *clocks;
        if all.len() >= CONNECTIONS {
            let idle = |(id, clock): (&u64, &Arc<Clock>)| Some((clock.idle()?, *id));
            let (_, oldest) = all.iter().filter_map(idle).max()?;
            all.remove(&oldest)?.end.notify_one();
        }
        *next += 1;
        let clock = Arc::new(Clock::new());
        all.insert(*next, clock.clone());
        Some(OpenConnection { connections: self.clone(), id: *next, clock })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner).1.len()
    }
}

/// The place of a connection, until it is dropped.
struct OpenConnection {
    connections: Arc<Connections>,
    id: u64,
    clock: Arc<Clock>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.clocks.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.id);
    }
}

/// What every connection works with.
#[derive(Clone)]
pub struct Listeners {
    pub state: Arc<State>,
    pub router: Router,
    pub connections: Arc<Connections>,
}

impl Listeners {
    /// Takes connections over TCP, until the server ends.
    pub async fn tcp(self, listener: TcpListener) {
        loop {
            let accepted = self.unless_ending(listener.accept()).await;
            let Some(accepted) = accepted else { return };
            if let Some((socket, peer)) = self.taken(accepted).await {
                let _ = socket.set_nodelay(true);
                self.begin(socket, Peer::Tcp(peer));
            }
        }
    }

    /// Takes connections at the socket, until the server ends. Processes of other users are turned away, but for root.
    pub async fn unix(self, listener: UnixListener) {
        loop {
            let accepted = self.unless_ending(listener.accept()).await;
            let Some(accepted) = accepted else { return };
            let Some((socket, _)) = self.taken(accepted).await else { continue };
            let Ok(peer) = socket.peer_cred() else { continue };
            if [0, quell::binary::uid()].contains(&peer.uid()) {
                self.begin(socket, Peer::Socket { pid: peer.pid(), uid: peer.uid() });
            }
        }
    }

    async fn unless_ending<T>(&self, accept: impl Future<Output = T>) -> Option<T> {
        let mut ending = self.state.ending.subscribe();
        tokio::select! {
            accepted = accept => Some(accepted),
            () = state::end(&mut ending) => None,
        }
    }

    /// A connection that was taken; none if that failed.
    async fn taken<T>(&self, accepted: io::Result<T>) -> Option<T> {
        match accepted {
            Ok(accepted) => Some(accepted),
            Err(error) if quell::binary::is_out_of_descriptors(&error) => {
                tokio::time::sleep(STARVED).await;
                None
            }
            // The client was gone before it was taken.
            Err(_) => None,
        }
    }

    fn begin(&self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
        let Some(place) = self.connections.take() else { return };
        let (router, mut ending) = (self.router.clone(), self.state.ending.subscribe());
        tokio::spawn(async move {
            let clock = place.clock.clone();
            let socket = TokioIo::new(TimedSocket { socket, clock: clock.clone() });
            let answers = TowerToHyperService::new(router);
            let timed = clock.clone();
            let service = service_fn(move |mut request: Request<Incoming>| {
                let under_way = timed.request();
                request.extensions_mut().insert(peer.clone());
                let answer = answers.call(request);
                async move {
                    let Ok(response) = answer.await;
                    Ok::<Response<TimedBody>, Infallible>(
                        response.map(|body: Body| TimedBody { body, _under_way: under_way }),
                    )
                }
            });
            let connection = http1::Builder::new()
                .max_headers(HEADERS)
                .max_buf_size(HEAD)
                .half_close(false)
                .serve_connection(socket, service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                // An error is the client's: it has gone, or does not speak HTTP.
                _ = &mut connection => return,
                () = clock.over() => return,
                () = state::end(&mut ending) => {}
            }
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        });
    }
}
