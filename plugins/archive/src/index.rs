//! The index: the times, event count and channels of each frame of an archive.
//!
//! It is compressed JSON in a skippable frame:
//!
//! ```json
//! {"version": 1, "format": "lcm-log",
//!  "frames": [[FIRST_NS, LAST_NS, EVENTS, [CHANNEL, EVENTS, CHANNEL, EVENTS]]],
//!  "channels": [["POSE"]], "events": 3, "content_len": 512}
//! ```
//!
//! Channels are numbered in the order of their first events. If the format keeps sources, a
//! channel's source follows its name. A frame with `null` for its channels may have any. The frames
//! of a format's head and tail are not listed. `content_len` is the uncompressed length of all
//! frames, which tells whether the seek table is damaged. `"declares_types": true` says that a
//! channel may declare its type; `"encodings": ["vel"]` how payloads are encoded, if the format
//! tells. Readers use the index only to skip frames, never instead of the
//! events themselves.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufReader, Read, Write};

use memchr::memmem;
use serde::{Deserialize, Serialize};
use sluice_io::files::LogFile;
use sluice_io::frames;
use sluice_model::{Encoding, Error, LogPayloads, Query};
use zstd::stream::{read::Decoder, write::Encoder};

/// The version of the layout described here.
const VERSION: u32 = 1;
/// The maximum uncompressed length of an index, for reading and writing.
const MAX_INDEX: u64 = 256 << 20;
/// The maximum length of the frame that holds the index.
const MAX_INDEX_FRAME: u64 = 512 << 20;
/// Beyond this length frames are listed without channels, so that they at least have times.
const MAX_LISTING: u64 = 192 << 20;
const LEVEL: i32 = 3;
/// The maximum window for decompression, as a power of two: more than the level needs.
const WINDOW_LOG: u32 = 23;
/// The last bytes of an index in its frame, after the length of the compressed JSON.
const MARK: [u8; 8] = *b"sluiceix";
/// The length of the mark and the length field before it.
pub(crate) const MARK_LEN: usize = MARK.len() + size_of::<u32>();

/// A channel in the index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub(crate) struct IndexedChannel {
    /// The text form of its name.
    pub(crate) name: String,
    /// Its source, if the format keeps sources.
    #[serde(default)]
    pub(crate) source: Option<String>,
}

/// The summary of a frame's events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct FrameSummary {
    /// The earliest time, in nanoseconds.
    pub(crate) first: i64,
    /// The latest time.
    pub(crate) last: i64,
    /// The number of events.
    pub(crate) events: u64,
    /// Pairs of channel number and event count, flat; `None` if unknown.
    pub(crate) channels: Option<Vec<u32>>,
}

impl Serialize for IndexedChannel {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.source {
            Some(source) => (&self.name, source).serialize(serializer),
            None => (&self.name,).serialize(serializer),
        }
    }
}

impl Serialize for FrameSummary {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.first, self.last, self.events, &self.channels).serialize(serializer)
    }
}

/// Writes the index of an archive. Compresses what it holds in memory.
pub(crate) struct IndexWriter {
    text: CompressedText,
    numbers: HashMap<IndexedChannel, u32>,
    channels: Vec<IndexedChannel>,
    frames: u64,
    events: u64,
    /// Whether a channel may declare its type.
    pub(crate) declares_types: bool,
    /// How payloads are encoded, as far as the format tells.
    pub(crate) encodings: BTreeSet<Encoding>,
    /// The uncompressed length of all frames.
    pub(crate) content_len: u64,
}

/// Compressed text with its uncompressed length.
struct CompressedText {
    packed: Encoder<'static, Vec<u8>>,
    len: u64,
}

