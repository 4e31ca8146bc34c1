//! A hub of the queue over TCP: sends every message to every client that wants it.
//!
//! It keeps nothing: a message goes to the clients that are there when it comes. A client that takes
//! less than it wants loses the newest messages, which is counted and said; it never holds up others,
//! nor who publishes. A client that publishes gets its own messages, too, if it wants them.
//!
//! Every client has a thread that reads and one that writes, with a bounded queue between it and all others.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashMap;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use sluice_core::name::printable;
#[cfg(target_os = "linux")]
use socket2::SockRef;

use super::client::write_all_vectored;
use super::frame::{self, Frame, GREETING_LEN, Malformed, Parser, Publish, Side, greeting};
use super::outbox::{Added, Outbox};
use super::subscriptions::{Subscriptions, readable};
use super::{GreetingError, read_greeting, tune};

/// How long the hub sleeps at most: it is told to stop by a variable.
const TICK_MS: u8 = 50;

/// How often it is said at most that a client loses messages.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// What is read from a client at once.
const READ_LEN: usize = 64 << 10;

/// Channels of one publisher whose receivers are remembered; beyond that all are forgotten.
const ROUTES: usize = 1024;

/// The longest channel name whose receivers are remembered.
const ROUTE_NAME_LEN: usize = 256;

/// Mistakes of one client that are said.
const COMPLAINTS: u32 = 10;

/// What a hub allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients at once.
    pub clients: usize,
    /// Subscriptions of one client.
    pub subscriptions: usize,
    /// Bytes that wait for one client. A message that is longer waits alone.
    pub queue_bytes: usize,
    /// Lengths of names and payloads.
    pub frame: frame::Limits,
    /// Time in which a client has to greet.
    pub greeting: Duration,
    /// Time after which a client for which something waits, and which takes nothing, is sent away.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 256,
            subscriptions: 1024,
            queue_bytes: 64 << 20,
            frame: frame::Limits::default(),
            greeting: Duration::from_secs(5),
            stall: Duration::from_secs(60),
        }
    }
}

/// A hub that cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Another program has the port.
    #[error(
        "the port is in use, perhaps by another hub: connect to that one, stop it \
         (`ss -ltnp` names the program), or choose another port"
    )]
    InUse,
    /// The address cannot be listened on for another reason.
    #[error("cannot listen there: {0}")]
    Bind(io::Error),
    /// Waiting for clients failed.
    #[error("cannot wait for clients: {0}")]
    Wait(io::Error),
}

/// What a hub did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients connected now.
    pub clients: usize,
    /// Messages that came.
    pub messages_in: u64,
    /// Messages handed to the system, once for every client.
    pub messages_out: u64,
    /// Messages that a client wanted and was too slow for, once for every client.
    pub dropped: u64,
    /// Bytes of the messages that came, with their frames.
    pub bytes_in: u64,
    /// Bytes of the messages handed to the system, with their frames.
    pub bytes_out: u64,
}

/// What became of one client so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCounts {
    /// Its address.
    pub peer: SocketAddr,
    /// Its subscriptions, with those made more than once.
    pub subscriptions: usize,
    /// Messages for it handed to the system.
    pub sent: u64,
    /// Messages it was too slow for.
    pub dropped: u64,
    /// Bytes that wait for it.
    pub waiting: usize,
}

