//! Sink `lcm-log`: writes one log, continues a log, or writes several of limited size.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use sluice_io::files;
use sluice_model::options::{OutPath, above_zero};
use sluice_model::plugin::TimeWindow;
use sluice_model::pool::PooledBlock;
use sluice_model::{
    Batch, Encoding, Error, OutputFile, Outputs, PerChannel, PrepareContext, ReadContext, Reader,
    Sink, SinkContext, SinkTraits, Split, SplitStart, Written,
};

use crate::format::EncodableEvent;
use crate::reader;
use crate::runs::{EventBytes, EventRuns, buffer_for};
use crate::scan::ScanLimits;

/// Writes an LCM event log.
///
/// Unchanged events of an LCM log are written byte for byte as they were read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct LcmLogSink {
    /// The log; `-` is standard output, a name ending in `.zst` is compressed, and a folder (ending
    /// in a slash) gets numbered logs.
    path: OutPath,
    /// Starts a new file before the current one exceeds this many MiB: `drive.lcm` becomes
    /// `drive-00000.lcm`, `drive-00001.lcm`, and so on.
    #[serde(default, deserialize_with = "above_zero")]
    split_mb: Option<f64>,
    /// Continues an existing log. It is replaced as a whole when the run succeeds.
    #[serde(default)]
    append: bool,
    /// Numbers the events of each file from 0 instead of keeping their numbers; a continued log
    /// goes on from its last number.
    #[serde(default)]
    renumber: bool,
    #[serde(skip)]
    names: PerChannel<Arc<[u8]>>,
}

sluice_model::register! {
    sink "lcm-log": LcmLogSink,
    about: "writes LCM event logs",
    sample: include_str!("../samples/lcm-log-sink.toml"),
    default_for: &[sluice_model::DefaultRole::Log],
    extensions: &["lcm", "lcmlog", "log"],
    keeps_names_only: true,
}

/// Encoded events.
pub struct LcmBlock(BlockEvents);

enum BlockEvents {
    /// To be written as they are, and how many they are.
    Final(EventBytes, u64),
    /// To be edited one by one, and where each starts.
    Single(PooledBlock, Vec<u32>),
}

/// The open log.
#[derive(Debug)]
pub struct LcmOutput {
    outputs: Arc<Outputs>,
    file: Option<OutputFile>,
    files: u32,
    rows: u64,
    /// The number of the next event, if events are renumbered.
    number: i64,
}

impl<'de> Deserialize<'de> for LcmLogSink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sink = Self::deserialize(deserializer)?;
        let is_single = !sink.path.is_folder() && !sink.path.is_stdout();
        if sink.append && (sink.split_mb.is_some() || !is_single) {
            return Err(serde::de::Error::custom(
                "`append` continues a single file; it cannot be combined with `split_mb`, a \
                 folder or `-`",
            ));
        }
        if sink.split_mb.is_some() && sink.path.is_stdout() {
            return Err(serde::de::Error::custom(
                "`split_mb` writes several files, and standard output is one; name a file or a \
                 folder",
            ));
        }
        Ok(sink)
    }
}

impl LcmLogSink {
    fn edits_events(&self) -> bool {
        self.renumber || self.split_mb.is_some()
    }

    fn split_len(&self) -> Option<u64> {
        self.split_mb.map(|mb| (mb * f64::from(1 << 20)) as u64)
    }

