//! Copies metadata, attachments and channels without messages of the MCAP files that a run reads:
//! they are no events.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use sluice_io::escape::printable;
use sluice_io::files::{self, InputFiles, LogFile};
use sluice_kit::WantedChannels;
use sluice_kit::gap::{self, GapEnd};
use sluice_model::options::ByteSize;
use sluice_model::{BlockPool, ChannelQuery, Error, Name, RunHandle, RunInput};

use crate::checksums::StoredCrc;
use crate::chunk::DEFAULT_MAX_CHUNK;
use crate::declare::{NO_NUMBERS, Numbering};
use crate::finish::McapFile;
use crate::index::{FileIndex, IndexCache};
use crate::summary::{FileEnd, MAX_SUMMARY, Summary, summary_start};
use crate::walk::{FoundAt, Walk};
use crate::wire::{AttachmentHead, HEAD, Head, MAGIC, RecordFields, op, record_name, shown};

/// The bytes copied at a time.
const STEP: u64 = 256 << 10;
/// The longest record of a compressed file that is waited for, while its format is unknown.
const MAX_LOOK: ByteSize = ByteSize(16 << 20);
/// The longest name of an attachment or of metadata.
pub(crate) const MAX_NAMES: u64 = 64 << 10;

/// The MCAP files among the inputs of a run.
pub(crate) fn mcap_inputs(inputs: &[RunInput]) -> impl Iterator<Item = &Path> {
    inputs.iter().map(|input| &*input.path).filter(|path| is_mcap(path))
}

