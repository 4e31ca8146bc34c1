//! A subfile: where its records lie, told by walking over it once. Knows neither masters nor what records
//! hold.
//!
//! A subfile of objects is `[id] [length] [bytes]` over and over, without a head. The length is as wide as the
//! recording machine's words were, and not every logger wrote an id, so what stands before records is told from
//! the file: it is the form that leads exactly to the file's end. Among several of these, or if none does (the
//! end is damaged), it is the one that finds more records whose last byte is 0, as an object's always is; and
//! among equals the first of the order of [`Prefix::ALL`]. A subfile of text is lines.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

use serde::Deserialize;
use sluice_core::Error;

/// The longest record that is believed.
pub const LONGEST_RECORD: u64 = 256 << 20;
/// The longest line of a text subfile that is believed.
const LONGEST_TEXT: u64 = 16 << 20;
/// How much of a subfile is read at first, and where what is wanted lies far behind what was read last.
const FIRST_STEP: usize = 512;
/// How much is read at a time where records are near each other.
const LARGEST_STEP: usize = 64 << 10;
/// What lies this close behind what was read last is near.
const NEAR: u64 = 8 << 10;
/// Where a piece is read to: the system copies twice as fast to a multiple of this as to any other place.
pub(crate) const ALIGNED: usize = 64;

/// What stands before each record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Whether there is a byte that says what kind of object it is.
    pub id: bool,
    /// Whether the length has eight bytes; else it has four.
    pub wide: bool,
    /// Whether the first record has no id although the others have one.
    pub bare_first: bool,
}

impl Prefix {
    /// Every form, in the order of preference. The last two are of one interface only.
    pub const ALL: [Self; 6] = [
        Self { id: false, wide: false, bare_first: false },
        Self { id: false, wide: true, bare_first: false },
        Self { id: true, wide: false, bare_first: false },
        Self { id: true, wide: true, bare_first: false },
        Self { id: true, wide: false, bare_first: true },
        Self { id: true, wide: true, bare_first: true },
    ];

    /// The word for it in options and comments.
    pub fn word(self) -> &'static str {
        match (self.id, self.wide) {
            (false, false) => "u32",
            (false, true) => "u64",
            (true, false) => "id-u32",
            (true, true) => "id-u64",
        }
    }

    /// The form of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|prefix| prefix.word() == word)
    }

    fn has_id(self, record: u64) -> bool {
        self.id && !(self.bare_first && record == 0)
    }

    /// How many bytes stand before a record.
    pub(crate) fn len(self, record: u64) -> usize {
        usize::from(self.has_id(record)) + if self.wide { 8 } else { 4 }
    }

    /// The id, and how long the record is.
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

/// In which order the bytes of a length lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ByteOrder {
    /// The least first, as x86 has it.
    #[default]
    Little,
    /// The greatest first.
    Big,
}

/// How records lie in a subfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each behind its length.
    Framed {
        /// What stands before each.
        prefix: Prefix,
        /// How lengths are written.
        order: ByteOrder,
        /// Whether there are records of no bytes: objects have some, other payloads need not.
        may_be_empty: bool,
    },
    /// Each a line.
    Lines,
}

impl Form {
    /// The id of a record and where in its bytes, prefix included, it lies; nothing if these are not the
    /// bytes of one record.
    pub fn payload(self, record: u64, bytes: &[u8]) -> Option<(u8, Range<usize>)> {
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

/// A file that can be read at any place: fills as much of the buffer as there is.
pub type ReadAt<'r> = &'r mut dyn FnMut(u64, &mut [u8]) -> Result<usize, Error>;

/// A file, and the piece of it that was read last.
struct Window<'r> {
    read: ReadAt<'r>,
    len: u64,
    at: u64,
    /// The piece lies in `span` of it.
    buffer: Vec<u8>,
    span: Range<usize>,
    step: usize,
}

impl<'r> Window<'r> {
    fn new(read: ReadAt<'r>, len: u64) -> Self {
        Self { read, len, at: 0, buffer: Vec::new(), span: 0..0, step: FIRST_STEP }
    }

