//! The bytes of the queue over TCP: the greetings, and frames cut out of a stream that comes in pieces.
//!
//! It reads no socket and does not say who may send what; that is [`client`](super::client) and
//! [`hub`](super::hub).

#![warn(clippy::indexing_slicing)]

use std::fmt;

use bytes::Bytes;
use sluice_core::name::printable;

/// Bytes of a greeting: magic word and version.
pub const GREETING_LEN: usize = 8;

/// The only version of the protocol there is.
pub const VERSION: u32 = 0x100;

/// Bytes of a publish frame besides its channel and its payload.
pub const PUBLISH_OVERHEAD: usize = 12;

/// The first memory for a frame that came in pieces; beyond it memory follows what has arrived.
const FIRST_ROOM: usize = 4 << 10;

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that connects.
    Client,
    /// The hub.
    Server,
}

impl Side {
    fn magic(self) -> u32 {
        match self {
            Self::Client => 0x2876_17fb,
            Self::Server => 0x2876_17fa,
        }
    }

    pub(super) fn greeting_words(self) -> &'static str {
        match self {
            Self::Client => "the greeting of an lcm client",
            Self::Server => "the greeting of an lcm hub",
        }
    }
}

/// What `side` sends first.
pub fn greeting(side: Side) -> [u8; GREETING_LEN] {
    ((u64::from(side.magic()) << 32) | u64::from(VERSION)).to_be_bytes()
}

/// Another greeting than expected: the other side is something else, or of another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected {}, which is {}, found {}",
    .expected.greeting_words(), shown(&greeting(*.expected)), shown(.found)
)]
pub struct WrongGreeting {
    /// Whose greeting was expected.
    pub expected: Side,
    /// What came instead.
    pub found: Vec<u8>,
}

/// Whether `found` is the greeting of `side`, byte for byte.
pub fn check_greeting(side: Side, found: &[u8]) -> Result<(), WrongGreeting> {
    if found == greeting(side) {
        Ok(())
    } else {
        Err(WrongGreeting { expected: side, found: found.to_vec() })
    }
}

/// Bytes for the user: as hex, and as text if they look like some.
pub(super) fn shown(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = hex.join(" ");
    match str::from_utf8(bytes) {
        Ok(text) if bytes.iter().any(u8::is_ascii_graphic) => {
            format!("{hex} (`{}`)", printable(text))
        }
        _ => hex,
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message; the only frame that a hub sends.
    Publish(Publish),
    /// From now on messages on channels that match this regular expression are wanted.
    Subscribe(Bytes),
    /// A subscription with just this text ends.
    Unsubscribe(Bytes),
}

impl Frame {
    /// The frame as it stands in a stream.
    pub fn to_bytes(&self) -> Bytes {
        let (kind, text) = match self {
            Self::Publish(publish) => return publish.frame.clone(),
            Self::Subscribe(text) => (Kind::Subscribe, text),
            Self::Unsubscribe(text) => (Kind::Unsubscribe, text),
        };
        let mut out = Vec::with_capacity(8 + text.len());
        append_name(&mut out, kind, text, cut_len(text));
        out.into()
    }
}

/// A message on its way, kept as the frame that it came in: a hub sends on the same bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Publish {
    frame: Bytes,
    /// Where the payload begins; at least [`PUBLISH_OVERHEAD`], at most the frame's length.
    payload_at: usize,
}

impl Publish {
    /// A message as a frame. `Err` if the channel or the payload is longer than `limits` allow.
    pub fn new(channel: &[u8], payload: &[u8], limits: &Limits) -> Result<Self, TooLong> {
        let mut frame = Vec::with_capacity(PUBLISH_OVERHEAD + channel.len() + payload.len());
        append_publish_head(&mut frame, channel, payload.len(), limits)?;
        let payload_at = frame.len();
        frame.extend_from_slice(payload);
        Ok(Self { frame: frame.into(), payload_at })
    }

