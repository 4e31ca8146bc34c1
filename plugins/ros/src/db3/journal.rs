//! The rollback journal of a SQLite database: what pages were before a transaction, in one or more
//! segments. It counts if the transaction was not completed. Changes nothing.

#![warn(clippy::indexing_slicing)]

use sluice_model::Error;

use super::overlay::{Database, Format, INCOMPLETE, Overlay, is_page_size, journal_checksum};
use super::pages::{lock_page, u32_at};
use super::window::Window;

/// How each segment begins, unless its transaction was completed.
const MAGIC: &[u8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
const HEADER: usize = 28;
/// The number of pages of a segment that goes on to the end of the file.
const ALL: u32 = u32::MAX;

/// Whether this is the beginning of a journal.
pub(crate) fn is_journal(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// The header of a segment.
struct Header {
    count: u32,
    nonce: u32,
    pages: u32,
    /// The length of what is written at once, which the header fills, and of a page. Only those of
    /// the first segment count.
    sector: u32,
    page_size: u32,
}

impl Header {
    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            count: u32_at(bytes.strip_prefix(MAGIC)?, 0)?,
            nonce: u32_at(bytes, 12)?,
            pages: u32_at(bytes, 16)?,
            sector: u32_at(bytes, 20)?,
            page_size: u32_at(bytes, 24)?,
        })
    }

    fn is_valid(&self) -> bool {
        let is_sector = self.sector.is_power_of_two() && (32..=65536).contains(&self.sector);
        is_sector && is_page_size(self.page_size)
    }
}

/// Reads which pages a journal has.
pub(crate) fn read(file: &mut Window) -> Result<Overlay, Error> {
    let (len, name) = (file.len, file.input.clone());
    let start = file.get(0, HEADER)?.unwrap_or_default().to_vec();
    let mut overlay = Overlay::empty(Format::Journal(Vec::new()), &start);
    let first = Header::parse(&start).filter(Header::is_valid);
    let Some(first) = first.filter(|first| u64::from(first.sector) <= len) else {
        // A completed transaction leaves zeros, and one whose header is not whole has changed
        // nothing yet.
        if start.first().is_some_and(|first| *first != 0) {
            let why = "the header of the rollback journal is damaged: what an interrupted \
                       transaction has changed is not undone";
            overlay.damage = Some((0, len, why.to_owned()));
        }
        return Ok(overlay);
    };
    refuse_of_several(file)?;
    let (page_size, pages, sector) = (first.page_size as usize, first.pages, first.sector.into());
    overlay.set_database(Database { page_size, pages });
    overlay.note = Some(INCOMPLETE);
    let record_len = page_size + 8;
    let is_page = |page: u32| page != 0 && page != lock_page(page_size);
    let (mut at, mut next) = (sector, Some(first));
    while let Some(header) = next {
        let counted = match header.count {
            ALL => len.saturating_sub(at) / record_len as u64,
            count => count.into(),
        };
        if counted > 0 {
            overlay.add_segment(at, header.nonce);
        }
        for number in 0..counted {
            let record = file.get(at, record_len)?;
            let record = record.and_then(|record| Record::parse(record, header.nonce));
            let record = record.filter(|record| is_page(record.page));
            let Some(record) = record.filter(|record| record.page > pages || record.is_right)
            else {
                // Those that were counted were on the disk before the database was changed. Others
                // end where those of an earlier transaction begin, with another nonce.
                let mut is_damaged = header.count != ALL;
                for later in number + 1..counted {
                    if is_damaged || file.is_cancelled() {
                        break;
                    }
                    let record = file.get(at + (later - number) * record_len as u64, record_len)?;
                    let record = record.and_then(|record| Record::parse(record, header.nonce));
                    let is_right = |record: &Record| record.is_right && is_page(record.page);
                    is_damaged = record.as_ref().is_some_and(is_right);
                }
                if is_damaged {
                    let (at, why) = (
                        at.min(len),
                        "the rollback journal is damaged: what an \
                        interrupted transaction has changed is undone in part only",
                    );
                    overlay.damage = Some((at, len - at, why.to_owned()));
                }
                return Ok(overlay);
            };
            if record.page <= pages {
                overlay.add([(record.page, at + 4)], &name)?;
            }
            at += record_len as u64;
            if file.is_cancelled() {
                return Ok(overlay);
            }
        }
        at = at.next_multiple_of(sector);
        let is_whole = at.saturating_add(sector) <= len;
        next = if is_whole { file.get(at, HEADER)?.and_then(Header::parse) } else { None };
        at += sector;
    }
    Ok(overlay)
}

/// A page of a segment.
struct Record {
    page: u32,
    /// Whether its checksum is right.
    is_right: bool,
}

impl Record {
    fn parse(bytes: &[u8], nonce: u32) -> Option<Self> {
        let (page, rest) = bytes.split_first_chunk()?;
        let (content, sum) = rest.split_last_chunk()?;
        let is_right = u32::from_be_bytes(*sum) == journal_checksum(nonce, content);
        Some(Self { page: u32::from_be_bytes(*page), is_right })
    }
}

/// `Err` if the name of a journal of several databases is at the end: whether the transaction was
/// completed is known from that file.
fn refuse_of_several(file: &mut Window) -> Result<(), Error> {
    let at = file.len.saturating_sub(MAGIC.len() as u64);
    if file.get(at, MAGIC.len())? != Some(MAGIC) {
        return Ok(());
    }
    Err(Error::refused(format!(
        "an interrupted transaction was of several databases; copy all of them elsewhere, and have \
         SQLite complete the copies: {}",
        file.input
    )))
}
