//! Counts what a file has while it is read, and compares it with the summary.

#![warn(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use crate::channel::StoredChannel;
use crate::checksums::misplaced_record;
use crate::index::starts_chunk;
use crate::summary::{Listed, Summary};
use crate::table::{Declarations, declared_otherwise};
use crate::wire::{
    AttachmentHead, ChannelRecord, ChunkIndexRecord, HEAD, Head, MessageHead, RecordFields,
    SchemaRecord, op, parse_message_index, shown,
};

/// By channel, the times of the messages of a chunk, and their places in its records.
type Messages = BTreeMap<u16, Vec<(u64, u64)>>;

/// Positions and lengths of records, and the checksums of what indexes repeat of them, if their
/// names are not too long.
type Places = BTreeMap<(u64, u64), Option<u32>>;

/// What a file has, as far as it was read.
#[derive(Default)]
pub(super) struct Recount {
    messages: BTreeMap<u16, u64>,
    /// What was declared first with each number.
    declared: Declarations,
    /// The first bytes of each, by position.
    chunks: BTreeMap<u64, Box<[u8]>>,
    attachments: Places,
    metadata: Places,
    /// Positions and channels.
    message_indexes: BTreeSet<(u64, u16)>,
    /// The lengths of those behind each chunk.
    indexes_len: BTreeMap<u64, u64>,
    /// The chunk that the last of them are behind, until another record follows.
    indexed_chunk: Option<u64>,
    /// The position of the last chunk, its messages, and those that the indexes behind it list.
    chunk: Option<(u64, Messages, Messages)>,
    /// The chunks whose message indexes do not list their messages.
    misindexed: BTreeSet<u64>,
    /// The number of places kept, which is limited: hostile files have any number.
    places: usize,
}

/// The most places kept: of a file with more, indexes are not compared.
const MAX_PLACES: usize = 1 << 21;

impl Recount {
    /// Adds a record that is not in a chunk. Of its content, attachments and metadata need their
    /// names and what precedes them, and messages their head.
    pub(super) fn add(&mut self, at: u64, head: Head, content: &[u8]) {
        let place = (at, head.record_len());
        match head.opcode {
            op::MESSAGE_INDEX | op::ATTACHMENT | op::METADATA if !self.take_place() => {}
            op::MESSAGE_INDEX => return self.add_message_index(place, content),
            op::ATTACHMENT => {
                let crc = AttachmentHead::parse(content).map(|head| head.crc());
                self.attachments.insert(place, crc);
            }
            op::METADATA => {
                let crc = RecordFields(content).bytes().map(crc32fast::hash);
                self.metadata.insert(place, crc);
            }
            opcode => self.add_content(opcode, content),
        }
        self.indexed_chunk = None;
        self.finish_chunk();
    }

    /// Whether the place of a further record is kept.
    fn take_place(&mut self) -> bool {
        self.places += 1;
        self.places <= MAX_PLACES
    }

    /// Adds the first bytes of the chunk at `at`.
    pub(super) fn add_chunk_start(&mut self, at: u64, start: Vec<u8>) {
        if self.take_place() {
            self.chunks.insert(at, start.into());
            self.indexed_chunk = Some(at);
        }
    }

    /// Whether the chunk of this entry is where that says, as far as chunks are kept.
    pub(super) fn has_chunk(&self, entry: &ChunkIndexRecord) -> bool {
        let chunk = self.chunks.get(&entry.chunk_start);
        chunk.map_or(self.places > MAX_PLACES, |start| starts_chunk(start, entry))
    }

    /// Adds the records of the chunk at `at`.
    pub(super) fn add_chunk(&mut self, at: u64, plain: &[u8]) {
        self.finish_chunk();
        if self.places > MAX_PLACES {
            return;
        }
        let (mut messages, mut rest) = (Messages::new(), plain);
        while let Some(head) = Head::parse(rest) {
            let content = rest.get(HEAD as usize..).unwrap_or_default();
            let len = usize::try_from(head.len).unwrap_or(usize::MAX);
            let Some((content, after)) = content.split_at_checked(len) else { break };
            self.add_content(head.opcode, content);
            let message = MessageHead::parse(content).filter(|_| head.opcode == op::MESSAGE);
            if let Some((MessageHead { channel, log_time, .. }, _)) = message {
                let place = (plain.len() - rest.len()) as u64;
                messages.entry(channel).or_default().push((log_time, place));
            }
            rest = after;
        }
        self.chunk = Some((at, messages, Messages::new()));
    }

