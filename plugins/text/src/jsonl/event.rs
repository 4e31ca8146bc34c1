//! Parses a JSON line into an event, or says why it is not one. Decoded fields are ignored, because
//! the payload holds them.

#![warn(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sluice_io::escape::printable;
use sluice_model::{Channel, ChannelId, Channels, Clock, Encoding, Error, Name};

use crate::line::USUAL_ENCODING;

/// The maximum length of names and metadata of a line's channel: no run has room for more.
const MAX_CHANNEL_LEN: usize = Channels::MAX_BYTES;
/// The maximum length of a character in bytes.
const MAX_CHAR_LEN: usize = 4;
/// The maximum length of a message, which may quote the line.
const MAX_QUOTED: usize = 160;
/// The maximum number of cached channels, and the maximum length of their keys.
const MAX_CACHED: usize = 1 << 14;
const MAX_CACHED_KEY: usize = 1 << 12;

/// The keys of a line, in any order; others are ignored.
#[derive(Debug, Deserialize)]
struct EventLine<'l> {
    timestamp_ns: i64,
    #[serde(borrow)]
    source: LineText<'l>,
    #[serde(borrow)]
    channel: LineText<'l>,
    sequence: i64,
    size: Option<u64>,
    crc32: Option<u32>,
    #[serde(borrow)]
    payload: Option<LineText<'l>>,
    #[serde(borrow)]
    payload_text: Option<LineText<'l>>,
    #[serde(borrow)]
    encoding: Option<LineText<'l>>,
    #[serde(borrow, rename = "type")]
    type_name: Option<LineText<'l>>,
    clock: Option<Clock>,
    #[serde(borrow, default)]
    metadata: BTreeMap<LineText<'l>, LineText<'l>>,
}

/// A text that borrows from the line if it has no escapes.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct LineText<'l>(#[serde(borrow)] Cow<'l, str>);

/// The content of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineContent {
    /// Nothing.
    Blank,
    /// An event.
    Event(EventHead),
    /// Damage: the reason, and the channel if it is known.
    Damage(String, Option<ChannelId>),
}

/// An event whose payload has been decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventHead {
    /// Nanoseconds.
    pub(crate) timestamp: i64,
    /// The sequence number.
    pub(crate) sequence: i64,
    /// Its channel.
    pub(crate) channel: ChannelId,
    /// The range of its payload in the buffer.
    pub(crate) payload: Range<usize>,
}

/// Parses lines into events.
#[derive(Debug)]
pub(crate) struct EventLines {
    channels: Arc<Channels>,
    /// Channel ids by everything that a line says of its channel.
    cache: HashMap<Vec<u8>, ChannelId>,
    key: Vec<u8>,
    unknown_encoding: UnknownEncoding,
}

/// The first unknown name of an encoding, to report once.
#[derive(Debug, Default)]
enum UnknownEncoding {
    #[default]
    None,
    Unreported(String),
    Reported,
}

impl EventLines {
    pub(crate) fn new(channels: Arc<Channels>) -> Self {
        let unknown_encoding = UnknownEncoding::default();
        Self { channels, cache: HashMap::new(), key: Vec::new(), unknown_encoding }
    }

    /// The first unknown encoding name, once, in printable form. Such lines are events whose
    /// encoding is unknown.
    pub(crate) fn take_unknown_encoding(&mut self) -> Option<String> {
        let UnknownEncoding::Unreported(word) = &mut self.unknown_encoding else { return None };
        let word = std::mem::take(word);
        self.unknown_encoding = UnknownEncoding::Reported;
        Some(word)
    }

    /// The event of a line. Appends its payload to `payloads`, or nothing if the line is damaged.
    ///
    /// `Err` means that the run has too many channels.
    pub(crate) fn read(
        &mut self,
        line: &[u8],
        payloads: &mut Vec<u8>,
    ) -> Result<LineContent, Error> {
        if line.trim_ascii().is_empty() {
            return Ok(LineContent::Blank);
        }
        if let Some(reason) = not_an_object(line) {
            return Ok(LineContent::Damage(reason, None));
        }
        let line: EventLine<'_> = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => return Ok(LineContent::Damage(not_an_event(&error), None)),
        };
        let Some(channel) = self.channel(&line)? else {
            let reason = format!(
                "source, channel and metadata of the line are longer than {MAX_CHANNEL_LEN} bytes"
            );
            return Ok(LineContent::Damage(reason, None));
        };
        let start = payloads.len();
        match payload(&line, payloads) {
            Ok(()) => Ok(LineContent::Event(EventHead {
                timestamp: line.timestamp_ns,
                sequence: line.sequence,
                channel,
                payload: start..payloads.len(),
            })),
            Err(reason) => {
                payloads.truncate(start);
                Ok(LineContent::Damage(reason, Some(channel)))
            }
        }
    }

    /// The channel of a line; `None` if its description is too long.
    fn channel(&mut self, line: &EventLine<'_>) -> Result<Option<ChannelId>, Error> {
        line.write_key(&mut self.key);
        if let Some(id) = self.cache.get(&self.key) {
            return Ok(Some(*id));
        }
        if self.key.len() > MAX_CHANNEL_LEN {
            return Ok(None);
        }
        if let (Some(word), UnknownEncoding::None) =
            (line.unknown_encoding(), &self.unknown_encoding)
        {
            self.unknown_encoding = UnknownEncoding::Unreported(excerpt(word));
        }
        let id = self.channels.intern(line.channel())?;
        if self.key.len() <= MAX_CACHED_KEY {
            // A damaged file can name every event differently. What is evicted is interned again.
            if self.cache.len() >= MAX_CACHED {
                self.cache.clear();
            }
            self.cache.insert(self.key.clone(), id);
        }
        Ok(Some(id))
    }
}

