//! One output that is being written: its destination, compression, length and hash.

mod mark;
mod rows;
mod terminal;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::disk_file::DiskFile;
use super::faults::{FaultInjector, OutputStep, flush, inject, write_all, write_all_at};
use super::{Displacement, Outputs, Overwrite, PublishedFile, StagedOutput, folder_of};
use crate::Error;
use crate::frames;
use crate::seek_table::SeekTableBuilder;
use crate::tasks::{Job, OrderedTasks, TaskPool};
use rows::RowCounts;

/// An output that is being written. If it is dropped without [`finish`](Self::finish), it is not
/// published.
pub struct OutputFile {
    pub(super) outputs: Arc<Outputs>,
    pub(super) target: PathBuf,
    /// The path it is renamed to: mostly the target.
    pub(super) at: PathBuf,
    pub(super) destination: Destination,
    pub(super) hasher: Option<blake3::Hasher>,
    pub(super) bytes: u64,
    /// Its initial length, if it grows under its final name.
    pub(super) base: Option<u64>,
    /// Whether it continues an existing file, which it replaces.
    pub(super) continues: bool,
    /// Whether all writes succeeded.
    pub(super) whole: bool,
    /// The events in the file, which others look at.
    pub(super) events_in_file: Arc<AtomicU64>,
}

pub(super) enum Destination {
    Plain(DiskFile),
    Packed(Box<FrameWriter>),
    /// Standard output, a device, a pipe or a socket.
    Direct {
        to: Box<dyn Write + Send>,
        is_terminal: bool,
    },
}

/// A file of frames, compressed by tasks.
///
/// Nothing follows a frame that could not be written. A file that grows is then completed with the
/// frames before it.
pub(super) struct FrameWriter {
    file: HashingFile,
    /// The contents of the next frame.
    plain: Vec<u8>,
    frames: OrderedTasks<CompressedFrame>,
    /// The seek table; `None` for a file that continues another one.
    table: Option<SeekTableBuilder>,
    /// Whether all frames were written.
    whole: bool,
    /// Its initial length, if it grows under its final name.
    base: Option<u64>,
    /// What was written so far.
    counts: RowCounts,
    /// The rows of the frames in the file, and its events, which others look at.
    rows_in_file: u64,
    pub(super) events_in_file: Arc<AtomicU64>,
}

struct CompressedFrame {
    packed: Vec<u8>,
    plain: usize,
    /// What the file has up to its end.
    counts: RowCounts,
}

impl FrameWriter {
    pub(super) fn new(file: HashingFile, base: Option<u64>, tasks: &TaskPool) -> Self {
        let frames = OrderedTasks::new(tasks, tasks.width() + 2, usize::MAX);
        Self {
            file,
            plain: Vec::new(),
            frames,
            table: Some(SeekTableBuilder::default()),
            whole: true,
            base,
            counts: RowCounts::default(),
            rows_in_file: 0,
            events_in_file: Arc::default(),
        }
    }

    fn write(&mut self, target: &Path, mut bytes: &[u8]) -> Result<(), Error> {
        self.check_whole(target)?;
        if self.base.is_some() {
            // Frames of a file that grows end where a write ends, so that they have whole rows.
            if self.plain.len() >= frames::DEFAULT_LEN {
                self.cut(target)?;
            }
            self.plain.extend_from_slice(bytes);
            return Ok(());
        }
        while !bytes.is_empty() {
            let free = frames::DEFAULT_LEN - self.plain.len();
            let (now, later) = bytes.split_at(free.min(bytes.len()));
            self.plain.extend_from_slice(now);
            bytes = later;
            if self.plain.len() == frames::DEFAULT_LEN {
                self.cut(target)?;
            }
        }
        Ok(())
    }

    fn check_whole(&self, target: &Path) -> Result<(), Error> {
        let missing = || io::Error::other("an earlier frame could not be written");
        if self.whole { Ok(()) } else { Err(Error::io("complete", target, missing())) }
    }