    /// The path of file `n` of several.
    fn numbered_path(&self, n: u32) -> PathBuf {
        let path = &self.path.0;
        if self.path.is_folder() {
            return path.join(format!("part-{n:05}.lcm"));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // `drive.lcm.zst` gets its number before both extensions.
        let dot = name.find('.').filter(|dot| *dot > 0).unwrap_or(name.len());
        let (stem, extensions) = name.split_at(dot);
        path.with_file_name(format!("{stem}-{n:05}{extensions}"))
    }

    fn open_next_file(&self, log: &mut LcmOutput) -> Result<(), Error> {
        let numbered = self.split_mb.is_some() || self.path.is_folder();
        let path = if numbered { self.numbered_path(log.files) } else { self.path.0.clone() };
        log.file = Some(if self.append {
            log.outputs.extend(&path)?
        } else {
            log.outputs.create(&path)?
        });
        log.files += 1;
        log.rows = 0;
        log.number = 0;
        Ok(())
    }

    fn close_file(log: &mut LcmOutput) -> Result<(), Error> {
        match log.file.take() {
            Some(file) => file.finish(log.rows),
            None => Ok(()),
        }
    }

    /// Appends events one by one: renumbers them, and starts a new file when one is full.
    fn append_event_by_event(
        &self,
        log: &mut LcmOutput,
        mut bytes: PooledBlock,
        starts: &[u32],
    ) -> Result<(), Error> {
        let ends = starts.iter().skip(1).copied().chain([bytes.len() as u32]);
        let spans = starts.iter().zip(ends).map(|(start, end)| (*start as usize, end as usize));
        let (mut from, mut rows) = (0, 0);
        for (start, end) in spans {
            let pending = (end - from) as u64;
            let full = |limit| log.file.as_ref().is_some_and(|file| file.bytes() + pending > limit);
            if log.rows + rows > 0 && self.split_len().is_some_and(full) {
                log.write(&bytes[from..start], rows)?;
                Self::close_file(log)?;
                self.open_next_file(log)?;
                (from, rows) = (start, 0);
            }
            if self.renumber {
                // The number follows the sync word.
                bytes[start + 4..start + 12].copy_from_slice(&log.number.to_be_bytes());
                log.number += 1;
            }
            rows += 1;
        }
        log.write(&bytes[from..], rows)
    }
}

impl LcmOutput {
    /// Writes whole events, and counts them.
    fn write(&mut self, bytes: &[u8], events: u64) -> Result<(), Error> {
        let Some(file) = self.file.as_mut().filter(|_| !bytes.is_empty()) else { return Ok(()) };
        file.write_binary(bytes)?;
        self.rows += events;
        file.set_rows(self.rows, self.rows);
        Ok(())
    }
}

/// The events of a batch, to be edited. Those that no log can hold are reported.
fn single_events(
    batch: &Batch,
    names: &[Arc<[u8]>],
    context: &mut PrepareContext<'_>,
) -> Result<BlockEvents, Error> {
    let mut bytes = buffer_for(batch, names, context.buffers);
    let mut starts = Vec::with_capacity(batch.len());
    for (row, event) in batch.iter().enumerate() {
        let (name, timed) = (&names[event.channel.index()], (&event, batch.wide_time(row)));
        if let Some(event) = EncodableEvent::check(row, timed, name, context) {
            starts.push(bytes.len() as u32);
            event.append(&mut bytes)?;
        }
    }
    Ok(BlockEvents::Single(bytes, starts))
}

/// The events of a batch, to be written as they are. Those that no log can hold are reported.
fn final_events(
    batch: &Batch,
    names: &[Arc<[u8]>],
    context: &mut PrepareContext<'_>,
) -> Result<BlockEvents, Error> {
    let (mut runs, mut events) = (EventRuns::new(batch, names, context.buffers), 0);
    for row in 0..batch.len() {
        if !runs.push_unchanged(row) {
            let event = batch.event(row);
            let (name, timed) = (&names[event.channel.index()], (&event, batch.wide_time(row)));
            let Some(event) = EncodableEvent::check(row, timed, name, context) else { continue };
            runs.push(&event)?;
        }
        events += 1;
    }
    Ok(BlockEvents::Final(runs.finish(), events))
}

impl Sink for LcmLogSink {
    type Block = LcmBlock;
    type Unit = LcmBlock;
    type Output = LcmOutput;