    /// As much as there is from `at` on, but at least `want` bytes unless the file ends.
    fn bytes(&mut self, at: u64, want: usize) -> Result<&[u8], Error> {
        let held = |from: u64| at.checked_sub(from).and_then(|skip| usize::try_from(skip).ok());
        let skip = held(self.at).filter(|skip| skip.saturating_add(want) <= self.span.len());
        if let Some(skip) = skip {
            return Ok(self.buffer.get(self.span.start + skip..self.span.end).unwrap_or_default());
        }
        let end = self.at + self.span.len() as u64;
        let is_near = at >= self.at && at <= end.saturating_add(NEAR);
        self.step = if is_near { (self.step * 2).min(LARGEST_STEP) } else { FIRST_STEP };
        self.load(at, self.step.max(want))?;
        Ok(self.buffer.get(self.span.clone()).unwrap_or_default())
    }

    fn load(&mut self, at: u64, want: usize) -> Result<(), Error> {
        if self.buffer.len() < want + ALIGNED {
            self.buffer.resize(want + ALIGNED, 0);
        }
        let pad = self.buffer.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        let room = self.buffer.get_mut(pad..pad + want).unwrap_or_default();
        let read = (self.read)(at, room)?;
        // What was appended since the file was looked at is not looked at.
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        (self.at, self.span) = (at, pad..pad + read.min(left));
        Ok(())
    }
}

/// What is at a place of a subfile.
enum Step {
    /// A record that ends here; whether its last byte is 0.
    Record { end: u64, is_closed: bool },
    /// The end of the file.
    End,
    /// No record.
    Damage(String),
}

impl Form {
    fn step(self, file: &mut Window<'_>, record: u64, at: u64) -> Result<Step, Error> {
        if at >= file.len {
            return Ok(Step::End);
        }
        match self {
            Self::Framed { prefix, order, may_be_empty } => {
                let bytes = file.bytes(at, prefix.len(record))?;
                let Some((_, len)) = prefix.parse(record, bytes, order) else {
                    return Ok(Step::Damage("the length of a record is cut off".into()));
                };
                let begin = at + prefix.len(record) as u64;
                framed(file, begin, len, may_be_empty)
            }
            Self::Lines => line(file, at),
        }
    }
}

fn framed(file: &mut Window<'_>, begin: u64, len: u64, may_be_empty: bool) -> Result<Step, Error> {
    if len == 0 && !may_be_empty {
        return Ok(Step::Damage("a record of length 0: objects have at least a byte".into()));
    }
    let left = file.len.saturating_sub(begin);
    if len > LONGEST_RECORD {
        return Ok(Step::Damage(format!("a record claims {len} bytes: more than any has")));
    }
    if len > left {
        let reason = format!("a record of {len} bytes is cut off after {left}");
        return Ok(Step::Damage(reason));
    }
    let end = begin + len;
    let last = if len == 0 { None } else { file.bytes(end - 1, 1)?.first() };
    Ok(Step::Record { end, is_closed: last == Some(&0) })
}

fn line(file: &mut Window<'_>, at: u64) -> Result<Step, Error> {
    let mut seek = at;
    while seek - at < LONGEST_TEXT {
        let bytes = file.bytes(seek, 1)?;
        if let Some(end) = memchr::memchr(b'\n', bytes) {
            return Ok(Step::Record { end: seek + end as u64 + 1, is_closed: false });
        }
        if bytes.is_empty() {
            return Ok(Step::Record { end: seek, is_closed: false });
        }
        seek += bytes.len() as u64;
    }
    Ok(Step::Damage(format!("a line is longer than {LONGEST_TEXT} bytes")))
}

/// Where the records of a subfile lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// How they lie.
    pub form: Form,
    /// How many there are.
    pub records: u64,
    /// Where each, or each of 2, 4, … begins.
    offsets: Vec<u64>,
    /// Every how many records there is an offset, as a power of 2.
    shift: u32,
    /// Where the last record ends.
    pub end: u64,
    /// How many bytes the last record takes, with what stands before it.
    last: u64,
    /// The rest of the file, if that is no record, and why not.
    pub damage: Option<(u64, String)>,
}

