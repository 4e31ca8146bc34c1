//! The frames of the TCP queue: their bytes, and parsing them from a stream.
//!
//! It reads no socket and does not decide who may send what; [`client`](super::client) and
//! [`hub`](super::hub) do.

#![warn(clippy::indexing_slicing)]

use std::fmt;

use bytes::Bytes;

/// Bytes of a publish frame besides its channel and its payload.
pub(crate) const PUBLISH_OVERHEAD: usize = 12;

/// Initial capacity for a frame received in parts; it grows with the bytes received.
const INITIAL_CAPACITY: usize = 4 << 10;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpqFrame {
    /// A message; the only frame a hub sends.
    Publish(Publish),
    /// Subscribes to channels that match this regular expression.
    Subscribe(Bytes),
    /// Ends the subscription with exactly this text.
    Unsubscribe(Bytes),
}

impl TcpqFrame {
    /// The bytes of the frame.
    pub fn to_bytes(&self) -> Bytes {
        let (kind, text) = match self {
            Self::Publish(publish) => return publish.frame.clone(),
            Self::Subscribe(text) => (FrameKind::Subscribe, text),
            Self::Unsubscribe(text) => (FrameKind::Unsubscribe, text),
        };
        let mut out = Vec::with_capacity(8 + text.len());
        append_name(&mut out, kind, text, text_len(text));
        out.into()
    }
}

/// A message, kept as the frame it arrived in: a hub relays the same bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Publish {
    frame: Bytes,
    /// Offset of the payload: at least [`PUBLISH_OVERHEAD`], at most the frame's length.
    payload_at: usize,
}

impl Publish {
    /// Makes a frame. `Err` if channel or payload exceed the limits.
    pub fn new(channel: &[u8], payload: &[u8], limits: &FrameLimits) -> Result<Self, TooLong> {
        let mut frame = Vec::with_capacity(PUBLISH_OVERHEAD + channel.len() + payload.len());
        append_publish_head(&mut frame, channel, payload.len(), limits)?;
        let payload_at = frame.len();
        frame.extend_from_slice(payload);
        Ok(Self { frame: frame.into(), payload_at })
    }

    /// The channel name, usually ASCII.
    pub fn channel(&self) -> &[u8] {
        self.payload_at.checked_sub(4).and_then(|end| self.frame.get(8..end)).unwrap_or_default()
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.frame.get(self.payload_at..).unwrap_or_default()
    }

    /// The payload without a copy; it keeps the whole frame in memory.
    pub fn into_payload(mut self) -> Bytes {
        self.frame.split_off(self.payload_at)
    }

    /// The bytes of the whole frame.
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

/// Limits on the length of names and payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Bytes of a channel or regular expression. Every table of channels would hold a longer one;
    /// other LCM transports end at 63, and a length beyond this means a corrupt or hostile stream.
    pub name: usize,
    /// Bytes of a payload.
    pub payload: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { name: 64 << 10, payload: 1 << 28 }
    }
}

/// A name or payload longer than the receiver accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} of {len} bytes is longer than the {limit} allowed")]
pub struct TooLong {
    /// Which part it is, for the user.
    pub part: &'static str,
    /// Its claimed or actual length in bytes.
    pub len: usize,
    /// The limit in bytes.
    pub limit: usize,
}

/// The stream is not a sequence of frames. It cannot be resynchronized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {at} of the stream")]
pub struct MalformedFrame {
    /// Offset of the invalid field from the start of the stream.
    pub at: u64,
    /// What is wrong with the field.
    pub fault: FrameFault,
}

/// Why a field of a frame is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameFault {
    /// An unknown type.
    #[error("expected a frame of type 1, 2 or 3, found type {0} ({0:#010x})")]
    Type(u32),
    /// A frame only a client may send.
    #[error("expected a message from the hub, found a subscription")]
    FromHub,
    /// A length beyond the limits.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// Splits a stream into frames, independently of the chunks it arrives in.
///
/// Memory is at most twice the bytes received, whatever length a frame claims.
#[derive(Debug)]
pub struct FrameParser {
    limits: FrameLimits,
    /// Start of the current frame in the stream.
    at: u64,
    /// Bytes of the current frame received so far.
    partial: Vec<u8>,
}

impl FrameParser {
    /// A parser for a stream of which `at` bytes, the handshake, are already read.
    pub fn new(limits: FrameLimits, at: u64) -> Self {
        Self { limits, at, partial: Vec::new() }
    }

