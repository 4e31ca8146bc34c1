//! The queue over TCP, `tcpq://`: one hub, to which all senders and receivers connect.
//!
//! [`frame`] is the bytes, [`client`] one connection to a hub, [`hub`] the hub itself. Nothing here
//! connects again after a connection is lost: the caller knows whether that is wanted.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use frame::{GREETING_LEN, Side, WrongGreeting};

pub mod client;
pub mod frame;
pub mod hub;
mod outbox;
mod subscriptions;

/// The port of a hub that is not told another.
pub const DEFAULT_PORT: u16 = 7700;

/// A peer that is gone without a word is noticed after 10 s + 3 × 5 s.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// The other side of a new connection does not greet as it has to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GreetingError {
    /// It is something else.
    #[error(transparent)]
    Wrong(#[from] WrongGreeting),
    /// It closed the connection before its greeting was whole.
    #[error("expected {}, found a connection closed after {}", .from.greeting_words(), shown(.found))]
    Closed {
        /// Whose greeting was expected.
        from: Side,
        /// What came before the end.
        found: Vec<u8>,
    },
    /// It kept silent.
    #[error("expected {} within {wait:?}, found {}", .from.greeting_words(), shown(.found))]
    Late {
        /// Whose greeting was expected.
        from: Side,
        /// What came in that time.
        found: Vec<u8>,
        /// How long it was waited for.
        wait: Duration,
    },
    /// The connection failed.
    #[error("the connection failed before the greeting: {0}")]
    Io(#[from] io::Error),
}

fn shown(found: &[u8]) -> String {
    if found.is_empty() { "nothing".to_owned() } else { frame::shown(found) }
}

/// Reads the greeting of `from` and not a byte more; waits for `wait` at most. Changes the socket's
/// time-out.
fn read_greeting(mut socket: &TcpStream, from: Side, wait: Duration) -> Result<(), GreetingError> {
    let deadline = Instant::now() + wait;
    let mut found = Vec::with_capacity(GREETING_LEN);
    let mut rest = [0; GREETING_LEN];
    while found.len() < GREETING_LEN {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(GreetingError::Late { from, found, wait });
        }
        socket.set_read_timeout(Some(left))?;
        let room = rest.get_mut(found.len()..).unwrap_or_default();
        match socket.read(room) {
            Ok(0) => return Err(GreetingError::Closed { from, found }),
            Ok(n) => found.extend(room.iter().take(n)),
            Err(e) if is_time_out(&e) || e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(frame::check_greeting(from, &found)?)
}

/// Sends small frames at once, and notices a peer that vanished.
fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_keepalive(&KEEPALIVE)
}

/// Whether a socket's time-out has passed: systems call it by two names.
fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
