//! What a file says of itself besides its messages, and what is wrong with that.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::Path;

use sluice_io::files::LogFile;
use sluice_model::{Error, time};

use crate::carry;
use crate::checksums::misplaced_record;
use crate::index::FileIndex;
use crate::summary::{FileEnd, Listed, Summary};
use crate::wire::{
    AttachmentHead, ChunkIndexRecord, HEAD, Head, MAGIC, RecordFields, Statistics, op, shown,
};

/// What is wrong with a file that may have lost its end.
pub(crate) const NO_FOOTER: &str = "no footer: the file is unfinished or cut off";

/// The most attachments and metadata records that are listed.
const MAX_LISTED: usize = 20;
const MORE: &str = "more metadata or attachments are not listed here";
/// The most bytes that are read of a record.
const MAX_READ: u64 = 64 << 10;

/// The error for a file that starts with `found`, if the cause is known.
pub(crate) fn not_an_mcap_file(path: &Path, found: &[u8]) -> Option<Error> {
    let path = path.display();
    let mangled = [&MAGIC[..6], b"\n"].concat();
    if found.starts_with(&mangled) {
        return Some(Error::refused(format!(
            "{path}: every CR LF of this MCAP file was replaced by LF, as git and FTP do with \
             text: copy the original again, as binary data"
        )));
    }
    if found.starts_with(&[&MAGIC[..7], b"\r"].concat()) {
        return Some(Error::refused(format!(
            "{path}: every LF of this MCAP file was replaced by CR LF, as git and FTP do with \
             text: copy the original again, as binary data"
        )));
    }
    let (known, version) = MAGIC.split_at(5);
    let (found_known, found_version) = found.split_at_checked(5)?;
    let same_rest = version.get(1..) == found_version.get(1..);
    (found_known == known && same_rest && found_version != version).then(|| {
        let found = found_version.first().copied().unwrap_or_default();
        Error::refused(format!(
            "{path}: expected MCAP version 0, found {}; this program reads version 0 only",
            char::from(found).escape_default()
        ))
    })
}

/// What is worth knowing of a compressed file, one sentence each, without what is wrong with it.
pub(crate) fn findings_of_compressed(path: &Path) -> Result<Vec<String>, Error> {
    let mut log = LogFile::open(path)?;
    let mut findings: Vec<String> = header(&mut log)?.into_iter().collect();
    let (listed, summary) = unlisted(log)?;
    findings.extend(summary.as_ref().and_then(|summary| chunks(summary)));
    findings.extend(listed);
    findings.extend(summary.as_ref().and_then(|summary| silent_channels(summary)));
    Ok(findings)
}

/// What is worth knowing of a file, one sentence each.
pub(crate) fn findings(path: &Path, index: &FileIndex) -> Result<Vec<String>, Error> {
    let mut log = LogFile::open_plain(path)?;
    let mut findings: Vec<String> = header(&mut log)?.into_iter().collect();
    match &index.end {
        FileEnd::NoSummary => {
            findings.push("no summary".to_owned());
            findings.extend(unlisted(log)?.0);
        }
        FileEnd::Summary(summary) => {
            findings.extend(chunks(summary));
            for listed in summary.metadata.iter().take(MAX_LISTED) {
                findings.push(record_at(&mut log, op::METADATA, listed)?);
            }
            for listed in summary.attachments.iter().take(MAX_LISTED) {
                findings.push(record_at(&mut log, op::ATTACHMENT, listed)?);
            }
            let all = summary.metadata.len().max(summary.attachments.len());
            if all > MAX_LISTED {
                findings.push(MORE.to_owned());
            }
            findings.extend(silent_channels(summary));
        }
        FileEnd::Unfinished | FileEnd::Broken(_) => findings.extend(unlisted(log)?.0),
    }
    // Reading the events notes a missing footer, or damage instead.
    findings.extend(faults(index).into_iter().filter(|fault| fault != NO_FOOTER));
    Ok(findings)
}

/// The metadata and attachments of a file that no summary lists, and the summary of a stream.
fn unlisted(log: LogFile) -> Result<(Vec<String>, Option<Box<Summary>>), Error> {
    let (mut records, mut attachments, mut more) = (Vec::new(), Vec::new(), false);
    let summary = carry::records(log, MAX_READ, |head, content| {
        let listed = match head.opcode {
            op::METADATA => &mut records,
            _ => &mut attachments,
        };
        match record_text(head, content).filter(|_| listed.len() < MAX_LISTED) {
            Some(text) => listed.push(text),
            None => more = true,
        }
    })?;
    records.extend(attachments);
    records.extend(more.then(|| MORE.to_owned()));
    Ok((records, summary))
}

