//! Copies metadata, attachments and channels without messages of the MCAP files that a run reads:
//! they are no events.

use std::path::Path;
use std::sync::Arc;

use sluice_io::escape::printable;
use sluice_io::files::{self, InputFiles, LogFile};
use sluice_io::store::is_address;
use sluice_kit::gap::{self, GapEnd};
use sluice_model::options::ByteSize;
use sluice_model::{BlockPool, Error, RunHandle, RunInput};

use crate::checksums::{StoredCrc, attachment_fault};
use crate::declare::Numbering;
use crate::finish::{AttachmentFields, McapFile};
use crate::index::{FileIndex, IndexCache};
use crate::walk::{FoundAt, Walk};
use crate::wire::{AttachmentHead, HEAD, Head, MAGIC, RecordFields, op};

/// The bytes copied at a time.
const STEP: u64 = 256 << 10;
/// The longest record of a compressed file that is waited for.
const MAX_RECORD: ByteSize = ByteSize(1 << 30);
/// The same, while it is unknown whether it is an MCAP file.
const MAX_LOOK: ByteSize = ByteSize(16 << 20);
/// The longest name of an attachment or of metadata.
pub(crate) const MAX_NAMES: u64 = 64 << 10;

/// The MCAP files among the inputs of a run.
pub(crate) fn mcap_inputs(inputs: &[RunInput]) -> impl Iterator<Item = &Path> {
    inputs.iter().map(|input| &*input.path).filter(|path| is_mcap(path))
}

fn is_mcap(path: &Path) -> bool {
    let is_there = is_address(path) || files::is_file(path);
    // Whoever reads the file reports errors.
    is_there && LogFile::open(path).and_then(|log| starts_file(log, path)).unwrap_or_default()
}

/// Whether the first bytes are those of a file that the source reads, even if they are damaged.
fn starts_file(log: LogFile, path: &Path) -> Result<bool, Error> {
    let mut walk = walk(log, MAX_LOOK, &RunHandle::default());
    let len = MAGIC.len() as u64;
    if walk.read(0, len)? == MAGIC {
        return Ok(true);
    }
    // Damage in compressed data hides the format.
    let is_named = path.to_string_lossy().contains(".mcap");
    Ok(is_named && walk.has_damaged_start()? || walk.is_header(len)?)
}

fn walk(log: LogFile, longest: ByteSize, run: &RunHandle) -> Walk {
    let blocks = BlockPool::new(STEP as usize, 1);
    Walk::new(log, Arc::default(), longest, (blocks, run.clone()))
}

/// The profile of a file; `None` if it cannot be read.
pub(crate) fn profile(path: &Path) -> Option<String> {
    let mut log = LogFile::open(path).ok()?;
    let mut bytes = vec![0; STEP as usize];
    let read = log.read_at(MAGIC.len() as u64, &mut bytes).ok()?;
    let head = Head::parse(bytes.get(..read)?).filter(|head| head.opcode == op::HEADER)?;
    let len = usize::try_from(head.len).ok()?;
    let content = bytes.get(HEAD as usize..read)?;
    RecordFields(content.get(..len).unwrap_or(content)).text().map(str::to_owned)
}

/// Declares the channels of a file that its summary lists and that have no messages. Returns how
/// many do not fit.
pub(crate) fn declare_silent(
    path: &Path,
    inputs: &InputFiles,
    numbering: &mut Numbering,
    to: &mut McapFile,
) -> Result<u64, Error> {
    let index = FileIndex::cached(&IndexCache::default(), path, inputs)?;
    let Some(summary) = index.as_ref().and_then(|index| index.summary()) else { return Ok(0) };
    let (mut new, mut skipped) = (Vec::new(), 0);
    for channel in summary.silent_channels() {
        let schema = summary.declarations.schemas.get(&channel.schema);
        // Its schema may be anywhere in the file.
        if schema.is_none() && channel.schema != 0 {
            continue;
        }
        let is_declared =
            numbering.declare_silent(channel, schema.map(|schema| &**schema), &mut new);
        skipped += u64::from(!is_declared);
    }
    to.write(&new)?;
    Ok(skipped)
}

/// Copies the metadata and attachments of a file. Returns notes about attachments that are wrong by
/// their checksums.
pub(crate) fn copy(path: &Path, run: &RunHandle, to: &mut McapFile) -> Result<Vec<String>, Error> {
    let (mut log, stop) = (run.shared::<InputFiles>().open(path)?, run.clone());
    log.stop_when(move || stop.is_cancelled());
    let mut wrong = Vec::new();
    for_each_record(walk(log, MAX_RECORD, run), |walk, at, head| {
        wrong.extend(copy_record(walk, (at, head), to)?);
        Ok(())
    })?;
    Ok(wrong)
}

/// Calls `found` with the content of every metadata record and attachment of a file, or as much of
/// it as `most` allows. Reads all heads of records.
pub(crate) fn records(
    log: LogFile,
    most: u64,
    mut found: impl FnMut(Head, &[u8]),
) -> Result<(), Error> {
    for_each_record(walk(log, MAX_RECORD, &RunHandle::default()), |walk, at, head| {
        found(head, &walk.read(at + HEAD, head.len.min(most))?);
        Ok(())
    })
}

