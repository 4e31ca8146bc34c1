//! Tells messages from damage where the fast path cannot: at damage and at block boundaries.
//!
//! It does no I/O of its own, keeps no state between calls, and returns no payloads. The result
//! depends only on the bytes of the log, the position and the [`Rules`], not on how they were read.
//! The index is never used to find messages.
//!
//! # What is at a position
//!
//! The format has no checksum and no sync word. It has a size before each message, a marker after
//! the size, and known layouts of some payloads.
//!
//! | | bytes at `p` | result |
//! |---|---|---|
//! | 1 | the end of the file | end |
//! | | the end mark (size `0xFFFFFFFF`) at the start of an erased block, and a plausible message after it | damage |
//! | | any other end mark, or with `after_damage = "stop"` | end; nothing after it is read |
//! | 2 | fewer than 4 bytes, or than the size claims | damage: cut off |
//! | | a size below 17 or above [`Rules::max_message`] | damage |
//! | 3 | a message begins inside its payload, where its layout ends | damage up to there |
//! | 4 | another marker than `0x31`; confirmed, of a known type or with a version from 0 to 65535 and a time | **deleted**: damage of this message, or an event with `deleted = "keep"` |
//! | | any other with another marker | damage |
//! | 5 | an invalid time; confirmed | damage of this message |
//! | | an invalid time; not confirmed | damage |
//! | 6 | confirmed | **message** |
//! | | not confirmed, and its payload contradicts its size | damage |
//! | | not confirmed, and a message in it contradicts its size | damage |
//! | | not confirmed, and nothing contradicts its size | **message**, with damage after it |
//! | 7 | other damage extends to | the next plausible message, or the end of the file |
//! | | with `after_damage = "stop"`, all damage but that of rules 4 and 5 that is confirmed, to | the end of the file |
//!
//! A message is *confirmed* if it is followed by something valid: the end of the file, fewer than
//! 21 bytes with a possible size, the end mark, or a header with a possible size, the marker and a
//! time. Deleted messages are skipped as long as they end within 16 MiB, and four in a row confirm,
//! too. A message of a known type and version is also confirmed if its payload ends exactly where
//! its layout says, unless a message in it contradicts that: its lengths stay as they were where
//! bytes are missing, and then cover what follows.
//!
//! A payload *contradicts* its size if its known layout ends elsewhere. That alone is no damage of
//! a confirmed message: what follows shows that its size is right, and its payload is passed on.
//! But if a message begins where the layout ends, that is where this message ends: one that is
//! plausible, that leads exactly to the end that the size claims, or that was deleted and is of a
//! known type. A message inside contradicts the size of the one around it, whose layout is unknown
//! or ends with it, if it is plausible and ends outside; so do 64 plausible messages inside.
//!
//! # What is plausible after damage
//!
//! A message is plausible with marker `0x31`, a possible size within the file, a valid time, a
//! version from 0 to 65535; and as
//!
//! - a known type and version whose payload is not shorter than its layout, or a type whose name
//!   was given; or
//! - the first of four such messages in a row, each within an hour of the one before, that end
//!   within 16 MiB after the first; or
//! - the first of two or three that lead exactly to the end of the file or the end mark.
//!
//! So a run of zeros is one damage, and a few messages of unknown types between two damages are
//! lost with them.
//!
//! # Cost
//!
//! Linear in the damage and in what follows an erased block. A candidate is a byte `0x31` after a
//! possible size, and costs at most five headers and four counts, at most 16 MiB after its own end:
//! a stream has to buffer all that is in between. Only a message that nothing valid follows is
//! searched inside, until 64 plausible messages are found, so no byte is searched by more than 65
//! of them. No allocation depends on a length in the log: a search holds one window of up to 64
//! KiB.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

use sluice_kit::window::{ReadAt, bytes_from};
use sluice_model::Error;

use crate::hash::is_built_in;
use crate::layout::{PayloadFit, may_end, payload_fit};
use crate::rules::{AfterDamage, DeletedMessages, Rules};
use crate::wire::{END_MARK, HEADER_LEN, MARKER, MIN_SIZE, MessageHeader, SIZE_LEN};

