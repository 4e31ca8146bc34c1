//! The TCP queue, `tcpq://`: one hub to which all senders and receivers connect.
//!
//! [`handshake`] and [`frame`] are the wire format, [`client`] one connection to a hub, [`hub`] the
//! hub itself.
//! Nothing here reconnects: the caller decides that.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

pub(crate) mod client;
pub(crate) mod frame;
mod handshake;
pub(crate) mod hub;
mod outbox;
mod subscriptions;

/// A vanished peer is noticed after 10 s + 3 × 5 s.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// Sends small frames at once, and enables keepalives.
fn set_socket_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_keepalive(&KEEPALIVE)
}

/// Whether a socket timed out: systems use two error kinds.
fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
