//! The index: for each frame of an archive its times, how many events it has, and of which channels.
//!
//! It is JSON, compressed, in a frame that decompressors skip:
//!
//! ```json
//! {"version": 1, "format": "lcm-log",
//!  "frames": [[FIRST_NS, LAST_NS, EVENTS, [CHANNEL, EVENTS, CHANNEL, EVENTS]]],
//!  "channels": [["POSE"]], "events": 3}
//! ```
//!
//! Channels are numbered in the order of their first events; where the format keeps sources, a channel
//! has its source behind its name. A frame with `null` for its channels may have any. Frames with a
//! format's head and tail are not listed. Whoever reads the index takes it as a word on what may be
//! skipped, never for the events themselves.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};

use serde::{Deserialize, Serialize};
use sluice_core::{Query, frames};
use zstd::stream::{read::Decoder, write::Encoder};

/// The version of the layout that is described here.
const VERSION: u32 = 1;
/// An index that is longer, uncompressed, is not read, and not written either.
const MOST: u64 = 256 << 20;
/// Beyond this length no more channels are listed, so that frames at least keep their times.
const MOST_LISTING: u64 = 192 << 20;
const LEVEL: i32 = 3;
/// The most memory for decompressing, as a power of two: more than the level needs.
const WINDOW_LOG: u32 = 23;
/// What an index ends with, in its frame. The length of what is in front comes before it.
const MARK: [u8; 8] = *b"sluiceix";
/// The mark and the length before it.
pub const MARK_LEN: usize = MARK.len() + size_of::<u32>();

/// A channel, as the index names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct Known {
    /// The text form of its name.
    pub name: String,
    /// Its source, where the format keeps that.
    #[serde(default)]
    pub source: Option<String>,
}

/// What is known of a frame's events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Note {
    /// The earliest time, in nanoseconds.
    pub first: i64,
    /// The latest time.
    pub last: i64,
    /// How many there are.
    pub events: u64,
    /// The number of each channel that has any, followed by how many it has.
    pub channels: Option<Vec<u32>>,
}

impl Serialize for Known {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.source {
            Some(source) => (&self.name, source).serialize(serializer),
            None => (&self.name,).serialize(serializer),
        }
    }
}

impl Serialize for Note {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.first, self.last, self.events, &self.channels).serialize(serializer)
    }
}

/// The index of an archive in the making. What it holds in memory is compressed.
pub struct IndexWriter {
    text: Text,
    numbers: HashMap<Known, u32>,
    channels: Vec<Known>,
    frames: u64,
    events: u64,
}