/// What is wrong with the end of a file, mostly its summary, one sentence each.
pub(crate) fn faults(index: &FileIndex) -> Vec<String> {
    let mut faults = index.faults.clone();
    if matches!(index.end, FileEnd::Unfinished) && index.len > 0 {
        faults.push(NO_FOOTER.to_owned());
    }
    let Some(summary) = index.summary() else { return faults };
    let Some(statistics) = &summary.statistics else { return faults };
    let Statistics { messages, counts, start, end, .. } = statistics;
    let sum = counts.values().fold(0u64, |sum, count| sum.saturating_add(*count));
    if !counts.is_empty() && sum != *messages {
        faults.push(format!("the statistics count {messages} messages, but {sum} by channel"));
    }
    let has_messages =
        |chunk: &&ChunkIndexRecord| chunk.end_time > 0 || !chunk.message_indexes.is_empty();
    let chunks = summary.chunks.iter().filter(has_messages);
    let first = chunks.clone().map(|chunk| chunk.start_time).min();
    let last = chunks.map(|chunk| chunk.end_time).max();
    // Without message indexes, a chunk of messages at time 0 looks like one without messages.
    let is_sure = *start > 0 || summary.chunks.iter().all(|chunk| has_messages(&chunk));
    let found = first.zip(last).filter(|times| is_sure && *times != (*start, *end));
    if let Some((first, last)) = found {
        faults.push(format!(
            "the statistics say that times are from {} to {}, the chunk index from {} to {}",
            instant(*start),
            instant(*end),
            instant(first),
            instant(last)
        ));
    }
    for (name, counted, listed) in [
        ("attachments", statistics.attachments, summary.attachments.len()),
        ("metadata records", statistics.metadata, summary.metadata.len()),
    ] {
        // Writers may leave indexes out.
        if counted as usize != listed && listed > 0 {
            faults.push(format!("the statistics count {counted} {name}, the index has {listed}"));
        }
    }
    faults
}

fn instant(nanos: u64) -> String {
    i64::try_from(nanos).map_or_else(|_| format!("{nanos} ns"), time::format)
}

fn header(log: &mut LogFile) -> Result<Option<String>, Error> {
    let Some((head, content)) = record(log, MAGIC.len() as u64)? else { return Ok(None) };
    let mut fields = RecordFields(&content);
    let texts = fields.bytes().zip(fields.bytes()).filter(|_| head.opcode == op::HEADER);
    Ok(texts.map(|(profile, library)| {
        let profile = match profile {
            [] => "no profile".to_owned(),
            profile => format!("profile `{}`", shown(profile)),
        };
        let library = match library {
            [] => "an unnamed library".to_owned(),
            library => format!("`{}`", shown(library)),
        };
        format!("{profile}, written by {library}")
    }))
}

fn chunks(summary: &Summary) -> Option<String> {
    let (mut kinds, mut packed, mut plain) = (BTreeMap::<&[u8], u64>::new(), 0u64, 0u64);
    for chunk in &summary.chunks {
        *kinds.entry(&chunk.compression).or_default() += 1;
        packed = packed.saturating_add(chunk.packed_len);
        plain = plain.saturating_add(chunk.plain_len);
    }
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|(name, count)| match name {
            [] => format!("{count} uncompressed"),
            name => format!("{count} with {}", shown(name)),
        })
        .collect();
    let all = summary.chunks.len();
    (all > 0).then(|| {
        let noun = if all == 1 { "chunk" } else { "chunks" };
        format!("{all} {noun} ({}): {plain} bytes of records in {packed} bytes", kinds.join(", "))
    })
}

/// The head of a record and the start of its content; `None` if there is none.
fn record(log: &mut LogFile, at: u64) -> Result<Option<(Head, Vec<u8>)>, Error> {
    let mut bytes = vec![0; (HEAD + MAX_READ) as usize];
    let read = log.read_at(at, &mut bytes)?;
    bytes.truncate(read);
    let Some(head) = Head::parse(&bytes) else { return Ok(None) };
    let mut content = bytes.split_off(HEAD as usize);
    content.truncate(usize::try_from(head.len).unwrap_or(usize::MAX));
    Ok(Some((head, content)))
}

/// A record that a summary lists, which should have this opcode.
fn record_at(log: &mut LogFile, opcode: u8, listed: &Listed) -> Result<String, Error> {
    let found = record(log, listed.at)?.filter(|(head, _)| head.opcode == opcode);
    let text = found.and_then(|(head, content)| record_text(head, &content));
    let kind = if opcode == op::METADATA { "metadata" } else { "attachment" };
    Ok(text.unwrap_or_else(|| misplaced_record(kind, &listed.name)))
}

/// A metadata record or an attachment.
fn record_text(head: Head, content: &[u8]) -> Option<String> {
    match head.opcode {
        op::METADATA => metadata_text(content),
        _ => attachment_text(content),
    }
}

fn metadata_text(content: &[u8]) -> Option<String> {
    let mut fields = RecordFields(content);
    let name = shown(fields.bytes()?);
    let (mut pairs, mut texts) = (RecordFields(fields.bytes().unwrap_or_default()), Vec::new());
    while let Some((key, value)) = pairs.bytes().zip(pairs.bytes()) {
        texts.push(format!("{} = {}", shown(key), shown(value)));
    }
    Some(match texts.is_empty() {
        true => format!("metadata `{name}`"),
        false => format!("metadata `{name}`: {}", texts.join(", ")),
    })
}

fn attachment_text(content: &[u8]) -> Option<String> {
    let head = AttachmentHead::parse(content)?;
    let media_type = match head.media_type.as_slice() {
        [] => "no media type".to_owned(),
        media_type => shown(media_type),
    };
    let name = shown(&head.name);
    Some(format!("attachment `{name}`: {media_type}, {} bytes", head.data_len))
}

/// The channels without messages.
fn silent_channels(summary: &Summary) -> Option<String> {
    // Nothing has messages in an empty file.
    let is_empty = summary.statistics.as_ref().is_some_and(|all| all.messages == 0);
    if is_empty {
        return None;
    }
    let names: Vec<String> =
        summary.silent_channels().map(|channel| shown(&channel.topic)).collect();
    let first = names.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(MAX_LISTED);
    match (names.len(), more) {
        (0, _) => None,
        (1, _) => Some(format!("1 channel without messages: {first}")),
        (count, 0) => Some(format!("{count} channels without messages: {first}")),
        (count, more) => {
            Some(format!("{count} channels without messages: {first} and {more} more"))
        }
    }
}
