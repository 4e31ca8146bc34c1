//! Where bags begin and end in an input: its first bytes, bags that were appended to each other,
//! and damage, in which one may have begun.

#![warn(clippy::indexing_slicing)]

use std::path::Path;

use sluice_kit::gap::{self, GapEnd};
use sluice_model::Error;

use super::BagReader;
use crate::bag::connections::BagChannels;
use crate::bag::window::FoundAt;
use crate::bag::wire::{BagCompression, MAGIC, RecordHeader};

/// How far the first record of a bag may be that does not begin as one.
const MAX_WRONG_START: u64 = 16 << 20;

/// The note about connections that may be those of another bag.
const UNSURE: &str = "messages behind damage have connections that are declared only before it: if \
                      another bag began in there, they are wrong";

impl BagReader {
    /// `Err` if the file has another format.
    pub(super) fn check_start(&mut self, path: &Path) -> Result<(), Error> {
        let mut head = [0; MAGIC.len()];
        let read = self.window.read(0, &mut head)?;
        let head = head.get(..read).unwrap_or_default();
        // Damage in the first bytes of compressed data speaks for itself.
        if head == MAGIC || self.window.has_damaged_start()? {
            return Ok(());
        }
        if MAGIC.starts_with(head) {
            let reason = match read {
                0 => "the file is empty: expected at least a header",
                _ => "the file is cut off in its first bytes",
            };
            self.report(0, read as u64, reason);
            self.at = read as u64;
            return Ok(());
        }
        let (path, text) = (path.display(), printable(head));
        // No wrong bit turns version 2.0 into an older one.
        if !head.starts_with(b"#ROSBAG V1.") {
            let next = self.window.search_to(1, MAX_WRONG_START)?;
            if let FoundAt::Record(_) = self.window.place(next)? {
                let reason = format!("expected `#ROSBAG V2.0`, found `{text}`");
                self.pass_damage(0, next, Some(&reason));
                return Ok(());
            }
        }
        Err(Error::refused(match head.starts_with(b"#ROS") {
            true => format!(
                "{path}: expected a bag of version 2.0, found `{text}`; `rosbag fix` and \
                 `rosbag migrate` convert older ones"
            ),
            false => format!(
                "{path}: not a bag: expected `#ROSBAG V2.0`, found `{text}`, and no record of a \
                 bag in {} MiB; name its format (--from), or remove what precedes the bag",
                MAX_WRONG_START >> 20
            ),
        }))
    }

    /// Takes note of a bag if this is the header of its head, whatever is wrong with its data.
    pub(super) fn enter_bag(&mut self, header: &RecordHeader) -> Result<(), Error> {
        let RecordHeader::Bag { index_at, chunks, encryptor, .. } = header else { return Ok(()) };
        if !encryptor.is_empty() {
            return Err(Error::refused(format!(
                "{}: the bag is encrypted by `{}`; decrypt it with rosbag decrypt",
                self.input,
                encryptor.escape_ascii()
            )));
        }
        // Its first bytes may be missing.
        self.start_bag();
        (self.index_at, self.chunks_expected) = (*index_at, *chunks);
        Ok(())
    }

    /// Forgets what was read, which is of another bag.
    pub(super) fn start_bag(&mut self) {
        self.note_unsure_messages();
        (self.connections, self.channels) = Default::default();
        (self.index_at, self.chunks_expected, self.chunks_found) = (0, 0, 0);
        self.chunks_described = 0;
        (self.is_summary, self.has_gap, self.has_unread) = (false, false, false);
        self.expect_compression();
    }

    /// Before the first chunk that is read, the index tells whether chunks are compressed.
    pub(super) fn expect_compression(&mut self) {
        let mut compressions = self.declaring.iter().flat_map(|index| index.compressions());
        let is_packed = compressions.any(|(kind, _)| kind != BagCompression::None);
        self.window.set_packed(is_packed);
    }

    /// Forgets what was declared before damage: another bag has begun in there.
    pub(super) fn leave_bag(&mut self) {
        self.is_mixed |= self.connections.forget_unsure();
        self.channels = BagChannels::default();
        (self.index_at, self.chunks_expected) = (0, 0);
    }

    pub(super) fn note_unsure_messages(&mut self) {
        if self.connections.forget_unsure() {
            self.context.losses.note(format!("{}: {UNSURE}", self.input), 0);
        }
    }

    /// Goes on behind damage of compressed data that ended the bag at `at`, if anything follows
    /// that can be read. How much is missing is unknown.
    pub(super) fn pass_gap(&mut self, at: u64, reason: String) -> Result<bool, Error> {
        let resume = |reader: &mut Self| reader.window.resume();
        let end = gap::pass_gap(self, at, resume, |reader, from| {
            reader.at = reader.window.search(from)?;
            let is_found = reader.window.reaches(reader.at.saturating_add(1))?;
            Ok(GapEnd { at: reader.at, is_found })
        })?;
        let reason = self.window.gap_reason(reason);
        self.report(at, end.at - at, reason);
        self.doubt_connections(at);
        // Chunks may be missing, and positions are not those that the head says.
        self.has_gap = true;
        Ok(end.is_found)
    }

    /// Takes note of damage at `at`: another bag may have begun in it. However short it is, any
    /// number of bytes may be missing there.
    pub(super) fn doubt_connections(&mut self, at: u64) {
        // Whatever follows the messages of a bag belongs to another one.
        let has_all_chunks = self.index_at > 0
            && self.chunks_found >= self.chunks_expected
            && at >= self.last_chunk_end;
        self.is_summary |= has_all_chunks;
        self.leave_summary();
        self.has_unread = true;
        self.connections.pass_damage();
    }

    /// Takes note of what follows the description of the chunks: it is of another bag.
    pub(super) fn leave_summary(&mut self) {
        if self.is_summary {
            self.start_bag();
            self.declaring = None;
        }
    }

    /// Reports that the bag, which ends at `at`, has fewer chunks than its head says, and nothing
    /// else tells: it ends between two of them, or its end describes as many.
    pub(super) fn note_missing_chunks(&mut self, at: u64) {
        let (expected, found) = (self.chunks_expected, self.chunks_found);
        if found >= expected || self.window.was_stopped() {
            return;
        }
        let is_complete = self.chunks_described == expected;
        let is_cut_off = at < self.index_at && !self.has_gap && self.damaged_to < at;
        let what = match is_complete {
            true if !self.has_unread => "chunks are missing: the bag",
            false if is_cut_off => "the bag is cut off: it",
            _ => return,
        };
        self.report(at, 0, format!("{what} has {found} of {expected} chunks"));
    }
}

fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