/// What is known of a subfile before its records are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// What stands before records, where that need not be told from the file.
    pub prefix: Option<Prefix>,
    /// How lengths are written.
    pub order: ByteOrder,
    /// Whether there may be records of no bytes.
    pub may_be_empty: bool,
    /// Whether the first record may be without the id that the others have.
    pub may_begin_bare: bool,
}

impl Index {
    /// Walks over a subfile of framed records, several times if what stands before them is not known.
    ///
    /// Keeps at most `most` places, however many records there are.
    pub fn of_records(
        known: Known,
        len: u64,
        read: ReadAt<'_>,
        most: usize,
    ) -> Result<Self, Error> {
        let form = |prefix| {
            let Known { order, may_be_empty, .. } = known;
            Form::Framed { prefix, order, may_be_empty }
        };
        let prefixes = |usual| match known.prefix {
            Some(prefix) => vec![prefix],
            None => Prefix::ALL.into_iter().take(usual).collect(),
        };
        let usual = if known.may_begin_bare { 6 } else { 4 };
        let mut best: Option<(Self, u64)> = None;
        for prefix in prefixes(usual) {
            let (index, closed) = Self::walk(form(prefix), len, &mut *read, most)?;
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
            .ok_or_else(|| Error::internal("no form of records was tried"));
        match best? {
            found if found.damage.is_none() || known.may_be_empty => Ok(found),
            found => {
                let prefixes = prefixes(usual);
                let through = Self::through_empty_records(&prefixes, known.order, len, read, most)?;
                Ok(through.filter(|index| index.records > found.records).unwrap_or(found))
            }
        }
    }

    /// The index of records some of which have no bytes, which objects never have, if that leads exactly to the
    /// end of the file: what lies behind such a record is right then. Zeros at the end of a file are none.
    fn through_empty_records(
        prefixes: &[Prefix],
        order: ByteOrder,
        len: u64,
        read: ReadAt<'_>,
        most: usize,
    ) -> Result<Option<Self>, Error> {
        let mut best: Option<(Self, u64)> = None;
        for prefix in prefixes {
            let form = Form::Framed { prefix: *prefix, order, may_be_empty: true };
            let (index, closed) = Self::walk(form, len, &mut *read, most)?;
            let is_right = index.damage.is_none() && index.records <= closed.saturating_mul(2);
            let ends_empty = index.last < prefix.len(index.records.saturating_sub(1)) as u64 + 1;
            let is_better = best.as_ref().is_none_or(|(_, most_closed)| closed > *most_closed);
            if is_right && !ends_empty && is_better {
                best = Some((index, closed));
            }
        }
        Ok(best.map(|(index, _)| index))
    }

    /// Walks over a subfile of lines.
    pub fn of_lines(len: u64, read: ReadAt<'_>, most: usize) -> Result<Self, Error> {
        Ok(Self::walk(Form::Lines, len, read, most)?.0)
    }

    /// The index of records of one form, and how many of these end with a 0.
    fn walk(form: Form, len: u64, read: ReadAt<'_>, most: usize) -> Result<(Self, u64), Error> {
        let mut file = Window::new(read, len);
        let mut index =
            Self { form, records: 0, offsets: Vec::new(), shift: 0, end: 0, last: 0, damage: None };
        let mut closed = 0;
        loop {
            match form.step(&mut file, index.records, index.end)? {
                Step::Record { end, is_closed } => {
                    index.push(end, most);
                    closed += u64::from(is_closed);
                }
                Step::End => return Ok((index, closed)),
                Step::Damage(reason) => {
                    index.damage = Some((len.saturating_sub(index.end), reason));
                    return Ok((index, closed));
                }
            }
        }
    }

    fn push(&mut self, end: u64, most: usize) {
        if self.records & ((1 << self.shift) - 1) == 0 {
            if self.offsets.len() >= most.max(2) {
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
        self.last = end - self.end;
        self.end = end;
    }

    /// Where a record lies, prefix included; nothing if there is none of that number.
    ///
    /// Reads only if not every record's place is kept. `cursor` is where the last search ended.
    pub fn locate(
        &self,
        record: u64,
        cursor: &mut Cursor,
        read: ReadAt<'_>,
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
        let mut file = Window::new(read, self.end);
        loop {
            let Step::Record { end, .. } = self.form.step(&mut file, from, at)? else {
                return Ok(None);
            };
            if from == record {
                *cursor = Cursor { record: record + 1, at: end };
                return Ok(Some(at..end));
            }
            (from, at) = (from + 1, end);
        }
    }
}

/// Where a search in an index ended: objects are mostly asked for in order.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    record: u64,
    at: u64,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { record: u64::MAX, at: 0 }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
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

    fn index(bytes: &[u8]) -> Index {
        index_with(bytes, Known { may_begin_bare: true, ..Known::default() }, 1 << 20)
    }

    fn index_with(bytes: &[u8], known: Known, most: usize) -> Index {
        Index::of_records(known, bytes.len() as u64, &mut reader(bytes), most).unwrap()
    }

    fn framed(prefix: Prefix, records: &[Vec<u8>]) -> Vec<u8> {
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

    fn prefix_of(index: &Index) -> Prefix {
        match index.form {
            Form::Framed { prefix, .. } => prefix,
            Form::Lines => panic!("records"),
        }
    }

    fn all(index: &Index, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut cursor = Cursor::default();
        (0..index.records)
            .map(|n| {
                let place = index.locate(n, &mut cursor, &mut reader(bytes)).unwrap().unwrap();
                let record = &bytes[place.start as usize..place.end as usize];
                record[index.form.payload(n, record).unwrap().1].to_vec()
            })
            .collect()
    }

    #[test]
    fn what_stands_before_records_is_told_from_the_file() {
        for prefix in Prefix::ALL {
            let bytes = framed(prefix, &objects(40));
            let index = index(&bytes);
            assert_eq!((prefix_of(&index), index.records, &index.damage), (prefix, 40, &None));
            assert_eq!(all(&index, &bytes), objects(40));
        }
    }

    #[test]
    fn a_damaged_end_does_not_hide_the_form() {
        for prefix in Prefix::ALL {
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
    fn lengths_of_zero_and_beyond_all_measure_end_what_can_be_read() {
        for (tail, says) in [([0u8; 4], "length 0"), ([0xff; 4], "more than any has")] {
            let bytes = [&framed(Prefix::default(), &objects(5))[..], &tail, b"more"].concat();
            let index = index_with(
                &bytes,
                Known { prefix: Some(Prefix::default()), ..Known::default() },
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
        let index = Index::of_lines(text.len() as u64, &mut reader(text), 3).unwrap();
        assert_eq!(all(&index, text), [&b"one"[..], b"", b"two", b"last"]);
    }

    #[test]
    fn lengths_may_be_big_endian_if_one_says_so() {
        let bytes = [0, 0, 0, 2, 7, 0];
        let known = Known { order: ByteOrder::Big, ..Known::default() };
        assert_eq!(all(&index_with(&bytes, known, 9), &bytes), [[7, 0]]);
    }

    proptest! {
        #[test]
        fn thinned_places_lead_to_the_same_records(count in 0usize..200, most in 2usize..40) {
            let bytes = framed(Prefix::default(), &objects(count));
            let known = Known { prefix: Some(Prefix::default()), ..Known::default() };
            let index = index_with(&bytes, known, most);
            prop_assert!(index.offsets.len() <= most);
            prop_assert_eq!(all(&index, &bytes), objects(count));
            for n in [count / 2, 0, count.saturating_sub(1), count] {
                let mut cursor = Cursor { record: n as u64 / 3, at: 0 };
                if cursor.record > 0 { cursor = Cursor::default(); }
                let place = index.locate(n as u64, &mut cursor, &mut reader(&bytes)).unwrap();
                prop_assert_eq!(place.is_some(), n < count);
            }
        }

        #[test]
        fn any_bytes_have_records_and_a_rest(bytes in proptest::collection::vec(prop_oneof![Just(0u8), 0u8..6, any::<u8>()], 0..200)) {
            let index = index(&bytes);
            let rest = index.damage.as_ref().map_or(0, |damage| damage.0);
            prop_assert_eq!(index.end + rest, bytes.len() as u64);
            prop_assert_eq!(all(&index, &bytes).len() as u64, index.records);
        }
    }
}