/// What is wrong with the attachments of a file by their checksums, one sentence each.
pub(crate) fn attachment_faults(log: LogFile) -> Result<Vec<String>, Error> {
    let mut faults = Vec::new();
    for_each_record(walk(log, MAX_RECORD, &RunHandle::default()), |walk, at, head| {
        let front = walk.read(at + HEAD, head.len.min(MAX_NAMES))?;
        let attachment = AttachmentHead::parse(&front).filter(|_| head.opcode == op::ATTACHMENT);
        let Some(attachment) = attachment else { return Ok(()) };
        let (mut crc, mut done) = (StoredCrc::of_attachment(&attachment), 0);
        while done < head.record_len() {
            let part = walk.read(at + done, STEP.min(head.record_len() - done))?;
            if part.is_empty() {
                return Ok(());
            }
            crc.add(&part);
            done += part.len() as u64;
        }
        let name = String::from_utf8_lossy(&attachment.name);
        faults.extend(crc.fault().map(|why| attachment_fault(&name, &why)));
        Ok(())
    })?;
    Ok(faults)
}

/// Calls `found` with the place of every metadata record and attachment.
fn for_each_record(
    mut walk: Walk,
    mut found: impl FnMut(&mut Walk, u64, Head) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = MAGIC.len() as u64;
    while !walk.is_cancelled() {
        walk.forget(at);
        at = match walk.place(at)? {
            FoundAt::End => match pass_gap(&mut walk, at)? {
                GapEnd { at, is_found: true } => at,
                GapEnd { is_found: false, .. } => break,
            },
            FoundAt::Magic => at + MAGIC.len() as u64,
            FoundAt::Record(head) => {
                let end = at.saturating_add(head.record_len());
                let is_copied = matches!(head.opcode, op::METADATA | op::ATTACHMENT);
                if is_copied && walk.goes_on(end)? {
                    found(&mut walk, at, head)?;
                }
                walk.skip(at, end)?
            }
            FoundAt::Cut(_) | FoundAt::Garbage(_) => walk.search(at + 1, None)?,
        };
    }
    Ok(())
}

/// Goes on behind damage of compressed data that ended the file at `at`, as whoever reads it
/// reports.
fn pass_gap(walk: &mut Walk, at: u64) -> Result<GapEnd, Error> {
    gap::pass_gap(walk, at, Walk::resume, |walk, from| {
        let at = walk.search(from, None)?;
        Ok(GapEnd { at, is_found: at < walk.end() })
    })
}

/// Returns a note if it is an attachment that is wrong by its checksum.
fn copy_record(
    walk: &mut Walk,
    (at, head): (u64, Head),
    to: &mut McapFile,
) -> Result<Option<String>, Error> {
    let (start, len) = (to.len(), head.record_len());
    let front = walk.read(at + HEAD, head.len.min(MAX_NAMES))?;
    let attachment = AttachmentHead::parse(&front).filter(|_| head.opcode == op::ATTACHMENT);
    let metadata = RecordFields(&front).bytes().filter(|_| head.opcode == op::METADATA);
    if attachment.is_none() && metadata.is_none() {
        return Ok(None);
    }
    let mut crc = attachment.as_ref().map(StoredCrc::of_attachment);
    let mut copy = |to: &mut McapFile| copy_bytes(walk, (at, len), crc.as_mut(), to);
    match len <= STEP {
        true => copy(to)?,
        false => to.write_all_or_nothing(copy)?,
    }
    let mut wrong = None;
    match (attachment, metadata) {
        (Some(found), _) => {
            let name = String::from_utf8_lossy(&found.name);
            wrong = crc
                .and_then(StoredCrc::fault)
                .map(|why| format!("attachment `{}` is copied as it is: {why}", printable(&name)));
            let AttachmentHead { log_time, create_time, name, media_type, data_len } = found;
            let fields = AttachmentFields { log_time, create_time, name, media_type, data_len };
            to.note_attachment((start, len), &fields);
        }
        (None, Some(name)) => to.note_metadata((start, len), name),
        (None, None) => {}
    }
    Ok(wrong)
}

/// Copies the `len` bytes at `at`, and adds them to a checksum.
fn copy_bytes(
    walk: &mut Walk,
    (at, len): (u64, u64),
    mut crc: Option<&mut StoredCrc>,
    to: &mut McapFile,
) -> Result<(), Error> {
    let mut done = 0;
    while done < len {
        let part = walk.read(at + done, STEP.min(len - done))?;
        if part.is_empty() {
            let gone = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Error::io(
                "copy metadata and attachments of",
                Path::new("the input"),
                gone,
            ));
        }
        to.write(&part)?;
        crc.iter_mut().for_each(|crc| crc.add(&part));
        done += part.len() as u64;
        walk.forget(at + done);
    }
    Ok(())
}
