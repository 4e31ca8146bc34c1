//! The foot of an archive: the index and the seek table behind its frames. Reads no frame.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use sluice_core::files::{self, LogFile};
use sluice_core::frames::{self, FrameSpan, MAGIC};
use sluice_core::store::is_address;
use sluice_core::{ByteFormat, Error, SniffResult};

use crate::format;
use crate::index::{self, Index, Note};

/// What the foot of an archive says.
pub struct Foot {
    /// Where its frames lie.
    pub spans: Vec<FrameSpan>,
    /// What they hold.
    pub index: Index,
    /// What it is an archive of.
    pub format: &'static dyn ByteFormat,
    /// How many frames stand in front of those with events: one with the format's head, or none.
    heads: usize,
}

/// The most bytes of an index that are read; what holds more cannot be one.
const MOST_INDEX: u64 = 512 << 20;

impl Foot {
    /// The foot of a file; nothing if there is none that can be believed.
    ///
    /// `Err` also if this program does not have the format that the archive holds.
    pub fn read(log: &mut LogFile) -> Result<Option<Self>, Error> {
        let Some((spans, table)) = frames::seek_table(log)? else { return Ok(None) };
        let Some(index) = index_between(log, spans.last().map_or(0, FrameSpan::end), table)? else {
            return Ok(None);
        };
        let format = format::find(&index.format);
        let format = format.ok_or_else(|| {
            Error::invalid(format!("{}: {}", log.path().display(), format::missing(&index.format)))
        })?;
        let heads = usize::from(!format.head()?.is_empty());
        let tails = usize::from(!format.tail()?.is_empty());
        let adds_up = spans.len() == heads + index.frames.len() + tails;
        Ok(adds_up.then_some(Self { spans, index, format, heads }))
    }

    /// What is known of the events of a frame; nothing for a frame without any.
    pub fn note(&self, frame: usize) -> Option<&Note> {
        self.index.frames.get(frame.checked_sub(self.heads)?)
    }
}

fn index_between(log: &mut LogFile, start: u64, end: u64) -> Result<Option<Index>, Error> {
    let len = end.checked_sub(start).filter(|len| *len <= MOST_INDEX);
    let Some(len) = len.and_then(|len| usize::try_from(len).ok()) else { return Ok(None) };
    let mut frame = vec![0; len];
    let read = log.read_at(start, &mut frame)?;
    let is_all = read == len && frames::skippable_len(&frame) == Some(len as u64);
    Ok(is_all.then(|| Index::read(&frame)).flatten())
}

/// Whether a file is an archive whose foot is there. Reads a few bytes.
pub fn sniff(path: &Path) -> Result<SniffResult, Error> {
    // What cannot be looked at is told by whoever reads it.
    if !files::is_file(path) {
        return Ok(SniffResult::No);
    }
    let mut log = LogFile::open_plain(path)?;
    let (mut magic, mut mark) = ([0; MAGIC.len()], [0; index::MARK_LEN]);
    let Some(table) = frames::table_start(&mut log)? else { return Ok(SniffResult::No) };
    let Some(at) = table.checked_sub(mark.len() as u64) else { return Ok(SniffResult::No) };
    let read = log.read_at(0, &mut magic)? + log.read_at(at, &mut mark)?;
    let is_ours = magic == MAGIC && index::is_marked(&mark) && read == magic.len() + mark.len();
    Ok(if is_ours { SniffResult::Yes } else { SniffResult::No })
}

/// The feet of the archives looked at last, so that not every split reads its index again.
#[derive(Default)]
pub struct Feet(Mutex<Vec<Kept>>);

struct Kept {
    path: PathBuf,
    /// What tells one state of the file from another: its length, and when it was written, or the version of an
    /// object.
    stamp: (u64, Option<SystemTime>, Option<String>),
    foot: Option<Arc<Foot>>,
}

impl Feet {
    /// How many are kept: archives are read one after another.
    const MOST: usize = 4;

    /// The foot of a file, read if the file was not among the last, or has changed since.
    pub fn of(&self, path: &Path) -> Result<Option<Arc<Foot>>, Error> {
        if !is_address(path) && !files::is_file(path) {
            return Ok(None);
        }
        let mut log = LogFile::open_plain(path)?;
        let modified = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let version = log.version().map(str::to_owned);
        let stamp = (log.len().unwrap_or_default(), modified, version);
        let is_it = |kept: &&Kept| kept.path == path && kept.stamp == stamp;
        if let Some(Kept { foot, .. }) = self.kept().iter().find(is_it) {
            return Ok(foot.clone());
        }
        // Two threads may both read it: that costs less than having others wait.
        let foot = Foot::read(&mut log)?.map(Arc::new);
        let mut kept = self.kept();
        kept.retain(|kept| kept.path != path);
        kept.insert(0, Kept { path: path.to_owned(), stamp, foot: foot.clone() });
        kept.truncate(Self::MOST);
        Ok(foot)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
