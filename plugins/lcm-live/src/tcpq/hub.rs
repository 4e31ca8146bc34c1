//! A hub of the TCP queue: sends every message to every client that has subscribed to it.
//!
//! It stores nothing: a message is sent to the clients that are connected when it arrives. A client
//! that is too slow loses the newest messages, which is counted and reported; it never delays
//! others. A client also receives its own messages if it has subscribed to them.
//!
//! Every client has a reading and a writing thread, with a bounded queue in front of the latter.

mod reader;
mod reports;

use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{Builder, Scope};
use std::time::Duration;

use bytes::Bytes;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
#[cfg(target_os = "linux")]
use socket2::SockRef;

use super::client::write_all_vectored;
use super::frame::{self, MalformedFrame};
use super::handshake::{HandshakeError, PeerRole, handshake, read_handshake};
use super::outbox::Outbox;
use super::set_socket_options;
use super::subscriptions::Subscriptions;
use reader::ClientReader;
use reports::{LossReporter, UndeliveredMessages};

/// Longest sleep of the hub, which polls a stop flag.
const POLL_MS: u8 = 50;

/// Shortest interval between reports of a client's losses.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes read from a client at once.
const READ_LEN: usize = 64 << 10;

/// Limits of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubLimits {
    /// Most clients connected.
    pub clients: usize,
    /// Most subscriptions of one client.
    pub subscriptions: usize,
    /// Most bytes queued for one client. A longer message is queued by itself.
    pub queue_bytes: usize,
    /// Limits on names and payloads.
    pub frame: frame::FrameLimits,
    /// Time for the handshake of a client.
    pub handshake_timeout: Duration,
    /// A client that accepts no data for this time while messages wait for it is disconnected.
    pub stall: Duration,
}

impl Default for HubLimits {
    fn default() -> Self {
        Self {
            clients: 256,
            subscriptions: 1024,
            queue_bytes: 64 << 20,
            frame: frame::FrameLimits::default(),
            handshake_timeout: Duration::from_secs(5),
            stall: Duration::from_secs(60),
        }
    }
}

/// A hub cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HubError {
    /// Another program uses the port.
    #[error(
        "the port is in use, perhaps by another hub: connect to it, stop it \
         (`ss -ltnp` names the program), or choose another port"
    )]
    InUse,
    /// Listening on the address failed for another reason.
    #[error("cannot listen on this address: {0}")]
    Bind(io::Error),
    /// Waiting for clients failed.
    #[error("cannot wait for clients: {0}")]
    Wait(io::Error),
}

/// Totals of a hub.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HubCounts {
    /// Clients connected now.
    pub clients: usize,
    /// Messages received.
    pub messages_in: u64,
    /// Messages sent, counted once per client.
    pub messages_out: u64,
    /// Messages dropped because a client was too slow, counted once per client.
    pub dropped: u64,
    /// Bytes received, with frames.
    pub bytes_in: u64,
    /// Bytes sent, with frames.
    pub bytes_out: u64,
}

/// Totals of one client.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientCounts {
    /// Its address.
    pub peer: SocketAddr,
    /// Its subscriptions, including repeated ones.
    pub subscriptions: usize,
    /// Messages sent to it.
    pub sent: u64,
    /// Messages dropped because it was too slow.
    pub dropped: u64,
    /// Bytes queued for it.
    pub waiting: usize,
}

/// A hub.
#[derive(Debug)]
pub(crate) struct Hub {
    listener: TcpListener,
    addr: SocketAddr,
    limits: HubLimits,
    connections: RwLock<Vec<ClientConnection>>,
    /// Incremented whenever a client or subscription is added or removed.
    generation: AtomicU64,
    tally: HubTally,
}

#[derive(Debug, Default)]
struct HubTally {
    messages_in: AtomicU64,
    messages_out: AtomicU64,
    dropped: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// A client with its socket. Those who only send to a client do not keep its socket open.
#[derive(Clone, Debug)]
struct ClientConnection {
    client: Arc<ConnectedClient>,
    socket: Arc<TcpStream>,
}

#[derive(Debug)]
struct ConnectedClient {
    peer: SocketAddr,
    outbox: Outbox,
    subscriptions: RwLock<Subscriptions>,
    sent: AtomicU64,
    dropped: AtomicU64,
    /// Why the hub disconnects it; the first reason holds.
    disconnect_reason: OnceLock<DisconnectReason>,
}

/// Why a client disconnected.
#[derive(Debug, thiserror::Error)]
enum DisconnectReason {
    #[error("has left")]
    Left,
    #[error("has left {0} bytes into a frame")]
    LeftInFrame(usize),
    #[error("was disconnected: {0}")]
    Handshake(#[from] HandshakeError),
    #[error("was disconnected: {0}")]
    Malformed(#[from] MalformedFrame),
    #[error("was disconnected: it accepted no data for {0:?}")]
    Stalled(Duration),
    #[error("no longer answers")]
    Vanished,
    #[error("was disconnected: {0}")]
    Io(io::Error),
    #[error("was disconnected: the hub is stopping")]
    Stop,
}

impl From<io::Error> for DisconnectReason {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected => Self::Left,
            ErrorKind::TimedOut => Self::Vanished,
            _ => Self::Io(error),
        }
    }
}

impl Hub {
    /// Listens on the first of the addresses where that is possible, with default limits.
    ///
    /// Clients can connect at once; [`serve`](Self::serve) serves them.
    pub(crate) fn bind(addr: impl ToSocketAddrs) -> Result<Self, HubError> {
        Self::with_limits(addr, HubLimits::default())
    }

