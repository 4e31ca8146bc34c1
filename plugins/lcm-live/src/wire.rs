//! The bytes of LCM datagrams over UDP, and how a message is split into datagrams.
//!
//! A message that fits is one *short* datagram; a longer one is split into *fragments*. All numbers
//! are big-endian:
//!
//! ```text
//! short     "LC02" sequence:u32 channel NUL payload
//! fragment  "LC03" sequence:u32 size:u32 offset:u32 number:u16 count:u16 data
//! ```
//!
//! `size` and `offset` count bytes of the payload. The first fragment starts with the channel and a
//! NUL.
//!
//! Malformed datagrams are rejected here; [`intake`](crate::intake) finds those that contradict
//! others.

#![warn(clippy::indexing_slicing)]

use std::fmt;
use std::ops::{Deref, Range};

/// The first four bytes of a short datagram, `LC02`.
pub(crate) const SHORT: [u8; 4] = *b"LC02";
/// The first four bytes of a fragment, `LC03`.
pub(crate) const FRAGMENT: [u8; 4] = *b"LC03";
/// Bytes of a short datagram before its channel.
pub(crate) const SHORT_HEADER_LEN: usize = 8;
/// Bytes of a fragment before its data.
pub(crate) const FRAGMENT_HEADER_LEN: usize = 20;
/// Most bytes of a channel name.
pub const MAX_CHANNEL_LEN: usize = 63;
/// Most bytes of a message: every receiver drops longer ones.
pub(crate) const MAX_PAYLOAD_LEN: usize = 1 << 28;

/// Most bytes after the header of a short datagram, which makes it the longest possible over UDP.
const MAX_SHORT_BODY: usize = 65_499;
/// Bytes after the header of every fragment but the last.
const FRAGMENT_BODY: usize = 65_487;

/// One datagram, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'d> {
    /// A whole message.
    Short {
        /// The sender's message counter.
        sequence: u32,
        /// The channel: any bytes but NUL, possibly empty.
        channel: &'d [u8],
        /// The payload.
        payload: &'d [u8],
    },
    /// A piece of a message.
    Fragment(Fragment<'d>),
}

/// A piece of a message: `offset + data.len() <= size` and `number < count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'d> {
    /// The sender's message counter, the same in all fragments of a message.
    pub sequence: u32,
    /// Bytes of the whole payload, at most `MAX_PAYLOAD_LEN`.
    pub size: u32,
    /// Offset of the data in the payload.
    pub offset: u32,
    /// Index of this fragment.
    pub number: u16,
    /// Number of fragments.
    pub count: u16,
    /// The channel, only in fragment 0.
    pub channel: Option<&'d [u8]>,
    /// Bytes of the payload; only empty in fragment 0.
    pub data: &'d [u8],
}

/// Why a datagram is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reject {
    /// It ends within its header.
    TooShort,
    /// It is not an LCM datagram.
    Magic,
    /// The channel has no terminating NUL.
    EndlessChannel,
    /// The channel has more than [`MAX_CHANNEL_LEN`] bytes.
    LongChannel,
    /// The message claims to have no fragments.
    NoFragments,
    /// The fragment number is not below the count.
    Number,
    /// The message claims more than `MAX_PAYLOAD_LEN` bytes.
    Size,
    /// The data ends after the message.
    BeyondEnd,
}

impl Reject {
    /// The reason, for the user.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TooShort => "shorter than its header",
            Self::Magic => "not of lcm (no magic number)",
            Self::EndlessChannel => "channel name without its zero byte",
            Self::LongChannel => "channel name longer than 63 bytes",
            Self::NoFragments => "of a message with no fragments",
            Self::Number => "fragment number not below the number of fragments",
            Self::Size => "of a message larger than 256 MiB",
            Self::BeyondEnd => "fragment beyond the end of its message",
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

/// Parses a datagram. `Err` means that it must not be used at all.
#[inline]
pub fn parse(datagram: &[u8]) -> Result<Datagram<'_>, Reject> {
    let (magic, rest) = datagram.split_first_chunk::<4>().ok_or(Reject::TooShort)?;
    match *magic {
        SHORT => {
            let (sequence, rest) = rest.split_first_chunk().ok_or(Reject::TooShort)?;
            let (channel, payload) = split_channel(rest)?;
            Ok(Datagram::Short { sequence: u32::from_be_bytes(*sequence), channel, payload })
        }
        FRAGMENT => parse_fragment(rest).map(Datagram::Fragment),
        _ => Err(Reject::Magic),
    }
}