    /// The channel's name. By custom it is ASCII; nothing ensures that.
    pub fn channel(&self) -> &[u8] {
        self.payload_at.checked_sub(4).and_then(|end| self.frame.get(8..end)).unwrap_or_default()
    }

    /// What was sent.
    pub fn payload(&self) -> &[u8] {
        self.frame.get(self.payload_at..).unwrap_or_default()
    }

    /// The payload without a copy; it keeps the whole frame in memory, which is little more.
    pub fn into_payload(mut self) -> Bytes {
        self.frame.split_off(self.payload_at)
    }

    /// The whole frame as it stands in a stream.
    pub fn frame(&self) -> &Bytes {
        &self.frame
    }
}

impl fmt::Debug for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("channel", &self.channel().escape_ascii().to_string())
            .field("payload_len", &self.payload().len())
            .finish()
    }
}

/// The longest names and payloads that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a channel or a regular expression. A longer one is refused, as every table of
    /// channels would hold it: the other transports of LCM end at 63, and a length beyond this is a
    /// stream that is out of step or means harm.
    pub name: usize,
    /// Bytes of a payload.
    pub payload: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { name: 64 << 10, payload: 1 << 28 }
    }
}

/// A name or a payload that is longer than the receiver would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} of {len} bytes is longer than the {limit} allowed")]
pub struct TooLong {
    /// Which part it is, as words for the user.
    pub part: &'static str,
    /// How many bytes it has, or says it has.
    pub len: usize,
    /// How many it may have.
    pub limit: usize,
}

/// Bytes that are no frame. The stream cannot be read on: nothing in it says where a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wrong} at byte {at} of the stream")]
pub struct Malformed {
    /// Where the wrong field begins, counted from the first byte of the stream.
    pub at: u64,
    /// What is wrong with it.
    pub wrong: Wrong,
}

/// What is wrong with a field of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// No known type.
    #[error("expected a frame of type 1, 2 or 3, found type {0} ({0:#010x})")]
    Type(u32),
    /// A frame that only a client may send.
    #[error("expected a message from the hub, found a subscription")]
    FromHub,
    /// A length beyond the limits.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// Cuts a stream into frames, whatever the pieces it comes in.
///
/// Memory follows the bytes that have arrived, not the lengths that they claim: at most twice as much.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    /// Where the frame that is being read begins in the stream.
    at: u64,
    /// Its bytes so far; empty if none came yet.
    partial: Vec<u8>,
}

impl Parser {
    /// A parser of a stream of which `at` bytes, the greeting, are already read.
    pub fn new(limits: Limits, at: u64) -> Self {
        Self { limits, at, partial: Vec::new() }
    }

