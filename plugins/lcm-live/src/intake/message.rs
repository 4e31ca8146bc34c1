//! A message as the intake delivers it.

use std::net::SocketAddrV4;
use std::ops::Deref;

use bytes::Bytes;

/// A complete message.
#[derive(Debug)]
pub struct LiveMessage<'m> {
    /// Address and port of its sender.
    pub from: SocketAddrV4,
    /// The sender's sequence number.
    pub sequence: u32,
    /// The channel: any bytes but NUL, possibly empty.
    pub channel: &'m [u8],
    /// The payload.
    pub payload: MessagePayload<'m>,
}

/// A payload; dereferences to its bytes.
#[derive(Debug)]
pub enum MessagePayload<'m> {
    /// Part of the datagram just taken.
    Borrowed(&'m [u8]),
    /// Reassembled from fragments.
    Owned(Bytes),
}

impl Deref for MessagePayload<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}
