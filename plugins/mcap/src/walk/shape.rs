//! Decides by the first bytes of a record whether it may be one. Reads no file.

#![warn(clippy::indexing_slicing)]

use crate::wire::{
    AttachmentHead, ChunkHead, FOOTER, Head, MAGIC, RecordFields, min_len, op, record_name,
};

/// The longest record of a cut file: a longer one has a wrong length.
pub(super) const MAX_CUT: u64 = 1 << 40;

/// The longest DataEnd record, with fields that a later version may add.
pub(crate) const MAX_DATA_END: u64 = 64;

/// Whether a record whose length leads past the end of the file may be cut off.
pub(super) fn may_be_cut(head: Head) -> bool {
    head.len <= MAX_CUT || head.is_unfinished_chunk()
}

pub(super) fn may_follow(head: Head) -> bool {
    head.opcode > op::HEADER && head.opcode <= op::DATA_END
}

/// Whether the fields of such a record tell their length.
pub(super) fn has_fields_len(opcode: u8) -> bool {
    matches!(opcode, op::CHUNK | op::MESSAGE_INDEX | op::METADATA | op::ATTACHMENT)
}

/// The length of the fields of a record whose content starts with these bytes, if it is known.
pub(super) fn fields_len(opcode: u8, content: &[u8]) -> Option<u64> {
    let mut fields = RecordFields(content);
    match opcode {
        op::CHUNK => Some(ChunkHead::parse(content)?.content_len()),
        op::MESSAGE_INDEX => {
            fields.take(2)?;
            Some(6 + u64::from(fields.u32()?))
        }
        op::METADATA => {
            let name = fields.bytes()?.len() as u64;
            Some(8 + name + u64::from(fields.u32()?))
        }
        op::ATTACHMENT => {
            let head = AttachmentHead::parse(content)?;
            let names = (head.name.len() + head.media_type.len()) as u64;
            (36 + names).checked_add(head.data_len)
        }
        _ => None,
    }
}

/// Whether a record that a search may find can start with these bytes: one of the format, whose
/// length is below a terabyte; or magic bytes.
pub(super) fn may_start(bytes: &[u8]) -> bool {
    let Some(head) = Head::parse(bytes) else { return false };
    bytes.starts_with(&MAGIC)
        || head.opcode > op::HEADER && head.opcode <= op::DATA_END && head.len <= MAX_CUT
}

/// Why these cannot be the head and the first bytes of a record; `None` if they can.
pub(crate) fn implausible(head: Head, content: &[u8]) -> Option<String> {
    let Head { opcode, len } = head;
    if opcode == 0 {
        return Some("no record starts with a zero".to_owned());
    }
    let name = record_name(opcode);
    let min = min_len(opcode)?;
    let is_exact = opcode != op::FOOTER || len == FOOTER;
    if len < min || !is_exact {
        let expected = if is_exact { "at least " } else { "" };
        return Some(format!("expected {expected}{min} bytes in a {name} record, found {len}"));
    }
    let content = content.get(..usize::try_from(len).unwrap_or(usize::MAX)).unwrap_or(content);
    let is_all = content.len() as u64 == len;
    let inside = fits(opcode, content, len).unwrap_or(!is_all);
    (!inside).then(|| format!("the fields of the {name} record contradict its length, {len}"))
}

/// Whether the fields of a record, whose content starts with these bytes, fit into its length;
/// `None` if the bytes do not reach as far as its fields.
fn fits(opcode: u8, content: &[u8], len: u64) -> Option<bool> {
    let mut fields = RecordFields(content);
    let mut left = len.checked_sub(min_len(opcode)?)?;
    // The length of what a 32-bit length precedes, if it fits.
    let mut array = |fields: &mut RecordFields<'_>| {
        let array = u64::from(fields.u32()?);
        let rest = left.checked_sub(array);
        left = rest.unwrap_or(left);
        Some(rest.map(|_| array))
    };
    let fits = match opcode {
        op::HEADER | op::METADATA => match array(&mut fields)? {
            Some(name) => fields.take(name).is_none() || array(&mut fields)?.is_some(),
            None => false,
        },
        op::SCHEMA => {
            fields.take(2)?;
            array(&mut fields)?.is_some()
        }
        op::CHANNEL => {
            fields.take(4)?;
            array(&mut fields)?.is_some()
        }
        op::MESSAGE_INDEX => {
            fields.take(2)?;
            array(&mut fields)?.is_some_and(|array| array.is_multiple_of(16))
        }
        op::ATTACHMENT => {
            fields.take(16)?;
            let name = array(&mut fields)?;
            match name.map(|name| fields.take(name)) {
                Some(Some(_)) => array(&mut fields)?.is_some(),
                Some(None) => true,
                None => false,
            }
        }
        op::CHUNK => {
            let chunk = ChunkHead::parse(content)?;
            // The least and the greatest of no times, as writers start with them.
            let has_no_times = chunk.end_time == 0 && chunk.start_time >= i64::MAX as u64;
            let are_times = has_no_times || chunk.start_time <= chunk.end_time;
            are_times && chunk.content_len() <= len
        }
        op::DATA_END => len <= MAX_DATA_END,
        _ => true,
    };
    // Fields that are not known are short: more of them than of others is another record.
    let is_skipped = opcode != op::CHUNK && opcode != op::HEADER;
    let known = fields_len(opcode, content).filter(|_| is_skipped);
    let is_likely = known.is_none_or(|known| (known..=known.saturating_mul(2)).contains(&len));
    Some(fits && is_likely)
}

/// Whether a record that belongs into a summary, at `at`, whose content starts with these bytes,
/// refers to what precedes it only.
pub(crate) fn refers_back(opcode: u8, content: &[u8], at: u64) -> bool {
    let mut fields = RecordFields(content);
    let mut u64s = |skipped: u64| {
        fields.take(skipped)?;
        fields.u64().zip(fields.u64())
    };
    let range = match opcode {
        op::CHUNK_INDEX => u64s(16),
        op::ATTACHMENT_INDEX | op::METADATA_INDEX => u64s(0),
        op::SUMMARY_OFFSET => u64s(1),
        op::FOOTER => return u64s(0).is_some_and(|(start, offsets)| start.max(offsets) <= at),
        op::STATISTICS => return u64s(26).is_some_and(|(start, end)| start <= end),
        _ => return true,
    };
    range.is_some_and(|(start, len)| start.saturating_add(len) <= at)
}