impl EventLine<'_> {
    /// Writes everything that the line says of its channel to `key`, unambiguously.
    fn write_key(&self, key: &mut Vec<u8>) {
        key.clear();
        let mut push = |text: Option<&LineText<'_>>| {
            let text = text.map(|text| text.0.as_bytes());
            // Absent differs from empty.
            let len = text.map_or(0, |text| text.len() as u64 + 1);
            key.extend_from_slice(&len.to_le_bytes());
            key.extend_from_slice(text.unwrap_or_default());
        };
        push(Some(&self.source));
        push(Some(&self.channel));
        push(self.encoding.as_ref());
        push(self.type_name.as_ref());
        for (name, value) in &self.metadata {
            push(Some(name));
            push(Some(value));
        }
        key.push(u8::from(self.clock == Some(Clock::Relative)));
    }

    /// The line's encoding, if its name is unknown.
    fn unknown_encoding(&self) -> Option<&str> {
        let word = &*self.encoding.as_ref()?.0;
        (Encoding::from_word(word).as_str() != word).then_some(word)
    }

    fn channel(&self) -> Channel {
        let word = |word: &LineText<'_>| Encoding::from_word(&word.0);
        let encoding = self.encoding.as_ref().map_or(USUAL_ENCODING, word);
        let metadata = self.metadata.iter().map(|(k, v)| (k.0.to_string(), v.0.to_string()));
        Channel {
            type_name: self.type_name.as_ref().map(|name| (*name.0).into()),
            clock: self.clock.unwrap_or_default(),
            metadata: metadata.collect(),
            ..Channel::new(Name::from_text(&self.channel.0), &*self.source.0, encoding)
        }
    }
}

/// Why a line without a payload is no event.
pub(super) const NO_PAYLOAD: &str = "no payload in this line; write with `payload = true` \
                                     (convert: `--sink-option payload=true`, cat: `--payload`)";

/// Appends the payload of a line. `Err` says why it is not what was written.
fn payload(line: &EventLine<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let start = out.len();
    match (&line.payload, &line.payload_text, line.size) {
        (Some(base64), _, _) => STANDARD
            .decode_vec(&*base64.0, out)
            .map_err(|error| format!("the payload is not base64: {error}"))?,
        (None, Some(text), _) => out.extend_from_slice(text.0.as_bytes()),
        (None, None, Some(0)) => {}
        (None, None, _) => return Err(NO_PAYLOAD.to_owned()),
    }
    let payload = out.get(start..).unwrap_or_default();
    let size = line.size.ok_or("expected a number as `size`, found none")?;
    if payload.len() as u64 != size {
        let len = payload.len();
        return Err(format!("expected a payload of {size} bytes (`size`), found {len}"));
    }
    let Some(wanted) = line.crc32 else { return Ok(()) };
    let found = crc32fast::hash(payload);
    if found != wanted {
        return Err(format!(
            "expected the CRC-32 {wanted} (`crc32`) of the payload, found {found}"
        ));
    }
    Ok(())
}

/// Why a line that does not start like an object is not an event. Lists never are.
fn not_an_object(line: &[u8]) -> Option<String> {
    let begin = line.trim_ascii_start();
    if begin.first() == Some(&b'{') {
        return None;
    }
    let begin = begin.chunks(MAX_CHAR_LEN).next().unwrap_or_default();
    let found: String = String::from_utf8_lossy(begin).chars().take(1).collect();
    Some(format!("not an event: expected an object, `{{…}}`, found `{}`", printable(&found)))
}

/// The start of a text, without characters that control a terminal.
fn excerpt(text: &str) -> String {
    let text = printable(text);
    let excerpt: String = text.chars().take(MAX_QUOTED).collect();
    let more = if excerpt.len() < text.len() { "…" } else { "" };
    excerpt + more
}

/// Why a line is not an event.
fn not_an_event(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // The position of the damage already names the line.
    let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    let what = if error.is_data() { "not an event" } else { "not JSON" };
    format!("{what}: {}, at column {} of the line", excerpt(message), error.column())
}

#[cfg(test)]
mod tests;
