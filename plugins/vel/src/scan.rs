//! Decides what is a message where the fast path could not: at damage and at the edges of blocks; and
//! where the messages begin.
//!
//! It does no I/O of its own, keeps no state between calls, and does not hand out payloads. The
//! answer depends on the bytes of the log, the position and the [`Rules`] only, never on how they were
//! read. The index is never looked at for finding messages.
//!
//! # What is at a position
//!
//! The format has no checksum and no sync word. It has a size in front of each message, a marker
//! behind it, and the shape of the described payloads.
//!
//! | | what is at `p` | verdict |
//! |---|---|---|
//! | 1 | the end of the file, or the size `0xFFFFFFFF` | end; nothing behind it is read |
//! | 2 | fewer than 4 bytes, or fewer than the size says | damage: cut off |
//! | | a size below 17 or above [`Rules::max_message`] | damage |
//! | 3 | another marker than `0x31`; confirmed | **deleted**: damage of this message, or an event if so asked for |
//! | | another marker; not confirmed | damage |
//! | 4 | a time that is none; confirmed | damage of this message |
//! | | a time that is none; not confirmed | damage |
//! | 5 | confirmed | **message** |
//! | | not confirmed, and its payload contradicts its size | damage |
//! | | not confirmed, its layout is not described, and a message in it contradicts its size | damage |
//! | | not confirmed, and nothing contradicts its size | **message**, with damage after it |
//! | 6 | damage of rules 2 to 5 goes on to | the next believable message, or the end of the file; to the end of the file with `after_damage = "stop"` |
//!
//! *Confirmed* is a message if right behind it is what can be: the end of the file, fewer than 21 bytes
//! with a possible size, the end mark, or a header with a possible size, the marker and a time; deleted
//! messages are stepped over as long as they end within 16 MiB, and four in a row confirm, too. It is
//! also confirmed if it is of a described version and its payload ends exactly where that says.
//!
//! A payload *contradicts* its size if its described layout ends elsewhere. A message inside
//! contradicts the size of the one around it if it is believable and ends outside; so do 64 believable
//! messages inside.
//!
//! # What is believable after damage
//!
//! Marker `0x31`, a possible size, whole in the file, a time, a version from 0 to 65535; and
//!
//! - a described type and version whose payload is not shorter than its layout, or a type whose name
//!   was given; or
//! - four such messages in a row, each within an hour of the one before, which end within 16 MiB behind
//!   the first; or
//! - two or three that lead exactly to the end of the file or the end mark.
//!
//! So zeros are one damage, and a few messages of unknown types between two damages are lost with them.
//!
//! # Cost
//!
//! Linear in the damage, whatever the log says: a candidate is a byte `0x31` with a possible size in
//! front of it, and costs at most five headers and four counts, at most 16 MiB behind its own end: a stream
//! has to keep all that lies between. Only an unconfirmed message of a layout
//! that is not described is searched inside, and only until 64 believable messages are met; so no byte is
//! searched by more than 65 of them. Nothing is allocated by a length from the log: a search holds one
//! window of at most 64 KiB.

#![warn(clippy::indexing_slicing)]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::window::{ReadAt, Search, bytes_from};

use crate::hash::{MessageNames, is_built_in};
use crate::shape::{Shape, shape};
use crate::time::{to_nanos, to_wide_nanos};
use crate::wire::{
    END_MARK, ENTRY_LEN, FileHead, HEAD_LEN, HEADER_LEN, Header, MAGIC, MARKER, SIZE_LEN, SMALLEST,
    UNUSED, VERSION,
};

/// The most entries that an index is believed to have: half a year of seconds.
pub const MOST_ENTRIES: u32 = 1 << 24;

/// Versions that a message may have which is searched for.
const USUAL_VERSIONS: Range<i32> = 0..0x1_0000;
/// Messages in a row that are believed whatever they are.
const CHAIN: usize = 4;
/// How far behind the end of a message others are looked at to tell whether it is one.
const LOOK_AHEAD: u64 = 16 << 20;
/// Milliseconds from one message of a chain to the next.
const CHAIN_STEP: f64 = 3_600_000.0;
/// Believable messages inside one that prove its size wrong.
const MAX_INNER: usize = 64;

