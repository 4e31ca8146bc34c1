//! The records of a subfile, indexed by scanning it once. Knows neither the master nor the contents
//! of records.
//!
//! A subfile of objects is `[id] [length] [bytes]` repeated, without a header. The length is as
//! wide as the recording machine's words, and some loggers wrote no id, so the prefix is detected
//! from the file: it is the one that leads exactly to the end of the file. If several do, or none
//! does because the end is damaged, it is the one that finds the most records whose last byte is 0,
//! as that of every object is, and the first in [`RecordPrefix::ALL`] among equals. A subfile of
//! text consists of lines.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

use serde::Deserialize;
use sluice_model::Error;

/// The maximum length of a record.
pub(crate) const LONGEST_RECORD: u64 = 256 << 20;
/// The maximum length of a line in a text subfile.
const LONGEST_TEXT: u64 = 16 << 20;
/// The bytes of the first read, and of each read after a jump.
const MIN_READ: usize = 512;
/// The maximum bytes per read when reading sequentially.
const MAX_READ: usize = 128 << 10;
/// The largest distance from the last read that still counts as sequential.
const MAX_GAP: u64 = 8 << 10;
/// The alignment of read buffers: the kernel copies twice as fast to a multiple of this.
pub(crate) const ALIGNMENT: usize = 64;

/// The prefix of each record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordPrefix {
    /// Whether there is an id byte, the kind of object.
    pub(crate) id: bool,
    /// Whether the length has eight bytes instead of four.
    pub(crate) wide: bool,
    /// Whether the first record has no id although the others have one.
    pub(crate) first_lacks_id: bool,
}

impl RecordPrefix {
    /// All prefixes, in order of preference. Only one interface uses the last two.
    pub(crate) const ALL: [Self; 6] = [
        Self { id: false, wide: false, first_lacks_id: false },
        Self { id: false, wide: true, first_lacks_id: false },
        Self { id: true, wide: false, first_lacks_id: false },
        Self { id: true, wide: true, first_lacks_id: false },
        Self { id: true, wide: false, first_lacks_id: true },
        Self { id: true, wide: true, first_lacks_id: true },
    ];

    /// The name in options and comments.
    pub(crate) fn word(self) -> &'static str {
        match (self.id, self.wide) {
            (false, false) => "u32",
            (false, true) => "u64",
            (true, false) => "id-u32",
            (true, true) => "id-u64",
        }
    }

    /// The prefix of that name.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|prefix| prefix.word() == word)
    }

    fn has_id(self, record: u64) -> bool {
        self.id && !(self.first_lacks_id && record == 0)
    }

    /// The length of a record's prefix in bytes.
    pub(crate) fn len(self, record: u64) -> usize {
        usize::from(self.has_id(record)) + if self.wide { 8 } else { 4 }
    }

    /// The id, and the length of the record.
    fn parse(self, record: u64, bytes: &[u8], order: ByteOrder) -> Option<(u8, u64)> {
        let (id, length) = match bytes.split_first() {
            Some((id, rest)) if self.has_id(record) => (*id, rest),
            _ => (0, bytes),
        };
        let length = match (self.wide, order) {
            (false, ByteOrder::Little) => u32::from_le_bytes(*length.first_chunk()?).into(),
            (false, ByteOrder::Big) => u32::from_be_bytes(*length.first_chunk()?).into(),
            (true, ByteOrder::Little) => u64::from_le_bytes(*length.first_chunk()?),
            (true, ByteOrder::Big) => u64::from_be_bytes(*length.first_chunk()?),
        };
        Some((id, length))
    }
}

/// The byte order of lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum ByteOrder {
    /// Little-endian, as on x86.
    #[default]
    Little,
    /// Big-endian.
    Big,
}

/// How the records of a subfile are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFraming {
    /// Length-prefixed records.
    Framed {
        /// The prefix of each record.
        prefix: RecordPrefix,
        /// The byte order of lengths.
        order: ByteOrder,
        /// Whether records may be empty: objects never are, other payloads can be.
        may_be_empty: bool,
    },
    /// One record per line.
    Lines,
}

