//! One connection to a hub: subscribes, publishes, receives.
//!
//! It does not reconnect: after an error other than [`ClientError::TooLong`] the connection is
//! over, and the caller has to make a new [`HubClient`] and subscribe again.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::frame::{
    FrameFault, FrameLimits, FrameParser, MalformedFrame, TooLong, append_publish_head,
    append_subscribe,
};
use super::handshake::{HANDSHAKE_LEN, HandshakeError, PeerRole, handshake, read_handshake};
use super::{frame, is_time_out, set_socket_options};

pub(crate) use super::frame::Publish;

/// Bytes read from the socket at once.
const READ_LEN: usize = 64 << 10;

/// Published bytes collected before they are sent; a payload of this length is not copied.
const WRITE_LEN: usize = 64 << 10;

/// Connecting to a hub failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConnectError {
    /// The name has no address.
    #[error("cannot resolve `{host}`: {source}")]
    Resolve {
        /// The name as given.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// No address of the host accepts connections.
    #[error("cannot connect to {addr}: {source}")]
    Connect {
        /// The address tried last.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The server is not a hub.
    #[error("{addr} is not an lcm hub: {source}")]
    Handshake {
        /// The address.
        addr: SocketAddr,
        /// What is wrong with its handshake.
        source: HandshakeError,
    },
}

/// The connection is over, or a message cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ClientError {
    /// The hub closed the connection.
    #[error("the hub has closed the connection{}", pending_suffix(*.pending))]
    Closed {
        /// Bytes of an incomplete message.
        pending: usize,
    },
    /// The hub accepted no data for the timeout given to [`HubClient::connect`].
    #[error("the hub has accepted no data for {0:?}")]
    Stalled(Duration),
    /// The connection failed.
    #[error("the connection to the hub failed: {0}")]
    Io(io::Error),
    /// The hub sent an invalid frame.
    #[error("invalid data from the hub: {0}")]
    Malformed(#[from] MalformedFrame),
    /// The message was not sent; the connection is unchanged.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl ClientError {
    /// Whether the connection is over.
    pub(crate) fn ends_connection(&self) -> bool {
        !matches!(self, Self::TooLong(_))
    }
}

fn pending_suffix(pending: usize) -> String {
    if pending == 0 { String::new() } else { format!(" {pending} bytes into a message") }
}

/// How long a hub may take to answer.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between attempts to reconnect.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A connection to a hub.
///
/// Not shared between threads: to receive and publish at once, use two. Published messages that are
/// not yet sent are lost when the client is dropped; call [`flush`](Self::flush) first.
#[derive(Debug)]
pub(crate) struct HubClient {
    socket: TcpStream,
    timeout: Duration,
    limits: FrameLimits,
    parser: FrameParser,
    /// Bytes read but not yet parsed are `input[parsed..filled]`.
    input: Box<[u8]>,
    parsed: usize,
    filled: usize,
    /// Published bytes that are not yet sent.
    output: Vec<u8>,
}

impl HubClient {
    /// Connects to the first address of `host` that completes the handshake; `host` is a name or an
    /// IPv4 or IPv6 address, the latter with or without brackets.
    ///
    /// Each address is given up after `timeout`. Later, a hub that accepts no data for `timeout`
    /// counts as stalled. Resolving a name takes as long as the system's resolver does.
    pub(crate) fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, ConnectError> {
        // The system does not accept a timeout of zero.
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
        set_socket_options(&socket).map_err(failed)?;
        socket.set_write_timeout(Some(timeout)).map_err(failed)?;
        (&socket).write_all(&handshake(PeerRole::Client)).map_err(failed)?;
        read_handshake(&socket, PeerRole::Server, timeout)
            .map_err(|source| ConnectError::Handshake { addr, source })?;
        // From here on, waiting is done by polling.
        socket.set_read_timeout(None).map_err(failed)?;
        let limits = FrameLimits::default();
        Ok(Self {
            socket,
            timeout,
            limits,
            parser: FrameParser::new(limits, HANDSHAKE_LEN as u64),
            input: vec![0; READ_LEN].into(),
            parsed: 0,
            filled: 0,
            output: Vec::with_capacity(2 * WRITE_LEN),
        })
    }

    /// The local address, as shown in the hub's log.
    #[cfg(test)]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr().expect("a connected socket has an address")
    }

    /// Subscribes to channels that `regex` matches from end to end; sent at once.
    ///
    /// A hub does not answer, not even to an invalid regular expression.
    pub(crate) fn subscribe(&mut self, regex: &str) -> Result<(), ClientError> {
        append_subscribe(&mut self.output, regex.as_bytes(), &self.limits)?;
        self.flush()
    }

    /// Publishes a message. It is sent when enough bytes are collected, or by the next
    /// [`flush`](Self::flush) or [`next`](Self::next).
    ///
    /// Blocks while the hub is busy. A large payload is sent at once and without a copy.
    pub(crate) fn publish(&mut self, channel: &[u8], payload: &[u8]) -> Result<(), ClientError> {
        append_publish_head(&mut self.output, channel, payload.len(), &self.limits)?;
        if payload.len() >= WRITE_LEN {
            return self.send(payload);
        }
        self.output.extend_from_slice(payload);
        if self.output.len() >= WRITE_LEN { self.flush() } else { Ok(()) }
    }

    /// Sends all collected bytes.
    pub(crate) fn flush(&mut self) -> Result<(), ClientError> {
        if self.output.is_empty() { Ok(()) } else { self.send(&[]) }
    }

    /// The next message, or `None` if none was complete within `wait`; a `wait` of zero only takes
    /// what is there.
    ///
    /// Flushes first. A partly received message is kept for the next call.
    pub(crate) fn next(&mut self, wait: Duration) -> Result<Option<Publish>, ClientError> {
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

    /// The next message in the bytes read so far.
    fn parse(&mut self) -> Result<Option<Publish>, ClientError> {
        let at = self.parser.at();
        let mut rest = self.input.get(self.parsed..self.filled).unwrap_or_default();
        let frame = self.parser.next(&mut rest);
        self.parsed = self.filled - rest.len();
        match frame? {
            Some(frame::TcpqFrame::Publish(message)) => Ok(Some(message)),
            Some(_) => Err(MalformedFrame { at, fault: FrameFault::FromHub }.into()),
            None => Ok(None),
        }
    }

    /// Waits until the socket is readable, or closed.
    fn readable_until(&self, deadline: Instant) -> Result<bool, ClientError> {
        loop {
            // Rounded up: otherwise the last millisecond would be a busy loop.
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

    /// Reads once. Call it only when everything read before is parsed.
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

    /// Sends the collected bytes and then `more`.
    fn send(&mut self, more: &[u8]) -> Result<(), ClientError> {
        let mut parts = [IoSlice::new(&self.output), IoSlice::new(more)];
        let sent = write_all_vectored(&self.socket, &mut parts);
        self.output.clear();
        sent.map_err(|e| {
            // A frame may be sent in part: nothing may follow it. The socket may already be shut
            // down.
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
            _ if is_time_out(&error) => ClientError::Stalled(self.timeout),
            _ => ClientError::Io(error),
        }
    }
}

/// Writes all parts, as many at once as the system accepts.
pub(super) fn write_all_vectored(
    mut socket: &TcpStream,
    mut parts: &mut [IoSlice<'_>],
) -> io::Result<()> {
    // Skips leading empty parts.
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

    use socket2::{Domain, Socket, Type};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Runs `serve` as a server for one client, and returns what `client` makes of it.
    fn with_server<T>(
        serve: impl FnOnce(TcpStream) + Send,
        client: impl FnOnce(Result<HubClient, ConnectError>) -> T,
        timeout: Duration,
    ) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::scope(|scope| {
            scope.spawn(|| serve(listener.accept().unwrap().0));
            client(HubClient::connect("127.0.0.1", port, timeout))
        })
    }

    /// Does a hub's handshake, then runs `then` with the connection.
    fn greets(then: impl FnOnce(TcpStream) + Send) -> impl FnOnce(TcpStream) + Send {
        move |mut socket| {
            let mut client_handshake = [0; HANDSHAKE_LEN];
            socket.read_exact(&mut client_handshake).unwrap();
            assert_eq!(client_handshake, handshake(PeerRole::Client));
            socket.write_all(&handshake(PeerRole::Server)).unwrap();
            then(socket);
        }
    }

    #[test]
    fn a_server_that_is_no_hub_is_reported_with_what_it_sent() {
        let error = with_server(
            |mut socket| socket.write_all(b"SSH-2.0-OpenSSH\r\n").unwrap(),
            |client| client.unwrap_err().to_string(),
            LONG,
        );
        assert!(
            error.starts_with("127.0.0.1:") && error.contains("is not an lcm hub: "),
            "{error}"
        );
        assert!(error.ends_with("found 53 53 48 2d 32 2e 30 2d (`SSH-2.0-`)"), "{error}");
    }

    #[test]
    fn a_server_that_closes_early_is_reported_with_what_it_sent() {
        let error = with_server(
            |mut socket| {
                let mut client_handshake = [0; HANDSHAKE_LEN];
                socket.read_exact(&mut client_handshake).unwrap();
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
        assert!(error.ends_with("handshake of an lcm hub within 30ms, found nothing"), "{error}");
    }

    #[test]
    fn a_closed_connection_is_distinguished_from_silence() {
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
    fn a_hub_out_of_step_is_reported() {
        with_server(
            greets(|mut socket| socket.write_all(&[0, 0, 0, 2, 0, 0, 0, 1, b'A']).unwrap()),
            |client| {
                let error = client.unwrap().next(LONG).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "invalid data from the hub: expected a message from the hub, found a \
                     subscription at \
                     byte 8 of the stream"
                );
            },
            LONG,
        );
    }

    #[test]
    fn a_hub_that_takes_nothing_is_reported() {
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
            // Also that of the handshake.
            Duration::from_secs(2),
        );
    }

    #[test]
    fn what_is_too_long_to_send_changes_nothing() {
        let (sender, received) = std::sync::mpsc::channel();
        with_server(
            greets(move |mut socket| {
                let mut found = Vec::new();
                socket.read_to_end(&mut found).unwrap();
                sender.send(found).unwrap();
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
        assert_eq!(received.recv().unwrap(), [0, 0, 0, 1, 0, 0, 0, 1, b'B', 0, 0, 0, 0]);
    }

    #[test]
    fn a_port_nobody_listens_on_is_reported() {
        let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let port = silent.local_addr().unwrap().as_socket().unwrap().port();
        let error = HubClient::connect("127.0.0.1", port, LONG).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot connect to 127.0.0.1:{port}: ")), "{error}");
    }
}
