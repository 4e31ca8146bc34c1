//! The TCP queue, `tcpq://`: one hub to which all senders and receivers connect.
//!
//! [`frame`] is the wire format, [`client`] one connection to a hub, [`hub`] the hub itself.
//! Nothing here reconnects: the caller decides that.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use frame::{HANDSHAKE_LEN, HandshakeMismatch, PeerRole};

pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod hub;
mod outbox;
mod subscriptions;

/// A vanished peer is noticed after 10 s + 3 × 5 s.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// The handshake of a new connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HandshakeError {
    /// The bytes are wrong.
    #[error(transparent)]
    Wrong(#[from] HandshakeMismatch),
    /// The connection was closed before the handshake was complete.
    #[error(
        "expected {}, found a connection closed after {}",
        .from.handshake_name(), shown(.found)
    )]
    Closed {
        /// The side whose handshake was expected.
        from: PeerRole,
        /// The bytes received.
        found: Vec<u8>,
    },
    /// The handshake did not arrive in time.
    #[error("expected {} within {wait:?}, found {}", .from.handshake_name(), shown(.found))]
    Late {
        /// The side whose handshake was expected.
        from: PeerRole,
        /// The bytes received in that time.
        found: Vec<u8>,
        /// The timeout.
        wait: Duration,
    },
    /// The connection failed.
    #[error("the connection failed during the handshake: {0}")]
    Io(#[from] io::Error),
}

fn shown(found: &[u8]) -> String {
    if found.is_empty() { "nothing".to_owned() } else { frame::hex_dump(found) }
}

/// Reads the handshake of `from` and not a byte more, for at most `wait`. Changes the socket's
/// timeout.
fn read_handshake(
    mut socket: &TcpStream,
    from: PeerRole,
    wait: Duration,
) -> Result<(), HandshakeError> {
    let deadline = Instant::now() + wait;
    let mut found = Vec::with_capacity(HANDSHAKE_LEN);
    let mut rest = [0; HANDSHAKE_LEN];
    while found.len() < HANDSHAKE_LEN {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HandshakeError::Late { from, found, wait });
        }
        socket.set_read_timeout(Some(left))?;
        let room = rest.get_mut(found.len()..).unwrap_or_default();
        match socket.read(room) {
            Ok(0) => return Err(HandshakeError::Closed { from, found }),
            Ok(n) => found.extend(room.iter().take(n)),
            Err(e) if is_time_out(&e) || e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(frame::check_handshake(from, &found)?)
}

/// Sends small frames at once, and enables keepalives.
fn set_socket_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_keepalive(&KEEPALIVE)
}

/// Whether a socket timed out: systems use two error kinds.
fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