fn is_mcap(path: &Path) -> bool {
    // Whoever reads the file reports errors.
    files::is_address_or_file(path)
        && LogFile::open(path).and_then(|log| starts_file(log, path)).unwrap_or_default()
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

/// Declares the channels of a file that its summary lists, that have no messages and that the run
/// wants. Returns a note about those that do not fit, with their number.
fn declare_silent(
    (summary, wanted): (&Summary, &ChannelQuery),
    (numbering, to): (&mut Numbering, &mut McapFile),
) -> Result<Option<(String, u64)>, Error> {
    let (mut new, mut undeclared) = (Vec::new(), Vec::new());
    for channel in summary.silent_channels() {
        let schema = summary.declarations.schemas.get(&channel.schema);
        if !wanted.may_want(Name::from_bytes(&channel.topic).text()) {
            continue;
        }
        // Its schema may be anywhere in the file.
        if schema.is_none() && channel.schema != 0 {
            continue;
        }
        if !numbering.declare_silent(channel, schema.map(|schema| &**schema), &mut new) {
            undeclared.push(channel);
        }
    }
    to.write(&new)?;
    Ok(undeclared.first().map(|channel| {
        let topic = shown(&channel.topic);
        let what = format!(
            "{NO_NUMBERS}, and none is left for channels without messages, such as `{topic}`: \
             they are not declared; fewer channels (--channel) leave room for them"
        );
        (what, undeclared.len() as u64)
    }))
}

/// Copies the metadata and attachments of a file, and declares its channels without messages. Notes
/// what is not copied, or is wrong by its checksum, also if it fails then.
pub(crate) fn copy(
    path: &Path,
    run: &RunHandle,
    (numbering, to): (&mut Numbering, &mut McapFile),
    notes: &mut Vec<(String, u64)>,
) -> Result<(), Error> {
    let (inputs, wanted) = (run.shared::<InputFiles>(), run.shared::<WantedChannels>().of(path));
    let index = FileIndex::cached(&IndexCache::default(), path, &inputs)?;
    if let Some(summary) = index.as_ref().and_then(|index| index.summary()) {
        notes.extend(declare_silent((summary, &wanted), (numbering, to))?);
    }
    let (mut log, stop) = (inputs.open(path)?, run.clone());
    log.stop_when(move || stop.is_cancelled());
    let input = path.to_string_lossy();
    let input = printable(&input);
    let summary = for_each_record(walk(log, DEFAULT_MAX_CHUNK, run), |walk, at, head| {
        let wrong = copy_record(walk, (at, head), to)?;
        notes.extend(wrong.map(|what| (format!("{input}: {what}"), 0)));
        Ok(())
    })?;
    if let Some(summary) = summary {
        notes.extend(declare_silent((&summary, &wanted), (numbering, to))?);
    }
    Ok(())
}

/// Calls `found` with the content of every metadata record and attachment of a file, or as much of
/// it as `most` allows. Reads all heads of records. Returns the summary of a stream.
pub(crate) fn records(
    log: LogFile,
    most: u64,
    mut found: impl FnMut(Head, &[u8]),
) -> Result<Option<Box<Summary>>, Error> {
    for_each_record(walk(log, DEFAULT_MAX_CHUNK, &RunHandle::default()), |walk, at, head| {
        found(head, &walk.read(at + HEAD, head.len.min(most))?);
        Ok(())
    })
}

/// Calls `found` with the place of every metadata record and attachment, whose length is right.
/// Returns the last summary of a stream, of which that cannot be read first.
fn for_each_record(
    mut walk: Walk,
    mut found: impl FnMut(&mut Walk, u64, Head) -> Result<(), Error>,
) -> Result<Option<Box<Summary>>, Error> {
    let (mut at, mut end_of_stream) = (MAGIC.len() as u64, StreamEnd::default());
    while !walk.is_cancelled() {
        walk.forget(at);
        at = match walk.place(at)? {
            FoundAt::End => match pass_gap(&mut walk, at)? {
                GapEnd { at, is_found: true } => at,
                GapEnd { is_found: false, .. } => break,
            },
            FoundAt::Magic => at + MAGIC.len() as u64,
            FoundAt::Record(head) => {
                let end = walk.end_of(at, head)?;
                if !walk.is_whole(at, head)? {
                    at = walk.search(at + 1, None)?;
                    continue;
                }
                if !walk.is_seekable() {
                    end_of_stream.pass(&mut walk, at..end, head.opcode)?;
                }
                let is_copied = matches!(head.opcode, op::METADATA | op::ATTACHMENT);
                if is_copied && walk.goes_on(end)? {
                    found(&mut walk, at, Head { len: end.saturating_sub(at + HEAD), ..head })?;
                }
                walk.skip(at, end)?
            }
            FoundAt::Cut(_) | FoundAt::Garbage(_) => walk.search(at + 1, None)?,
        };
    }
    Ok(end_of_stream.summary)
}

/// What follows the data section of a stream.
#[derive(Default)]
struct StreamEnd {
    /// Its position, and its bytes so far.
    read: Option<(u64, Vec<u8>)>,
    summary: Option<Box<Summary>>,
}

impl StreamEnd {
    /// A record of this kind is at `range`.
    fn pass(&mut self, walk: &mut Walk, range: Range<u64>, opcode: u8) -> Result<(), Error> {
        if opcode == op::DATA_END {
            self.read = Some((range.end, Vec::new()));
            return Ok(());
        }
        let Some((start, mut bytes)) = self.read.take() else { return Ok(()) };
        let len = range.end - range.start;
        // Behind damage it is not complete, and a longer one is not used.
        let is_next = range.start - start == bytes.len() as u64;
        if !is_next || bytes.len() as u64 + len > MAX_SUMMARY {
            return Ok(());
        }
        let record = walk.read(range.start, len)?;
        if opcode != op::FOOTER {
            bytes.extend(record);
            self.read = Some((start, bytes));
        } else if let Ok(Some(_)) = summary_start(&record, range.start)
            && let FileEnd::Summary(summary) = FileEnd::parse(start, &bytes, &record)
        {
            self.summary = Some(summary);
        }
        Ok(())
    }
}

/// Goes on behind damage of compressed data that ended the file at `at`, as whoever reads it
/// reports.
fn pass_gap(walk: &mut Walk, at: u64) -> Result<GapEnd, Error> {
    gap::pass_gap(walk, at, Walk::resume, |walk, from| {
        let at = walk.search(from, None)?;
        Ok(GapEnd { at, is_found: at < walk.end() })
    })
}

/// Returns a note if it is not copied, or is an attachment that is wrong by its checksum.
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
        let (name, most) = (record_name(head.opcode), MAX_NAMES >> 10);
        return Ok(Some(format!(
            "the {name} record at byte {at} is not copied: its names are longer than {most} KiB"
        )));
    }
    let mut crc = attachment.as_ref().map(StoredCrc::of_attachment);
    let mut copy = |to: &mut McapFile| copy_bytes(walk, (at, head), crc.as_mut(), to);
    match head.len <= STEP {
        true => copy(to)?,
        false => to.write_all_or_nothing(copy)?,
    }
    attachment.iter().for_each(|attachment| to.note_attachment((start, len), attachment));
    metadata.iter().for_each(|name| to.note_metadata((start, len), name));
    let why = crc.and_then(StoredCrc::fault);
    Ok(attachment.zip(why).map(|(attachment, why)| {
        format!("attachment `{}` is copied as it is: {why}", shown(&attachment.name))
    }))
}

/// Copies the record at `at`, with the length in this head, and adds it to a checksum.
fn copy_bytes(
    walk: &mut Walk,
    (at, head): (u64, Head),
    mut crc: Option<&mut StoredCrc>,
    to: &mut McapFile,
) -> Result<(), Error> {
    let (mut part, mut done) = (head.bytes(), 0);
    while done < head.len {
        let due = STEP.min(head.len - done);
        let read = walk.read(at + HEAD + done, due)?;
        if (read.len() as u64) < due {
            let gone = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Error::io("copy metadata and attachments of", walk.path(), gone));
        }
        part.extend(read);
        to.write(&part)?;
        crc.iter_mut().for_each(|crc| crc.add(&part));
        part.clear();
        done += due;
        walk.forget(at + HEAD + done);
    }
    Ok(())
}
