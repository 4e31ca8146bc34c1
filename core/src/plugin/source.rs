//! Sources: what is read, in which pieces, and what the engine gives a reader.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::Query;
use crate::programs::RunHandle;
use crate::{Batch, BlockPool, Channels, DamageLog, Error, LossLog, files};

/// A file (or the like) that a source reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Its path, as the user named it; `-` is standard input.
    #[serde(serialize_with = "crate::name::path_as_text")]
    pub path: PathBuf,
    /// Its length, where it has one.
    pub bytes: Option<u64>,
}

/// A piece of a source's input that can be read without the others. Plain data: it is printed by
/// `plan`, compared by tests, and sent to other machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The input it is a piece of.
    pub input: PathBuf,
    /// Where it begins. An event belongs to the split in which its first byte lies.
    pub start: u64,
    /// Where it ends; nothing, if it goes on to the end of the input.
    pub end: Option<u64>,
    /// How many bytes it is likely to be; nothing for live and compressed inputs, which are then read
    /// by a thread of their own.
    pub bytes: Option<u64>,
    /// Whether it goes on until somebody ends it. What its reader has received by then is read to the
    /// end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
}

impl Split {
    /// A whole input, read in one go.
    pub fn whole(input: impl Into<PathBuf>, bytes: Option<u64>) -> Self {
        Self { input: input.into(), start: 0, end: None, bytes, live: false }
    }

    /// An input without an end. Its reader looks at [`ReadContext::is_cancelled`], and ends by itself
    /// when it has given what it had received.
    pub fn live(input: impl Into<PathBuf>) -> Self {
        Self { live: true, ..Self::whole(input, None) }
    }

    /// Pieces of about `target` bytes of files that can be entered anywhere: of each, what `wanted` says
    /// of its path and length. Pipes, which have no length, and what is compressed are pieces as a whole.
    pub fn from_files(
        inputs: Vec<Input>,
        target: u64,
        mut wanted: impl FnMut(&Path, u64) -> Result<Range<u64>, Error>,
    ) -> Result<Vec<Self>, Error> {
        let mut splits = Vec::new();
        for Input { path, bytes } in inputs {
            match bytes {
                Some(len) if !files::is_zstd(&path)? => {
                    Self::cut(&path, wanted(&path, len)?, len, target, &mut splits);
                }
                _ => splits.push(Self::whole(path, None)),
            }
        }
        Ok(splits)
    }

    /// Adds pieces of about `target` bytes that cover `wanted` of an input of `len` bytes. The last piece
    /// of the input is open, so that what is appended while it is read is not cut off.
    fn cut(input: &Path, wanted: Range<u64>, len: u64, target: u64, splits: &mut Vec<Self>) {
        let mut start = wanted.start;
        while start < wanted.end || start == 0 {
            let end = start.saturating_add(target.max(1)).min(wanted.end);
            let open = end == len;
            let bytes = Some(end - start);
            let end_of_split = (!open).then_some(end);
            splits.push(Self { end: end_of_split, start, ..Self::whole(input, bytes) });
            if open || end == start {
                return;
            }
            start = end;
        }
    }

    /// Whether `next` begins where this one ends.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        self.input == next.input && self.end == Some(next.start)
    }
}

/// Where reading a split begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitStart {
    /// At the first event the reader finds in the split.
    Search,
    /// Exactly here: the split before it ended here. May lie beyond the split's end, which then has
    /// nothing of its own.
    At(u64),
}

/// Where a reader really began, and where it stopped. Two neighbouring splits were cut right if one
/// began where the other stopped; otherwise the engine has the second one read again from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seam {
    /// The position of the first event, or of the first byte that follows the damage before it.
    pub began: Option<u64>,
    /// The position right behind the last event.
    pub ended: Option<u64>,
}

