//! One output in the making: where its bytes go, compressed or as they are, and what is known of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::faults::{FaultInjector, OutputStep, ask, write_all, write_all_at};
use super::{Outputs, Overwrite, PublishedFile, StagedOutput, folder_of};
use crate::frames::{self, SeekTableBuilder};
use crate::{Error, OrderedTasks, Tasks};

/// An output in the making. Dropped without [`finish`](Self::finish), it will never be published.
pub struct OutputFile {
    pub(super) outputs: Arc<Outputs>,
    pub(super) target: PathBuf,
    /// Where it will be put: mostly there.
    pub(super) at: PathBuf,
    pub(super) destination: Destination,
    pub(super) hasher: Option<blake3::Hasher>,
    pub(super) bytes: u64,
    /// How long it was when it was opened, where it grows under its final name.
    pub(super) base: Option<u64>,
    /// Whether it continues a file, which it then replaces.
    pub(super) continues: bool,
    /// Whether all that was given to it is in it.
    pub(super) whole: bool,
}

pub(super) enum Destination {
    Plain(File),
    Packed(Box<FrameWriter>),
    Direct(Box<dyn Write + Send>),
}

/// A file of compressed frames, made by tasks.
pub(super) struct FrameWriter {
    file: HashingFile,
    /// What the next frame will hold.
    plain: Vec<u8>,
    frames: OrderedTasks<CompressedFrame>,
    /// Says where frames begin; nothing for a file that goes on behind what another program wrote.
    table: Option<SeekTableBuilder>,
    /// Whether every frame that was given to the file is in it.
    whole: bool,
}

struct CompressedFrame {
    packed: Vec<u8>,
    plain: usize,
}

impl FrameWriter {
    pub(super) fn new(file: HashingFile, tasks: &Arc<dyn Tasks>) -> Self {
        let frames = OrderedTasks::new(tasks, tasks.width() + 2);
        Self {
            file,
            plain: Vec::new(),
            frames,
            table: Some(SeekTableBuilder::default()),
            whole: true,
        }
    }

    fn write(&mut self, target: &Path, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let room = frames::DEFAULT_LEN - self.plain.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.plain.extend_from_slice(now);
            bytes = later;
            if self.plain.len() == frames::DEFAULT_LEN {
                self.cut(target)?;
            }
        }
        Ok(())
    }

    fn cut(&mut self, target: &Path) -> Result<(), Error> {
        let (plain, at) = (std::mem::take(&mut self.plain), target.to_owned());
        let done = self.frames.push(move || {
            let packed = frames::compress(&plain, frames::DEFAULT_LEVEL);
            let packed = packed.map_err(|e| Error::io("compress", at, e))?;
            Ok(CompressedFrame { packed, plain: plain.len() })
        })?;
        done.map_or(Ok(()), |frame| self.put(target, &frame))
    }

    fn put(&mut self, target: &Path, frame: &CompressedFrame) -> Result<(), Error> {
        let before = self.file.file.stream_position();
        let mut put = || {
            self.file.write_all(&frame.packed)?;
            match &mut self.table {
                Some(table) => table.push(frame.packed.len(), frame.plain),
                None => Ok(()),
            }
        };
        put().map_err(|e| {
            // Half a frame would hide what may still follow it.
            self.whole = false;
            if let Ok(before) = before {
                drop(
                    self.file
                        .file
                        .set_len(before)
                        .and_then(|()| self.file.file.seek(SeekFrom::Start(before))),
                );
            }
            Error::io("write", target, e)
        })
    }

    fn flush(&mut self, target: &Path) -> Result<(), Error> {
        if !self.plain.is_empty() {
            self.cut(target)?;
        }
        while let Some(frame) = self.frames.take_oldest()? {
            self.put(target, &frame)?;
        }
        Ok(())
    }

    fn finish(mut self, target: &Path) -> Result<HashingFile, Error> {
        // A file without any frame would not be a compressed file.
        if !self.plain.is_empty() || self.file.bytes == 0 && self.frames.is_empty() {
            self.cut(target)?;
        }
        self.flush(target)?;
        if !self.whole {
            let what = "a frame before could not be written";
            return Err(Error::io("complete", target, io::Error::other(what)));
        }
        if let Some(table) = self.table.take() {
            self.file.write_all(&table.finish()).map_err(|e| Error::io("write", target, e))?;
        }
        Ok(self.file)
    }
}