    fn add_content(&mut self, opcode: u8, content: &[u8]) {
        let all = &mut self.declared;
        let added = match opcode {
            op::MESSAGE => {
                let channel = MessageHead::parse(content).map(|(head, _)| head.channel);
                channel.into_iter().for_each(|id| *self.messages.entry(id).or_default() += 1);
                return;
            }
            op::SCHEMA => SchemaRecord::parse(content)
                .filter(|record| !all.schemas.contains_key(&record.id))
                .map(|record| all.add_schema(&record)),
            op::CHANNEL => ChannelRecord::parse(content)
                .filter(|record| !all.channels.contains_key(&record.id))
                .map(|record| all.add_channel(record.id, StoredChannel::from_record(record))),
            _ => return,
        };
        // Beyond the limit of declarations, reading them is damage.
        drop(added);
    }

    fn add_message_index(&mut self, (at, len): (u64, u64), content: &[u8]) {
        if let Some(chunk) = self.indexed_chunk {
            *self.indexes_len.entry(chunk).or_default() += len;
        }
        let Some((id, pairs)) = parse_message_index(content) else { return };
        self.message_indexes.insert((at, id));
        let Some((chunk, messages, indexed)) = &mut self.chunk else { return };
        let listed = indexed.entry(id).or_default();
        if listed.len() + pairs.len() <= messages.get(&id).map_or(0, Vec::len) {
            listed.extend(pairs);
        } else {
            // More than it has: nothing that follows makes this right.
            self.misindexed.insert(*chunk);
            self.chunk = None;
        }
    }

    fn finish_chunk(&mut self) {
        let Some((at, mut messages, mut indexed)) = self.chunk.take() else { return };
        for all in [&mut messages, &mut indexed] {
            all.retain(|_, list| !list.is_empty());
            all.values_mut().for_each(|list| list.sort_unstable());
        }
        if messages != indexed {
            self.misindexed.insert(at);
        }
    }

    /// What is wrong with the summary of the file, one sentence each.
    pub(super) fn faults(mut self, summary: &Summary) -> Vec<String> {
        self.finish_chunk();
        let mut faults = self.declaration_faults(summary);
        if self.places > MAX_PLACES {
            return faults;
        }
        faults.extend(self.schema_fault(summary));
        faults.extend(self.message_fault(summary));
        let (attachments, metadata) = (&summary.attachments, &summary.metadata);
        faults.extend(listing_faults("attachment", attachments, &self.attachments));
        faults.extend(listing_faults("metadata", metadata, &self.metadata));
        faults.extend(self.index_fault(summary));
        faults
    }

    /// Some writers count only the schemas that the data or the summary has.
    fn schema_fault(&self, summary: &Summary) -> Option<String> {
        let counted = summary.statistics.as_ref()?.schemas;
        let ids = |all: &Declarations| all.schemas.keys().filter(|id| **id != 0).copied().collect();
        let sets: [BTreeSet<u16>; 2] = [&summary.declarations, &self.declared].map(ids);
        let [listed, found] = &sets;
        let all = listed.union(found).count();
        let is_right = [listed.len(), found.len(), all].contains(&counted.into());
        (!is_right)
            .then(|| format!("the statistics count {counted} schemas, but the file has {all}"))
    }

    fn message_fault(&self, summary: &Summary) -> Option<String> {
        let statistics = summary.statistics.as_ref()?;
        let (counted, found) = (statistics.messages, self.messages.values().sum::<u64>());
        if counted != found {
            return Some(format!(
                "the statistics count {counted} messages, but the file has {found}"
            ));
        }
        let of = |counts: &BTreeMap<u16, u64>, id| counts.get(id).copied().unwrap_or_default();
        let mut ids = statistics.counts.keys().chain(self.messages.keys());
        let id = ids.find(|id| of(&statistics.counts, id) != of(&self.messages, id))?;
        let (counted, found) = (of(&statistics.counts, id), of(&self.messages, id));
        (!statistics.counts.is_empty()).then(|| {
            format!("the statistics count {counted} messages of channel {id}, but it has {found}")
        })
    }

    fn declaration_faults(&self, summary: &Summary) -> Vec<String> {
        let (listed, found) = (&summary.declarations, &self.declared);
        let schema = listed
            .schemas
            .iter()
            .find(|(id, of)| found.schemas.get(id).is_some_and(|found| found != *of));
        let channel = listed
            .channels
            .iter()
            .find(|(id, of)| found.channels.get(id).is_some_and(|found| found != *of));
        let schema = schema.map(|(id, _)| declared_otherwise("schema", *id));
        let channel = channel.map(|(id, _)| declared_otherwise("channel", *id));
        schema.into_iter().chain(channel).collect()
    }