    fn cut(&mut self, target: &Path) -> Result<(), Error> {
        let (plain, at) = (std::mem::take(&mut self.plain), target.to_owned());
        let counts = self.counts;
        let job = Job::new(plain.len(), move || {
            let packed = frames::compress(&plain, frames::DEFAULT_LEVEL);
            let packed = packed.map_err(|e| Error::io("compress", at, e))?;
            Ok(CompressedFrame { packed, plain: plain.len(), counts })
        });
        while let Some(frame) = self.frames.make_room(&job)? {
            self.put(target, &frame)?;
        }
        self.frames.start(job);
        Ok(())
    }

    fn put(&mut self, target: &Path, frame: &CompressedFrame) -> Result<(), Error> {
        self.append(target, &frame.packed)?;
        if let Some(table) = &mut self.table {
            let pushed = table.push(frame.packed.len(), frame.plain);
            pushed.map_err(|e| Error::io("write", target, e))?;
        }
        self.put_counts(frame.counts);
        Ok(())
    }

    /// Appends all of `bytes` to the file; to one that grows, all or nothing.
    fn append(&mut self, target: &Path, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|e| {
            self.whole = false;
            Error::io("write", target, e)
        })
    }

    fn flush(&mut self, target: &Path) -> Result<(), Error> {
        self.check_whole(target)?;
        if !self.plain.is_empty() {
            self.cut(target)?;
        }
        while let Some(frame) = self.frames.take_oldest()? {
            self.put(target, &frame)?;
        }
        Ok(())
    }

    /// Writes the rest and the seek table. Returns the file, the rows of its frames, and whether it
    /// has all of them.
    fn finish(mut self, target: &Path) -> (HashingFile, u64, Result<(), Error>) {
        let mut written = self.write_rest(target);
        let table = self.table.take().filter(|table| written.is_ok() || !table.is_empty());
        if let Some(table) = table {
            written = written.and(self.append(target, &table.finish()));
        }
        (self.file, self.rows_in_file, written)
    }

    fn write_rest(&mut self, target: &Path) -> Result<(), Error> {
        // A compressed file needs at least one frame.
        if self.plain.is_empty() && self.file.bytes == 0 && self.frames.is_empty() {
            self.check_whole(target)?;
            self.cut(target)?;
        }
        self.flush(target)
    }
}

/// A file that counts and hashes the bytes written to it.
pub(super) struct HashingFile {
    pub(super) disk: DiskFile,
    pub(super) hasher: Option<blake3::Hasher>,
    pub(super) bytes: u64,
}

impl Write for HashingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for OutputFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OutputFile({})", self.target.display())
    }
}