/// How reading goes on after damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AfterDamage {
    /// At the next believable message.
    #[default]
    Search,
    /// Not at all.
    Stop,
}

/// What becomes of messages with another marker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Deleted {
    /// They are damage.
    #[default]
    Skip,
    /// They are events.
    Keep,
}

/// What a log may hold.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The largest size of a message.
    pub max_message: u64,
    /// How reading goes on after damage.
    pub after_damage: AfterDamage,
    /// What becomes of deleted messages.
    pub deleted: Deleted,
    /// The names that are known.
    pub names: Arc<MessageNames>,
    /// The time of 0 ms, in nanoseconds.
    pub epoch: i64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_message: 256 << 20,
            after_damage: AfterDamage::default(),
            deleted: Deleted::default(),
            names: Arc::default(),
            epoch: 0,
        }
    }
}

impl Rules {
    /// A message's time in nanoseconds; nothing if 64 bits cannot hold it.
    #[inline]
    pub fn nanos(&self, ms: f64) -> Option<i64> {
        to_nanos(ms)?.checked_add(self.epoch)
    }

    /// A message's time in nanoseconds, also where 64 bits cannot hold it; nothing if it is none.
    #[inline]
    pub fn time(&self, ms: f64) -> Option<i128> {
        to_wide_nanos(ms)?.checked_add(self.epoch.into())
    }

    /// Whether a message may have this size.
    #[inline]
    pub fn is_possible(&self, size: u32) -> bool {
        size >= SMALLEST && size != END_MARK && u64::from(size) <= self.max_message
    }

    /// Whether a header is that of a message that was not deleted, as far as it alone can tell.
    #[inline]
    pub fn is_sound(&self, header: &Header) -> bool {
        header.marker == MARKER && self.is_possible(header.size) && self.time(header.ms).is_some()
    }
}

/// What is at a position of a log.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A message begins here.
    Message {
        /// Its header.
        header: Header,
        /// The position after its last byte.
        end: u64,
    },
    /// No message that can be passed on begins here.
    Damage {
        /// Where reading goes on, or the end of the log.
        end: u64,
        /// What was found instead of a message.
        reason: Reason,
    },
    /// The log ends here.
    End,
}

/// Why the bytes at a position are not passed on.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The size does not count even the header.
    #[error("size {0} is below the {SMALLEST} bytes of a message without payload")]
    Small(u32),
    /// The message is longer than the reader was told to accept.
    #[error("size {size} is above the limit max_message = {max_message}")]
    AboveLimit {
        /// The size.
        size: u32,
        /// The limit.
        max_message: u64,
    },
    /// The message, or already its size, goes on after the end of the log.
    #[error("cut off by the end of the log (needs {needs} bytes, {has} are there)")]
    CutOff {
        /// Bytes of the message by its size; of the size, if that is cut off.
        needs: u64,
        /// Bytes up to the end of the log.
        has: u64,
    },
    /// The message is whole, and has another marker.
    #[error("marked as deleted ({0:#04x}); `deleted = \"keep\"` passes it on")]
    Deleted(u8),
    /// Another marker, and nothing confirms that a message begins here.
    #[error("not a message (marker {0:#04x} instead of 0x31)")]
    Marker(u8),
    /// The time is no number, or beyond all measure.
    #[error("time {0} ms is no time")]
    Time(f64),
    /// The payload says that it ends elsewhere.
    #[error("size {0} contradicts the lengths in the payload")]
    Payload(u32),
    /// A message inside proves the size wrong.
    #[error("size {size} contradicts the message that begins at byte {at} of the log")]
    Contradicted {
        /// The size.
        size: u32,
        /// Where the message inside begins.
        at: u64,
    },
}