mod candidates;
mod damage;

use candidates::CandidateSearch;

pub use damage::MessageDamage;

/// Versions accepted when searching for messages.
const PLAUSIBLE_VERSIONS: Range<i32> = 0..0x1_0000;
/// Messages in a row that are accepted whatever their type.
const CHAIN_LEN: usize = 4;
/// How far after the end of a message others are read to confirm it.
const LOOK_AHEAD: u64 = 16 << 20;
/// Most milliseconds from one message of a chain to the next.
const MAX_CHAIN_GAP: f64 = 3_600_000.0;
/// Plausible messages inside one that prove its size wrong.
const MAX_INNER: usize = 64;

/// What is at a position of a log.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageScan {
    /// A message starts here.
    Message {
        /// Its header.
        header: MessageHeader,
        /// The position after its last byte.
        end: u64,
    },
    /// No valid message starts here.
    Damage {
        /// Where reading continues, or the end of the log.
        end: u64,
        /// What was found instead of a message.
        reason: MessageDamage,
    },
    /// The log ends here.
    End,
}

/// Classifies what is at `pos`: a message, damage, or the end of the log.
///
/// Confirming a message takes a few small reads. Damage and what follows an erased block are
/// scanned.
/// `Err` comes only from `log`.
pub fn classify(log: &mut dyn ReadAt, pos: u64, rules: &Rules) -> Result<MessageScan, Error> {
    let header = match whole_message_at(log, pos, rules)? {
        PositionHeader::End => return Ok(MessageScan::End),
        PositionHeader::EndMark => return end_or_damage(log, pos, rules),
        PositionHeader::CutOff { needs } => {
            let has = bytes_from(log, pos, needs)?;
            return damage_at(log, pos, MessageDamage::CutOff { needs, has }, rules);
        }
        PositionHeader::Impossible(reason) => return damage_at(log, pos, reason, rules),
        PositionHeader::Message(header) => header,
    };
    match check_message(log, pos, &header, rules)? {
        MessageCheck::Resync(reason) => damage_at(log, pos, reason, rules),
        MessageCheck::Skip { end, reason } => Ok(MessageScan::Damage { end, reason }),
        MessageCheck::Valid => Ok(MessageScan::Message { header, end: end_of(pos, &header) }),
    }
}

/// Start of the first plausible message in `range`; `None` if there is none.
///
/// Inside a message, a message in its payload cannot be told from one of the log.
pub fn find(log: &mut dyn ReadAt, range: Range<u64>, rules: &Rules) -> Result<Option<u64>, Error> {
    first_plausible(log, &mut CandidateSearch::new(range, rules), rules)
}

/// The end of the message at `pos`, if it is plausible.
pub fn plausible_end(log: &mut dyn ReadAt, pos: u64, rules: &Rules) -> Result<Option<u64>, Error> {
    let PositionHeader::Message(header) = whole_message_at(log, pos, rules)? else {
        return Ok(None);
    };
    if !is_plausible(&header, rules) {
        return Ok(None);
    }
    Ok(is_recognized(log, pos, &header, None, rules)?.then_some(end_of(pos, &header)))
}

/// Whether a message may have a wrong size that swallows others, so that [`classify`] has to
/// decide. `payload` may be cut off.
#[inline]
pub(crate) fn may_swallow(header: &MessageHeader, payload: &[u8], rules: &Rules) -> bool {
    let (mut log, len, key) = (payload, header.payload_len(), (header.type_id, header.version));
    if payload.len() as u64 == len && may_end(payload, key) {
        return false;
    }
    match payload_fit(&mut log, 0, len, key) {
        Ok(PayloadFit::TooLong { layout_len }) => {
            let inner = usize::try_from(layout_len).ok().and_then(|at| payload.get(at..));
            let inner = inner.and_then(<[u8]>::first_chunk).and_then(MessageHeader::parse);
            inner.is_none_or(|inner| is_plausible(&undeleted(inner), rules))
        }
        // Its counts may be in what is cut off.
        Ok(PayloadFit::TooShort) => (payload.len() as u64) < len,
        Ok(PayloadFit::Unknown | PayloadFit::Exact | PayloadFit::Newer) | Err(_) => false,
    }
}