impl RecordFraming {
    /// The id of a record, and the range of its payload in its bytes. `None` if these are not the
    /// bytes of one record.
    pub(crate) fn payload(self, record: u64, bytes: &[u8]) -> Option<(u8, Range<usize>)> {
        match self {
            Self::Framed { prefix, order, .. } => {
                let (id, len) = prefix.parse(record, bytes, order)?;
                let from = prefix.len(record);
                let to = from.checked_add(usize::try_from(len).ok()?)?;
                (to == bytes.len()).then_some((id, from..to))
            }
            Self::Lines => {
                let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
                let text = text.strip_suffix(b"\r").unwrap_or(text);
                (memchr::memchr(b'\n', text).is_none()).then_some((0, 0..text.len()))
            }
        }
    }
}

/// Reads a file at an offset: fills as much of the buffer as there is.
pub(crate) type ReadAtFn<'r> = &'r mut dyn FnMut(u64, &mut [u8]) -> Result<usize, Error>;

/// A file, and the part of it that was read last.
struct ReadWindow<'r> {
    read: ReadAtFn<'r>,
    len: u64,
    at: u64,
    /// Holds the part in `span`.
    buffer: Vec<u8>,
    span: Range<usize>,
    read_len: usize,
}

impl<'r> ReadWindow<'r> {
    fn new(read: ReadAtFn<'r>, len: u64) -> Self {
        Self { read, len, at: 0, buffer: Vec::new(), span: 0..0, read_len: MIN_READ }
    }

    /// Buffered bytes from `at` on: at least `want`, unless the file ends.
    fn bytes(&mut self, at: u64, want: usize) -> Result<&[u8], Error> {
        let held = |from: u64| at.checked_sub(from).and_then(|skip| usize::try_from(skip).ok());
        let skip = held(self.at).filter(|skip| skip.saturating_add(want) <= self.span.len());
        if let Some(skip) = skip {
            return Ok(self.buffer.get(self.span.start + skip..self.span.end).unwrap_or_default());
        }
        let end = self.at + self.span.len() as u64;
        let is_near = at >= self.at && at <= end.saturating_add(MAX_GAP);
        self.read_len = if is_near { (self.read_len * 2).min(MAX_READ) } else { MIN_READ };
        self.load(at, self.read_len.max(want))?;
        Ok(self.buffer.get(self.span.clone()).unwrap_or_default())
    }

    fn load(&mut self, at: u64, want: usize) -> Result<(), Error> {
        self.span = 0..0;
        if self.buffer.len() < want + ALIGNMENT {
            self.buffer = vec![0; want + ALIGNMENT];
        }
        let pad = self.buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let space = self.buffer.get_mut(pad..pad + want).unwrap_or_default();
        let read = (self.read)(at, space)?;
        // Ignores what was appended since the file was opened.
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        (self.at, self.span) = (at, pad..pad + read.min(left));
        Ok(())
    }
}

/// The result of parsing at one position of a subfile.
enum WalkStep {
    /// The end of a record, and whether its last byte is 0.
    Record { end: u64, is_closed: bool },
    /// The end of the file.
    End,
    /// No record.
    Damage(String),
}

impl RecordFraming {
    fn step(self, file: &mut ReadWindow<'_>, record: u64, at: u64) -> Result<WalkStep, Error> {
        if at >= file.len {
            return Ok(WalkStep::End);
        }
        match self {
            Self::Framed { prefix, order, may_be_empty } => {
                let bytes = file.bytes(at, prefix.len(record))?;
                let Some((_, len)) = prefix.parse(record, bytes, order) else {
                    return Ok(WalkStep::Damage("the length of a record is cut off".into()));
                };
                let begin = at + prefix.len(record) as u64;
                framed_step(file, begin, len, may_be_empty)
            }
            Self::Lines => line_step(file, at),
        }
    }
}

fn framed_step(
    file: &mut ReadWindow<'_>,
    begin: u64,
    len: u64,
    may_be_empty: bool,
) -> Result<WalkStep, Error> {
    if len == 0 && !may_be_empty {
        return Ok(WalkStep::Damage(
            "a record has length 0: objects have at least one byte".into(),
        ));
    }
    let left = file.len.saturating_sub(begin);
    if len > LONGEST_RECORD {
        return Ok(WalkStep::Damage(format!(
            "a record has a length of {len} bytes: more than any \
            record has"
        )));
    }
    if len > left {
        let reason = format!("a record of {len} bytes is cut off after {left}");
        return Ok(WalkStep::Damage(reason));
    }
    let end = begin + len;
    let last = if len == 0 { None } else { file.bytes(end - 1, 1)?.first() };
    Ok(WalkStep::Record { end, is_closed: last == Some(&0) })
}