    /// What is wrong with the message indexes that the index of chunks names.
    fn index_fault(&self, summary: &Summary) -> Option<String> {
        let indexed = || summary.chunks.iter().filter(|chunk| !chunk.message_indexes.is_empty());
        let is_wrong = |chunk: &&ChunkIndexRecord| {
            let ChunkIndexRecord { chunk_start, message_indexes, .. } = chunk;
            let is_there = |(id, at): &(u16, u64)| self.message_indexes.contains(&(*at, *id));
            self.misindexed.contains(chunk_start)
                || !message_indexes.iter().all(is_there)
                || self.indexes_len.get(chunk_start) != Some(&chunk.message_indexes_len)
        };
        let first = indexed().find(is_wrong)?.chunk_start;
        let (wrong, all) = (indexed().filter(is_wrong).count(), indexed().count());
        Some(format!(
            "the message indexes of {wrong} of {all} chunks, first that at byte {first}, do not \
             list its messages, or have another place or length than the chunk index says"
        ))
    }
}

/// The most records that are named one by one.
const MAX_NAMED: usize = 20;

/// What is wrong with the index of these records. Writers may leave it out.
fn listing_faults(what: &str, listed: &[Listed], found: &Places) -> Vec<String> {
    if listed.is_empty() {
        return Vec::new();
    }
    let fault = |one: &Listed| match found.get(&(one.at, one.len)) {
        None => Some(misplaced_record(what, &one.name)),
        Some(Some(crc)) if *crc != one.crc => {
            let name = shown(one.name.as_bytes());
            let other = "has other names, times or lengths than the index says";
            Some(format!("{what} `{name}` {other}"))
        }
        Some(_) => None,
    };
    let wrong = listed.iter().filter_map(fault).take(MAX_NAMED);
    let places: BTreeSet<(u64, u64)> = listed.iter().map(|one| (one.at, one.len)).collect();
    let unlisted = found.keys().filter(|place| !places.contains(place)).count();
    let all = found.len();
    let unlisted = (unlisted > 0).then(|| {
        format!("the index lists not all records: {unlisted} of {all} ({what}) are missing")
    });
    wrong.chain(unlisted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Append, MESSAGE_HEAD};

    fn message_index(channel: u16, pairs: &[(u64, u64)]) -> Vec<u8> {
        let mut content = Vec::new();
        content.u16(channel);
        content.array(|out| {
            pairs.iter().flat_map(|(time, place)| [time, place]).for_each(|field| out.u64(*field))
        });
        content
    }

    fn pairs_kept(recount: &Recount) -> usize {
        let lists = recount.chunk.iter().flat_map(|(_, _, indexed)| indexed.values());
        lists.map(Vec::len).sum()
    }

    #[test]
    fn no_more_pairs_of_message_indexes_are_kept_than_the_chunk_has_messages() {
        let mut plain = Vec::new();
        plain.record(op::MESSAGE, |out| out.extend([0; MESSAGE_HEAD]));
        for (copies, kept) in [(1, 1), (2, 0), (100, 0)] {
            let mut recount = Recount::default();
            recount.add_chunk(8, &plain);
            for at in 0..copies {
                let content = message_index(0, &[(0, 0)]);
                let head = Head { opcode: op::MESSAGE_INDEX, len: content.len() as u64 };
                recount.add(100 + at, head, &content);
            }
            assert_eq!(pairs_kept(&recount), kept, "{copies} copies");
            recount.finish_chunk();
            assert_eq!(recount.misindexed.len(), usize::from(copies > 1), "{copies} copies");
        }
    }

    #[test]
    fn beyond_the_limit_of_places_chunks_are_not_kept_and_not_missed() {
        let mut recount = Recount { places: MAX_PLACES - 2, ..Recount::default() };
        let entry = |at: u64| {
            let mut content = vec![0; 16];
            content.u64(at);
            content.extend([0; 40]);
            ChunkIndexRecord::parse(&content).unwrap()
        };
        recount.add_chunk_start(8, vec![0; 9]);
        assert!(!recount.has_chunk(&entry(8)) && !recount.has_chunk(&entry(5000)));
        for at in 1..100 {
            recount.add_chunk_start(50 * at, Vec::new());
            recount.add_chunk(50 * at, &[]);
        }
        assert_eq!(recount.chunks.len(), 2);
        assert!(recount.has_chunk(&entry(5000)) && !recount.has_chunk(&entry(8)));
    }
}