/// What a header alone, and the end of the file, tell about a position.
enum PositionHeader {
    Message(MessageHeader),
    /// The message or its header extends beyond the end of the file.
    CutOff {
        needs: u64,
    },
    Impossible(MessageDamage),
    /// The log says that nothing follows.
    EndMark,
    End,
}

fn whole_message_at(
    log: &mut dyn ReadAt,
    pos: u64,
    rules: &Rules,
) -> Result<PositionHeader, Error> {
    match header_at(log, pos, rules)? {
        PositionHeader::Message(header) if !reaches(log, end_of(pos, &header))? => {
            Ok(PositionHeader::CutOff { needs: header.message_len() })
        }
        seen => Ok(seen),
    }
}

/// As [`whole_message_at`], but does not check that the file contains the whole message.
fn header_at(log: &mut dyn ReadAt, pos: u64, rules: &Rules) -> Result<PositionHeader, Error> {
    let mut bytes = [0; HEADER_LEN];
    let there = log.read_at(pos, &mut bytes)?;
    let bytes_there = bytes.get(..there).unwrap_or_default();
    let Some((size, _)) = bytes_there.split_first_chunk::<SIZE_LEN>() else {
        let cut_off = PositionHeader::CutOff { needs: SIZE_LEN as u64 };
        return Ok(if there == 0 { PositionHeader::End } else { cut_off });
    };
    let size = u32::from_le_bytes(*size);
    if size == END_MARK {
        return Ok(PositionHeader::EndMark);
    }
    if size < MIN_SIZE {
        return Ok(PositionHeader::Impossible(MessageDamage::Small(size)));
    }
    if !rules.is_possible(size) {
        let max_message = rules.max_message;
        return Ok(PositionHeader::Impossible(MessageDamage::AboveLimit { size, max_message }));
    }
    let header = if there == HEADER_LEN { MessageHeader::parse(&bytes) } else { None };
    let needs = u64::from(size) + SIZE_LEN as u64;
    Ok(header.map_or(PositionHeader::CutOff { needs }, PositionHeader::Message))
}

/// Whether the log extends to `end`.
pub(crate) fn reaches(log: &mut dyn ReadAt, end: u64) -> Result<bool, Error> {
    Ok(log.read_at(end.saturating_sub(1), &mut [0])? > 0)
}

fn end_of(pos: u64, header: &MessageHeader) -> u64 {
    pos.saturating_add(header.message_len())
}

/// What to do with a complete message.
enum MessageCheck {
    Valid,
    /// Skip it up to `end`: what follows is certain.
    Skip {
        end: u64,
        reason: MessageDamage,
    },
    /// Search for the next message: its start is unknown.
    Resync(MessageDamage),
}