    /// The next frame, and `input` behind it; `None` if `input` ends before the frame does, which is
    /// then kept.
    ///
    /// A frame owns its memory, copied out of `input` once. After `Err` every call gives the same.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, Malformed> {
        // Most frames lie whole in what was read: no detour over `partial`.
        if self.partial.is_empty()
            && let Need::Whole(shape) = self.measure(input)?
            && let Some((frame, rest)) = input.split_at_checked(shape.len())
        {
            *input = rest;
            return Ok(Some(self.frame(shape, Bytes::copy_from_slice(frame))));
        }
        loop {
            let need = match self.measure(&self.partial)? {
                Need::Whole(shape) if self.partial.len() == shape.len() => {
                    let frame = std::mem::take(&mut self.partial);
                    return Ok(Some(self.frame(shape, frame.into())));
                }
                Need::Whole(shape) => shape.len(),
                Need::Bytes(len) => len,
            };
            if input.is_empty() {
                return Ok(None);
            }
            self.keep(input, need);
        }
    }

    /// Bytes of a frame whose end has not come yet.
    pub fn pending(&self) -> usize {
        self.partial.len()
    }

    /// Where the next frame begins in the stream, or the one of which a part is there.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Moves bytes to the partial frame until it has `need` of them or there are no more.
    fn keep(&mut self, input: &mut &[u8], need: usize) {
        let have = self.partial.len();
        let Some((more, rest)) = input.split_at_checked(need.saturating_sub(have).min(input.len()))
        else {
            return;
        };
        // A length that lies costs its sender half of what it costs us, or hardly anything.
        let room = need.min((2 * (have + more.len())).max(FIRST_ROOM));
        self.partial.reserve_exact(room.saturating_sub(have));
        self.partial.extend_from_slice(more);
        *input = rest;
    }

    /// What the frame that begins with `bytes` needs.
    fn measure(&self, bytes: &[u8]) -> Result<Need, Malformed> {
        let Some((kind, rest)) = bytes.split_first_chunk() else { return Ok(Need::Bytes(4)) };
        let kind = Kind::of(u32::from_be_bytes(*kind))
            .map_err(|wrong| Malformed { at: self.at, wrong })?;
        let Some((name_len, rest)) = rest.split_first_chunk() else { return Ok(Need::Bytes(8)) };
        let name_len = length(kind.name(), *name_len, self.limits.name)
            .map_err(|e| Malformed { at: self.at + 4, wrong: e.into() })?;
        if kind != Kind::Publish {
            return Ok(Need::Whole(Shape { kind, name_len, payload_len: 0 }));
        }
        let Some(len) = rest.get(name_len..).and_then(<[u8]>::first_chunk) else {
            return Ok(Need::Bytes(PUBLISH_OVERHEAD + name_len));
        };
        let payload_len = length("payload", *len, self.limits.payload)
            .map_err(|e| Malformed { at: self.at + 8 + name_len as u64, wrong: e.into() })?;
        Ok(Need::Whole(Shape { kind, name_len, payload_len }))
    }

    fn frame(&mut self, shape: Shape, mut frame: Bytes) -> Frame {
        self.at += frame.len() as u64;
        match shape.kind {
            Kind::Publish => {
                Frame::Publish(Publish { payload_at: PUBLISH_OVERHEAD + shape.name_len, frame })
            }
            Kind::Subscribe => Frame::Subscribe(frame.split_off(8)),
            Kind::Unsubscribe => Frame::Unsubscribe(frame.split_off(8)),
        }
    }
}

/// What is known of a frame's length.
enum Need {
    /// So many bytes tell more.
    Bytes(usize),
    /// All of it.
    Whole(Shape),
}

#[derive(Clone, Copy)]
struct Shape {
    kind: Kind,
    name_len: usize,
    payload_len: usize,
}

