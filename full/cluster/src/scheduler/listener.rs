//! The port of a scheduler: accepts connections, and with TLS only those of the cluster. A client
//! that takes its time with the handshake keeps nobody waiting.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::refusal_log::RefusalLog;
use crate::credentials::{BoxedStream, TlsIdentity};

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most TLS handshakes at a time; further connections wait.
const MAX_HANDSHAKES: usize = 256;

/// The address of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, SchedulerListener>> for PeerAddress {
    fn connect_info(stream: IncomingStream<'_, SchedulerListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// A port that accepts connections of the cluster.
pub(super) struct SchedulerListener {
    local: SocketAddr,
    accepted: mpsc::Receiver<(BoxedStream, SocketAddr)>,
}

impl SchedulerListener {
    /// Starts to accept connections. Must be called on a Tokio runtime.
    pub(super) fn start(
        listener: TcpListener,
        local: SocketAddr,
        tls: Option<TlsIdentity>,
        refusals: Arc<RefusalLog>,
    ) -> Self {
        let (sender, accepted) = mpsc::channel(16);
        tokio::spawn(accept_all(listener, tls, refusals, sender));
        Self { local, accepted }
    }
}

impl Listener for SchedulerListener {
    type Io = BoxedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoxedStream, SocketAddr) {
        match self.accepted.recv().await {
            Some(connection) => connection,
            // Only when the runtime shuts down.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

async fn accept_all(
    mut listener: TcpListener,
    tls: Option<TlsIdentity>,
    refusals: Arc<RefusalLog>,
    sender: mpsc::Sender<(BoxedStream, SocketAddr)>,
) {
    let slots = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    while !sender.is_closed() {
        let (stream, peer) = Listener::accept(&mut listener).await;
        // Otherwise each response waits some 40 ms for the acknowledgement of what was sent before.
        if stream.set_nodelay(true).is_err() {
            // The client is gone.
            continue;
        }
        let (Some(tls), sender) = (&tls, sender.clone()) else {
            drop(sender.send((Box::new(stream), peer)).await);
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let (tls, refusals) = (tls.clone(), Arc::clone(&refusals));
        tokio::spawn(async move {
            match handshake(&tls, stream).await {
                // At shutdown nobody receives it.
                Ok(stream) => drop(sender.send((stream, peer)).await),
                Err(why) => refusals.push(peer, &why),
            }
            drop(slot);
        });
    }
}

async fn handshake(tls: &TlsIdentity, stream: TcpStream) -> Result<BoxedStream, String> {
    match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(accepted) => accepted.map_err(|why| format!("no TLS connection: {why}")),
        Err(_) => Err("no TLS connection: the handshake took too long".into()),
    }
}