fn line_step(file: &mut ReadWindow<'_>, at: u64) -> Result<WalkStep, Error> {
    let mut seek = at;
    while seek - at < LONGEST_TEXT {
        let bytes = file.bytes(seek, 1)?;
        if let Some(end) = memchr::memchr(b'\n', bytes) {
            return Ok(WalkStep::Record { end: seek + end as u64 + 1, is_closed: false });
        }
        if bytes.is_empty() {
            return Ok(WalkStep::Record { end: seek, is_closed: false });
        }
        seek += bytes.len() as u64;
    }
    Ok(WalkStep::Damage(format!("a line is longer than {LONGEST_TEXT} bytes")))
}

/// The positions of the records of a subfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordIndex {
    /// How records are delimited.
    pub(crate) framing: RecordFraming,
    /// The number of records.
    pub(crate) records: u64,
    /// The offset of every record, or of every second, fourth, and so on.
    offsets: Vec<u64>,
    /// The number of records per offset, as a power of 2.
    shift: u32,
    /// The end of the last record.
    pub(crate) end: u64,
    /// The length of the last record, prefix included.
    last_len: u64,
    /// The length of the rest of the file if that is not a record, and why.
    pub(crate) damage: Option<(u64, String)>,
}

/// What is known about the framing before a subfile is scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FramingHints {
    /// The prefix, if it need not be detected.
    pub(crate) prefix: Option<RecordPrefix>,
    /// The byte order of lengths.
    pub(crate) byte_order: ByteOrder,
    /// Whether records may be empty.
    pub(crate) may_be_empty: bool,
    /// Whether the first record may lack the id that the others have.
    pub(crate) first_may_lack_id: bool,
}

