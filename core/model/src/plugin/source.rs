//! The source and reader traits, splits, and the context for reading.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_io::files::{self, InputContent, InputFiles, InputHashes, LogFile};

use super::{LiveBatches, Query};
use crate::{Batch, BlockPool, Channels, DamageLog, Error, Input, LossLog, RunHandle};

/// A piece of a source's input that can be read independently. Plain data: it is printed by `plan`,
/// compared by tests, and sent to other machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The input it belongs to.
    pub input: PathBuf,
    /// Its start. An event belongs to the split in which its first byte lies.
    pub start: u64,
    /// Its end; `None` for the end of the input.
    pub end: Option<u64>,
    /// Its approximate length; `None` for live and compressed inputs, which are read on a thread of
    /// their own. For events that are made up, the bytes that they take in memory.
    pub bytes: Option<u64>,
    /// Whether it continues until it is stopped, and is received ([`Source::listen`]) rather than
    /// read. Everything received by then is still delivered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
}

impl Split {
    /// A whole input as one split.
    pub fn whole(input: impl Into<PathBuf>, bytes: Option<u64>) -> Self {
        Self { input: input.into(), start: 0, end: None, bytes, live: false }
    }

    /// The most bytes of a split that one task may read, and keep until all of them are read.
    pub const MAX_TASK_BYTES: u64 = 8 << 20;

    /// A file of `len` bytes that may hold any number of them, such as compressed chunks without an
    /// index, as one split. It is read batch by batch, however short it is.
    pub fn unbounded(input: impl Into<PathBuf>, len: u64) -> Self {
        Self::whole(input, Some(len.max(Self::MAX_TASK_BYTES + 1)))
    }

    /// A live input, for [`Source::listen`].
    pub fn live(input: impl Into<PathBuf>) -> Self {
        Self { live: true, ..Self::whole(input, None) }
    }

    /// Cuts files that can be entered anywhere into splits of about `target` bytes. `wanted`
    /// returns the range to read of each file, given its path and length. Pipes and compressed
    /// files become one split each.
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

    /// Adds splits of about `target` bytes that cover `wanted` of an input of `len` bytes. The last
    /// one is open-ended: it takes all that its reader finds.
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

    /// Whether `next` starts where this one ends.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        self.input == next.input && self.end == Some(next.start)
    }
}

/// Where reading a split starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitStart {
    /// At the first event found in the split.
    Search,
    /// Exactly here, where the previous split ended. This may be beyond the end of the split, which
    /// then has no events.
    At(u64),
}

/// Where a reader actually began and ended. If a split did not begin where the previous one ended,
/// the engine reads it again from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seam {
    /// The position of the first event, or of the first byte after damage before it.
    pub began: Option<u64>,
    /// The position after the last event.
    pub ended: Option<u64>,
}

/// The context for reading. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadContext {
    /// The source's name in the pipeline, used for events whose format stores no source.
    pub source: Arc<str>,
    /// Every channel of the run.
    pub channels: Arc<Channels>,
    /// Collects damage.
    pub damage: Arc<DamageLog>,
    /// Collects losses of live readers.
    pub losses: Arc<LossLog>,
    /// The part of the source that is needed: the query its splits were made for.
    pub query: Query,
    /// Buffers to read into.
    pub blocks: BlockPool,
    /// The connection to the run. Readers that wait or scan for long must check whether it is
    /// cancelled.
    pub run: RunHandle,
}

impl ReadContext {
    /// A context with defaults; for tests and small tools.
    pub fn standalone(source: &str) -> Self {
        Self {
            source: source.into(),
            channels: Arc::default(),
            damage: Arc::default(),
            losses: Arc::default(),
            query: Query::default(),
            blocks: BlockPool::new(1 << 20, 4),
            run: RunHandle::default(),
        }
    }