/// What reading needs from its run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadContext {
    /// The source's name in the pipeline: the events' source where the format has none of its own.
    pub source: Arc<str>,
    /// Every channel of the run.
    pub channels: Arc<Channels>,
    /// Where damage goes.
    pub damage: Arc<DamageLog>,
    /// Where a live reader says what it lost.
    pub losses: Arc<LossLog>,
    /// Whether damaged bytes of inputs that cannot be read twice are to be kept with their damage.
    pub keep_damaged_bytes: bool,
    /// What of the source is wanted: the same as its splits were made for.
    pub query: Query,
    /// Buffers to read into.
    pub blocks: BlockPool,
    /// Raised when the run ends early. Readers that wait, or read long, look at it.
    pub cancelled: Arc<AtomicBool>,
    /// Raised when nobody listens to this reader any more.
    pub abandoned: Arc<AtomicBool>,
    /// What it has to do with the run while it waits for a program.
    pub run_handle: RunHandle,
    /// Bytes of input read so far, for progress.
    pub bytes_read: Arc<AtomicU64>,
}

impl ReadContext {
    /// A context with everything at its default; for tests and small tools.
    pub fn standalone(source: &str) -> Self {
        Self {
            source: source.into(),
            channels: Arc::default(),
            damage: Arc::default(),
            losses: Arc::default(),
            keep_damaged_bytes: false,
            query: Query::default(),
            blocks: BlockPool::new(1 << 20, 4),
            cancelled: Arc::default(),
            abandoned: Arc::default(),
            run_handle: RunHandle::default(),
            bytes_read: Arc::default(),
        }
    }

    /// The same context with a damage log of its own.
    pub fn with_own_damage(&self) -> Self {
        Self { damage: Arc::default(), ..self.clone() }
    }

    /// The same context with logs of its own: what a reader says is worth what it read, which may be
    /// read again.
    pub fn with_own_logs(&self) -> Self {
        Self { losses: Arc::default(), ..self.with_own_damage() }
    }

    /// Whether the run ends early.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.is_abandoned()
    }

    /// Whether nobody listens to this reader any more.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Counts input that was read.
    pub fn count_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Reads one kind of input.
///
/// The engine asks once for [`splits`](Self::splits), then reads them on any thread in any order, and
/// commits what they give in the order of the list. Reading all splits must give what reading the
/// inputs from front to back would: events, damage and order.
pub trait Source: Send + Sync {
    /// The inputs, in reading order. Looks at names and lengths, and opens nothing.
    fn inputs(&self) -> Result<Vec<Input>, Error>;

    /// Every file that is read: the inputs, each followed by the files that belong to it. May look into
    /// the inputs to find these.
    fn files(&self) -> Result<Vec<Input>, Error> {
        self.inputs()
    }

    /// Whether its events never have decoded rows: fields of theirs are there only behind a stage that
    /// decodes.
    fn is_undecoded(&self) -> bool {
        false
    }

    /// Pieces of about `target` bytes that cover the inputs once, in order, less what `query` lets the
    /// source skip. An input that cannot be cut is one split: that is the default.
    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let _ = (target, query);
        Ok(self.inputs()?.into_iter().map(|input| Split::whole(input.path, input.bytes)).collect())
    }

    /// How many events an input holds, where the file says so by itself: told from what was written at
    /// its end, without reading events.
    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        let _ = input;
        Ok(None)
    }

    /// What is to be said of an input beside its events and damage: whether its own table of contents is
    /// right, say. A sentence each; asked by whoever looks into a log, not by runs.
    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        let _ = input;
        Ok(Vec::new())
    }

    /// What of an input's own table of contents is wrong, a sentence each: the findings that mean damage.
    /// Asked by whoever verifies a log.
    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        let _ = input;
        Ok(Vec::new())
    }

    /// Reads a split in order. Damage that can be stepped over goes to `context.damage`; `Err` means
    /// that the run cannot go on.
    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error>;
}

/// Gives a split's batches one after another.
pub trait Reader: Send {
    /// The next batch, or nothing at the end of the split.
    fn next_batch(&mut self) -> Result<Option<Batch>, Error>;

    /// Where reading began and ended; asked at the end. Sources that cut files must say it.
    fn seam(&self) -> Seam {
        Seam::default()
    }
}

impl<I: Iterator<Item = Result<Batch, Error>> + Send> Reader for I {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        self.next().transpose()
    }
}