fn parse_fragment(rest: &[u8]) -> Result<Fragment<'_>, Reject> {
    let (sequence, rest) = rest.split_first_chunk().ok_or(Reject::TooShort)?;
    let (size, rest) = rest.split_first_chunk().ok_or(Reject::TooShort)?;
    let (offset, rest) = rest.split_first_chunk().ok_or(Reject::TooShort)?;
    let (number, rest) = rest.split_first_chunk().ok_or(Reject::TooShort)?;
    let (count, rest) = rest.split_first_chunk().ok_or(Reject::TooShort)?;
    let (number, count) = (u16::from_be_bytes(*number), u16::from_be_bytes(*count));
    if count == 0 {
        return Err(Reject::NoFragments);
    }
    if number >= count {
        return Err(Reject::Number);
    }
    let (channel, data) = match number {
        0 => split_channel(rest).map(|(channel, data)| (Some(channel), data))?,
        _ => (None, rest),
    };
    let (size, offset) = (u32::from_be_bytes(*size), u32::from_be_bytes(*offset));
    if u64::from(size) > MAX_PAYLOAD_LEN as u64 {
        return Err(Reject::Size);
    }
    if u64::from(offset) + data.len() as u64 > u64::from(size) {
        return Err(Reject::BeyondEnd);
    }
    let sequence = u32::from_be_bytes(*sequence);
    Ok(Fragment { sequence, size, offset, number, count, channel, data })
}

/// Splits off the channel and its NUL.
#[inline]
fn split_channel(bytes: &[u8]) -> Result<(&[u8], &[u8]), Reject> {
    let end = bytes.iter().take(MAX_CHANNEL_LEN + 1).position(|byte| *byte == 0);
    let Some((channel, rest)) = end.and_then(|end| bytes.split_at_checked(end)) else {
        return Err(channel_fault(bytes));
    };
    Ok((channel, rest.get(1..).unwrap_or_default()))
}

#[cold]
fn channel_fault(bytes: &[u8]) -> Reject {
    if bytes.contains(&0) { Reject::LongChannel } else { Reject::EndlessChannel }
}

/// Why a message cannot be sent over LCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum UnsendableMessage {
    /// The channel name is too long.
    #[error("channel name of {len} bytes is longer than the {MAX_CHANNEL_LEN} that lcm sends")]
    LongChannel {
        /// Its length in bytes.
        len: usize,
    },
    /// Receivers would treat the bytes after the NUL as payload.
    #[error("channel name with a zero byte cannot be sent over lcm")]
    ZeroInChannel,
    /// The payload is too long.
    #[error("payload of {len} bytes is longer than the {MAX_PAYLOAD_LEN} that lcm receivers take")]
    LongPayload {
        /// Its length in bytes.
        len: usize,
    },
}

/// Splits a message of `payload_len` bytes into datagrams, exactly as the LCM library does.
///
/// Allocates nothing.
#[inline]
pub(crate) fn split_message(
    channel: &[u8],
    payload_len: usize,
) -> Result<MessageDatagrams, UnsendableMessage> {
    if channel.len() > MAX_CHANNEL_LEN {
        return Err(UnsendableMessage::LongChannel { len: channel.len() });
    }
    if channel.contains(&0) {
        return Err(UnsendableMessage::ZeroInChannel);
    }
    // The longest payload has some 4100 fragments: the count always fits a `u16`.
    let size = match u32::try_from(payload_len) {
        Ok(size) if payload_len <= MAX_PAYLOAD_LEN => size,
        _ => return Err(UnsendableMessage::LongPayload { len: payload_len }),
    };
    let channel_len = channel.len() + 1;
    let whole = channel_len + payload_len;
    let count = if whole <= MAX_SHORT_BODY { 0 } else { whole.div_ceil(FRAGMENT_BODY) };
    Ok(MessageDatagrams {
        channel_len,
        size,
        count: u16::try_from(count).unwrap_or(u16::MAX),
        next: 0,
    })
}