/// A hub.
#[derive(Debug)]
pub struct Hub {
    listener: TcpListener,
    addr: SocketAddr,
    limits: Limits,
    members: RwLock<Vec<Member>>,
    /// Goes up whenever a client or a subscription comes or goes.
    changes: AtomicU64,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    messages_in: AtomicU64,
    messages_out: AtomicU64,
    dropped: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// A client, and its socket: who only sends to a client does not keep the socket of one that left.
#[derive(Clone, Debug)]
struct Member {
    client: Arc<Client>,
    socket: Arc<TcpStream>,
}

#[derive(Debug)]
struct Client {
    peer: SocketAddr,
    outbox: Outbox,
    subscriptions: RwLock<Subscriptions>,
    sent: AtomicU64,
    dropped: AtomicU64,
    /// Why it is sent away, if the hub does so; the first reason holds.
    farewell: OnceLock<Farewell>,
}

/// Why a client is no longer there.
#[derive(Debug, thiserror::Error)]
enum Farewell {
    #[error("has left")]
    Left,
    #[error("has left {0} bytes into a frame")]
    LeftInFrame(usize),
    #[error("is sent away: {0}")]
    Greeting(#[from] GreetingError),
    #[error("is sent away: {0}")]
    Malformed(#[from] Malformed),
    #[error("is sent away: it has taken nothing for {0:?}")]
    Stalled(Duration),
    #[error("is gone: it no longer answers")]
    Vanished,
    #[error("is sent away: {0}")]
    Io(io::Error),
    #[error("is sent away: the hub stops")]
    Stop,
}

impl From<io::Error> for Farewell {
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
    /// Listens at the first of the addresses where that is possible, with the usual limits.
    ///
    /// Clients can connect at once; they are served by [`serve`](Self::serve).
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self, HubError> {
        Self::with_limits(addr, Limits::default())
    }

    /// As [`bind`](Self::bind), with these limits.
    pub fn with_limits(addr: impl ToSocketAddrs, limits: Limits) -> Result<Self, HubError> {
        let listener = TcpListener::bind(addr).map_err(|e| match e.kind() {
            ErrorKind::AddrInUse => HubError::InUse,
            _ => HubError::Bind(e),
        })?;
        // A client may be gone again between waiting and accepting.
        listener.set_nonblocking(true).map_err(HubError::Bind)?;
        let addr = listener.local_addr().map_err(HubError::Bind)?;
        let members = RwLock::default();
        Ok(Self {
            listener,
            addr,
            limits,
            members,
            changes: AtomicU64::new(0),
            tally: Tally::default(),
        })
    }

    /// Where it listens; tells the port if it was bound to port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it did so far; from any thread, at any time.
    pub fn counts(&self) -> Counts {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counts {
            clients: self.members().len(),
            messages_in: read(&self.tally.messages_in),
            messages_out: read(&self.tally.messages_out),
            dropped: read(&self.tally.dropped),
            bytes_in: read(&self.tally.bytes_in),
            bytes_out: read(&self.tally.bytes_out),
        }
    }

    /// The clients that are there, in the order they came.
    pub fn clients(&self) -> Vec<ClientCounts> {
        let members = self.members();
        members.iter().map(|member| member.client.counts()).collect()
    }

    /// Serves clients until `stop`, which is noticed within 100 ms; then sends all away.
    ///
    /// Call it once at a time. `say` is given a line, from any thread, when a client comes, goes, makes
    /// a mistake, or loses messages, the last at most once a second for each. `Err` means that no
    /// client can be accepted any more.
    pub fn serve(&self, stop: &AtomicBool, say: impl Fn(&str) + Sync) -> Result<(), HubError> {
        std::thread::scope(|scope| {
            let ended = self.accept_all(scope, stop, &say);
            for member in self.members().iter() {
                member.dismiss(Farewell::Stop);
            }
            ended
        })
    }

    fn accept_all<'s, S: Fn(&str) + Sync>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        stop: &AtomicBool,
        say: &'s S,
    ) -> Result<(), HubError> {
        let mut news = News::new();
        while !stop.load(Ordering::Relaxed) {
            let mut fds = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, TICK_MS) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => match self.listener.accept() {
                    Ok((socket, peer)) => self.welcome(scope, socket, peer, say),
                    Err(e) => news.refused(&e, say),
                },
                Err(e) => return Err(HubError::Wait(e.into())),
            }
            news.losses(&self.members(), say);
        }
        Ok(())
    }