    /// Opens a log for reading: a file, an object, a pipe, or standard input (`-`), decompressed if
    /// necessary. Input that can only be read once is refused if it starts like a format that does
    /// not have this content; `None` accepts any. A pipe ends when the run is cancelled. What is
    /// added to an input during the run is not read.
    ///
    /// `Err` if another file has taken the place of an input of the run.
    pub fn open_log(
        &self,
        path: &Path,
        content: impl Into<Option<InputContent>>,
    ) -> Result<LogFile, Error> {
        let mut log = self.run.shared::<InputFiles>().open(path)?;
        log.hash_reads(&self.run.shared::<InputHashes>());
        let run = self.run.clone();
        log.stop_when(move || run.is_cancelled());
        content.into().map_or(Ok(()), |content| log.refuse_foreign(content))?;
        Ok(log)
    }

    /// The same context with its own damage log.
    pub fn with_own_damage(&self) -> Self {
        Self { damage: Arc::new(self.damage.new_log()), ..self.clone() }
    }

    /// The same context with its own logs: a split may be read again, and then its earlier reports
    /// are discarded.
    pub fn with_own_logs(&self) -> Self {
        Self { losses: Arc::default(), ..self.with_own_damage() }
    }
}

/// Reads one kind of input: a format of files, or a stream.
///
/// # How it is used
///
/// The engine calls [`inputs`](Self::inputs) and [`splits`](Self::splits) once, on the thread that
/// starts the run. It then calls [`read`](Self::read) for each split, on any thread, in any order
/// and for several splits at the same time, and commits the results in the order of the list.
/// `self` is shared between these threads and never changes: state of one split lives in its
/// [`Reader`].
///
/// # What is guaranteed
///
/// Reading all splits gives exactly what reading the inputs from front to back gives: the same
/// events, the same damage, in the same order, whatever `target` is.
/// `contract::any_splitting_is_the_same` checks this in a test. [`Seam`] describes how neighbouring
/// splits are matched.
///
/// # Errors
///
/// `Err` ends the run. Damage that can be skipped is not an error: report it to
/// [`ReadContext::damage`] and continue after it.
///
/// # Cost
///
/// Making a source only reads its options. `inputs` looks at names and lengths; `splits` may read a
/// page around each cut; only `read` reads events.
///
/// # Example
///
/// ```
/// use std::iter::once;
///
/// use sluice_kit::contract::gather;
/// use sluice_model::{
///     BatchBuilder, Channel, Encoding, Error, Input, Name, ReadContext, Reader, Source, Split,
///     SplitStart,
/// };
///
/// /// Counts to ten, one event per number.
/// struct Counter;
///
/// impl Source for Counter {
///     fn inputs(&self) -> Result<Vec<Input>, Error> {
///         Ok(vec![Input { path: "counter".into(), bytes: None }])
///     }
///
///     fn read<'s>(
///         &'s self,
///         _: &Split,
///         _: SplitStart,
///         context: &ReadContext,
///     ) -> Result<Box<dyn Reader + 's>, Error> {
///         let name = Name::from_text("COUNT");
///         let channel = Channel::new(name, context.source.clone(), Encoding::Text);
///         let channel = context.channels.intern(channel)?;
///         let mut batch = BatchBuilder::default();
///         for n in 0..10 {
///             batch.push_copy(n, n, channel, n.to_string().as_bytes());
///         }
///         // An iterator over batches is a reader.
///         Ok(Box::new(once(Ok(batch.finish()))))
///     }
/// }
///
/// let contents = gather(&Counter, u64::MAX)?;
/// assert_eq!(contents.events.len(), 10);
/// assert_eq!(contents.events[3].payload, b"3");
/// # Ok::<(), Error>(())
/// ```
pub trait Source: Send + Sync {
    /// The inputs, in reading order. Looks at names and lengths, but opens nothing.
    fn inputs(&self) -> Result<Vec<Input>, Error>;

    /// What a batch converts one by one: the inputs, or the folders of logs that are folders.
    /// Reading only one of them gives its part of the events. May open files to find which folder
    /// is one log.
    fn logs(&self) -> Result<Vec<Input>, Error> {
        self.inputs()
    }

    /// All files that are read: each input, followed by the files that belong to it. May read
    /// inputs to find these.
    fn files(&self) -> Result<Vec<Input>, Error> {
        self.inputs()
    }