/// Says what is at `pos`: a message, damage, or the end of the log.
///
/// Confirming a message takes a few small reads. Damage is scanned up to its end, see the module.
/// `Err` comes from `log` only.
pub fn judge(log: &mut dyn ReadAt, pos: u64, rules: &Rules) -> io::Result<Verdict> {
    let header = match look(log, pos, rules)? {
        Look::End => return Ok(Verdict::End),
        Look::CutOff { needs } => {
            let has = bytes_from(log, pos, needs)?;
            return lost(log, pos, Reason::CutOff { needs, has }, rules);
        }
        Look::Impossible(reason) => return lost(log, pos, reason, rules),
        Look::Message(header) => header,
    };
    match doubt(log, pos, &header, rules)? {
        Doubt::Lost(reason) => lost(log, pos, reason, rules),
        Doubt::Alone(reason) => Ok(Verdict::Damage { end: end_of(pos, &header), reason }),
        Doubt::None => Ok(Verdict::Message { header, end: end_of(pos, &header) }),
    }
}

/// Where the first believable message that begins in `range` begins; `None` if there is none.
///
/// In the middle of a message, a message inside its payload cannot be told from one of the log.
pub fn find(log: &mut dyn ReadAt, range: Range<u64>, rules: &Rules) -> io::Result<Option<u64>> {
    first_believed(log, &mut Places::new(range, rules), rules)
}

/// The position behind the message at `pos`, if it is believable.
pub fn believable(log: &mut dyn ReadAt, pos: u64, rules: &Rules) -> io::Result<Option<u64>> {
    let Look::Message(header) = look(log, pos, rules)? else { return Ok(None) };
    if !may_be_searched_for(&header, rules) {
        return Ok(None);
    }
    let end = end_of(pos, &header);
    let is_known = is_known(log, pos, &header, rules)?;
    Ok((is_known || leads_a_chain(log, end, header.ms, rules)?).then_some(end))
}

/// How a file begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// As it should.
    Sound {
        /// Where the first message begins.
        body: u64,
        /// What it says of itself.
        head: FileHead,
    },
    /// Not at all: it has no bytes, and even a log without messages has a head.
    Empty,
    /// With other bytes than the magic, but a believable message is where it says.
    Marred {
        /// Where the first message begins.
        body: u64,
        /// What stands in place of the magic.
        found: [u8; 4],
    },
    /// With a head that leads nowhere.
    Damaged {
        /// Where the first believable message begins, or the end of the file.
        end: u64,
        /// What is wrong.
        reason: String,
    },
    /// It is no file that can be read here.
    Refused {
        /// Where.
        at: u64,
        /// What was expected and found.
        what: String,
    },
}

/// Says how a file begins.
///
/// Looks at the head and at the first message. The index is only looked into for messages, and only if
/// there is none behind it. `Err` comes from `log` only.
pub fn head(log: &mut dyn ReadAt, rules: &Rules) -> io::Result<Head> {
    let mut bytes = [0; HEAD_LEN];
    let there = log.read_at(0, &mut bytes)?;
    if there == 0 {
        return Ok(Head::Empty);
    }
    if there < HEAD_LEN {
        return Ok(short_head(bytes.get(..there).unwrap_or_default()));
    }
    let Some((magic, head)) = FileHead::parse(&bytes) else { return Ok(short_head(&bytes)) };
    let (fits, entries) = (fits(log, &head)?, head.entries);
    if magic != MAGIC {
        let is_one = fits && believable(log, head.body(), rules)?.is_some();
        let marred = Head::Marred { body: head.body(), found: magic };
        return Ok(if is_one { marred } else { foreign(&magic) });
    }
    if head.major != VERSION.0 {
        let (major, minor, known) = (head.major, head.minor, VERSION.0);
        let what =
            format!("a file of version {known} was expected, and this is of {major}.{minor}");
        return Ok(Head::Refused { at: MAGIC.len() as u64, what });
    }
    if !fits {
        let reason = format!("the index of {entries} entries does not fit the file");
        return damaged_head(log, reason, rules);
    }
    if goes_on(log, &head)? {
        let reason = format!("the index goes on behind its {entries} entries");
        return damaged_head(log, reason, rules);
    }
    if hides_messages(log, &head, rules)? {
        let reason = format!("messages begin inside of the index of {entries} entries");
        return damaged_head(log, reason, rules);
    }
    Ok(Head::Sound { body: head.body(), head })
}