impl RecordIndex {
    /// Scans a subfile of length-prefixed records, several times if the prefix is unknown.
    ///
    /// Keeps at most `max_offsets` offsets, for any number of records.
    pub(crate) fn build_framed(
        hints: FramingHints,
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<Self, Error> {
        let framing = |prefix| {
            let FramingHints { byte_order: order, may_be_empty, .. } = hints;
            RecordFraming::Framed { prefix, order, may_be_empty }
        };
        let prefixes = |count| match hints.prefix {
            Some(prefix) => vec![prefix],
            None => RecordPrefix::ALL.into_iter().take(count).collect(),
        };
        let count = if hints.first_may_lack_id { 6 } else { 4 };
        let mut best: Option<(Self, u64)> = None;
        for prefix in prefixes(count) {
            let (index, closed) = Self::walk(framing(prefix), len, &mut *read, max_offsets)?;
            let worth = |index: &Self, closed| (index.damage.is_none(), closed);
            let is_better = best.as_ref().is_none_or(|(so_far, most_closed)| {
                worth(&index, closed) > worth(so_far, *most_closed)
            });
            if is_better {
                best = Some((index, closed));
            }
        }
        let best = best
            .map(|(index, _)| index)
            .ok_or_else(|| Error::internal("no record framing was tried"));
        match best? {
            found if found.damage.is_none() || hints.may_be_empty => Ok(found),
            found => {
                let prefixes = prefixes(count);
                let through = Self::build_with_empty_records(
                    &prefixes,
                    hints.byte_order,
                    len,
                    read,
                    max_offsets,
                )?;
                Ok(through.filter(|index| index.records > found.records).unwrap_or(found))
            }
        }
    }

    /// The index of a subfile with empty records, if it leads exactly to the end of the file.
    /// Objects are never empty, but then the records after the empty ones are right. Zeros at the
    /// end of a file are not records.
    fn build_with_empty_records(
        prefixes: &[RecordPrefix],
        order: ByteOrder,
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<Option<Self>, Error> {
        let mut best: Option<(Self, u64)> = None;
        for prefix in prefixes {
            let framing = RecordFraming::Framed { prefix: *prefix, order, may_be_empty: true };
            let (index, closed) = Self::walk(framing, len, &mut *read, max_offsets)?;
            let is_right = index.damage.is_none() && index.records <= closed.saturating_mul(2);
            let ends_empty =
                index.last_len < prefix.len(index.records.saturating_sub(1)) as u64 + 1;
            let is_better = best.as_ref().is_none_or(|(_, most_closed)| closed > *most_closed);
            if is_right && !ends_empty && is_better {
                best = Some((index, closed));
            }
        }
        Ok(best.map(|(index, _)| index))
    }

    /// Scans a subfile of lines.
    pub(crate) fn build_lines(
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<Self, Error> {
        Ok(Self::walk(RecordFraming::Lines, len, read, max_offsets)?.0)
    }

    /// The index for one framing, and the number of records that end with a 0.
    fn walk(
        framing: RecordFraming,
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<(Self, u64), Error> {
        let mut file = ReadWindow::new(read, len);
        let mut index = Self {
            framing,
            records: 0,
            offsets: Vec::new(),
            shift: 0,
            end: 0,
            last_len: 0,
            damage: None,
        };
        let mut closed = 0;
        loop {
            match framing.step(&mut file, index.records, index.end)? {
                WalkStep::Record { end, is_closed } => {
                    index.push(end, max_offsets);
                    closed += u64::from(is_closed);
                }
                WalkStep::End => return Ok((index, closed)),
                WalkStep::Damage(reason) => {
                    index.damage = Some((len.saturating_sub(index.end), reason));
                    return Ok((index, closed));
                }
            }
        }
    }

    fn push(&mut self, end: u64, max_offsets: usize) {
        if self.records & ((1 << self.shift) - 1) == 0 {
            if self.offsets.len() >= max_offsets.max(2) {
                let mut place = 0;
                self.offsets.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.shift += 1;
            }
            if self.records & ((1 << self.shift) - 1) == 0 {
                self.offsets.push(self.end);
            }
        }
        self.records += 1;
        self.last_len = end - self.end;
        self.end = end;
    }

    /// The range of a record, prefix included; `None` if there is no record of that number.
    ///
    /// Reads only if not every offset is kept. `cursor` is where the last search ended.
    pub(crate) fn locate(
        &self,
        record: u64,
        cursor: &mut IndexCursor,
        read: ReadAtFn<'_>,
    ) -> Result<Option<Range<u64>>, Error> {
        if record >= self.records {
            return Ok(None);
        }
        let place = |record: u64| usize::try_from(record >> self.shift).ok();
        let offset = |record| place(record).and_then(|place| self.offsets.get(place)).copied();
        if self.shift == 0 {
            let end = offset(record + 1).unwrap_or(self.end);
            return Ok(offset(record).map(|begin| begin..end));
        }
        let mut from = (record >> self.shift) << self.shift;
        let Some(mut at) = offset(record) else { return Ok(None) };
        if (from..=record).contains(&cursor.record) {
            (from, at) = (cursor.record, cursor.at);
        }
        let mut file = ReadWindow::new(read, self.end);
        loop {
            let WalkStep::Record { end, .. } = self.framing.step(&mut file, from, at)? else {
                return Ok(None);
            };
            if from == record {
                *cursor = IndexCursor { record: record + 1, at: end };
                return Ok(Some(at..end));
            }
            (from, at) = (from + 1, end);
        }
    }
}

/// Where the last search ended: objects are mostly requested in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexCursor {
    record: u64,
    at: u64,
}

impl Default for IndexCursor {
    fn default() -> Self {
        Self { record: u64::MAX, at: 0 }
    }
}

#[expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reader(bytes: &[u8]) -> impl FnMut(u64, &mut [u8]) -> Result<usize, Error> {
        |at, buffer| {
            let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }
    }

    fn index(bytes: &[u8]) -> RecordIndex {
        index_with(
            bytes,
            FramingHints { first_may_lack_id: true, ..FramingHints::default() },
            1 << 20,
        )
    }

    fn index_with(bytes: &[u8], hints: FramingHints, max_offsets: usize) -> RecordIndex {
        RecordIndex::build_framed(hints, bytes.len() as u64, &mut reader(bytes), max_offsets)
            .unwrap()
    }

    fn framed(prefix: RecordPrefix, records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (n, record) in records.iter().enumerate() {
            if prefix.has_id(n as u64) {
                bytes.push((n % 3) as u8);
            }
            let len = record.len() as u64;
            bytes.extend(&len.to_le_bytes()[..if prefix.wide { 8 } else { 4 }]);
            bytes.extend(record);
        }
        bytes
    }

    fn objects(count: usize) -> Vec<Vec<u8>> {
        (0..count)
            .map(|n| {
                let mut object: Vec<u8> = (0..n * 7 % 300).map(|b| (b * n + 5) as u8).collect();
                object.push(0);
                object
            })
            .collect()
    }

    fn prefix_of(index: &RecordIndex) -> RecordPrefix {
        match index.framing {
            RecordFraming::Framed { prefix, .. } => prefix,
            RecordFraming::Lines => panic!("records"),
        }
    }

    fn all(index: &RecordIndex, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut cursor = IndexCursor::default();
        (0..index.records)
            .map(|n| {
                let place = index.locate(n, &mut cursor, &mut reader(bytes)).unwrap().unwrap();
                let record = &bytes[place.start as usize..place.end as usize];
                record[index.framing.payload(n, record).unwrap().1].to_vec()
            })
            .collect()
    }

    #[test]
    fn the_record_prefix_is_detected_from_the_file() {
        for prefix in RecordPrefix::ALL {
            let bytes = framed(prefix, &objects(40));
            let index = index(&bytes);
            assert_eq!((prefix_of(&index), index.records, &index.damage), (prefix, 40, &None));
            assert_eq!(all(&index, &bytes), objects(40));
        }
    }

    #[test]
    fn a_damaged_end_does_not_hide_the_form() {
        for prefix in RecordPrefix::ALL {
            let mut bytes = framed(prefix, &objects(40));
            bytes.truncate(bytes.len() - 3);
            let index = index(&bytes);
            assert_eq!((prefix_of(&index), index.records), (prefix, 39));
            let (len, reason) = index.damage.unwrap();
            assert_eq!(index.end + len, bytes.len() as u64);
            assert!(reason.contains("cut off"), "{reason}");
        }
    }

    #[test]
    fn lengths_of_zero_and_excessive_lengths_end_the_readable_part() {
        for (tail, says) in [([0u8; 4], "length 0"), ([0xff; 4], "more than any record has")] {
            let bytes =
                [&framed(RecordPrefix::default(), &objects(5))[..], &tail, b"more"].concat();
            let index = index_with(
                &bytes,
                FramingHints { prefix: Some(RecordPrefix::default()), ..FramingHints::default() },
                99,
            );
            assert_eq!((index.records, index.damage.as_ref().map(|d| d.0)), (5, Some(8)));
            assert!(index.damage.unwrap().1.contains(says));
        }
    }

    #[test]
    fn an_empty_file_has_no_records_and_no_damage() {
        let index = index(b"");
        assert_eq!((index.records, index.damage), (0, None));
    }

    #[test]
    fn lines_are_records() {
        let text = b"one\r\n\ntwo\nlast";
        let index = RecordIndex::build_lines(text.len() as u64, &mut reader(text), 3).unwrap();
        assert_eq!(all(&index, text), [&b"one"[..], b"", b"two", b"last"]);
    }

    #[test]
    fn lengths_are_big_endian_on_request() {
        let bytes = [0, 0, 0, 2, 7, 0];
        let hints = FramingHints { byte_order: ByteOrder::Big, ..FramingHints::default() };
        assert_eq!(all(&index_with(&bytes, hints, 9), &bytes), [[7, 0]]);
    }

    proptest! {
        #[test]
        fn thinned_offsets_locate_the_same_records(
            count in 0usize..200,
            max_offsets in 2usize..40,
        ) {
            let bytes = framed(RecordPrefix::default(), &objects(count));
            let prefix = Some(RecordPrefix::default());
            let hints = FramingHints { prefix, ..FramingHints::default() };
            let index = index_with(&bytes, hints, max_offsets);
            prop_assert!(index.offsets.len() <= max_offsets);
            prop_assert_eq!(all(&index, &bytes), objects(count));
            for n in [count / 2, 0, count.saturating_sub(1), count] {
                let mut cursor = IndexCursor { record: n as u64 / 3, at: 0 };
                if cursor.record > 0 { cursor = IndexCursor::default(); }
                let place = index.locate(n as u64, &mut cursor, &mut reader(&bytes)).unwrap();
                prop_assert_eq!(place.is_some(), n < count);
            }
        }

        #[test]
        fn any_bytes_have_records_and_a_rest(
            bytes in proptest::collection::vec(
                prop_oneof![Just(0u8), 0u8..6, any::<u8>()],
                0..200,
            ),
        ) {
            let index = index(&bytes);
            let rest = index.damage.as_ref().map_or(0, |damage| damage.0);
            prop_assert_eq!(index.end + rest, bytes.len() as u64);
            prop_assert_eq!(all(&index, &bytes).len() as u64, index.records);
        }
    }
}
