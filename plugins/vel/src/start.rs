//! How a file starts: its head, its index, and where its messages begin.

#![warn(clippy::indexing_slicing)]

use sluice_kit::window::ReadAt;
use sluice_model::Error;

use crate::rules::Rules;
use crate::scan::{MessageDamage, find, plausible_end, reaches, resume_position};
use crate::wire::{ENTRY_LEN, FileHead, HEAD_LEN, MAGIC, UNUSED, VERSION};

/// Most index entries accepted: half a year of seconds.
pub(crate) const MAX_ENTRIES: u32 = 1 << 24;

/// Where the first message may start, if bytes of the head are missing.
pub(crate) const FIRST_MESSAGE: u64 = MAGIC.len() as u64;

/// How a file starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileStart {
    /// With a valid head.
    Sound {
        /// Start of the first message.
        body: u64,
        /// The head.
        head: FileHead,
    },
    /// The file is empty. Even a log without messages has a head.
    Empty,
    /// With other bytes than the magic number, but a plausible message where the head says.
    Marred {
        /// Start of the first message.
        body: u64,
        /// The bytes in place of the magic number.
        found: [u8; 4],
    },
    /// With an invalid head.
    Damaged {
        /// Start of the first plausible message, or the end of the file.
        end: u64,
        /// The reason.
        reason: String,
    },
    /// The file cannot be read.
    Refused {
        /// Position of the error.
        at: u64,
        /// What was expected and found there.
        what: String,
    },
}

/// Examines how a file starts.
///
/// Reads the head and the first message. Searches the index for messages only if there is none
/// after it. `Err` comes only from `log`.
pub fn read_start(log: &mut dyn ReadAt, rules: &Rules) -> Result<FileStart, Error> {
    let mut bytes = [0; HEAD_LEN];
    let there = log.read_at(0, &mut bytes)?;
    if there == 0 {
        return Ok(FileStart::Empty);
    }
    if there < HEAD_LEN {
        return Ok(truncated_start(bytes.get(..there).unwrap_or_default()));
    }
    let Some((magic, head)) = FileHead::parse(&bytes) else { return Ok(truncated_start(&bytes)) };
    let (fits, entries) = (index_fits(log, &head)?, head.entries);
    if magic != MAGIC {
        let is_one = fits && plausible_end(log, head.body(), rules)?.is_some();
        let marred = FileStart::Marred { body: head.body(), found: magic };
        return Ok(if is_one { marred } else { not_a_log(&magic) });
    }
    if head.major != VERSION.0 {
        let (major, minor, known) = (head.major, head.minor, VERSION.0);
        let what = format!("expected a file of version {known}, found {major}.{minor}");
        return Ok(FileStart::Refused { at: MAGIC.len() as u64, what });
    }
    if !fits {
        let reason = format!("the index of {entries} entries does not fit into the file");
        return damaged_start(log, reason, rules);
    }
    if index_continues(log, &head)? {
        let reason = format!("the index continues after its {entries} entries");
        return damaged_start(log, reason, rules);
    }
    if index_hides_messages(log, &head, rules)? {
        let reason = format!("messages start inside the index of {entries} entries");
        return damaged_start(log, reason, rules);
    }
    Ok(FileStart::Sound { body: head.body(), head })
}

/// The position before which no message is searched for; `None` if the head does not tell. As
/// [`read_start`], but never scans damage.
pub fn messages_start(log: &mut dyn ReadAt, rules: &Rules) -> Result<Option<u64>, Error> {
    let Some((magic, head)) = file_head(log)? else { return Ok(None) };
    let is_right = match index_fits(log, &head)? {
        false => false,
        true if magic == MAGIC => {
            !index_continues(log, &head)? && !index_hides_messages(log, &head, rules)?
        }
        true => plausible_end(log, head.body(), rules)?.is_some(),
    };
    Ok(is_right.then(|| head.body()))
}

/// The four bytes in place of the magic number, and the head; `None` if the file is too short.
pub(crate) fn file_head(log: &mut dyn ReadAt) -> Result<Option<([u8; 4], FileHead)>, Error> {
    let mut bytes = [0; HEAD_LEN];
    let there = log.read_at(0, &mut bytes)?;
    Ok(if there == HEAD_LEN { FileHead::parse(&bytes) } else { None })
}

/// Whether an index of the claimed length is possible.
fn index_fits(log: &mut dyn ReadAt, head: &FileHead) -> Result<bool, Error> {
    Ok(head.entries <= MAX_ENTRIES && reaches(log, head.body())?)
}

/// Whether an unused entry follows the index: mistaken for an end mark, it would hide all messages.
fn index_continues(log: &mut dyn ReadAt, head: &FileHead) -> Result<bool, Error> {
    let mut bytes = [0; ENTRY_LEN];
    let there = log.read_at(head.body(), &mut bytes)?;
    Ok(there == bytes.len() && i64::from_le_bytes(bytes) == UNUSED)
}

/// Whether a message starts within the claimed index and none after it: a wrong number of entries
/// would hide the messages it covers.
fn index_hides_messages(
    log: &mut dyn ReadAt,
    head: &FileHead,
    rules: &Rules,
) -> Result<bool, Error> {
    let is_right = plausible_end(log, head.body(), rules)?.is_some();
    Ok(!is_right && find(log, FIRST_MESSAGE..head.body(), rules)?.is_some())
}

fn damaged_start(log: &mut dyn ReadAt, reason: String, rules: &Rules) -> Result<FileStart, Error> {
    let end = resume_position(log, FIRST_MESSAGE, rules)?;
    Ok(FileStart::Damaged { end, reason })
}

/// The start of a file shorter than a head.
fn truncated_start(bytes: &[u8]) -> FileStart {
    if !MAGIC.starts_with(bytes.get(..MAGIC.len()).unwrap_or(bytes)) {
        return not_a_log(bytes.get(..MAGIC.len()).unwrap_or(bytes));
    }
    let has = bytes.len() as u64;
    let reason = MessageDamage::CutOff { needs: HEAD_LEN as u64, has }.to_string();
    FileStart::Damaged { end: has, reason }
}

fn not_a_log(found: &[u8]) -> FileStart {
    let what = format!("not a VEL log: expected {}, found {}", hex_bytes(&MAGIC), hex_bytes(found));
    FileStart::Refused { at: 0, what }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex_bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