impl OutputFile {
    /// The path it will be published as.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The number of bytes written so far, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let faults = self.outputs.faults.as_deref();
        let written = match &mut self.destination {
            Destination::Plain(file) => file.write_all(bytes),
            Destination::Packed(packed) => {
                packed.write(&self.target, bytes)?;
                Ok(())
            }
            Destination::Direct { to, .. } => write_all(faults, to, bytes),
        };
        if let Err(error) = written {
            // A file that grows is as it was.
            self.whole &= self.base.is_some();
            return Err(Error::io("write", &self.target, error));
        }
        self.bytes += bytes.len() as u64;
        self.outputs.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let (Some(hasher), Destination::Plain(_) | Destination::Direct { .. }) =
            (&mut self.hasher, &self.destination)
        {
            hasher.update(bytes);
        }
        Ok(())
    }

    /// Makes everything written so far readable by others. Compressed output ends its current
    /// frame.
    pub fn flush(&mut self) -> Result<(), Error> {
        match &mut self.destination {
            Destination::Plain(_) => Ok(()),
            Destination::Packed(packed) => packed.flush(&self.target),
            Destination::Direct { to, .. } => {
                to.flush().map_err(|e| Error::io("write", &self.target, e))
            }
        }
    }

    /// Whether it grows under its final name, where others can read it.
    pub fn is_growing(&self) -> bool {
        self.base.is_some()
    }

    /// Whether its head can be replaced at the end: not if it is compressed, a stream, or continues
    /// another file.
    pub fn can_replace_head(&self) -> bool {
        matches!(self.destination, Destination::Plain(_))
            && self.base.unwrap_or(0) == 0
            && !self.continues
    }

    /// Replaces the first `len` bytes by `head`. If the lengths differ, the rest of the file is
    /// moved.
    pub fn replace_head(&mut self, len: u64, head: &[u8]) -> Result<(), Error> {
        let broken = || Error::internal("the head of this output cannot be replaced");
        let body = self.bytes.checked_sub(len).filter(|_| self.can_replace_head());
        let body = body.ok_or_else(broken)?;
        let Destination::Plain(disk) = &mut self.destination else { return Err(broken()) };
        if disk.is_truncated() {
            let what = "another program has truncated it";
            return Err(Error::io("complete", &self.target, io::Error::other(what)));
        }
        let file = &mut disk.file;
        let (fail, faults) =
            (|e| Error::io("write", &self.target, e), self.outputs.faults.as_deref());
        let end = body + head.len() as u64;
        // Until this is complete, the file is invalid.
        self.whole = false;
        shift(faults, file, (len, head.len() as u64), body).map_err(fail)?;
        write_all_at(faults, file, head, 0).map_err(fail)?;
        inject(faults, OutputStep::Resize).and_then(|()| file.set_len(end)).map_err(fail)?;
        file.seek(SeekFrom::Start(end)).map_err(fail)?;
        if let Some(hasher) = &mut self.hasher {
            *hasher = hashed(file, end).map_err(fail)?;
        }
        disk.has_grown_to(end);
        self.outputs.written.fetch_add(end.saturating_sub(self.bytes), Ordering::Relaxed);
        (self.bytes, self.whole) = (end, true);
        Ok(())
    }

    /// Stops computing a hash.
    pub(super) fn forget_hash(&mut self) {
        self.hasher = None;
        if let Destination::Packed(packed) = &mut self.destination {
            packed.file.hasher = None;
            packed.table = None;
        }
    }

    /// Completes the file, which is published with the others. `rows` is its row count in the
    /// report and the manifest: the number of its events if a source reads these back from it,
    /// however they are stored. Otherwise that of what it consists of, such as points, which is 0
    /// without events.
    ///
    /// A compressed file that grows is completed with the frames before one that could not be
    /// written, if there are any, and this is `Err`.
    pub fn finish(self, rows: u64) -> Result<(), Error> {
        let (target, at) = (self.target.clone(), self.at.clone());
        self.complete(&target, at, rows)
    }

    /// Completes a file of [`Outputs::create_below`], to be published as `target`, in or below the
    /// same folder. `rows` is as for [`finish`](Self::finish).
    pub fn finish_as(self, target: &Path, rows: u64) -> Result<(), Error> {
        let target = &self.outputs.actual_path(target);
        let at = self.outputs.place_of(target)?;
        self.outputs.make_folder(folder_of(&at))?;
        self.outputs.check_target(target)?;
        self.outputs.claim(&at)?;
        self.complete(target, at, rows)
    }

    fn complete(self, name: &Path, at: PathBuf, mut rows: u64) -> Result<(), Error> {
        let Self {
            outputs, target, destination: to, hasher, bytes, base, continues, whole, ..
        } = self;
        if !whole {
            let what = "an earlier write failed";
            return Err(Error::io("complete", name, io::Error::other(what)));
        }
        let (fail, faults) = (|e| Error::io("write", name, e), outputs.faults.as_deref());
        let mut ended = Ok(());
        let (mut file, hasher, bytes) = match to {
            Destination::Plain(file) => (Some(file), hasher, bytes),
            Destination::Packed(packed) => {
                let (counted, rows_in_file, written) = packed.finish(name);
                if written.is_err() && (base.is_none() || counted.bytes == 0) {
                    outputs.state().remove_if_empty(&target);
                    return written;
                }
                if written.is_err() {
                    rows = rows_in_file;
                }
                ended = written;
                (Some(counted.disk), counted.hasher, counted.bytes)
            }
            Destination::Direct { mut to, .. } => {
                to.flush().map_err(fail)?;
                (None, hasher, bytes)
            }
        };
        let is_truncated = file.as_mut().is_some_and(DiskFile::is_truncated);
        let file = file.map(DiskFile::finish).transpose().map_err(fail)?;
        let mut displaced = is_truncated.then_some(Displacement::Truncated);
        // What is left of the others is synced together when they are published.
        if let Some(file) = file.filter(|_| base.is_some()) {
            sync(faults, &file).map_err(fail)?;
            displaced = displaced.or_else(|| renamed(&at, &file));
        }
        let blake3 = hasher.map(|hasher| hasher.finalize().to_hex().to_string());
        let replaces = continues || outputs.overwrite != Overwrite::Refuse;
        let mut state = outputs.state();
        let temporary = state.open.remove(&target);
        state.growing.remove(&target);
        state.displaced.extend(displaced.map(|how| (name.to_owned(), how)));
        let bytes = bytes + base.unwrap_or(0);
        let file = PublishedFile { path: name.to_owned(), rows, bytes, blake3 };
        state.staged.push(StagedOutput { temporary, at, file, replaces });
        ended
    }

    /// Copies the current contents of `target`.
    pub(super) fn copy_from(&mut self, target: &Path, temporary: &Path) -> Result<(), Error> {
        let fail = |e| Error::io("copy", target, e);
        if self.hasher.is_none()
            && let Destination::Plain(DiskFile { file, .. }) = &mut self.destination
        {
            let copied = inject(self.outputs.faults.as_deref(), OutputStep::Write);
            // The file system may share blocks instead of copying.
            self.bytes = copied.and_then(|()| fs::copy(target, temporary)).map_err(fail)?;
            *file = OpenOptions::new().append(true).open(temporary).map_err(fail)?;
            drop(file.try_lock());
            return Ok(());
        }
        // A compressed target is continued with a new frame; its contents stay compressed.
        let mut old = File::open(target).map_err(fail)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = old.read(&mut buffer).map_err(fail)?;
            if read == 0 {
                return Ok(());
            }
            match &mut self.destination {
                Destination::Packed(packed) => {
                    packed.table = None;
                    packed.file.write_all(&buffer[..read]).map_err(fail)?;
                }
                _ => self.write(&buffer[..read])?,
            }
        }
    }
}

