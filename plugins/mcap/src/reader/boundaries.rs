//! Where files begin and end in an input: its first bytes, files that were appended to each other,
//! and damage, in which one may have begun.

#![warn(clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use sluice_kit::gap::{self, GapEnd};
use sluice_model::Error;

use super::RecordReader;
use crate::inspect::{NO_FOOTER, not_an_mcap_file};
use crate::summary::{FOOTER_RECORD, FileEnd, MAX_SUMMARY, summary_start};
use crate::walk::FoundAt;
use crate::wire::{Head, MAGIC, op};

/// The note about channels that may be those of another file.
const UNSURE: &str = "messages behind damage have channels that are declared only before it: if \
                      another file began in there, they are wrong";

/// The bytes at the start of a file in which a record is searched for, if its head is damaged.
const MAX_DAMAGED_HEAD: u64 = 16 << 20;

impl RecordReader {
    /// Reads the first bytes of a file. `Err` if it has another format.
    pub(super) fn read_magic(&mut self, path: &Path) -> Result<(), Error> {
        let len = MAGIC.len() as u64;
        let found = self.walk.view(0, len)?;
        if found == MAGIC.as_slice() {
            self.at = len;
        } else if self.walk.has_damaged_start()? {
            // Damage in the first bytes of compressed data speaks for itself.
        } else if found.is_empty() {
            self.report(0, 0, "the file is empty: expected at least a header");
        } else if found.len() < MAGIC.len() && MAGIC.starts_with(&found) {
            self.report(0, found.len() as u64, "the file is cut off in its first bytes");
            self.at = found.len() as u64;
        } else if let Some(error) = not_an_mcap_file(path, &found) {
            return Err(error);
        } else {
            let reason = format!("expected {}, found {}", hex(&MAGIC), hex(&found));
            let next = if self.walk.is_header(len)? { Some(len) } else { self.first_record()? };
            let Some(next) = next else {
                return Err(Error::refused(format!(
                    "{}: not an MCAP file: {reason}, and no record in the first {} MiB; if it has \
                     another format, name the plugin of that",
                    path.display(),
                    MAX_DAMAGED_HEAD >> 20
                )));
            };
            self.report(0, next, reason);
            self.at = next;
        }
        Ok(())
    }

    /// The first record that can be believed in a file whose head is damaged; `None` if there is
    /// nothing of an MCAP file.
    fn first_record(&mut self) -> Result<Option<u64>, Error> {
        let hints = self.hints.as_ref().map(|(_, hints)| Arc::clone(hints));
        let has_channel = |id| hints.as_ref().is_some_and(|hints| hints.channels.contains_key(&id));
        self.is_start = false;
        self.walk.find(0..MAX_DAMAGED_HEAD, Some(&has_channel), false)
    }

    /// Goes on behind damage of compressed data that ended the file at `at`, if anything follows
    /// that can be read. How much is missing is unknown.
    pub(super) fn pass_gap(&mut self, at: u64) -> Result<bool, Error> {
        let Some(reason) = self.walk.decompression_error().map(str::to_owned) else {
            if at < self.expected && self.walk.is_shorter_than(self.expected) {
                // Each split reports its own part.
                self.report(at, self.expected - at, "the file became shorter while it was read");
                self.has_ended = true;
            }
            if !self.has_ended && !self.walk.was_stopped() {
                self.context.losses.note(format!("{}: {NO_FOOTER}", self.input), 0);
                self.faults.iter().for_each(|faults| faults.add([NO_FOOTER.to_owned()]));
                self.has_ended = true;
            }
            return Ok(false);
        };
        self.doubt_channels();
        (self.has_gap, self.is_after_footer, self.follows_chunk) = (true, false, false);
        let resume = |reader: &mut Self| reader.walk.resume();
        let end = gap::pass_gap(self, at, resume, |reader, from| {
            reader.at = reader.search(from)?;
            Ok(GapEnd { at: reader.at, is_found: reader.at < reader.walk.end() })
        })?;
        let reason = self.walk.gap_reason(reason);
        // Of what follows in a stopped stream, the rest would have come. The gap would be there.
        let is_whole = end.is_found || !self.walk.was_stopped();
        self.report(at, if is_whole { end.at - at } else { 0 }, reason);
        Ok(end.is_found)
    }

    /// Takes note of damage: another file may have begun in it. However short it is, any number of
    /// bytes may be missing there.
    pub(super) fn doubt_channels(&mut self) {
        // Whatever follows the messages of a file may belong to another one.
        if self.is_summary {
            self.start_file();
            self.may_be_summary = true;
        }
        self.table.pass_damage();
    }

    /// Takes note of messages, which no summary has: those behind one are of another file, and so
    /// is what was declared behind damage in one.
    pub(super) fn leave_summary(&mut self) {
        if std::mem::take(&mut self.is_summary) {
            self.held_report = None;
            self.table.pass_damage();
        }
        if std::mem::take(&mut self.may_be_summary) {
            self.table.confirm_file();
        }
        if let Some((at, len, reason)) = self.held_report.take() {
            self.report(at, len, reason);
        }
    }

    /// Forgets what was read, which is of another file.
    fn start_file(&mut self) {
        self.note_unsure_messages();
        (self.is_summary, self.is_start, self.is_chunked) = (false, true, false);
        (self.may_be_summary, self.held_report) = (false, None);
        (self.summary_at, self.summary_from) = (None, self.at);
        self.table.start_file();
        // Positions are those of the first file.
        (self.checks, self.missing) = (None, None);
    }

    pub(super) fn note_unsure_messages(&mut self) {
        if self.table.take_unsure_messages() {
            self.context.losses.note(format!("{}: {UNSURE}", self.input), 0);
        }
    }

