//! Handshakes of the TCP queue: the first bytes that each side sends.

#![warn(clippy::indexing_slicing)]

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sluice_io::escape::printable;

use super::is_time_out;

/// Bytes of a handshake: magic number and version.
pub(crate) const HANDSHAKE_LEN: usize = 8;

/// The only version of the protocol.
const VERSION: u32 = 0x100;

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerRole {
    /// The side that connects.
    Client,
    /// The hub.
    Server,
}

impl PeerRole {
    fn magic(self) -> u32 {
        match self {
            Self::Client => 0x2876_17fb,
            Self::Server => 0x2876_17fa,
        }
    }

    fn handshake_name(self) -> &'static str {
        match self {
            Self::Client => "the handshake of an lcm client",
            Self::Server => "the handshake of an lcm hub",
        }
    }
}

/// The first bytes that `side` sends.
pub(crate) fn handshake(side: PeerRole) -> [u8; HANDSHAKE_LEN] {
    ((u64::from(side.magic()) << 32) | u64::from(VERSION)).to_be_bytes()
}

/// The other side sent an unexpected handshake: it is another service or version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected {}, which is {}, found {}",
    .expected.handshake_name(), hex_dump(&handshake(*.expected)), hex_dump(.found)
)]
pub(crate) struct HandshakeMismatch {
    /// The side whose handshake was expected.
    pub expected: PeerRole,
    /// The bytes received.
    pub found: Vec<u8>,
}

/// Checks that `found` is the handshake of `side`.
fn check_handshake(side: PeerRole, found: &[u8]) -> Result<(), HandshakeMismatch> {
    if found == handshake(side) {
        Ok(())
    } else {
        Err(HandshakeMismatch { expected: side, found: found.to_vec() })
    }
}

/// Shows bytes as hex, and as text if printable.
fn hex_dump(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = hex.join(" ");
    match str::from_utf8(bytes) {
        Ok(text) if bytes.iter().any(u8::is_ascii_graphic) => {
            format!("{hex} (`{}`)", printable(text))
        }
        _ => hex,
    }
}

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
    if found.is_empty() { "nothing".to_owned() } else { hex_dump(found) }
}

/// Reads the handshake of `from` and not a byte more, for at most `wait`. Changes the socket's
/// timeout.
pub(super) fn read_handshake(
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
    Ok(check_handshake(from, &found)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_laid_out_as_the_protocol_says() {
        assert_eq!(handshake(PeerRole::Client), [0x28, 0x76, 0x17, 0xfb, 0, 0, 1, 0]);
        assert_eq!(handshake(PeerRole::Server), [0x28, 0x76, 0x17, 0xfa, 0, 0, 1, 0]);
    }

    #[test]
    fn a_foreign_handshake_is_shown() {
        let wrong = check_handshake(PeerRole::Server, b"HTTP/1.1").unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "expected the handshake of an lcm hub, which is 28 76 17 fa 00 00 01 00, \
             found 48 54 54 50 2f 31 2e 31 (`HTTP/1.1`)"
        );
        assert!(check_handshake(PeerRole::Server, &handshake(PeerRole::Client)).is_err());
        assert_eq!(check_handshake(PeerRole::Server, &handshake(PeerRole::Server)), Ok(()));
    }
}