/// The file below a compressor: what arrives here is what the file holds.
pub(super) struct HashingFile {
    pub(super) file: File,
    pub(super) faults: Option<Arc<FaultInjector>>,
    pub(super) hasher: Option<blake3::Hasher>,
    pub(super) bytes: u64,
}

impl Write for HashingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_all(self.faults.as_deref(), &mut self.file, bytes)?;
        self.bytes += bytes.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl std::fmt::Debug for OutputFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OutputFile({})", self.target.display())
    }
}

impl OutputFile {
    /// Where it will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Bytes given to it so far, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether what is written shows on a terminal.
    pub fn is_terminal(&self) -> bool {
        matches!(self.destination, Destination::Direct(_))
            && self.target == Path::new("-")
            && io::stdout().is_terminal()
    }

    /// Writes bytes that are not text: refused on a terminal.
    pub fn write_binary(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.bytes == 0 && self.is_terminal() {
            return Err(Error::refused(
                "binary data is not shown on a terminal; send it to a file or a pipe",
            ));
        }
        self.write(bytes)
    }

    /// Writes bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let faults = self.outputs.faults.as_deref();
        let written = match &mut self.destination {
            Destination::Plain(file) => write_all(faults, file, bytes),
            Destination::Packed(packed) => {
                packed.write(&self.target, bytes)?;
                Ok(())
            }
            Destination::Direct(to) => write_all(faults, to, bytes),
        };
        if let Err(error) = written {
            self.undo_failed_write();
            return Err(Error::io("write", &self.target, error));
        }
        self.bytes += bytes.len() as u64;
        self.outputs.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let (Some(hasher), Destination::Plain(_) | Destination::Direct(_)) =
            (&mut self.hasher, &self.destination)
        {
            hasher.update(bytes);
        }
        Ok(())
    }

    /// Leaves what was written before a write that failed.
    fn undo_failed_write(&mut self) {
        let (Some(base), Destination::Plain(file)) = (self.base, &mut self.destination) else {
            self.whole = false;
            return;
        };
        // Half an event would hide what it is continued with. That fails only where nothing works.
        let len = base + self.bytes;
        drop(file.set_len(len).and_then(|()| file.seek(SeekFrom::Start(len))));
    }

    /// Waits until what has been written is on the disk. Completing the file does that, too; many files
    /// are faster synced beside each other before.
    pub fn sync(&self) -> Result<(), Error> {
        match &self.destination {
            Destination::Plain(file) => {
                sync(self.outputs.faults.as_deref(), file).map_err(|e| self.failed(e))
            }
            Destination::Packed(_) | Destination::Direct(_) => Ok(()),
        }
    }

    /// Brings what was written into the file, where others can read it. What is compressed is cut for it.
    pub fn flush(&mut self) -> Result<(), Error> {
        match &mut self.destination {
            Destination::Plain(_) => Ok(()),
            Destination::Packed(packed) => packed.flush(&self.target),
            Destination::Direct(to) => to.flush().map_err(|e| Error::io("write", &self.target, e)),
        }
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::io("write", &self.target, error)
    }

    /// Whether it grows under its final name, where others may read it at any moment.
    pub fn is_growing(&self) -> bool {
        self.base.is_some()
    }

    /// Whether what it begins with can be replaced once all has been written: not of what is compressed,
    /// sent on, or continues another file.
    pub fn can_replace_head(&self) -> bool {
        matches!(self.destination, Destination::Plain(_))
            && self.base.unwrap_or(0) == 0
            && !self.continues
    }

    /// Replaces the first `len` bytes by `head`. What follows moves if that is of another length: then
    /// the file is read and written once.
    pub fn replace_head(&mut self, len: u64, head: &[u8]) -> Result<(), Error> {
        let broken = || Error::internal("the head of an output was replaced that cannot be");
        let body = self.bytes.checked_sub(len).filter(|_| self.can_replace_head());
        let body = body.ok_or_else(broken)?;
        let Destination::Plain(file) = &mut self.destination else { return Err(broken()) };
        let (fail, faults) =
            (|e| Error::io("write", &self.target, e), self.outputs.faults.as_deref());
        let end = body + head.len() as u64;
        // Until all of it is done, the file is neither what it was nor what it is to be.
        self.whole = false;
        shift(faults, file, (len, head.len() as u64), body).map_err(fail)?;
        write_all_at(faults, file, head, 0).map_err(fail)?;
        ask(faults, OutputStep::Resize).and_then(|()| file.set_len(end)).map_err(fail)?;
        file.seek(SeekFrom::Start(end)).map_err(fail)?;
        if let Some(hasher) = &mut self.hasher {
            *hasher = hashed(file, end).map_err(fail)?;
        }
        self.outputs.written.fetch_add(end.saturating_sub(self.bytes), Ordering::Relaxed);
        (self.bytes, self.whole) = (end, true);
        Ok(())
    }

    /// Does without a hash.
    pub(super) fn forget_hash(&mut self) {
        self.hasher = None;
        if let Destination::Packed(packed) = &mut self.destination {
            packed.file.hasher = None;
            packed.table = None;
        }
    }

    /// Completes the file: it will be published with the others. `rows` is what it is said to hold.
    pub fn finish(self, rows: u64) -> Result<(), Error> {
        let (target, at) = (self.target.clone(), self.at.clone());
        self.complete(&target, at, rows)
    }

    /// Completes a file of [`Outputs::create_below`]: it will be published as `target`, which lies in
    /// the same folder or below it.
    pub fn finish_as(self, target: &Path, rows: u64) -> Result<(), Error> {
        let target = &self.outputs.actual_path(target);
        let at = self.outputs.place_of(target)?;
        self.outputs.make_folder(folder_of(&at))?;
        self.outputs.check_target(target)?;
        self.outputs.claim(&at)?;
        self.complete(target, at, rows)
    }

    fn complete(self, name: &Path, at: PathBuf, rows: u64) -> Result<(), Error> {
        let Self {
            outputs, target, destination: to, hasher, bytes, base, continues, whole, ..
        } = self;
        if !whole {
            let what = "a write before has failed, and what it was to write is missing";
            return Err(Error::io("complete", name, io::Error::other(what)));
        }
        let (fail, faults) = (|e| Error::io("write", name, e), outputs.faults.as_deref());
        let (file, hasher, bytes) = match to {
            Destination::Plain(file) => (Some(file), hasher, bytes),
            Destination::Packed(packed) => {
                let counted = packed.finish(name)?;
                (Some(counted.file), counted.hasher, counted.bytes)
            }
            Destination::Direct(mut to) => {
                to.flush().map_err(fail)?;
                (None, hasher, bytes)
            }
        };
        if let Some(file) = file {
            sync(faults, &file).map_err(fail)?;
        }
        let blake3 = hasher.map(|hasher| hasher.finalize().to_hex().to_string());
        let replaces = continues || outputs.overwrite != Overwrite::Refuse;
        let mut state = outputs.state();
        let temporary = state.open.remove(&target);
        state.growing.remove(&target);
        let bytes = bytes + base.unwrap_or(0);
        let file = PublishedFile { path: name.to_owned(), rows, bytes, blake3 };
        state.staged.push(StagedOutput { temporary, at, file, replaces });
        Ok(())
    }

    /// Begins with what `target` holds now.
    pub(super) fn copy_from(&mut self, target: &Path, temporary: &Path) -> Result<(), Error> {
        let fail = |e| Error::io("copy", target, e);
        if self.hasher.is_none()
            && let Destination::Plain(file) = &mut self.destination
        {
            let copied = ask(self.outputs.faults.as_deref(), OutputStep::Write);
            // The system may share the blocks instead of copying them.
            self.bytes = copied.and_then(|()| fs::copy(target, temporary)).map_err(fail)?;
            *file = OpenOptions::new().append(true).open(temporary).map_err(fail)?;
            drop(file.try_lock());
            return Ok(());
        }
        // A compressed target is continued with a new frame: what it holds already stays packed.
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

/// How much of a file is moved or hashed at a time.
const STEP: u64 = 1 << 20;

fn sync(faults: Option<&FaultInjector>, file: &File) -> io::Result<()> {
    ask(faults, OutputStep::Sync)?;
    file.sync_all()
}

/// Moves `len` bytes of a file from one place to another.
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
        // What is not moved yet must not be written over.
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