/// Where the messages of a file begin that the search for them must not begin before; nothing if the head
/// does not tell. As [`head`], but never goes through damage.
pub fn body(log: &mut dyn ReadAt, rules: &Rules) -> io::Result<Option<u64>> {
    let Some((magic, head)) = file_head(log)? else { return Ok(None) };
    let is_right = match fits(log, &head)? {
        false => false,
        true if magic == MAGIC => !goes_on(log, &head)? && !hides_messages(log, &head, rules)?,
        true => believable(log, head.body(), rules)?.is_some(),
    };
    Ok(is_right.then(|| head.body()))
}

/// The four bytes that should be the magic, and the head; nothing of a file that is shorter.
pub fn file_head(log: &mut dyn ReadAt) -> io::Result<Option<([u8; 4], FileHead)>> {
    let mut bytes = [0; HEAD_LEN];
    let there = log.read_at(0, &mut bytes)?;
    Ok(if there == HEAD_LEN { FileHead::parse(&bytes) } else { None })
}

/// Whether the index can be as long as the head says.
fn fits(log: &mut dyn ReadAt, head: &FileHead) -> io::Result<bool> {
    Ok(head.entries <= MOST_ENTRIES && reaches(log, head.body())?)
}

/// Whether an unused entry stands behind the index: taken for an end mark, it would hide all messages.
fn goes_on(log: &mut dyn ReadAt, head: &FileHead) -> io::Result<bool> {
    let mut bytes = [0; ENTRY_LEN];
    let there = log.read_at(head.body(), &mut bytes)?;
    Ok(there == bytes.len() && i64::from_le_bytes(bytes) == UNUSED)
}

/// Whether a message begins in what the head says is the index, and none behind it: a wrong number of
/// entries would hide the messages that it takes for entries.
fn hides_messages(log: &mut dyn ReadAt, head: &FileHead, rules: &Rules) -> io::Result<bool> {
    let is_right = believable(log, head.body(), rules)?.is_some();
    Ok(!is_right && find(log, HEAD_LEN as u64..head.body(), rules)?.is_some())
}

fn damaged_head(log: &mut dyn ReadAt, reason: String, rules: &Rules) -> io::Result<Head> {
    let end = next_after(log, HEAD_LEN as u64, rules)?;
    Ok(Head::Damaged { end, reason })
}

/// What fewer bytes than a head are.
fn short_head(bytes: &[u8]) -> Head {
    if !MAGIC.starts_with(bytes.get(..MAGIC.len()).unwrap_or(bytes)) {
        return foreign(bytes.get(..MAGIC.len()).unwrap_or(bytes));
    }
    let has = bytes.len() as u64;
    let reason = Reason::CutOff { needs: HEAD_LEN as u64, has }.to_string();
    Head::Damaged { end: has, reason }
}

fn foreign(found: &[u8]) -> Head {
    let what =
        format!("not a VEL log: {} was expected, {} is there", spelled(&MAGIC), spelled(found));
    Head::Refused { at: 0, what }
}