/// Rules 3 to 6, for a message of possible size that is completely in the file.
fn check_message(
    log: &mut dyn ReadAt,
    pos: u64,
    header: &MessageHeader,
    rules: &Rules,
) -> Result<MessageCheck, Error> {
    let (end, size) = (end_of(pos, header), header.size);
    let fit = fit_at(log, pos, header)?;
    if let Some(end) = swallowed(log, pos..end, fit, rules)? {
        let reason = MessageDamage::Payload(size);
        return Ok(match rules.after_damage {
            AfterDamage::Search => MessageCheck::Skip { end, reason },
            AfterDamage::Stop => MessageCheck::Resync(reason),
        });
    }
    let is_followed = is_followed(log, end, rules)?;
    let inner = match fit {
        PayloadFit::TooLong { .. } | PayloadFit::TooShort => None,
        // Lengths in a payload are still right where a part of it is missing.
        _ if !is_followed && (fit == PayloadFit::Exact || rules.is_sound(header)) => {
            contradiction(log, pos..end, rules)?
        }
        _ => None,
    };
    let is_confirmed = is_followed || (fit == PayloadFit::Exact && inner.is_none());
    let skip_or_resync = |reason| match is_confirmed {
        true => MessageCheck::Skip { end, reason },
        false => MessageCheck::Resync(reason),
    };
    let bad_time = rules.time(header.ms).is_none().then_some(MessageDamage::Time(header.ms));
    if header.marker != MARKER {
        let marker = header.marker;
        let is_deleted = is_confirmed && may_be_deleted(header, rules);
        return Ok(match (is_deleted, bad_time, rules.deleted) {
            (false, ..) => MessageCheck::Resync(MessageDamage::Marker(marker)),
            (true, _, DeletedMessages::Skip) => skip_or_resync(MessageDamage::Deleted(marker)),
            (true, Some(reason), DeletedMessages::Keep) => skip_or_resync(reason),
            (true, None, DeletedMessages::Keep) => MessageCheck::Valid,
        });
    }
    if let Some(reason) = bad_time {
        return Ok(skip_or_resync(reason));
    }
    Ok(match (fit, inner) {
        _ if is_confirmed => MessageCheck::Valid,
        (PayloadFit::TooLong { .. } | PayloadFit::TooShort, _) => {
            MessageCheck::Resync(MessageDamage::Payload(size))
        }
        (_, Some(at)) => MessageCheck::Resync(MessageDamage::Contradicted { size, at }),
        (_, None) => MessageCheck::Valid,
    })
}

/// Start of a message inside another, where the layout of that one ends.
fn swallowed(
    log: &mut dyn ReadAt,
    message: Range<u64>,
    fit: PayloadFit,
    rules: &Rules,
) -> Result<Option<u64>, Error> {
    let PayloadFit::TooLong { layout_len } = fit else { return Ok(None) };
    let at = message.start.saturating_add(HEADER_LEN as u64).saturating_add(layout_len);
    let PositionHeader::Message(header) = whole_message_at(log, at, rules)? else {
        return Ok(None);
    };
    let is_one = is_plausible(&undeleted(header), rules)
        && is_recognized(log, at, &header, Some(message.end), rules)?;
    Ok(is_one.then_some(at))
}