    /// The next frame; advances `input` past it. `None` if `input` ends within the frame, which
    /// is then kept.
    ///
    /// A frame owns its memory, copied once from `input`. After `Err` every call returns the same
    /// error.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<TcpqFrame>, MalformedFrame> {
        // Most frames are complete in `input`: no detour over `partial`.
        if self.partial.is_empty()
            && let FrameLength::Known(shape) = self.measure(input)?
            && let Some((frame, rest)) = input.split_at_checked(shape.len())
        {
            *input = rest;
            return Ok(Some(self.frame(shape, Bytes::copy_from_slice(frame))));
        }
        loop {
            let need = match self.measure(&self.partial)? {
                FrameLength::Known(shape) if self.partial.len() == shape.len() => {
                    let frame = std::mem::take(&mut self.partial);
                    return Ok(Some(self.frame(shape, frame.into())));
                }
                FrameLength::Known(shape) => shape.len(),
                FrameLength::AtLeast(len) => len,
            };
            if input.is_empty() {
                return Ok(None);
            }
            self.buffer(input, need);
        }
    }

    /// Bytes of the incomplete frame.
    pub fn pending(&self) -> usize {
        self.partial.len()
    }

    /// Start of the next or incomplete frame in the stream.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Moves bytes to the partial frame until it has `need` of them or `input` is empty.
    fn buffer(&mut self, input: &mut &[u8], need: usize) {
        let have = self.partial.len();
        let Some((more, rest)) = input.split_at_checked(need.saturating_sub(have).min(input.len()))
        else {
            return;
        };
        // A false length takes at most twice the memory that its sender has filled, or the initial
        // capacity.
        let room = need.min((2 * (have + more.len())).max(INITIAL_CAPACITY));
        self.partial.reserve_exact(room.saturating_sub(have));
        self.partial.extend_from_slice(more);
        *input = rest;
    }

    /// What is known of the length of the frame that starts with `bytes`.
    fn measure(&self, bytes: &[u8]) -> Result<FrameLength, MalformedFrame> {
        let Some((kind, rest)) = bytes.split_first_chunk() else {
            return Ok(FrameLength::AtLeast(4));
        };
        let kind = FrameKind::from_u32(u32::from_be_bytes(*kind))
            .map_err(|fault| MalformedFrame { at: self.at, fault })?;
        let Some((name_len, rest)) = rest.split_first_chunk() else {
            return Ok(FrameLength::AtLeast(8));
        };
        let name_len = read_len(kind.name_part(), *name_len, self.limits.name)
            .map_err(|e| MalformedFrame { at: self.at + 4, fault: e.into() })?;
        if kind != FrameKind::Publish {
            return Ok(FrameLength::Known(FrameLayout { kind, name_len, payload_len: 0 }));
        }
        let Some(len) = rest.get(name_len..).and_then(<[u8]>::first_chunk) else {
            return Ok(FrameLength::AtLeast(PUBLISH_OVERHEAD + name_len));
        };
        let payload_len = read_len("payload", *len, self.limits.payload)
            .map_err(|e| MalformedFrame { at: self.at + 8 + name_len as u64, fault: e.into() })?;
        Ok(FrameLength::Known(FrameLayout { kind, name_len, payload_len }))
    }

    fn frame(&mut self, shape: FrameLayout, mut frame: Bytes) -> TcpqFrame {
        self.at += frame.len() as u64;
        match shape.kind {
            FrameKind::Publish => {
                TcpqFrame::Publish(Publish { payload_at: PUBLISH_OVERHEAD + shape.name_len, frame })
            }
            FrameKind::Subscribe => TcpqFrame::Subscribe(frame.split_off(8)),
            FrameKind::Unsubscribe => TcpqFrame::Unsubscribe(frame.split_off(8)),
        }
    }
}

/// What is known of a frame's length.
enum FrameLength {
    /// This many bytes are needed to know more.
    AtLeast(usize),
    /// The layout of the whole frame.
    Known(FrameLayout),
}

#[derive(Clone, Copy)]
struct FrameLayout {
    kind: FrameKind,
    name_len: usize,
    payload_len: usize,
}