/// Whether `path` leads to this file.
fn leads_to(path: &Path, file: &File) -> bool {
    let (Ok(there), Ok(ours)) = (fs::metadata(path), file.metadata()) else { return false };
    (there.dev(), there.ino()) == (ours.dev(), ours.ino())
}

/// Whether a file that grew under this name has it no longer.
fn renamed(path: &Path, file: &File) -> Option<Displacement> {
    let has_names = file.metadata().map_or(true, |meta| meta.nlink() > 0);
    let how = if has_names { Displacement::Moved } else { Displacement::Removed };
    (!leads_to(path, file)).then_some(how)
}

/// Bytes moved or hashed at a time.
const STEP: u64 = 1 << 20;

/// Flushes a file to disk.
pub(super) fn sync(faults: Option<&FaultInjector>, file: &File) -> io::Result<()> {
    flush(faults, || file.sync_all())
}

/// Moves `len` bytes within a file.
fn shift(
    faults: Option<&FaultInjector>,
    file: &File,
    (from, to): (u64, u64),
    len: u64,
) -> io::Result<()> {
    if from == to {
        return Ok(());
    }
    let mut buffer = vec![0; STEP.min(len) as usize];
    let mut moved = 0;
    while moved < len {
        let step = STEP.min(len - moved);
        // Do not overwrite what has not been moved yet.
        let at = if to > from { len - moved - step } else { moved };
        let part = buffer.get_mut(..step as usize).unwrap_or_default();
        file.read_exact_at(part, from + at)?;
        write_all_at(faults, file, part, to + at)?;
        moved += step;
    }
    Ok(())
}

/// The hash of a file's first `len` bytes.
fn hashed(file: &File, len: u64) -> io::Result<blake3::Hasher> {
    let (mut hasher, mut buffer, mut at) = (blake3::Hasher::new(), vec![0; STEP as usize], 0);
    while at < len {
        let part = buffer.get_mut(..STEP.min(len - at) as usize).unwrap_or_default();
        file.read_exact_at(part, at)?;
        hasher.update(part);
        at += part.len() as u64;
    }
    Ok(hasher)
}