    /// Passes the end of a file, or the start of another one that was appended.
    pub(super) fn pass_magic(&mut self, at: u64) {
        self.has_ended = std::mem::take(&mut self.is_after_footer);
        if !self.has_ended {
            self.start_file();
            self.table.confirm_file();
        }
        self.at = at + MAGIC.len() as u64;
    }

    /// Compares a declaration in the summary with what was declared. If they differ, the latter is
    /// wrong and has no checksum, or bytes are missing in which another file began.
    pub(super) fn compare_summary(&mut self, at: u64, head: Head) -> Result<(), Error> {
        if head.len > self.max_chunk.0 {
            return Ok(());
        }
        let content = self.content(at, head.record_len())?;
        let compared = self.table.compare_summary(head.opcode, &content);
        // Whoever compares the whole file with its summary says so.
        if let Err(reason) = compared
            && self.checks.is_none()
            && !self.has_broken_summary(at)?
        {
            let reason = format!("{reason}: its messages may be wrong");
            self.report(at, head.record_len(), reason);
        }
        Ok(())
    }

    /// Whether the summary of this file, of which a record is at `at`, is wrong by its checksum.
    /// That of a stream is behind it.
    fn has_broken_summary(&mut self, at: u64) -> Result<bool, Error> {
        if !self.walk.is_seekable() {
            return Ok(false);
        }
        // Damage in a summary does not change what follows: nothing is walked through twice.
        if let Some((walked, is_broken)) = &self.walked_summary
            && walked.contains(&at)
        {
            return Ok(*is_broken);
        }
        let mut end = at;
        let is_broken = loop {
            match self.walk.place(end)? {
                FoundAt::Garbage(_) => break true,
                // A longer one is not used.
                _ if end - at > MAX_SUMMARY => break false,
                FoundAt::Record(head) => match head.opcode {
                    op::FOOTER => break self.is_broken_before(end, at)?,
                    // No summary has these.
                    op::HEADER | op::CHUNK | op::MESSAGE | op::DATA_END => break false,
                    _ => end = end.saturating_add(head.record_len()),
                },
                _ => break false,
            }
        };
        self.walked_summary = Some((at..end, is_broken));
        Ok(is_broken)
    }

    /// Whether the summary before the footer at `end`, of which a record is at `at`, is wrong by
    /// its checksum: both where the footer says that it begins, and behind the data. Of a file that
    /// was appended, the footer counts from its own start.
    fn is_broken_before(&mut self, end: u64, at: u64) -> Result<bool, Error> {
        let footer = self.walk.read(end, FOOTER_RECORD)?;
        let named = summary_start(&footer, end).ok().flatten();
        let named = named.filter(|start| (self.summary_from..=at).contains(start));
        let behind_data = self.summary_at.filter(|start| end - start <= MAX_SUMMARY);
        let behind_data = behind_data.filter(|_| behind_data != named);
        let mut is_broken = false;
        for start in named.into_iter().chain(behind_data) {
            let summary = self.walk.read(start, end - start)?;
            is_broken = matches!(FileEnd::parse(start, &summary, &footer), FileEnd::Broken(_));
            if !is_broken {
                break;
            }
        }
        Ok(is_broken)
    }
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use sluice_model::options::ByteSize;
    use sluice_model::{ReadContext, Split};

    use super::*;
    use crate::wire::Append;

    fn channel(file: &mut Vec<u8>, topic: &str) {
        file.record(op::CHANNEL, |out| {
            out.extend([1, 0, 0, 0]);
            out.bytes(topic.as_bytes());
            out.bytes(b"raw");
            out.u32(0);
        });
    }

    fn header(file: &mut Vec<u8>) {
        file.record(op::HEADER, |out| out.extend([0; 8]));
    }

    /// The bytes of summaries that are walked through, in a file with so many times what `unit`
    /// appends, and its length.
    fn walked(unit: fn(&mut Vec<u8>)) -> (u64, u64) {
        let mut file = MAGIC.to_vec();
        header(&mut file);
        (0..200).for_each(|_| unit(&mut file));
        file.record(op::FOOTER, |out| out.extend([0; 20]));
        file.extend(MAGIC);
        let stored = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(stored.path(), &file).unwrap();
        let split = Split::whole(stored.path(), None);
        let context = ReadContext::standalone("test");
        let opened = RecordReader::open(stored.path(), &split, None, ByteSize(1 << 20), &context);
        let (mut reader, mut bytes) = (opened.unwrap(), 0);
        reader.checks = None;
        let mut last = None;
        while reader.step().unwrap() {
            if reader.walked_summary != last {
                last.clone_from(&reader.walked_summary);
                bytes += last.iter().map(|(walked, _)| walked.end - walked.start).sum::<u64>();
            }
        }
        (bytes, file.len() as u64)
    }

    #[test]
    fn no_part_of_a_summary_is_walked_through_again_however_often_it_is_damaged() {
        let with_header = |file: &mut Vec<u8>| {
            channel(file, "a");
            file.record(op::DATA_END, |out| out.u32(0));
            channel(file, "b");
            header(file);
        };
        let with_unknown = |file: &mut Vec<u8>| {
            channel(file, "a");
            file.record(op::STATISTICS, |out| out.extend([0; 46]));
            channel(file, "b");
            (0..6).for_each(|_| file.record(0x90, |_| {}));
        };
        for unit in [with_header as fn(&mut Vec<u8>), with_unknown] {
            let (walked, len) = walked(unit);
            assert!((1..=len).contains(&walked), "{walked} of {len}");
        }
    }
}