    fn traits(&self) -> SinkTraits {
        SinkTraits {
            accepts_wide_times: true,
            is_readable_unfinished: true,
            ..SinkTraits::writing(&self.path.0)
        }
    }

    fn open(&self, context: &SinkContext) -> Result<LcmOutput, Error> {
        let outputs = Arc::clone(&context.outputs);
        if self.append && outputs.replaces() && outputs.actual_path(&self.path.0).exists() {
            return Err(Error::refused(format!(
                "the log is continued, and cannot be replaced as well; leave out --overwrite: {}",
                self.path.0.display()
            )));
        }
        if self.path.is_folder() {
            outputs.folder(&self.path.0)?;
        }
        let continued =
            if self.append { last_event(&outputs.actual_path(&self.path.0))? } else { None };
        let mut log = LcmOutput { outputs, file: None, files: 0, rows: 0, number: 0 };
        self.open_next_file(&mut log)?;
        if let Some((number, events)) = continued {
            (log.number, log.rows) = (number.wrapping_add(1), events);
            log.file.iter_mut().for_each(|file| file.set_rows(events, events));
        }
        Ok(log)
    }

    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>) -> Result<LcmBlock, Error> {
        let names =
            self.names.table(context.channels, |channel| Ok(channel.name.as_bytes().into()))?;
        context.note_names_only(&batch, &Encoding::Lcm);
        let block = match self.edits_events() {
            true => single_events(&batch, &names, context)?,
            false => final_events(&batch, &names, context)?,
        };
        Ok(LcmBlock(block))
    }

    fn write(&self, log: &mut LcmOutput, block: LcmBlock) -> Result<Written, Error> {
        let events = match block.0 {
            BlockEvents::Final(bytes, events) => {
                log.write(bytes.as_slice(), events)?;
                events
            }
            BlockEvents::Single(bytes, starts) => {
                self.append_event_by_event(log, bytes, &starts)?;
                starts.len() as u64
            }
        };
        Ok(Written::events(events))
    }

    fn flush(&self, log: &mut LcmOutput) -> Result<(), Error> {
        log.file.as_mut().map_or(Ok(()), OutputFile::flush)
    }

    fn finish(&self, mut log: LcmOutput) -> Result<Written, Error> {
        Self::close_file(&mut log)?;
        let mut written = Written::default();
        // A folder is emptied, but nothing says which numbered files of another one are its parts.
        let next = log.outputs.actual_path(&self.numbered_path(log.files));
        if self.split_mb.is_some() && !self.path.is_folder() && files::exists(&next) {
            // A batch removes the files of its own earlier runs at its end.
            let older = "is of an older run, as may be later ones: remove those that are still \
                         there after this run, or write to a folder";
            written.notes.push((format!("{} {older}", next.display()), 0));
        }
        Ok(written)
    }
}

/// The last event number of the log at `path`, and how many events it has; `None` if there is no
/// log, or an empty one, as a recording without messages leaves.
///
/// `Err` if it is damaged: events appended after a cut event would be read as part of it.
fn last_event(path: &Path) -> Result<Option<(i64, u64)>, Error> {
    if path.metadata().map_or(0, |meta| meta.len()) == 0 {
        return Ok(None);
    }
    let context = ReadContext::standalone("old");
    let split = Split::whole(path, None);
    let mut reader = reader::open(
        TimeWindow::default(),
        path,
        &split,
        SplitStart::At(0),
        ScanLimits::default(),
        &context,
    )?;
    let (mut last, mut events) = (None, 0);
    while let Some(batch) = reader.next_batch()? {
        last = batch.sequences().last().copied().or(last);
        events += batch.len() as u64;
    }
    match context.damage.take().first() {
        Some(damage) => Err(Error::refused(format!(
            "cannot append to a damaged log; convert it first, which drops the damage ({damage})"
        ))),
        None => Ok(Some((last.unwrap_or(-1), events))),
    }
}