impl Write for CompressedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.len += bytes.len() as u64;
        // A longer index could not be read again, and is discarded as a whole.
        if self.len <= MAX_INDEX {
            self.packed.write_all(bytes)?
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl IndexWriter {
    /// Starts the index of an archive of this format.
    pub(crate) fn new(format: &str) -> io::Result<Self> {
        let mut packed = Encoder::new(Vec::new(), LEVEL)?;
        packed.include_checksum(true)?;
        let mut text = CompressedText { packed, len: 0 };
        write!(
            text,
            "{{\"version\":{VERSION},\"format\":{},\"frames\":[",
            serde_json::json!(format)
        )?;
        let (numbers, channels) = (HashMap::new(), Vec::new());
        let (frames, events, content_len) = (0, 0, 0);
        let (declares_types, encodings) = (false, BTreeSet::new());
        Ok(Self { text, numbers, channels, frames, events, declares_types, encodings, content_len })
    }

    /// The number of a channel: the next one if it is new.
    pub(crate) fn channel_number(&mut self, channel: IndexedChannel) -> u32 {
        let next = self.channels.len() as u32;
        if let Some(number) = self.numbers.get(&channel) {
            return *number;
        }
        self.channels.push(channel.clone());
        self.numbers.insert(channel, next);
        next
    }

    /// Adds the next frame.
    pub(crate) fn add(&mut self, mut note: FrameSummary) -> io::Result<()> {
        note.channels = note.channels.filter(|_| self.text.len <= MAX_LISTING);
        if self.frames > 0 {
            self.text.write_all(b",")?;
        }
        serde_json::to_writer(&mut self.text, &note)?;
        self.frames += 1;
        self.events += note.events;
        Ok(())
    }

    /// The index as written to the file; `None` if it is too long to be read.
    pub(crate) fn finish(self) -> io::Result<Option<Vec<u8>>> {
        let Self { mut text, channels, events, declares_types, encodings, content_len, .. } = self;
        text.write_all(b"],\"channels\":")?;
        serde_json::to_writer(&mut text, &channels)?;
        write!(text, ",\"events\":{events},\"content_len\":{content_len}")?;
        if declares_types {
            text.write_all(b",\"declares_types\":true")?;
        }
        if !encodings.is_empty() {
            text.write_all(b",\"encodings\":")?;
            serde_json::to_writer(&mut text, &encodings)?;
        }
        text.write_all(b"}")?;
        let (len, mut packed) = (text.len, text.packed.finish()?);
        let Some(packed_len) = u32::try_from(packed.len()).ok().filter(|_| len <= MAX_INDEX) else {
            return Ok(None);
        };
        packed.extend(packed_len.to_le_bytes());
        packed.extend(MARK);
        frames::skippable(&packed).map(Some)
    }
}

/// Whether the last bytes of a skippable frame mark it as an index.
pub(crate) fn is_marked(bytes: &[u8]) -> bool {
    bytes.ends_with(&MARK)
}

/// Whether the contents of a skippable frame start like an index: with a compressed frame.
pub(crate) fn starts_like_index(contents: &[u8]) -> bool {
    contents.starts_with(&frames::MAGIC)
}

/// The end of the last index in these bytes, and the length of the skippable frame it is in.
pub(crate) fn last_index(bytes: &[u8]) -> Option<(usize, u64)> {
    let mark = memmem::rfind(bytes, &MARK)?;
    let (_, packed_len) = bytes.get(..mark)?.split_last_chunk()?;
    let content_len = u64::from(u32::from_le_bytes(*packed_len)) + MARK_LEN as u64;
    Some((mark + MARK.len(), frames::SKIPPABLE_HEADER + content_len))
}

/// The index of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct ArchiveIndex {
    version: u32,
    /// The name of the byte format.
    pub(crate) format: String,
    /// The summaries of the frames.
    pub(crate) frames: Vec<FrameSummary>,
    channels: Vec<IndexedChannel>,
    /// The number of events.
    pub(crate) events: u64,
    /// Whether a channel may declare its type.
    #[serde(default)]
    declares_types: bool,
    /// How payloads are encoded, as far as the format tells.
    #[serde(default)]
    encodings: Vec<String>,
    /// The uncompressed length of all frames, if it is known.
    #[serde(default)]
    pub(crate) content_len: Option<u64>,
}