/// The datagrams of one message, first to last: see [`cut`].
#[derive(Clone, Debug)]
pub(crate) struct MessageDatagrams {
    /// Bytes of the channel and its NUL.
    channel_len: usize,
    size: u32,
    /// Number of fragments; 0 for a short datagram.
    count: u16,
    next: u16,
}

/// One datagram to send: header, optional channel and NUL, and a range of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatagramSpec {
    /// Whether channel and NUL follow the header.
    pub with_channel: bool,
    /// The part of the payload in this datagram.
    pub payload: Range<usize>,
    fragment: Option<(u32, u16, u16)>,
}

/// The header of a datagram; dereferences to its 8 or 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramHeader {
    bytes: [u8; FRAGMENT_HEADER_LEN],
    len: usize,
}

impl Iterator for MessageDatagrams {
    type Item = DatagramSpec;

    #[inline]
    fn next(&mut self) -> Option<DatagramSpec> {
        let (number, count) = (self.next, self.count);
        if number >= count.max(1) {
            return None;
        }
        self.next += 1;
        let size = self.size as usize;
        if count == 0 {
            return Some(DatagramSpec { with_channel: true, payload: 0..size, fragment: None });
        }
        // Splits channel, NUL and payload together at even distances.
        let start = (usize::from(number) * FRAGMENT_BODY).saturating_sub(self.channel_len);
        let end = (usize::from(number) + 1) * FRAGMENT_BODY - self.channel_len;
        Some(DatagramSpec {
            with_channel: number == 0,
            payload: start..end.min(size),
            fragment: Some((self.size, number, count)),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.count.max(1) - self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for MessageDatagrams {}

impl DatagramSpec {
    /// The header, for a message with this sequence number.
    #[inline]
    pub(crate) fn header(&self, sequence: u32) -> DatagramHeader {
        let mut bytes = [0; FRAGMENT_HEADER_LEN];
        let Some((size, number, count)) = self.fragment else {
            put(put(&mut bytes, SHORT), sequence.to_be_bytes());
            return DatagramHeader { bytes, len: SHORT_HEADER_LEN };
        };
        // The payload is at most 256 MiB.
        let offset = u32::try_from(self.payload.start).unwrap_or(u32::MAX);
        let rest = put(&mut bytes, FRAGMENT);
        let rest = put(rest, sequence.to_be_bytes());
        let rest = put(rest, size.to_be_bytes());
        let rest = put(rest, offset.to_be_bytes());
        let rest = put(rest, number.to_be_bytes());
        put(rest, count.to_be_bytes());
        DatagramHeader { bytes, len: FRAGMENT_HEADER_LEN }
    }

    /// Bytes of the header.
    #[cfg(test)]
    pub(crate) fn header_len(&self) -> usize {
        if self.fragment.is_some() { FRAGMENT_HEADER_LEN } else { SHORT_HEADER_LEN }
    }
}

impl Deref for DatagramHeader {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

/// Writes `bytes` to the front of `to` and returns the rest. Writes nothing if `to` is too short.
#[inline]
fn put<const N: usize>(to: &mut [u8], bytes: [u8; N]) -> &mut [u8] {
    let Some((front, rest)) = to.split_first_chunk_mut() else { return &mut [] };
    *front = bytes;
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment(size: u32, offset: u32, number: u16, count: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"LC03\0\0\0\x07".to_vec();
        bytes.extend(size.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(number.to_be_bytes());
        bytes.extend(count.to_be_bytes());
        bytes.extend(data);
        bytes
    }

    /// The datagrams of a message.
    fn sent(channel: &[u8], payload: &[u8], sequence: u32) -> Vec<Vec<u8>> {
        let pieces = split_message(channel, payload.len()).unwrap();
        let datagram = |piece: DatagramSpec| {
            let mut bytes = piece.header(sequence).to_vec();
            assert_eq!(bytes.len(), piece.header_len());
            if piece.with_channel {
                bytes.extend(channel);
                bytes.push(0);
            }
            bytes.extend(payload.get(piece.payload).unwrap());
            bytes
        };
        pieces.map(datagram).collect()
    }

    #[test]
    fn a_short_datagram_is_sequence_channel_and_payload() {
        let parsed = parse(b"LC02\0\0\x01\x02EDGE\0abc").unwrap();
        assert_eq!(parsed, Datagram::Short { sequence: 258, channel: b"EDGE", payload: b"abc" });
    }

    #[test]
    fn a_channel_may_be_empty_or_no_text() {
        let short = |channel| Ok(Datagram::Short { sequence: 0, channel, payload: b"x" });
        assert_eq!(parse(b"LC02\0\0\0\0\0x"), short(b""));
        assert_eq!(parse(b"LC02\0\0\0\0\xff\xfe\0x"), short(b"\xff\xfe"));
    }

    #[test]
    fn a_channel_of_63_bytes_is_the_longest() {
        let datagram = |len| [b"LC02\0\0\0\0".to_vec(), vec![b'c'; len], vec![0, 1]].concat();
        assert!(parse(&datagram(63)).is_ok());
        assert_eq!(parse(&datagram(64)), Err(Reject::LongChannel));
    }

    #[test]
    fn a_short_datagram_without_an_end_of_channel_is_refused() {
        assert_eq!(parse(b"LC02\0\0\0\0"), Err(Reject::EndlessChannel));
        assert_eq!(parse(b"LC02\0\0\0\0EDGE"), Err(Reject::EndlessChannel));
        assert_eq!(
            parse(&[b"LC02\0\0\0\0".as_slice(), &[1; 999]].concat()),
            Err(Reject::EndlessChannel)
        );
    }

    #[test]
    fn what_ends_in_its_header_or_is_not_lcm_is_refused() {
        assert_eq!(parse(b""), Err(Reject::TooShort));
        assert_eq!(parse(b"LC02\0\0\0"), Err(Reject::TooShort));
        let mut truncated = fragment(1, 0, 0, 1, b"");
        truncated.pop();
        assert_eq!(parse(&truncated), Err(Reject::TooShort));
        assert_eq!(parse(b"LC01\0\0\0\0a\0"), Err(Reject::Magic));
    }

    #[test]
    fn the_first_fragment_has_the_channel() {
        let bytes = fragment(9, 0, 0, 2, b"EDGE\0abc");
        let Ok(Datagram::Fragment(first)) = parse(&bytes) else { panic!("a good fragment") };
        assert_eq!((first.channel, first.data), (Some(&b"EDGE"[..]), &b"abc"[..]));
        let bytes = fragment(9, 3, 1, 2, b"\0bcdef");
        let Ok(Datagram::Fragment(second)) = parse(&bytes) else { panic!("a good fragment") };
        assert_eq!((second.channel, second.data), (None, &b"\0bcdef"[..]));
        assert_eq!((second.sequence, second.size, second.offset), (7, 9, 3));
    }

    #[test]
    fn fragments_that_are_wrong_in_themselves_are_refused() {
        let parse = |size, offset, number, count, data: &[u8]| {
            parse(&fragment(size, offset, number, count, data)).map(|_| ())
        };
        assert_eq!(parse(9, 0, 0, 0, b"E\0a"), Err(Reject::NoFragments));
        assert_eq!(parse(9, 0, 2, 2, b"a"), Err(Reject::Number));
        assert_eq!(parse((1 << 28) + 1, 0, 1, 2, b"a"), Err(Reject::Size));
        assert_eq!(parse(1 << 28, (1 << 28) - 1, 1, 2, b"a"), Ok(()));
        assert_eq!(parse(9, 9, 1, 2, b"a"), Err(Reject::BeyondEnd));
        assert_eq!(parse(9, u32::MAX, 1, 2, b"ab"), Err(Reject::BeyondEnd));
        assert_eq!(parse(9, 10, 1, 2, b""), Err(Reject::BeyondEnd));
        assert_eq!(parse(9, 9, 1, 2, b""), Ok(()));
        assert_eq!(parse(9, 0, 0, 2, b"no end"), Err(Reject::EndlessChannel));
        assert_eq!(parse(0, 0, 0, 1, b"E\0"), Ok(()));
    }

    #[test]
    fn a_message_is_cut_where_the_library_cuts_it() {
        assert_eq!(sent(b"EDGE", b"abc", 258), [b"LC02\0\0\x01\x02EDGE\0abc".to_vec()]);
        let lens = |payload| -> Vec<usize> {
            sent(b"EDGE", &vec![1; payload], 0).iter().map(Vec::len).collect()
        };
        assert_eq!(lens(65_494), [65_507]);
        assert_eq!(lens(65_495), [65_507, 20 + 13]);
        // Two fragments exactly full, and one byte more.
        assert_eq!(lens(2 * 65_487 - 5), [65_507, 65_507]);
        assert_eq!(lens(2 * 65_487 - 4), [65_507, 65_507, 21]);
    }

    #[test]
    fn the_second_fragment_begins_where_the_first_ended() {
        let second = sent(b"EDGE", &vec![1; 65_495], 9).pop().unwrap();
        let header = fragment(65_495, 65_482, 1, 2, &[1; 13]);
        assert_eq!(second, [b"LC03\0\0\0\x09", header.split_at(8).1].concat());
    }

    #[test]
    fn what_receivers_would_drop_is_not_sent() {
        assert!(split_message(&[b'c'; 63], 0).is_ok());
        assert_eq!(
            split_message(&[b'c'; 64], 0).unwrap_err(),
            UnsendableMessage::LongChannel { len: 64 }
        );
        assert_eq!(split_message(b"a\0b", 0).unwrap_err(), UnsendableMessage::ZeroInChannel);
        assert_eq!(split_message(b"a", 1 << 28).unwrap().len(), 4100);
        let len = (1 << 28) + 1;
        assert_eq!(split_message(b"a", len).unwrap_err(), UnsendableMessage::LongPayload { len });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_datagrams_of_a_message_cover_it_exactly(
            channel in proptest::collection::vec(1u8.., 0..64),
            len in 0usize..400_000, sequence: u32,
        ) {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let datagrams = sent(&channel, &payload, sequence);
            let mut covered: Vec<u8> = Vec::new();
            for bytes in &datagrams {
                prop_assert!(bytes.len() <= 65_507);
                let (number, first, data) = match parse(bytes).unwrap() {
                    Datagram::Short { sequence, channel, payload } => {
                        (sequence, Some(channel), payload)
                    }
                    Datagram::Fragment(f) => {
                        prop_assert_eq!((f.size as usize, f.offset as usize), (len, covered.len()));
                        prop_assert_eq!(usize::from(f.count), datagrams.len());
                        (f.sequence, f.channel, f.data)
                    }
                };
                prop_assert_eq!(number, sequence);
                prop_assert_eq!(first, covered.is_empty().then_some(&channel[..]));
                covered.extend(data);
            }
            prop_assert_eq!(covered, payload);
        }

        #[test]
        fn any_bytes_are_a_datagram_or_refused(
            mut bytes in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..120),
            magic: bool,
        ) {
            if let (true, Some(front)) = (magic, bytes.first_chunk_mut()) {
                *front = FRAGMENT;
            }
            if let Ok(Datagram::Fragment(f)) = parse(&bytes) {
                prop_assert!(f.number < f.count && f.channel.is_some() == (f.number == 0));
                prop_assert!(u64::from(f.offset) + f.data.len() as u64 <= u64::from(f.size));
            }
        }
    }
}
