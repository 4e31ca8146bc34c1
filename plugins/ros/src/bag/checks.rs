//! Compares what a bag says of its chunks, behind each and at its end, with their messages. Unpacks
//! all chunks.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use sluice_io::files::LogFile;
use sluice_model::options::ByteSize;
use sluice_model::{BlockPool, Error};

use super::chunk::ChunkEntry;
use super::skip::{self, MAX_INDEX};
use super::window::{BagWindow, FoundAt};
use super::wire::{RecordHeader, index_entries, whole_records};

/// By connection, the times of messages, and their places in the records of a chunk.
pub(super) type Messages = BTreeMap<u32, Vec<(i64, u32)>>;

/// What is wrong with the indexes of these chunks of a bag, one sentence each. Chunks that cannot
/// be read are damage, and left out.
pub(super) fn faults(
    log: LogFile,
    chunks: &[ChunkEntry],
    max_chunk: ByteSize,
) -> Result<Vec<String>, Error> {
    let (mut window, blocks) = (BagWindow::new(log, u64::MAX), BlockPool::new(1 << 20, 2));
    let (mut indexes, mut summaries) = (WrongChunks::default(), WrongChunks::default());
    for chunk in chunks {
        if window.is_cancelled() {
            break;
        }
        let Some((plain, end)) = chunk.unpack(&mut window, (&blocks, max_chunk))? else { continue };
        let Some(messages) = messages(&plain) else { continue };
        if indexed(&mut window, end)?.as_ref() != Some(&messages) {
            indexes.add(chunk.at);
        }
        if !is_described(&mut window, chunk, &messages)? {
            summaries.add(chunk.at);
        }
    }
    let all = chunks.len();
    let indexes = indexes.sentence(all, "the indexes behind", "do not list their messages");
    let summaries = summaries.sentence(
        all,
        "what the end of the bag says of",
        "differs from the times and numbers of their messages",
    );
    Ok(indexes.into_iter().chain(summaries).collect())
}

/// The chunks of which something is wrong: how many, and the first.
#[derive(Default)]
struct WrongChunks(Option<(u64, usize)>);

impl WrongChunks {
    fn add(&mut self, at: u64) {
        self.0.get_or_insert((at, 0)).1 += 1;
    }

    fn sentence(self, all: usize, what: &str, why: &str) -> Option<String> {
        let (first, count) = self.0?;
        Some(format!("{what} {count} of {all} chunks, first the one at byte {first}, {why}"))
    }
}

/// The messages among the records of a chunk; `None` if not all of them are whole.
pub(super) fn messages(plain: &[u8]) -> Option<Messages> {
    let (mut messages, mut end) = (Messages::new(), 0);
    for (at, record, data) in whole_records(plain) {
        if let RecordHeader::Message { connection, time } = record.header {
            let place = u32::try_from(at).unwrap_or(u32::MAX);
            messages.entry(connection).or_default().push((time, place));
        }
        end = at + record.data_at + data.len();
    }
    messages.values_mut().for_each(|list| list.sort_unstable());
    (end == plain.len()).then_some(messages)
}

/// The messages that the index at `at` lists; `None` if it cannot be read.
fn indexed(window: &mut BagWindow, mut at: u64) -> Result<Option<Messages>, Error> {
    let mut messages = Messages::new();
    while let FoundAt::Record(record) = window.place(at)?
        && let RecordHeader::Index { connection, messages: count } = record.header
    {
        if record.data_len > MAX_INDEX {
            return Ok(None);
        }
        let entries = index_entries(&window.bytes(at + record.data_at as u64, record.data_len)?);
        let Some(entries) = entries.filter(|entries| entries.len() as u64 == u64::from(count))
        else {
            return Ok(None);
        };
        messages.entry(connection).or_default().extend(entries);
        at = at.saturating_add(record.len());
    }
    messages.retain(|_, list| !list.is_empty());
    messages.values_mut().for_each(|list| list.sort_unstable());
    Ok(Some(messages))
}

/// Whether the end of the bag has the times and the numbers of a chunk's messages.
pub(super) fn is_described(
    window: &mut BagWindow,
    chunk: &ChunkEntry,
    messages: &Messages,
) -> Result<bool, Error> {
    let times = || messages.values().flatten().map(|(time, _)| *time);
    let Some((first, last)) = times().min().zip(times().max()) else { return Ok(true) };
    let Some(summary) = chunk.summary else { return Ok(false) };
    let counts = skip::counts(window, summary)?;
    let is_counted = |(id, list): (&u32, &Vec<_>)| {
        counts.get(id).is_some_and(|count| *count as usize == list.len())
    };
    let listed = counts.values().filter(|count| **count > 0).count();
    let are_counted = listed == messages.len() && messages.iter().all(is_counted);
    Ok(are_counted && summary.times == (first, last))
}