impl ArchiveIndex {
    /// The index, if it is all that is between two positions.
    pub(crate) fn between(log: &mut LogFile, start: u64, end: u64) -> Result<Option<Self>, Error> {
        let len = end.checked_sub(start).filter(|len| *len <= MAX_INDEX_FRAME);
        let Some(len) = len.and_then(|len| usize::try_from(len).ok()) else { return Ok(None) };
        let mut frame = vec![0; len];
        let read = log.read_at(start, &mut frame)?;
        let is_all = read == len && frames::skippable_len(&frame) == Some(len as u64);
        Ok(is_all.then(|| Self::read(&frame)).flatten())
    }

    /// Parses the index in a skippable frame; `None` if it is not a readable index.
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        Self::read_at_most(frame, MAX_INDEX)
    }

    fn read_at_most(frame: &[u8], most: u64) -> Option<Self> {
        let marked = frames::skippable_content(frame)?.strip_suffix(&MARK)?;
        let (packed, len) = marked.split_last_chunk()?;
        if u32::from_le_bytes(*len) as usize != packed.len() {
            return None;
        }
        let mut decoder = Decoder::new(packed).ok()?;
        decoder.window_log_max(WINDOW_LOG).ok()?;
        let text = BufReader::new(decoder.take(most));
        let index: Self = serde_json::from_reader(text).ok()?;
        (index.version == VERSION).then_some(index)
    }

    /// What it tells of the payloads.
    pub(crate) fn payloads(&self) -> LogPayloads {
        let encodings = self.encodings.iter().map(|word| Encoding::from_word(word)).collect();
        LogPayloads { declare_types: self.declares_types, encodings }
    }

    /// Forgets the channels of frames: events may have others.
    pub(crate) fn forget_channels(&mut self) {
        self.channels.clear();
        self.frames.iter_mut().for_each(|frame| frame.channels = None);
    }

    /// The pushdown of a query to frames. It is conservative: the `source` that events will have
    /// may be unknown.
    pub(crate) fn pushdown<'i>(
        &'i self,
        query: &'i Query,
        source: Option<&str>,
    ) -> FramePushdown<'i> {
        let wants = |channel: &IndexedChannel| match channel.source.as_deref().or(source) {
            Some(source) => query.channels.wants(&channel.name, source),
            None => query.channels.may_want(&channel.name),
        };
        let channels =
            (!query.channels.is_all()).then(|| self.channels.iter().map(wants).collect());
        FramePushdown { query, channels }
    }
}

/// The pushdown of a query to the frames of an archive.
pub(crate) struct FramePushdown<'i> {
    query: &'i Query,
    channels: Option<Vec<bool>>,
}