    /// As [`bind`](Self::bind), with these limits.
    pub(crate) fn with_limits(
        addr: impl ToSocketAddrs,
        limits: HubLimits,
    ) -> Result<Self, HubError> {
        let listener = TcpListener::bind(addr).map_err(|e| match e.kind() {
            ErrorKind::AddrInUse => HubError::InUse,
            _ => HubError::Bind(e),
        })?;
        // A client may be gone between polling and accepting.
        listener.set_nonblocking(true).map_err(HubError::Bind)?;
        let addr = listener.local_addr().map_err(HubError::Bind)?;
        let connections = RwLock::default();
        Ok(Self {
            listener,
            addr,
            limits,
            connections,
            generation: AtomicU64::new(0),
            tally: HubTally::default(),
        })
    }

    /// The address it listens on, with the actual port if bound to port 0.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Totals so far.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> HubCounts {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        HubCounts {
            clients: self.connections().len(),
            messages_in: read(&self.tally.messages_in),
            messages_out: read(&self.tally.messages_out),
            dropped: read(&self.tally.dropped),
            bytes_in: read(&self.tally.bytes_in),
            bytes_out: read(&self.tally.bytes_out),
        }
    }

    /// The connected clients, in the order they connected.
    #[cfg(test)]
    pub(crate) fn clients(&self) -> Vec<ClientCounts> {
        let members = self.connections();
        members.iter().map(|member| member.client.counts()).collect()
    }

    /// Serves clients until `stop`, which is noticed within 100 ms; then disconnects all.
    ///
    /// Call it once at a time. `say` gets a line, from any thread, when a client connects, leaves,
    /// makes a mistake, or loses messages, the last at most once a second per client; and one at
    /// the end if any client lost messages. `Err` means that no more clients can be accepted.
    pub(crate) fn serve(
        &self,
        stop: &AtomicBool,
        say: impl Fn(&str) + Sync,
    ) -> Result<(), HubError> {
        let ended = std::thread::scope(|scope| {
            let ended = self.accept_all(scope, stop, &say);
            for member in self.connections().iter() {
                member.disconnect(DisconnectReason::Stop);
            }
            ended
        });
        let dropped = self.tally.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            say(&format!("messages dropped in all, for clients that were too slow: {dropped}"));
        }
        ended
    }

    fn accept_all<'s, S: Fn(&str) + Sync>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        stop: &AtomicBool,
        say: &'s S,
    ) -> Result<(), HubError> {
        let mut news = LossReporter::new();
        while !stop.load(Ordering::Relaxed) {
            let mut fds = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, POLL_MS) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => match self.listener.accept() {
                    Ok((socket, peer)) => self.accept_client(scope, socket, peer, say),
                    Err(e) => news.report_refusal(&e, say),
                },
                Err(e) => return Err(HubError::Wait(e.into())),
            }
            news.report_losses(&self.connections(), say);
        }
        Ok(())
    }

    /// Starts the thread of a new client, unless there are too many clients.
    fn accept_client<'s, S: Fn(&str) + Sync>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        socket: TcpStream,
        peer: SocketAddr,
        say: &'s S,
    ) {
        let most = self.limits.clients;
        if self.connections().len() >= most {
            say(&format!("{peer} was refused: the limit of {most} clients is reached"));
            return;
        }
        let member = ClientConnection {
            client: Arc::new(ConnectedClient {
                peer,
                outbox: Outbox::new(self.limits.queue_bytes),
                subscriptions: RwLock::default(),
                sent: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
                disconnect_reason: OnceLock::new(),
            }),
            socket: Arc::new(socket),
        };
        // Before its thread can remove it.
        self.connections.write().unwrap_or_else(PoisonError::into_inner).push(member.clone());
        let client = Arc::clone(&member.client);
        let attend = move || self.serve_client(scope, &member, say);
        if let Err(e) = Builder::new().name("lcm-hub-read".into()).spawn_scoped(scope, attend) {
            self.remove(&client);
            say(&format!("{peer} was refused: cannot start a thread: {e}"));
        }
    }

    /// Serves one client until it is gone.
    fn serve_client<'s, S: Fn(&str) + Sync>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        member: &ClientConnection,
        say: &'s S,
    ) {
        let ClientConnection { client, socket } = member;
        let why = self.run_client(scope, member, say).err().unwrap_or(DisconnectReason::Left);
        self.remove(client);
        let waiting = client.outbox.close();
        // It may already be shut down.
        socket.shutdown(Shutdown::Both).ok();
        let why = client.disconnect_reason.get().unwrap_or(&why);
        if !matches!(why, DisconnectReason::Stop) {
            let dropped = client.dropped.load(Ordering::Relaxed);
            say(&format!("{} {why}{}", client.peer, UndeliveredMessages { waiting, dropped }));
        }
    }

    /// Does the handshake, starts the writing thread, and reads until the client leaves.
    fn run_client<'s, S: Fn(&str) + Sync>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        member: &ClientConnection,
        say: &'s S,
    ) -> Result<(), DisconnectReason> {
        let socket: &TcpStream = &member.socket;
        self.configure(socket)?;
        // Sent first, as some clients wait for it.
        { socket }.write_all(&handshake(PeerRole::Server))?;
        read_handshake(socket, PeerRole::Client, self.limits.handshake_timeout)?;
        socket.set_read_timeout(None)?;
        say(&format!("{} has connected", member.client.peer));
        let writer = member.clone();
        let write = move || self.write(&writer);
        Builder::new().name("lcm-hub-write".into()).spawn_scoped(scope, write)?;
        ClientReader::new(self, &member.client, say).read(socket)
    }

    fn configure(&self, socket: &TcpStream) -> io::Result<()> {
        // Some systems pass the listener's mode on.
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(self.limits.stall))?;
        // The system sends no keepalives while data is in flight. This is longer than the write
        // timeout, to tell a stalled client from one that vanished.
        #[cfg(target_os = "linux")]
        SockRef::from(socket)
            .set_tcp_user_timeout(Some(self.limits.stall + REPORT_INTERVAL * 5))?;
        set_socket_options(socket)
    }

    /// Writes queued messages until the client is gone.
    fn write(&self, member: &ClientConnection) {
        let ClientConnection { client, socket } = member;
        let mut batch = Vec::new();
        while client.outbox.next_batch(&mut batch) {
            let mut parts: Vec<_> = batch.iter().map(|frame| IoSlice::new(frame)).collect();
            let bytes: usize = batch.iter().map(Bytes::len).sum();
            match write_all_vectored(socket, &mut parts) {
                Ok(()) => {
                    client.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    self.tally.messages_out.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    self.tally.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
                }
                // The write timeout.
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    member.disconnect(DisconnectReason::Stalled(self.limits.stall));
                }
                Err(e) => member.disconnect(e.into()),
            }
        }
    }

    fn remove(&self, client: &Arc<ConnectedClient>) {
        let mut members = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| !Arc::ptr_eq(&member.client, client));
        drop(members);
        // Publishers that have cached it may be silent for long.
        self.update_subscriptions(client, |all| *all = Subscriptions::default());
    }

    /// Changes the subscriptions of a client.
    ///
    /// The generation is incremented under the lock: whoever sees one change sees the other.
    fn update_subscriptions<T>(
        &self,
        client: &ConnectedClient,
        change: impl FnOnce(&mut Subscriptions) -> T,
    ) -> T {
        let mut subscriptions =
            client.subscriptions.write().unwrap_or_else(PoisonError::into_inner);
        let found = change(&mut subscriptions);
        self.generation.fetch_add(1, Ordering::Release);
        found
    }

    fn connections(&self) -> RwLockReadGuard<'_, Vec<ClientConnection>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientConnection {
    /// Ends both threads of the client.
    fn disconnect(&self, why: DisconnectReason) {
        // The first reason holds; the socket may already be shut down.
        self.client.disconnect_reason.set(why).ok();
        self.client.outbox.close();
        self.socket.shutdown(Shutdown::Both).ok();
    }
}

impl ConnectedClient {
    fn subscriptions(&self) -> RwLockReadGuard<'_, Subscriptions> {
        self.subscriptions.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn counts(&self) -> ClientCounts {
        ClientCounts {
            peer: self.peer,
            subscriptions: self.subscriptions().len(),
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            waiting: self.outbox.cost(),
        }
    }
}

#[cfg(test)]
mod tests;
