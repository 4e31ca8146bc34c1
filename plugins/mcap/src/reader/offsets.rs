//! Compares what a summary says of its own parts with where they are.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use crate::wire::{HEAD, Head, RecordFields, op, record_name};

/// The records of a kind in a summary.
#[derive(Debug, Default, PartialEq, Eq)]
struct Group {
    /// Where the first begins, and the last ends.
    start: u64,
    end: u64,
    /// Whether none of another kind is between them.
    is_whole: bool,
}

/// The records of a summary at `start`: their positions, heads and contents.
fn records(start: u64, summary: &[u8]) -> impl Iterator<Item = (u64, Head, &[u8])> {
    let (mut rest, end) = (summary, start + summary.len() as u64);
    std::iter::from_fn(move || {
        let head = Head::parse(rest)?;
        let len = usize::try_from(head.len).ok()?;
        let (content, after) = rest.get(HEAD as usize..)?.split_at_checked(len)?;
        let at = end - rest.len() as u64;
        rest = after;
        Some((at, head, content))
    })
}

/// What is wrong with the positions of groups of records that the summary at `start` has, and with
/// where this footer record says that they are, one sentence each.
pub(super) fn offset_faults((start, summary): (u64, &[u8]), footer: &[u8]) -> Vec<String> {
    let mut groups = BTreeMap::<u8, Group>::new();
    for (at, head, _) in records(start, summary) {
        let group =
            groups.entry(head.opcode).or_insert(Group { start: at, end: at, is_whole: true });
        group.is_whole &= group.end == at;
        group.end = at + head.record_len();
    }
    let is_wrong = |kind: u8, at: u64, len: u64| match groups.get(&kind) {
        Some(group) => !group.is_whole || (at, at.saturating_add(len)) != (group.start, group.end),
        None => len > 0,
    };
    // Read again, rather than kept: there may be millions.
    let offsets = records(start, summary).filter(|(_, head, _)| head.opcode == op::SUMMARY_OFFSET);
    let offsets = offsets.filter_map(|(.., content)| {
        let mut fields = RecordFields(content);
        Some((*fields.take(1)?.first()?, fields.u64()?, fields.u64()?))
    });
    let (mut wrong, mut all, mut first) = (0, 0, None);
    for (kind, at, len) in offsets {
        all += 1;
        if is_wrong(kind, at, len) {
            wrong += 1;
            first.get_or_insert(record_name(kind));
        }
    }
    let wrong = first.map(|kind| {
        format!(
            "{wrong} of {all} summary offsets do not name all records of a kind: first that of \
             {kind} records"
        )
    });
    let end = start + summary.len() as u64;
    wrong.into_iter().chain(place_fault(groups.get(&op::SUMMARY_OFFSET), end, footer)).collect()
}

/// What is wrong with where the footer says that summary offsets begin.
fn place_fault(offsets: Option<&Group>, end: u64, footer: &[u8]) -> Option<String> {
    let mut fields = RecordFields(footer.get(HEAD as usize..).unwrap_or_default());
    let named = fields.u64().and_then(|_| fields.u64()).filter(|named| *named > 0)?;
    let found = match offsets {
        Some(Group { start, .. }) => format!("they are at byte {start}"),
        None => "there are none".to_owned(),
    };
    let is_right = offsets.map_or(end, |group| group.start) == named;
    let says = format!("the footer says that summary offsets are at byte {named}");
    (!is_right).then(|| format!("{says}, but {found}"))
}