impl FramePushdown<'_> {
    /// Whether a frame may have an event that matches.
    pub(crate) fn may_match(&self, note: &FrameSummary) -> bool {
        let has_channel = |pushdown: &Vec<bool>| {
            let Some(listed) = &note.channels else { return true };
            // A channel missing in the index may be any.
            let wants = |number: &u32| pushdown.get(*number as usize).copied().unwrap_or(true);
            listed.iter().step_by(2).any(wants)
        };
        self.query.wants_times(note.first, note.last)
            && self.channels.as_ref().is_none_or(has_channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::{ChannelQuery, Pattern, Patterns};

    fn channel(name: &str, source: Option<&str>) -> IndexedChannel {
        IndexedChannel { name: name.into(), source: source.map(Into::into) }
    }

    fn notes() -> Vec<FrameSummary> {
        let note = |first, last, channels: &[u32]| {
            let events = channels.iter().skip(1).step_by(2).map(|n| u64::from(*n)).sum();
            FrameSummary { first, last, events, channels: Some(channels.to_vec()) }
        };
        vec![note(-5, 10, &[0, 3]), note(10, 20, &[0, 1, 1, 2]), note(15, 30, &[2, 1])]
    }

    fn written(notes: &[FrameSummary], channels: &[IndexedChannel]) -> Vec<u8> {
        let mut index = IndexWriter::new("toy").unwrap();
        for (n, channel) in channels.iter().enumerate() {
            assert_eq!(index.channel_number(channel.clone()) as usize, n);
        }
        notes.iter().for_each(|note| index.add(note.clone()).unwrap());
        index.finish().unwrap().unwrap()
    }

    fn channels() -> Vec<IndexedChannel> {
        vec![channel("POSE", None), channel("GPS", Some("left")), channel("GPS", Some("right"))]
    }

    #[test]
    fn what_was_written_is_read() {
        let index = ArchiveIndex::read(&written(&notes(), &channels())).unwrap();
        assert_eq!((&index.frames, &index.channels), (&notes(), &channels()));
        assert_eq!((&index.format[..], index.events), ("toy", 7));
        assert!(ArchiveIndex::read(&written(&[], &[])).unwrap().frames.is_empty());
    }

    #[test]
    fn an_index_that_was_changed_is_not_read() {
        let mut frame = written(&notes(), &channels());
        let index = ArchiveIndex::read(&frame).unwrap();
        for at in 0..frame.len() {
            frame[at] ^= 0x10;
            // One bit is not significant.
            assert!(ArchiveIndex::read(&frame).is_none_or(|read| read == index), "{at}");
            frame[at] ^= 0x10;
            assert!(ArchiveIndex::read(&frame[..at]).is_none(), "{at}");
        }
    }

    #[test]
    fn an_index_is_not_unpacked_any_further_than_its_limit() {
        let frame = written(&notes(), &channels());
        let fits = |most: &u64| ArchiveIndex::read_at_most(&frame, *most).is_some();
        let least = (0..1_000).find(fits).unwrap();
        assert!(least > 100 && (least..least + 10).all(|most| fits(&most)), "{least}");
    }

    #[test]
    fn frames_are_wanted_by_time_and_by_channel() {
        let index = ArchiveIndex::read(&written(&notes(), &channels())).unwrap();
        let pushdown = |query: &Query, source| -> Vec<bool> {
            let pushdown = index.pushdown(query, source);
            index.frames.iter().map(|note| pushdown.may_match(note)).collect()
        };
        let times = |start, end| Query { start, end, ..Query::default() };
        assert_eq!(pushdown(&times(Some(11), None), None), [false, true, true]);
        assert_eq!(pushdown(&times(None, Some(10)), None), [true, false, false]);
        let patterns = |text: &str| Patterns(vec![Pattern::parse(text).unwrap()]);
        let of = |channel: &str, source: &str| Query {
            channels: ChannelQuery::from_patterns(
                &patterns(channel),
                &Patterns::default(),
                &patterns(source),
            ),
            ..Query::default()
        };
        assert_eq!(pushdown(&of("GPS", "*"), None), [false, true, true]);
        assert_eq!(pushdown(&of("*", "right"), None), [true, true, true]);
        assert_eq!(pushdown(&of("*", "right"), Some("log")), [false, false, true]);
        assert_eq!(pushdown(&of("*", "log"), Some("log")), [true, true, false]);
    }

    #[test]
    fn an_index_with_unknown_keys_is_read() {
        let text = concat!(
            r#"{"version":1,"format":"x","frames":[[1,2,3,null]],"#,
            r#""channels":[],"events":3,"new":{}}"#,
        );
        let mut packed = zstd::bulk::compress(text.as_bytes(), 1).unwrap();
        packed.extend((packed.len() as u32).to_le_bytes());
        packed.extend(MARK);
        let index = ArchiveIndex::read(&frames::skippable(&packed).unwrap()).unwrap();
        let query = Query::default();
        assert!(index.pushdown(&query, None).may_match(&index.frames[0]));
    }
}