/// Compressed text, and how long it is uncompressed.
struct Text {
    packed: Encoder<'static, Vec<u8>>,
    len: u64,
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.len += bytes.len() as u64;
        // What is longer than can be read again is thrown away as a whole.
        if self.len <= MOST {
            self.packed.write_all(bytes)?
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl IndexWriter {
    /// The index of an archive that will hold this format.
    pub fn new(format: &str) -> io::Result<Self> {
        let mut packed = Encoder::new(Vec::new(), LEVEL)?;
        packed.include_checksum(true)?;
        let mut text = Text { packed, len: 0 };
        write!(
            text,
            "{{\"version\":{VERSION},\"format\":{},\"frames\":[",
            serde_json::json!(format)
        )?;
        let (numbers, channels) = (HashMap::new(), Vec::new());
        Ok(Self { text, numbers, channels, frames: 0, events: 0 })
    }

    /// The number of a channel, which is the next one if it is new.
    pub fn number(&mut self, channel: Known) -> u32 {
        let next = self.channels.len() as u32;
        if let Some(number) = self.numbers.get(&channel) {
            return *number;
        }
        self.channels.push(channel.clone());
        self.numbers.insert(channel, next);
        next
    }

    /// Adds the next frame.
    pub fn add(&mut self, mut note: Note) -> io::Result<()> {
        note.channels = note.channels.filter(|_| self.text.len <= MOST_LISTING);
        if self.frames > 0 {
            self.text.write_all(b",")?;
        }
        serde_json::to_writer(&mut self.text, &note)?;
        self.frames += 1;
        self.events += note.events;
        Ok(())
    }

    /// The index as it stands in the file; nothing if it has become longer than anyone would read.
    pub fn finish(self) -> io::Result<Option<Vec<u8>>> {
        let Self { mut text, channels, events, .. } = self;
        text.write_all(b"],\"channels\":")?;
        serde_json::to_writer(&mut text, &channels)?;
        write!(text, ",\"events\":{events}}}")?;
        let (len, mut packed) = (text.len, text.packed.finish()?);
        let Some(packed_len) = u32::try_from(packed.len()).ok().filter(|_| len <= MOST) else {
            return Ok(None);
        };
        packed.extend(packed_len.to_le_bytes());
        packed.extend(MARK);
        frames::skippable(&packed).map(Some)
    }
}

/// Whether these bytes, the last of a skippable frame, say that an index is in it.
pub fn is_marked(bytes: &[u8]) -> bool {
    bytes.ends_with(&MARK)
}

/// The index of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Index {
    version: u32,
    /// The name of the byte format.
    pub format: String,
    /// What is in each frame.
    pub frames: Vec<Note>,
    channels: Vec<Known>,
    /// How many events there are.
    pub events: u64,
}

impl Index {
    /// The index in this skippable frame; nothing if there is none that can be read.
    pub fn read(frame: &[u8]) -> Option<Self> {
        Self::read_at_most(frame, MOST)
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

    /// What of the frames this query wants. Says yes where it cannot tell: which `source` events will
    /// have may not be known.
    pub fn wanted<'i>(&'i self, query: &'i Query, source: Option<&str>) -> Wanted<'i> {
        let wants = |known: &Known| match known.source.as_deref().or(source) {
            Some(source) => query.channels.wants(&known.name, source),
            None => query.channels.may_want(&known.name),
        };
        let channels =
            (!query.channels.is_all()).then(|| self.channels.iter().map(wants).collect());
        Wanted { query, channels }
    }
}

/// What of an archive's frames a query wants.
pub struct Wanted<'i> {
    query: &'i Query,
    channels: Option<Vec<bool>>,
}

impl Wanted<'_> {
    /// Whether a frame may have an event that is wanted.
    pub fn has(&self, note: &Note) -> bool {
        let has_channel = |wanted: &Vec<bool>| {
            let Some(listed) = &note.channels else { return true };
            // A channel that the index does not name may be any.
            let wants = |number: &u32| wanted.get(*number as usize).copied().unwrap_or(true);
            listed.iter().step_by(2).any(wants)
        };
        self.query.wants_times(note.first, note.last)
            && self.channels.as_ref().is_none_or(has_channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::{ChannelQuery, Pattern, Patterns};

    fn known(name: &str, source: Option<&str>) -> Known {
        Known { name: name.into(), source: source.map(Into::into) }
    }

    fn notes() -> Vec<Note> {
        let note = |first, last, channels: &[u32]| {
            let events = channels.iter().skip(1).step_by(2).map(|n| u64::from(*n)).sum();
            Note { first, last, events, channels: Some(channels.to_vec()) }
        };
        vec![note(-5, 10, &[0, 3]), note(10, 20, &[0, 1, 1, 2]), note(15, 30, &[2, 1])]
    }

    fn written(notes: &[Note], channels: &[Known]) -> Vec<u8> {
        let mut index = IndexWriter::new("toy").unwrap();
        for (n, channel) in channels.iter().enumerate() {
            assert_eq!(index.number(channel.clone()) as usize, n);
        }
        notes.iter().for_each(|note| index.add(note.clone()).unwrap());
        index.finish().unwrap().unwrap()
    }

    fn channels() -> Vec<Known> {
        vec![known("POSE", None), known("GPS", Some("left")), known("GPS", Some("right"))]
    }

    #[test]
    fn what_was_written_is_read() {
        let index = Index::read(&written(&notes(), &channels())).unwrap();
        assert_eq!((&index.frames, &index.channels), (&notes(), &channels()));
        assert_eq!((&index.format[..], index.events), ("toy", 7));
        assert!(Index::read(&written(&[], &[])).unwrap().frames.is_empty());
    }

    #[test]
    fn an_index_that_was_changed_is_not_read() {
        let mut frame = written(&notes(), &channels());
        let index = Index::read(&frame).unwrap();
        for at in 0..frame.len() {
            frame[at] ^= 0x10;
            // One bit means nothing.
            assert!(Index::read(&frame).is_none_or(|read| read == index), "{at}");
            frame[at] ^= 0x10;
            assert!(Index::read(&frame[..at]).is_none(), "{at}");
        }
    }

    #[test]
    fn an_index_is_not_unpacked_any_further_than_its_limit() {
        let frame = written(&notes(), &channels());
        let fits = |most: &u64| Index::read_at_most(&frame, *most).is_some();
        let least = (0..1_000).find(fits).unwrap();
        assert!(least > 100 && (least..least + 10).all(|most| fits(&most)), "{least}");
    }

    #[test]
    fn frames_are_wanted_by_time_and_by_channel() {
        let index = Index::read(&written(&notes(), &channels())).unwrap();
        let wanted = |query: &Query, source| -> Vec<bool> {
            let wanted = index.wanted(query, source);
            index.frames.iter().map(|note| wanted.has(note)).collect()
        };
        let times = |start, end| Query { start, end, ..Query::default() };
        assert_eq!(wanted(&times(Some(11), None), None), [false, true, true]);
        assert_eq!(wanted(&times(None, Some(10)), None), [true, false, false]);
        let patterns = |text: &str| Patterns(vec![Pattern::parse(text).unwrap()]);
        let of = |channel: &str, source: &str| Query {
            channels: ChannelQuery::from_patterns(
                &patterns(channel),
                &Patterns::default(),
                &patterns(source),
            ),
            ..Query::default()
        };
        assert_eq!(wanted(&of("GPS", "*"), None), [false, true, true]);
        assert_eq!(wanted(&of("*", "right"), None), [true, true, true]);
        assert_eq!(wanted(&of("*", "right"), Some("log")), [false, false, true]);
        assert_eq!(wanted(&of("*", "log"), Some("log")), [true, true, false]);
    }

    #[test]
    fn an_index_that_says_more_than_this_version_knows_is_read() {
        let text = br#"{"version":1,"format":"x","frames":[[1,2,3,null]],"channels":[],"events":3,"new":{}}"#;
        let mut packed = zstd::bulk::compress(text, 1).unwrap();
        packed.extend((packed.len() as u32).to_le_bytes());
        packed.extend(MARK);
        let index = Index::read(&frames::skippable(&packed).unwrap()).unwrap();
        let query = Query::default();
        assert!(index.wanted(&query, None).has(&index.frames[0]));
    }
}