    /// Whether its events never have decoded rows, so that their fields need a stage that decodes.
    fn is_undecoded(&self) -> bool {
        false
    }

    /// Whether its events have decoded rows that no stage can decode from their payloads: a run
    /// says so if no sink writes these.
    fn has_own_rows(&self) -> bool {
        false
    }

    /// Splits of about `target` bytes that cover the inputs exactly once, in order, except for what
    /// `query` allows to skip. By default each input is one split.
    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let _ = (target, query);
        Ok(self.inputs()?.into_iter().map(|input| Split::whole(input.path, input.bytes)).collect())
    }

    /// The number of events in an input, if the file stores it, without reading events.
    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        let _ = input;
        Ok(None)
    }

    /// Findings about an input besides events and damage, such as whether its index is correct, one
    /// sentence each. Used by commands that inspect logs, not by runs.
    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        let _ = input;
        Ok(Vec::new())
    }

    /// Errors in an input's own index, one sentence each: the findings that mean damage. Used by
    /// `verify`.
    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        let _ = input;
        Ok(Vec::new())
    }

    /// Opens a reader for a split. Damage that can be skipped is reported to `context.damage`.
    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error>;

    /// Starts receiving a live split ([`Split::live`]), usually on a thread of its own
    /// ([`LiveSender::start_thread`](super::LiveSender::start_thread)). Called instead of
    /// [`read`](Self::read) for live splits, on the thread that runs the pipeline.
    ///
    /// The source bounds what waits in the channel, and reports what it drops to
    /// `context.losses`. Its events have the source name of the context. When the run is cancelled
    /// it sends what it has received, and drops the sender.
    fn listen(&self, split: &Split, context: &ReadContext) -> Result<LiveBatches, Error> {
        let _ = context;
        Err(Error::internal(format!("{} is live, but cannot be received", split.input.display())))
    }
}

/// Reads the batches of one split, in order.
///
/// A reader belongs to one thread at a time: the engine calls [`next_batch`](Self::next_batch)
/// until it returns `Ok(None)` or `Err`, then [`seam`](Self::seam) once. Batches hold some thousand
/// events each; their payloads should be views into the blocks they were read into, not copies.
///
/// A reader that waits, or scans for long without finding an event, has to check
/// [`RunHandle::is_cancelled`] and then return `Ok(None)`. `Err` ends the run. A reader without an
/// end that does not check may give some more million events after a stop request.
///
/// Every iterator over `Result<Batch, Error>` that is `Send` is a reader. Implement the trait to
/// report a seam:
///
/// ```
/// use sluice_model::{Batch, Error, Reader, Seam};
///
/// struct OneBatch {
///     batch: Option<Batch>,
///     end: u64,
/// }
///
/// impl Reader for OneBatch {
///     fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
///         Ok(self.batch.take())
///     }
///
///     fn seam(&self) -> Seam {
///         Seam { began: Some(0), ended: Some(self.end) }
///     }
/// }
///
/// let mut reader = OneBatch { batch: Some(Batch::default()), end: 42 };
/// while reader.next_batch()?.is_some() {}
/// assert_eq!(reader.seam().ended, Some(42));
/// # Ok::<(), Error>(())
/// ```
pub trait Reader: Send {
    /// The next batch; `None` at the end of the split.
    fn next_batch(&mut self) -> Result<Option<Batch>, Error>;

    /// Where reading began and ended. Called at the end; required for sources that split files.
    fn seam(&self) -> Seam {
        Seam::default()
    }
}

impl<I: Iterator<Item = Result<Batch, Error>> + Send> Reader for I {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        self.next().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_parts_of_an_input_are_of_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "first").unwrap();
        let files = Arc::<InputFiles>::default();
        files.note(&Input { path: path.clone(), bytes: Some(5) });
        let mut context = ReadContext::standalone("log");
        let open = |context: &ReadContext| context.open_log(&path, None).map(drop);
        context.run = context.run.sharing(&files);
        open(&context).unwrap();
        fs::write(folder.path().join("other"), "other").unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        assert!(open(&context).unwrap_err().to_string().contains("replaced by another file"));
        open(&ReadContext::standalone("log")).unwrap();
    }
}