    /// Starts the thread of a new client, unless there are too many.
    fn welcome<'s, S: Fn(&str) + Sync>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        socket: TcpStream,
        peer: SocketAddr,
        say: &'s S,
    ) {
        let most = self.limits.clients;
        if self.members().len() >= most {
            say(&format!("{peer} is sent away: {most} clients are connected, and no more allowed"));
            return;
        }
        let member = Member {
            client: Arc::new(Client {
                peer,
                outbox: Outbox::new(self.limits.queue_bytes),
                subscriptions: RwLock::default(),
                sent: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
                farewell: OnceLock::new(),
            }),
            socket: Arc::new(socket),
        };
        // Before its thread can take it out again.
        self.members.write().unwrap_or_else(PoisonError::into_inner).push(member.clone());
        let client = Arc::clone(&member.client);
        let attend = move || self.attend(scope, &member, say);
        if let Err(e) = Builder::new().name("lcm-hub-read".into()).spawn_scoped(scope, attend) {
            self.remove(&client);
            say(&format!("{peer} is sent away: no thread for it: {e}"));
        }
    }

    /// All that is done for one client, until it is gone.
    fn attend<'s, S: Fn(&str) + Sync>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        member: &Member,
        say: &'s S,
    ) {
        let Member { client, socket } = member;
        let why = self.converse(scope, member, say).err().unwrap_or(Farewell::Left);
        self.remove(client);
        let waiting = client.outbox.close();
        // It may be shut already.
        socket.shutdown(Shutdown::Both).ok();
        let why = client.farewell.get().unwrap_or(&why);
        if !matches!(why, Farewell::Stop) {
            let dropped = client.dropped.load(Ordering::Relaxed);
            say(&format!("{} {why}{}", client.peer, Lost { waiting, dropped }));
        }
    }

    /// Greets, starts the writing thread, and reads until the client leaves.
    fn converse<'s, S: Fn(&str) + Sync>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        member: &Member,
        say: &'s S,
    ) -> Result<(), Farewell> {
        let socket: &TcpStream = &member.socket;
        self.prepare(socket)?;
        // Before the client's, as some wait for it.
        { socket }.write_all(&greeting(Side::Server))?;
        read_greeting(socket, Side::Client, self.limits.greeting)?;
        socket.set_read_timeout(None)?;
        say(&format!("{} has come", member.client.peer));
        let writer = member.clone();
        let write = move || self.write(&writer);
        Builder::new().name("lcm-hub-write".into()).spawn_scoped(scope, write)?;
        Reader { hub: self, client: &member.client, say, routes: Routes::default(), complaints: 0 }
            .read(socket)
    }

    fn prepare(&self, socket: &TcpStream) -> io::Result<()> {
        // Some systems hand the listener's mode on.
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(self.limits.stall))?;
        // While something is on its way the system sends no keepalives; later than the time-out, so
        // that a client that is there and takes nothing is told from one that vanished.
        #[cfg(target_os = "linux")]
        SockRef::from(socket).set_tcp_user_timeout(Some(self.limits.stall + SAY_EVERY * 5))?;
        tune(socket)
    }

    /// Writes what waits for a client until it is gone.
    fn write(&self, member: &Member) {
        let Member { client, socket } = member;
        let mut batch = Vec::new();
        while client.outbox.take(&mut batch) {
            let mut parts: Vec<_> = batch.iter().map(|frame| IoSlice::new(frame)).collect();
            let bytes: usize = batch.iter().map(Bytes::len).sum();
            match write_all_vectored(socket, &mut parts) {
                Ok(()) => {
                    client.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    self.tally.messages_out.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    self.tally.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
                }
                // The socket's time-out.
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    member.dismiss(Farewell::Stalled(self.limits.stall));
                }
                Err(e) => member.dismiss(e.into()),
            }
        }
    }

    fn remove(&self, client: &Arc<Client>) {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| !Arc::ptr_eq(&member.client, client));
        drop(members);
        // Publishers that remember it may be silent for long.
        self.change(client, |all| *all = Subscriptions::default());
    }

    /// Changes what a client wants.
    ///
    /// Who sees the change, or that something changed, sees both: the count goes up under the lock.
    fn change<T>(&self, client: &Client, change: impl FnOnce(&mut Subscriptions) -> T) -> T {
        let mut subscriptions =
            client.subscriptions.write().unwrap_or_else(PoisonError::into_inner);
        let found = change(&mut subscriptions);
        self.changes.fetch_add(1, Ordering::Release);
        found
    }

    fn members(&self) -> RwLockReadGuard<'_, Vec<Member>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Ends both its threads.
    fn dismiss(&self, why: Farewell) {
        // The first reason holds, and the socket may be shut already.
        self.client.farewell.set(why).ok();
        self.client.outbox.close();
        self.socket.shutdown(Shutdown::Both).ok();
    }
}

impl Client {
    fn subscriptions(&self) -> RwLockReadGuard<'_, Subscriptions> {
        self.subscriptions.read().unwrap_or_else(PoisonError::into_inner)
    }

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

/// What the reading thread of a client has at hand.
struct Reader<'s, S> {
    hub: &'s Hub,
    client: &'s Client,
    say: &'s S,
    routes: Routes,
    /// Mistakes said so far.
    complaints: u32,
}