impl Shape {
    fn len(self) -> usize {
        match self.kind {
            Kind::Publish => PUBLISH_OVERHEAD + self.name_len + self.payload_len,
            Kind::Subscribe | Kind::Unsubscribe => 8 + self.name_len,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Publish = 1,
    Subscribe = 2,
    Unsubscribe = 3,
}

impl Kind {
    fn of(word: u32) -> Result<Self, Wrong> {
        match word {
            1 => Ok(Self::Publish),
            2 => Ok(Self::Subscribe),
            3 => Ok(Self::Unsubscribe),
            other => Err(Wrong::Type(other)),
        }
    }

    /// What its first part is, as words for the user.
    fn name(self) -> &'static str {
        match self {
            Self::Publish => "channel name",
            Self::Subscribe | Self::Unsubscribe => "regular expression",
        }
    }
}

/// Appends a publish frame up to its payload. On `Err` nothing was appended.
pub fn append_publish_head(
    out: &mut Vec<u8>,
    channel: &[u8],
    payload_len: usize,
    limits: &Limits,
) -> Result<(), TooLong> {
    let channel_len = checked(Kind::Publish.name(), channel.len(), limits.name)?;
    let payload_len = checked("payload", payload_len, limits.payload)?;
    append_name(out, Kind::Publish, channel, channel_len);
    out.extend_from_slice(&payload_len.to_be_bytes());
    Ok(())
}

/// Appends a subscribe frame. On `Err` nothing was appended.
pub fn append_subscribe(out: &mut Vec<u8>, regex: &[u8], limits: &Limits) -> Result<(), TooLong> {
    let len = checked(Kind::Subscribe.name(), regex.len(), limits.name)?;
    append_name(out, Kind::Subscribe, regex, len);
    Ok(())
}

fn append_name(out: &mut Vec<u8>, kind: Kind, name: &[u8], len: u32) {
    out.extend_from_slice(&(kind as u32).to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(name);
}

/// The length of text that came with a 32-bit length.
fn cut_len(text: &[u8]) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

fn checked(part: &'static str, len: usize, limit: usize) -> Result<u32, TooLong> {
    match u32::try_from(len) {
        Ok(short) if len <= limit => Ok(short),
        _ => Err(TooLong { part, len, limit }),
    }
}

fn length(part: &'static str, field: [u8; 4], limit: usize) -> Result<usize, TooLong> {
    let len = usize::try_from(u32::from_be_bytes(field)).unwrap_or(usize::MAX);
    if len <= limit { Ok(len) } else { Err(TooLong { part, len, limit }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Limits = Limits { name: 40, payload: 3000 };

    /// All frames of a stream that comes in pieces of these lengths, over and over, and its end.
    fn frames(stream: &[u8], pieces: &[usize]) -> (Vec<Frame>, Result<usize, Malformed>) {
        let (mut parser, mut found) = (Parser::new(SMALL, 0), Vec::new());
        let (mut rest, mut lengths) = (stream, pieces.iter().cycle());
        while !rest.is_empty() {
            let len = lengths.next().copied().unwrap_or(usize::MAX).clamp(1, rest.len());
            let (mut piece, behind) = rest.split_at(len);
            rest = behind;
            loop {
                match parser.next(&mut piece) {
                    Ok(Some(frame)) => found.push(frame),
                    Ok(None) => break,
                    Err(e) => return (found, Err(e)),
                }
            }
            assert!(piece.is_empty());
        }
        (found, Ok(parser.pending()))
    }

    fn publish(channel: &[u8], payload: &[u8]) -> Frame {
        Frame::Publish(Publish::new(channel, payload, &SMALL).unwrap())
    }

    fn a_frame() -> impl Strategy<Value = Frame> {
        let name = || prop::collection::vec(any::<u8>(), 0..40);
        let payload = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..30),
            prop::collection::vec(any::<u8>(), 0..3000),
        ];
        prop_oneof![
            4 => (name(), payload).prop_map(|(channel, payload)| publish(&channel, &payload)),
            1 => name().prop_map(|regex| Frame::Subscribe(regex.into())),
            1 => name().prop_map(|regex| Frame::Unsubscribe(regex.into())),
        ]
    }

    fn stream_of(frames: &[Frame]) -> Vec<u8> {
        frames.iter().flat_map(|frame| frame.to_bytes()).collect()
    }

    #[test]
    fn frames_are_laid_out_as_the_protocol_says() {
        assert_eq!(greeting(Side::Client), [0x28, 0x76, 0x17, 0xfb, 0, 0, 1, 0]);
        assert_eq!(greeting(Side::Server), [0x28, 0x76, 0x17, 0xfa, 0, 0, 1, 0]);
        assert_eq!(
            publish(b"AB", &[9]).to_bytes(),
            &[0, 0, 0, 1, 0, 0, 0, 2, b'A', b'B', 0, 0, 0, 1, 9][..]
        );
        let regex = Bytes::from_static(b".*");
        assert_eq!(
            Frame::Subscribe(regex.clone()).to_bytes(),
            &[0, 0, 0, 2, 0, 0, 0, 2, b'.', b'*'][..]
        );
        assert_eq!(Frame::Unsubscribe(regex).to_bytes(), &[0, 0, 0, 3, 0, 0, 0, 2, b'.', b'*'][..]);
    }

    #[test]
    fn a_message_is_taken_apart_again() {
        let Frame::Publish(message) = publish(b"POSE", b"xyz") else { unreachable!() };
        assert_eq!((message.channel(), message.payload()), (&b"POSE"[..], &b"xyz"[..]));
        assert_eq!(message.into_payload(), &b"xyz"[..]);
    }

    #[test]
    fn an_unknown_type_is_named_with_its_place() {
        let mut stream = stream_of(&[publish(b"A", b"")]);
        stream.extend(b"HTTP and more");
        let (found, end) = frames(&stream, &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            end.unwrap_err().to_string(),
            "expected a frame of type 1, 2 or 3, found type 1213486160 (0x48545450) at byte 13 of the \
             stream"
        );
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_its_bytes_come() {
        let name = frames(&[0, 0, 0, 2, 0, 0, 0, 41], &[3]).1.unwrap_err();
        assert_eq!(
            name.to_string(),
            "regular expression of 41 bytes is longer than the 40 allowed at byte 4 of the stream"
        );
        let payload = frames(&[0, 0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], &[]).1.unwrap_err();
        assert_eq!(
            payload.to_string(),
            "payload of 4294967295 bytes is longer than the 3000 allowed at byte 8 of the stream"
        );
    }

    #[test]
    fn a_claimed_length_costs_no_memory() {
        let mut parser = Parser::new(Limits::default(), 0);
        let claim = [[0, 0, 0, 1], [0, 0, 0, 0], [0x10, 0, 0, 0]].concat();
        assert_eq!(parser.next(&mut &claim[..]), Ok(None));
        assert!(parser.partial.capacity() <= FIRST_ROOM);
        assert_eq!(parser.next(&mut &[0; 50_000][..]), Ok(None));
        assert!(parser.partial.capacity() <= 2 * parser.pending());
    }

    #[test]
    fn a_large_frame_in_pieces_has_no_memory_to_spare() {
        let (mut parser, limits) = (Parser::new(Limits::default(), 0), Limits::default());
        let message = Publish::new(b"CAM", &vec![7; 3_000_000], &limits).unwrap();
        let mut found = None;
        for mut piece in message.frame().chunks(65_536) {
            found = parser.next(&mut piece).unwrap();
            assert!(parser.partial.capacity() <= message.frame().len());
        }
        assert_eq!(found, Some(Frame::Publish(message)));
    }

    #[test]
    fn the_greeting_of_something_else_is_shown() {
        let wrong = check_greeting(Side::Server, b"HTTP/1.1").unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "expected the greeting of an lcm hub, which is 28 76 17 fa 00 00 01 00, \
             found 48 54 54 50 2f 31 2e 31 (`HTTP/1.1`)"
        );
        assert!(check_greeting(Side::Server, &greeting(Side::Client)).is_err());
        assert_eq!(check_greeting(Side::Server, &greeting(Side::Server)), Ok(()));
    }

    proptest! {
        #[test]
        fn any_pieces_give_the_same_frames(
            sent in prop::collection::vec(a_frame(), 0..8),
            pieces in prop::collection::vec(1usize..200, 1..20),
        ) {
            let stream = stream_of(&sent);
            let (found, end) = frames(&stream, &pieces);
            prop_assert_eq!(&found, &sent);
            prop_assert_eq!(end, Ok(0));
        }

        #[test]
        fn any_bytes_are_frames_and_then_an_end_the_same_for_any_pieces(
            sent in prop::collection::vec(a_frame(), 0..4),
            noise in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..60),
            pieces in prop::collection::vec(1usize..20, 1..20),
        ) {
            let mut stream = stream_of(&sent);
            stream.extend(noise);
            let (whole, end) = frames(&stream, &[]);
            prop_assert!(stream.starts_with(&stream_of(&whole)));
            prop_assert_eq!(frames(&stream, &pieces), (whole, end));
        }
    }
}