impl FrameLayout {
    fn len(self) -> usize {
        match self.kind {
            FrameKind::Publish => PUBLISH_OVERHEAD + self.name_len + self.payload_len,
            FrameKind::Subscribe | FrameKind::Unsubscribe => 8 + self.name_len,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameKind {
    Publish = 1,
    Subscribe = 2,
    Unsubscribe = 3,
}

impl FrameKind {
    fn from_u32(word: u32) -> Result<Self, FrameFault> {
        match word {
            1 => Ok(Self::Publish),
            2 => Ok(Self::Subscribe),
            3 => Ok(Self::Unsubscribe),
            other => Err(FrameFault::Type(other)),
        }
    }

    /// The name of its first part, for the user.
    fn name_part(self) -> &'static str {
        match self {
            Self::Publish => "channel name",
            Self::Subscribe | Self::Unsubscribe => "regular expression",
        }
    }
}

/// Appends a publish frame up to its payload. On `Err` `out` is unchanged.
pub(crate) fn append_publish_head(
    out: &mut Vec<u8>,
    channel: &[u8],
    payload_len: usize,
    limits: &FrameLimits,
) -> Result<(), TooLong> {
    let channel_len = checked_len(FrameKind::Publish.name_part(), channel.len(), limits.name)?;
    let payload_len = checked_len("payload", payload_len, limits.payload)?;
    append_name(out, FrameKind::Publish, channel, channel_len);
    out.extend_from_slice(&payload_len.to_be_bytes());
    Ok(())
}

/// Appends a subscribe frame. On `Err` `out` is unchanged.
pub(crate) fn append_subscribe(
    out: &mut Vec<u8>,
    regex: &[u8],
    limits: &FrameLimits,
) -> Result<(), TooLong> {
    let len = checked_len(FrameKind::Subscribe.name_part(), regex.len(), limits.name)?;
    append_name(out, FrameKind::Subscribe, regex, len);
    Ok(())
}

fn append_name(out: &mut Vec<u8>, kind: FrameKind, name: &[u8], len: u32) {
    out.extend_from_slice(&(kind as u32).to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(name);
}

/// The length of text that was received with a 32-bit length.
fn text_len(text: &[u8]) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

fn checked_len(part: &'static str, len: usize, limit: usize) -> Result<u32, TooLong> {
    match u32::try_from(len) {
        Ok(short) if len <= limit => Ok(short),
        _ => Err(TooLong { part, len, limit }),
    }
}

fn read_len(part: &'static str, field: [u8; 4], limit: usize) -> Result<usize, TooLong> {
    let len = usize::try_from(u32::from_be_bytes(field)).unwrap_or(usize::MAX);
    if len <= limit { Ok(len) } else { Err(TooLong { part, len, limit }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: FrameLimits = FrameLimits { name: 40, payload: 3000 };

    /// All frames of a stream that comes in pieces of these lengths, over and over, and its end.
    fn frames(stream: &[u8], pieces: &[usize]) -> (Vec<TcpqFrame>, Result<usize, MalformedFrame>) {
        let (mut parser, mut found) = (FrameParser::new(SMALL, 0), Vec::new());
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

    fn publish(channel: &[u8], payload: &[u8]) -> TcpqFrame {
        TcpqFrame::Publish(Publish::new(channel, payload, &SMALL).unwrap())
    }

    fn a_frame() -> impl Strategy<Value = TcpqFrame> {
        let name = || prop::collection::vec(any::<u8>(), 0..40);
        let payload = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..30),
            prop::collection::vec(any::<u8>(), 0..3000),
        ];
        prop_oneof![
            4 => (name(), payload).prop_map(|(channel, payload)| publish(&channel, &payload)),
            1 => name().prop_map(|regex| TcpqFrame::Subscribe(regex.into())),
            1 => name().prop_map(|regex| TcpqFrame::Unsubscribe(regex.into())),
        ]
    }

    fn stream_of(frames: &[TcpqFrame]) -> Vec<u8> {
        frames.iter().flat_map(|frame| frame.to_bytes()).collect()
    }

    #[test]
    fn frames_are_laid_out_as_the_protocol_says() {
        assert_eq!(
            publish(b"AB", &[9]).to_bytes(),
            &[0, 0, 0, 1, 0, 0, 0, 2, b'A', b'B', 0, 0, 0, 1, 9][..]
        );
        let regex = Bytes::from_static(b".*");
        assert_eq!(
            TcpqFrame::Subscribe(regex.clone()).to_bytes(),
            &[0, 0, 0, 2, 0, 0, 0, 2, b'.', b'*'][..]
        );
        assert_eq!(
            TcpqFrame::Unsubscribe(regex).to_bytes(),
            &[0, 0, 0, 3, 0, 0, 0, 2, b'.', b'*'][..]
        );
    }

    #[test]
    fn a_message_is_taken_apart_again() {
        let TcpqFrame::Publish(message) = publish(b"POSE", b"xyz") else { unreachable!() };
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
            "expected a frame of type 1, 2 or 3, found type 1213486160 (0x48545450) at byte 13 of \
             the \
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
        let mut parser = FrameParser::new(FrameLimits::default(), 0);
        let claim = [[0, 0, 0, 1], [0, 0, 0, 0], [0x10, 0, 0, 0]].concat();
        assert_eq!(parser.next(&mut &claim[..]), Ok(None));
        assert!(parser.partial.capacity() <= INITIAL_CAPACITY);
        assert_eq!(parser.next(&mut &[0; 50_000][..]), Ok(None));
        assert!(parser.partial.capacity() <= 2 * parser.pending());
    }

    #[test]
    fn a_large_frame_in_pieces_has_no_memory_to_spare() {
        let (mut parser, limits) =
            (FrameParser::new(FrameLimits::default(), 0), FrameLimits::default());
        let message = Publish::new(b"CAM", &vec![7; 3_000_000], &limits).unwrap();
        let mut found = None;
        for mut piece in message.frame().chunks(65_536) {
            found = parser.next(&mut piece).unwrap();
            assert!(parser.partial.capacity() <= message.frame().len());
        }
        assert_eq!(found, Some(TcpqFrame::Publish(message)));
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