/// Bytes in hexadecimal digits.
pub(crate) fn spelled(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// What a header by itself, and the end of the file, say of a position.
enum Look {
    Message(Header),
    /// The message, or already its header, goes on after the end of the file.
    CutOff {
        needs: u64,
    },
    Impossible(Reason),
    End,
}

fn look(log: &mut dyn ReadAt, pos: u64, rules: &Rules) -> io::Result<Look> {
    match glance(log, pos, rules)? {
        Look::Message(header) if !reaches(log, end_of(pos, &header))? => {
            Ok(Look::CutOff { needs: header.message_len() })
        }
        seen => Ok(seen),
    }
}

/// As [`look`], but whether the message is whole in the file is not asked.
fn glance(log: &mut dyn ReadAt, pos: u64, rules: &Rules) -> io::Result<Look> {
    let mut bytes = [0; HEADER_LEN];
    let there = log.read_at(pos, &mut bytes)?;
    let bytes_there = bytes.get(..there).unwrap_or_default();
    let Some((size, _)) = bytes_there.split_first_chunk::<SIZE_LEN>() else {
        let cut_off = Look::CutOff { needs: SIZE_LEN as u64 };
        return Ok(if there == 0 { Look::End } else { cut_off });
    };
    let size = u32::from_le_bytes(*size);
    if size == END_MARK {
        return Ok(Look::End);
    }
    if size < SMALLEST {
        return Ok(Look::Impossible(Reason::Small(size)));
    }
    if !rules.is_possible(size) {
        let max_message = rules.max_message;
        return Ok(Look::Impossible(Reason::AboveLimit { size, max_message }));
    }
    let header = if there == HEADER_LEN { Header::parse(&bytes) } else { None };
    let needs = u64::from(size) + SIZE_LEN as u64;
    Ok(header.map_or(Look::CutOff { needs }, Look::Message))
}

/// Whether the log has a byte right before `end`.
fn reaches(log: &mut dyn ReadAt, end: u64) -> io::Result<bool> {
    Ok(log.read_at(end.saturating_sub(1), &mut [0])? > 0)
}

fn end_of(pos: u64, header: &Header) -> u64 {
    pos.saturating_add(header.message_len())
}

/// Why a whole message is not passed on.
enum Doubt {
    None,
    /// What follows it is beyond doubt.
    Alone(Reason),
    /// Where the next message begins is not known.
    Lost(Reason),
}

/// Rules 3 to 5, for a message with a possible size that is whole in the file.
fn doubt(log: &mut dyn ReadAt, pos: u64, header: &Header, rules: &Rules) -> io::Result<Doubt> {
    let leads_on = leads_on(log, end_of(pos, header), rules)?;
    let shape = if leads_on { Shape::Exact } else { shape_at(log, pos, header)? };
    let is_confirmed = leads_on || shape == Shape::Exact;
    let bad_time = rules.time(header.ms).is_none().then_some(Reason::Time(header.ms));
    if header.marker != MARKER {
        let marker = header.marker;
        return Ok(match (is_confirmed, bad_time, rules.deleted) {
            (false, ..) => Doubt::Lost(Reason::Marker(marker)),
            (true, _, Deleted::Skip) => Doubt::Alone(Reason::Deleted(marker)),
            (true, Some(reason), Deleted::Keep) => Doubt::Alone(reason),
            (true, None, Deleted::Keep) => Doubt::None,
        });
    }
    if let Some(reason) = bad_time {
        return Ok(if is_confirmed { Doubt::Alone(reason) } else { Doubt::Lost(reason) });
    }
    if is_confirmed {
        return Ok(Doubt::None);
    }
    let size = header.size;
    if matches!(shape, Shape::TooLong | Shape::TooShort) {
        return Ok(Doubt::Lost(Reason::Payload(size)));
    }
    let at = contradiction(log, pos..end_of(pos, header), rules)?;
    Ok(at.map_or(Doubt::None, |at| Doubt::Lost(Reason::Contradicted { size, at })))
}

/// Whether something that can follow a message is at `at`.
fn leads_on(log: &mut dyn ReadAt, mut at: u64, rules: &Rules) -> io::Result<bool> {
    let limit = at.saturating_add(LOOK_AHEAD);
    for _ in 0..CHAIN {
        match glance(log, at, rules)? {
            Look::End | Look::CutOff { .. } => return Ok(true),
            Look::Impossible(_) => return Ok(false),
            Look::Message(header) if header.marker == MARKER => {
                return Ok(rules.is_sound(&header));
            }
            Look::Message(header) => at = end_of(at, &header),
        }
        if at > limit || !reaches(log, at)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn shape_at(log: &mut dyn ReadAt, pos: u64, header: &Header) -> io::Result<Shape> {
    let payload = pos.saturating_add(HEADER_LEN as u64);
    shape(log, payload, header.payload_len(), (header.type_id, header.version))
}

/// Where a believable message begins inside of one which proves that its size is wrong.
fn contradiction(
    log: &mut dyn ReadAt,
    message: Range<u64>,
    rules: &Rules,
) -> io::Result<Option<u64>> {
    let inside = message.start.saturating_add(1)..message.end;
    let (mut places, mut met) = (Places::new(inside, rules), 0);
    while let Some(at) = places.next(log)? {
        let Some(end) = believable(log, at, rules)? else { continue };
        met += 1;
        if end > message.end || met == MAX_INNER {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Damage from `pos` on, up to where reading goes on.
fn lost(log: &mut dyn ReadAt, pos: u64, reason: Reason, rules: &Rules) -> io::Result<Verdict> {
    let end = next_after(log, pos.saturating_add(1), rules)?;
    Ok(Verdict::Damage { end, reason })
}

/// Where reading goes on at `from` or later, or the end of the log.
fn next_after(log: &mut dyn ReadAt, from: u64, rules: &Rules) -> io::Result<u64> {
    let mut places = Places::new(from..u64::MAX, rules);
    let next = match rules.after_damage {
        AfterDamage::Search => first_believed(log, &mut places, rules)?,
        AfterDamage::Stop => {
            places.search.skip_to_end(log)?;
            None
        }
    };
    Ok(next.unwrap_or(places.search.reached()))
}

fn first_believed(
    log: &mut dyn ReadAt,
    places: &mut Places,
    rules: &Rules,
) -> io::Result<Option<u64>> {
    places.search.forget();
    while let Some(at) = places.next(log)? {
        if believable(log, at, rules)?.is_some() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn may_be_searched_for(header: &Header, rules: &Rules) -> bool {
    rules.is_sound(header) && USUAL_VERSIONS.contains(&header.version)
}

/// Whether a message is of a type that is believed by itself.
fn is_known(log: &mut dyn ReadAt, pos: u64, header: &Header, rules: &Rules) -> io::Result<bool> {
    if is_built_in(header.type_id) {
        return Ok(shape_at(log, pos, header)?.fits());
    }
    Ok(rules.names.name(header.type_id).is_some())
}

/// Whether a message at `ms` that ends at `at` is the first of a chain.
fn leads_a_chain(
    log: &mut dyn ReadAt,
    mut at: u64,
    mut ms: f64,
    rules: &Rules,
) -> io::Result<bool> {
    let limit = at.saturating_add(LOOK_AHEAD);
    for met in 1..CHAIN {
        match glance(log, at, rules)? {
            Look::End => return Ok(met > 1),
            Look::Message(next)
                if may_be_searched_for(&next, rules) && (next.ms - ms).abs() <= CHAIN_STEP =>
            {
                (at, ms) = (end_of(at, &next), next.ms);
            }
            _ => return Ok(false),
        }
        if at > limit || !reaches(log, at)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Finds places in a range of a log where a message may begin, front to back: with a marker behind a size
/// that a message may have.
struct Places {
    search: Search,
    max_message: u64,
}

impl Places {
    fn new(range: Range<u64>, rules: &Rules) -> Self {
        Self { search: Search::new(range, SIZE_LEN), max_message: rules.max_message }
    }

    /// The next place.
    fn next(&mut self, log: &mut dyn ReadAt) -> io::Result<Option<u64>> {
        self.search.next(log, |bytes| place_in(bytes, self.max_message))
    }
}

/// The first such place in these bytes, and how many of them have been searched then.
fn place_in(bytes: &[u8], max_message: u64) -> Option<(usize, usize)> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        at += memchr::memchr(MARKER, rest.get(SIZE_LEN..)?)?;
        let (size, _) = bytes.get(at..)?.split_first_chunk()?;
        let size = u32::from_le_bytes(*size);
        if size >= SMALLEST && u64::from(size) <= max_message {
            return Some((at, at + 1));
        }
        at += 1;
    }
}
