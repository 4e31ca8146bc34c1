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

/// What is wrong with the positions of groups of records that the summary at `start` has, and with
/// where this footer record says that they are, one sentence each.
pub(super) fn offset_faults((start, summary): (u64, &[u8]), footer: &[u8]) -> Vec<String> {
    let (mut groups, mut offsets) = (BTreeMap::<u8, Group>::new(), Vec::new());
    let (mut rest, end) = (summary, start + summary.len() as u64);
    while let Some(head) = Head::parse(rest) {
        let at = end - rest.len() as u64;
        let content = rest.get(HEAD as usize..).unwrap_or_default();
        let len = usize::try_from(head.len).unwrap_or(usize::MAX);
        let Some((content, after)) = content.split_at_checked(len) else { break };
        let group =
            groups.entry(head.opcode).or_insert(Group { start: at, end: at, is_whole: true });
        group.is_whole &= group.end == at;
        group.end = at + head.record_len();
        if head.opcode == op::SUMMARY_OFFSET {
            let mut fields = RecordFields(content);
            let kind = fields.take(1).and_then(|kind| kind.first().copied());
            offsets.extend(kind.zip(fields.u64()).zip(fields.u64()));
        }
        rest = after;
    }
    let is_wrong = |((kind, at), len): &&((u8, u64), u64)| match groups.get(kind) {
        Some(group) => {
            !group.is_whole || (*at, at.saturating_add(*len)) != (group.start, group.end)
        }
        None => *len > 0,
    };
    let (wrong, all) = (offsets.iter().filter(is_wrong).count(), offsets.len());
    let first = offsets.iter().find(is_wrong).map(|((kind, _), _)| record_name(*kind));
    let wrong = first.map(|kind| {
        format!(
            "{wrong} of {all} summary offsets do not name all records of a kind: first that of \
             {kind} records"
        )
    });
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