impl<S: Fn(&str)> Reader<'_, S> {
    fn read(mut self, mut socket: &TcpStream) -> Result<(), Farewell> {
        let mut parser = Parser::new(self.hub.limits.frame, GREETING_LEN as u64);
        let mut buffer = vec![0; READ_LEN];
        loop {
            let mut input = match socket.read(&mut buffer) {
                Ok(0) if parser.pending() > 0 => {
                    return Err(Farewell::LeftInFrame(parser.pending()));
                }
                Ok(0) => return Ok(()),
                Ok(n) => buffer.get(..n).unwrap_or_default(),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            };
            while let Some(frame) = parser.next(&mut input)? {
                match frame {
                    Frame::Publish(message) => self.relay(&message),
                    Frame::Subscribe(text) => self.subscribe(text),
                    Frame::Unsubscribe(text) => self.unsubscribe(&text),
                }
            }
        }
    }

    fn relay(&mut self, message: &Publish) {
        let frame = message.frame();
        let tally = &self.hub.tally;
        tally.messages_in.fetch_add(1, Ordering::Relaxed);
        tally.bytes_in.fetch_add(frame.len() as u64, Ordering::Relaxed);
        for receiver in self.routes.of(message.channel(), self.hub).iter() {
            if receiver.outbox.add(frame) == Added::Dropped {
                receiver.dropped.fetch_add(1, Ordering::Relaxed);
                tally.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn subscribe(&mut self, text: Bytes) {
        let limit = self.hub.limits.subscriptions;
        let added = self.hub.change(self.client, |all| all.add(text.clone(), limit));
        if let Err(why) = added {
            self.complain(&format!("its subscription {} {why}", quoted(&text)));
        }
    }

    fn unsubscribe(&mut self, text: &[u8]) {
        if !self.hub.change(self.client, |all| all.remove(text)) {
            self.complain(&format!("it ends the subscription {}, which it has not", quoted(text)));
        }
    }

    /// Says a mistake; the protocol has no way to tell the client.
    fn complain(&mut self, mistake: &str) {
        self.complaints = self.complaints.saturating_add(1);
        if self.complaints <= COMPLAINTS {
            let last =
                if self.complaints == COMPLAINTS { "; further ones are not told" } else { "" };
            (self.say)(&format!("{}: {mistake}{last}", self.client.peer));
        }
    }
}

/// Text of a client for the log: short, and nothing that controls a terminal.
fn quoted(text: &[u8]) -> String {
    const MOST: usize = 80;
    let text = readable(text);
    let mut short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("`{}`", printable(&short))
}

/// Who receives what one client publishes, as far as it was asked since clients and subscriptions
/// last changed.
#[derive(Default)]
struct Routes {
    as_of: u64,
    known: HashMap<Box<[u8]>, Receivers, foldhash::fast::RandomState>,
}

type Receivers = Arc<[Arc<Client>]>;

impl Routes {
    fn of(&mut self, channel: &[u8], hub: &Hub) -> Receivers {
        let changes = hub.changes.load(Ordering::Acquire);
        if changes != self.as_of || self.known.len() >= ROUTES {
            self.known.clear();
            self.as_of = changes;
        }
        if let Some(receivers) = self.known.get(channel) {
            return Arc::clone(receivers);
        }
        let receivers = receivers(channel, hub);
        if channel.len() <= ROUTE_NAME_LEN {
            self.known.insert(channel.into(), Arc::clone(&receivers));
        }
        receivers
    }
}

fn receivers(channel: &[u8], hub: &Hub) -> Receivers {
    let name = readable(channel);
    // Matching may take long: nobody who comes or goes waits for it.
    let clients: Vec<_> = hub.members().iter().map(|member| Arc::clone(&member.client)).collect();
    clients.into_iter().filter(|client| client.subscriptions().matches(&name)).collect()
}

/// What is said of all clients together, now and then.
struct News {
    said: Instant,
    /// What was said of each client that loses messages.
    lost: Vec<(SocketAddr, u64)>,
    refused: Option<Instant>,
}

impl News {
    fn new() -> Self {
        Self { said: Instant::now(), lost: Vec::new(), refused: None }
    }

    /// Says who has lost messages, if it is time.
    fn losses(&mut self, members: &[Member], say: &impl Fn(&str)) {
        if self.said.elapsed() < SAY_EVERY {
            return;
        }
        self.said = Instant::now();
        let before = std::mem::take(&mut self.lost);
        for client in members.iter().map(|member| &member.client) {
            let all = client.dropped.load(Ordering::Relaxed);
            let told = before.iter().find(|(peer, _)| *peer == client.peer);
            let new = all - told.map_or(0, |(_, all)| *all).min(all);
            if new > 0 {
                say(&format!("{} is too slow: {new} messages dropped, {all} in all", client.peer));
            }
            if all > 0 {
                self.lost.push((client.peer, all));
            }
        }
    }

    /// Says why a client could not be accepted. Sleeps, as the reason mostly lasts.
    fn refused(&mut self, error: &io::Error, say: &impl Fn(&str)) {
        if matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
        ) {
            return;
        }
        if self.refused.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            self.refused = Some(Instant::now());
            say(&format!("cannot accept a client: {error}"));
        }
        std::thread::sleep(Duration::from_millis(TICK_MS.into()));
    }
}

/// Messages that a client that is gone did not get.
struct Lost {
    waiting: usize,
    dropped: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.waiting, self.dropped) {
            (0, 0) => Ok(()),
            (waiting, 0) => write!(f, "; {waiting} messages waited for it"),
            (0, dropped) => write!(f, "; {dropped} messages were dropped"),
            (waiting, dropped) => {
                write!(f, "; {waiting} messages waited for it, {dropped} were dropped")
            }
        }
    }
}

#[cfg(test)]
mod tests;