/// Whether something that can follow a message is at `at`.
fn is_followed(log: &mut dyn ReadAt, mut at: u64, rules: &Rules) -> Result<bool, Error> {
    let limit = at.saturating_add(LOOK_AHEAD);
    for _ in 0..CHAIN_LEN {
        match header_at(log, at, rules)? {
            PositionHeader::End | PositionHeader::EndMark | PositionHeader::CutOff { .. } => {
                return Ok(true);
            }
            PositionHeader::Impossible(_) => return Ok(false),
            PositionHeader::Message(header) if header.marker == MARKER => {
                return Ok(rules.is_sound(&header));
            }
            PositionHeader::Message(header) if may_be_deleted(&header, rules) => {
                at = end_of(at, &header);
            }
            PositionHeader::Message(_) => return Ok(false),
        }
        if at > limit || !reaches(log, at)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fit_at(log: &mut dyn ReadAt, pos: u64, header: &MessageHeader) -> Result<PayloadFit, Error> {
    let payload = pos.saturating_add(HEADER_LEN as u64);
    payload_fit(log, payload, header.payload_len(), (header.type_id, header.version))
}

/// Start of a plausible message inside another that proves its size wrong.
fn contradiction(
    log: &mut dyn ReadAt,
    message: Range<u64>,
    rules: &Rules,
) -> Result<Option<u64>, Error> {
    let inside = message.start.saturating_add(1)..message.end;
    let (mut candidates, mut count) = (CandidateSearch::new(inside, rules), 0);
    while let Some(at) = candidates.next(log)? {
        let Some(end) = plausible_end(log, at, rules)? else { continue };
        count += 1;
        if end > message.end || count == MAX_INNER {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// As many bytes `0xFF` in a row are not an end mark only, but an erased block of flash memory.
const ERASED: usize = 64;

/// Whether the end mark at `pos` ends the log: whatever follows, unless it is part of an erased
/// block before further messages.
fn end_or_damage(log: &mut dyn ReadAt, pos: u64, rules: &Rules) -> Result<MessageScan, Error> {
    let mut block = [0; ERASED];
    let there = log.read_at(pos, &mut block)?;
    if there < ERASED || block != [0xff; ERASED] || rules.after_damage == AfterDamage::Stop {
        return Ok(MessageScan::End);
    }
    let mut candidates = CandidateSearch::new(pos.saturating_add(1)..u64::MAX, rules);
    let next = first_plausible(log, &mut candidates, rules)?;
    let damage = |end| MessageScan::Damage { end, reason: MessageDamage::Erased };
    Ok(next.map_or(MessageScan::End, damage))
}

/// Damage from `pos` up to where reading continues.
fn damage_at(
    log: &mut dyn ReadAt,
    pos: u64,
    reason: MessageDamage,
    rules: &Rules,
) -> Result<MessageScan, Error> {
    let end = resume_position(log, pos.saturating_add(1), rules)?;
    Ok(MessageScan::Damage { end, reason })
}

/// Where reading continues at `from` or later, or the end of the log.
pub(crate) fn resume_position(
    log: &mut dyn ReadAt,
    from: u64,
    rules: &Rules,
) -> Result<u64, Error> {
    let mut candidates = CandidateSearch::new(from..u64::MAX, rules);
    let next = match rules.after_damage {
        AfterDamage::Search => first_plausible(log, &mut candidates, rules)?,
        AfterDamage::Stop => {
            candidates.search.skip_to_end(log)?;
            None
        }
    };
    Ok(next.unwrap_or(candidates.search.reached()))
}

fn first_plausible(
    log: &mut dyn ReadAt,
    candidates: &mut CandidateSearch,
    rules: &Rules,
) -> Result<Option<u64>, Error> {
    candidates.search.forget();
    while let Some(at) = candidates.next(log)? {
        if plausible_end(log, at, rules)?.is_some() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn is_plausible(header: &MessageHeader, rules: &Rules) -> bool {
    rules.is_sound(header) && PLAUSIBLE_VERSIONS.contains(&header.version)
}

fn undeleted(header: MessageHeader) -> MessageHeader {
    MessageHeader { marker: MARKER, ..header }
}

/// Whether a message is plausible by its type alone.
fn is_known_type(
    log: &mut dyn ReadAt,
    pos: u64,
    header: &MessageHeader,
    rules: &Rules,
) -> Result<bool, Error> {
    if is_built_in(header.type_id) {
        return Ok(fit_at(log, pos, header)?.fits());
    }
    Ok(rules.names.name(header.type_id).is_some())
}

/// Whether a header without the marker may be that of a deleted message.
fn may_be_deleted(header: &MessageHeader, rules: &Rules) -> bool {
    rules.names.name(header.type_id).is_some() || is_plausible(&undeleted(*header), rules)
}

/// Whether the type of a message, or what follows it, shows that it is one.
fn is_recognized(
    log: &mut dyn ReadAt,
    pos: u64,
    header: &MessageHeader,
    until: Option<u64>,
    rules: &Rules,
) -> Result<bool, Error> {
    Ok(is_known_type(log, pos, header, rules)?
        || (header.marker == MARKER
            && starts_chain(log, end_of(pos, header), until, header.ms, rules)?))
}

/// Whether a message at time `ms` that ends at `at` starts a chain, or leads exactly to `until`.
fn starts_chain(
    log: &mut dyn ReadAt,
    mut at: u64,
    until: Option<u64>,
    mut ms: f64,
    rules: &Rules,
) -> Result<bool, Error> {
    let limit = at.saturating_add(LOOK_AHEAD);
    for count in 1..CHAIN_LEN {
        if Some(at) == until {
            return Ok(true);
        }
        match header_at(log, at, rules)? {
            PositionHeader::End | PositionHeader::EndMark => return Ok(count > 1),
            PositionHeader::Message(next)
                if is_plausible(&next, rules) && (next.ms - ms).abs() <= MAX_CHAIN_GAP =>
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
