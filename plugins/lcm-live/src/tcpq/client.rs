//! One connection to a hub: subscribes, publishes, receives.
//!
//! It does not connect again: after an error other than [`ClientError::TooLong`] the connection is
//! over, and the caller makes a new [`Client`] and subscribes anew.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::frame::{
    GREETING_LEN, Limits, Malformed, Parser, Side, TooLong, Wrong, append_publish_head,
    append_subscribe, greeting,
};
use super::{GreetingError, frame, is_time_out, read_greeting, tune};

pub use super::frame::Publish;

/// What is read from the socket at once.
const READ_LEN: usize = 64 << 10;

/// Published bytes that are kept back before they are sent unasked; a payload of this length is not
/// copied.
const WRITE_LEN: usize = 64 << 10;

/// No connection to a hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name means no address.
    #[error("`{host}` is not known here: {source}")]
    Resolve {
        /// The name as it was given.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No address of the host takes connections.
    #[error("cannot connect to {addr}: {source}")]
    Connect {
        /// The address tried last.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Something listens there, but no hub.
    #[error("{addr} is no lcm hub: {source}")]
    Greeting {
        /// The address.
        addr: SocketAddr,
        /// What it did instead of greeting.
        source: GreetingError,
    },
}

/// A connection that is over, or a message that cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The hub closed the connection.
    #[error("the hub has closed the connection{}", in_a_frame(*.pending))]
    Closed {
        /// Bytes of a message whose end did not come.
        pending: usize,
    },
    /// The hub has taken nothing for the time given to [`Client::connect`].
    #[error("the hub has taken nothing for {0:?}")]
    Stalled(Duration),
    /// The connection failed.
    #[error("the connection to the hub failed: {0}")]
    Io(io::Error),
    /// The hub sent what is no message.
    #[error("the hub is out of step: {0}")]
    Malformed(#[from] Malformed),
    /// It was not sent; the connection is as it was.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl ClientError {
    /// Whether the connection is over, so that only a new one helps.
    pub fn ends_connection(&self) -> bool {
        !matches!(self, Self::TooLong(_))
    }
}

fn in_a_frame(pending: usize) -> String {
    if pending == 0 { String::new() } else { format!(" {pending} bytes into a message") }
}

/// How long a hub has time to answer.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// How long to wait before trying again to reach a hub that is gone.
pub(crate) const RETRY: Duration = Duration::from_millis(500);

/// A connection to a hub.
///
/// Not shared between threads: who receives and publishes at once makes two. What is published and
/// not yet sent is lost when the client is dropped; [`flush`](Self::flush) before.
#[derive(Debug)]
pub struct Client {
    socket: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    patience: Duration,
    limits: Limits,
    parser: Parser,
    /// What was read and not yet parsed is `input[parsed..filled]`.
    input: Box<[u8]>,
    parsed: usize,
    filled: usize,
    /// What is published and not yet sent.
    output: Vec<u8>,
}

impl Client {
    /// Connects to the first address of `host` on which a hub greets; `host` is a name, or an address
    /// of IPv4 or IPv6, the latter with or without brackets.
    ///
    /// Every address is given up after `timeout`, which later is also the time after which a hub that
    /// takes nothing counts as stalled. Looking up a name takes as long as the system's resolver takes.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, ConnectError> {
        // The system takes no time-out of zero.
        let timeout = timeout.max(Duration::from_millis(1));
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let unknown = |source| ConnectError::Resolve { host: host.to_owned(), source };
        let mut failed = unknown(ErrorKind::NotFound.into());
        for addr in (bare, port).to_socket_addrs().map_err(unknown)? {
            match Self::connect_to(addr, timeout) {
                Ok(client) => return Ok(client),
                Err(e) => failed = e,
            }
        }
        Err(failed)
    }

    fn connect_to(addr: SocketAddr, timeout: Duration) -> Result<Self, ConnectError> {
        let failed = |source| ConnectError::Connect { addr, source };
        let socket = TcpStream::connect_timeout(&addr, timeout).map_err(failed)?;
        tune(&socket).map_err(failed)?;
        socket.set_write_timeout(Some(timeout)).map_err(failed)?;
        (&socket).write_all(&greeting(Side::Client)).map_err(failed)?;
        read_greeting(&socket, Side::Server, timeout)
            .map_err(|source| ConnectError::Greeting { addr, source })?;
        // Waiting is done by polling from here on.
        socket.set_read_timeout(None).map_err(failed)?;
        let local = socket.local_addr().map_err(failed)?;
        let limits = Limits::default();
        Ok(Self {
            socket,
            peer: addr,
            local,
            patience: timeout,
            limits,
            parser: Parser::new(limits, GREETING_LEN as u64),
            input: vec![0; READ_LEN].into(),
            parsed: 0,
            filled: 0,
            output: Vec::with_capacity(2 * WRITE_LEN),
        })
    }

    /// The address of the hub.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address of this end, by which the hub's log calls it.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Asks for messages on channels that `regex` matches from end to end; sent at once.
    ///
    /// A hub does not answer, neither to a subscription nor to text that is no regular expression.
    pub fn subscribe(&mut self, regex: &str) -> Result<(), ClientError> {
        append_subscribe(&mut self.output, regex.as_bytes(), &self.limits)?;
        self.flush()
    }

    /// Publishes a message: sends it when enough has come together, or at the next
    /// [`flush`](Self::flush) or [`next`](Self::next).
    ///
    /// Blocks while the hub is busy. A large payload is sent at once and without a copy.
    pub fn publish(&mut self, channel: &[u8], payload: &[u8]) -> Result<(), ClientError> {
        append_publish_head(&mut self.output, channel, payload.len(), &self.limits)?;
        if payload.len() >= WRITE_LEN {
            return self.send(payload);
        }
        self.output.extend_from_slice(payload);
        if self.output.len() >= WRITE_LEN { self.flush() } else { Ok(()) }
    }

    /// Sends all that was published and is still kept back.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        if self.output.is_empty() { Ok(()) } else { self.send(&[]) }
    }

    /// The next message, or `None` if none was complete within `wait`; a `wait` of zero takes what is
    /// there.
    ///
    /// Sends first what was published. A message that has begun to come is kept for the next call.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Publish>, ClientError> {
        self.flush()?;
        let deadline = Instant::now() + wait;
        loop {
            if let Some(message) = self.parse()? {
                return Ok(Some(message));
            }
            if !self.readable_until(deadline)? {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    /// The next message of what was read.
    fn parse(&mut self) -> Result<Option<Publish>, ClientError> {
        let at = self.parser.at();
        let mut rest = self.input.get(self.parsed..self.filled).unwrap_or_default();
        let frame = self.parser.next(&mut rest);
        self.parsed = self.filled - rest.len();
        match frame? {
            Some(frame::Frame::Publish(message)) => Ok(Some(message)),
            Some(_) => Err(Malformed { at, wrong: Wrong::FromHub }.into()),
            None => Ok(None),
        }
    }

    /// Waits until there is something to read, an end included.
    fn readable_until(&self, deadline: Instant) -> Result<bool, ClientError> {
        loop {
            // Rounded up, or the last millisecond would be spent in a busy loop.
            let left =
                deadline.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) if deadline <= Instant::now() => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(e) => return Err(ClientError::Io(e.into())),
            }
        }
    }

    /// Reads once; only when everything read before is parsed.
    fn fill(&mut self) -> Result<(), ClientError> {
        match self.socket.read(&mut self.input) {
            Ok(0) => Err(ClientError::Closed { pending: self.parser.pending() }),
            Ok(n) => {
                (self.parsed, self.filled) = (0, n);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// Sends what is kept back, and `more` behind it.
    fn send(&mut self, more: &[u8]) -> Result<(), ClientError> {
        let mut parts = [IoSlice::new(&self.output), IoSlice::new(more)];
        let sent = write_all_vectored(&self.socket, &mut parts);
        self.output.clear();
        sent.map_err(|e| {
            // A part of a frame may be sent: nothing may follow it. A socket that is already shut
            // needs no shutting.
            self.socket.shutdown(Shutdown::Both).ok();
            self.failed(e)
        })
    }

    fn failed(&self, error: io::Error) -> ClientError {
        match error.kind() {
            ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected => ClientError::Closed { pending: self.parser.pending() },
            _ if is_time_out(&error) => ClientError::Stalled(self.patience),
            _ => ClientError::Io(error),
        }
    }
}

/// Writes all parts, as many at once as the system takes.
pub(super) fn write_all_vectored(
    mut socket: &TcpStream,
    mut parts: &mut [IoSlice<'_>],
) -> io::Result<()> {
    // Steps over empty parts in front.
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match socket.write_vectored(parts) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut parts, n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// A server that does these things to the one client it takes, and what the client makes of it.
    fn with_server<T>(
        serve: impl FnOnce(TcpStream) + Send,
        client: impl FnOnce(Result<Client, ConnectError>) -> T,
        timeout: Duration,
    ) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::scope(|scope| {
            scope.spawn(|| serve(listener.accept().unwrap().0));
            client(Client::connect("127.0.0.1", port, timeout))
        })
    }

    /// Greets as a hub does, and gives what is to be done with the connection then.
    fn greets(then: impl FnOnce(TcpStream) + Send) -> impl FnOnce(TcpStream) + Send {
        move |mut socket| {
            let mut hello = [0; GREETING_LEN];
            socket.read_exact(&mut hello).unwrap();
            assert_eq!(hello, greeting(Side::Client));
            socket.write_all(&greeting(Side::Server)).unwrap();
            then(socket);
        }
    }

    #[test]
    fn a_server_that_is_no_hub_is_told_with_what_it_sent() {
        let error = with_server(
            |mut socket| socket.write_all(b"SSH-2.0-OpenSSH\r\n").unwrap(),
            |client| client.unwrap_err().to_string(),
            LONG,
        );
        assert!(error.starts_with("127.0.0.1:") && error.contains("is no lcm hub: "), "{error}");
        assert!(error.ends_with("found 53 53 48 2d 32 2e 30 2d (`SSH-2.0-`)"), "{error}");
    }

    #[test]
    fn a_server_that_closes_early_is_told_with_what_it_sent() {
        let error = with_server(
            |mut socket| {
                let mut hello = [0; GREETING_LEN];
                socket.read_exact(&mut hello).unwrap();
                socket.write_all(b"220").unwrap();
            },
            |client| client.unwrap_err().to_string(),
            LONG,
        );
        assert!(error.ends_with("found a connection closed after 32 32 30 (`220`)"), "{error}");
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let error = with_server(
            // Until the client has given up.
            |mut socket| drop(socket.read_to_end(&mut Vec::new())),
            |client| client.unwrap_err().to_string(),
            Duration::from_millis(30),
        );
        assert!(error.ends_with("greeting of an lcm hub within 30ms, found nothing"), "{error}");
    }

    #[test]
    fn a_closed_connection_is_told_from_silence() {
        let (close, closing) = std::sync::mpsc::channel::<()>();
        with_server(
            greets(move |socket| {
                closing.recv().unwrap();
                drop(socket);
            }),
            |client| {
                let mut client = client.unwrap();
                assert_eq!(client.next(Duration::ZERO).unwrap(), None);
                assert_eq!(client.next(Duration::from_millis(5)).unwrap(), None);
                close.send(()).unwrap();
                let error = client.next(LONG).unwrap_err();
                assert!(matches!(error, ClientError::Closed { pending: 0 }), "{error}");
            },
            LONG,
        );
    }

    #[test]
    fn a_message_cut_off_is_counted() {
        with_server(
            greets(|mut socket| socket.write_all(&[0, 0, 0, 1, 0]).unwrap()),
            |client| {
                let error = client.unwrap().next(LONG).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "the hub has closed the connection 5 bytes into a message"
                );
            },
            LONG,
        );
    }

    #[test]
    fn a_hub_out_of_step_is_told() {
        with_server(
            greets(|mut socket| socket.write_all(&[0, 0, 0, 2, 0, 0, 0, 1, b'A']).unwrap()),
            |client| {
                let error = client.unwrap().next(LONG).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "the hub is out of step: expected a message from the hub, found a subscription at \
                     byte 8 of the stream"
                );
            },
            LONG,
        );
    }

    #[test]
    fn a_hub_that_takes_nothing_is_told() {
        let (over, until) = std::sync::mpsc::channel::<()>();
        with_server(
            greets(move |socket| {
                until.recv().unwrap();
                drop(socket);
            }),
            |client| {
                let mut client = client.unwrap();
                let payload = vec![0; 1 << 20];
                let error = loop {
                    if let Err(e) = client.publish(b"A", &payload) {
                        break e;
                    }
                };
                over.send(()).unwrap();
                assert!(matches!(error, ClientError::Stalled(_)), "{error}");
                assert!(matches!(client.publish(b"A", &payload), Err(ClientError::Closed { .. })));
            },
            Duration::from_millis(200),
        );
    }

    #[test]
    fn what_is_too_long_to_send_changes_nothing() {
        let (tell, told) = std::sync::mpsc::channel();
        with_server(
            greets(move |mut socket| {
                let mut found = Vec::new();
                socket.read_to_end(&mut found).unwrap();
                tell.send(found).unwrap();
            }),
            |client| {
                let mut client = client.unwrap();
                let error = client.publish(&[b'A'; 65_537], b"").unwrap_err();
                assert!(!error.ends_connection() && error.to_string().contains("65536"), "{error}");
                client.publish(b"B", b"").unwrap();
                client.flush().unwrap();
            },
            LONG,
        );
        assert_eq!(told.recv().unwrap(), [0, 0, 0, 1, 0, 0, 0, 1, b'B', 0, 0, 0, 0]);
    }

    #[test]
    fn a_port_nobody_listens_on_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let error = Client::connect("127.0.0.1", port, LONG).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot connect to 127.0.0.1:{port}: ")), "{error}");
    }
}
