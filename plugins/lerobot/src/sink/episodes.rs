//! Gathers frames into episodes, in order: where one begins, what becomes of holes, and which
//! frames are encoded together. Encodes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_io::escape::printable;
use sluice_model::{ChannelId, Channels, Error, Job, Written, time};

use super::encode::{EncodedFrames, FrameEncoder, FrameSlice, FrameUnit};
use super::grid::{Grid, GridStep};
use super::options::{HolePolicy, LeRobotSink};
use super::prepare::{FrameBlock, FramePart, FrameRun};
use crate::info::MAX_FRAMES;
use crate::task_table::TaskTable;

/// The episodes of a dataset as they are gathered.
pub(super) struct EpisodeCutter {
    pub(super) limits: CutLimits,
    pub(super) fps: Option<f64>,
    /// What is fixed with the first frame.
    pub(super) encoder: Option<Arc<FrameEncoder>>,
    pub(super) tasks: TaskTable,
    /// The numbers of the next episode and frame.
    pub(super) next_episode: u64,
    pub(super) next_frame: u64,
    open: Option<OpenEpisode>,
    /// The source and channel of the rows so far, by their numbers.
    channels: BTreeSet<ChannelId>,
    pub(super) counts: CutCounts,
    /// Events left out, not yet reported.
    pub(super) unreported: Written,
}

/// What bounds episodes and units.
#[derive(Clone, Copy, Debug)]
pub(super) struct CutLimits {
    pub(super) holes: HolePolicy,
    /// The longest hole that is filled, in nanoseconds.
    pub(super) max_hold: i64,
    pub(super) min_frames: u64,
    /// The bytes of frames that are encoded together.
    pub(super) unit_bytes: usize,
}

/// What happened while episodes were cut.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CutCounts {
    /// Holes at which an episode was split.
    pub(super) splits: u64,
    /// Frames repeated to fill holes.
    pub(super) held: u64,
    /// Episodes that began because times stepped back.
    pub(super) back: u64,
    /// Episodes that were too short.
    pub(super) short: u64,
    /// Episodes in several row groups.
    pub(super) long: u64,
    /// Frames without a task.
    pub(super) without_task: u64,
}

struct OpenEpisode {
    grid: Grid,
    channel: ChannelId,
    value: Option<i64>,
    /// Frames of units that are on their way already.
    sent: u64,
    slices: Vec<FrameSlice>,
    /// Frames and bytes of the slices.
    frames: u64,
    bytes: usize,
    tasks: Vec<(u64, i64)>,
}

impl EpisodeCutter {
    pub(super) fn new(limits: CutLimits, fps: Option<f64>) -> Self {
        Self {
            limits,
            fps,
            encoder: None,
            tasks: TaskTable::default(),
            next_episode: 0,
            next_frame: 0,
            open: None,
            channels: BTreeSet::new(),
            counts: CutCounts::default(),
            unreported: Written::default(),
        }
    }

    /// Adds the frames of a batch, and returns the units that are complete.
    pub(super) fn push(
        &mut self,
        sink: &LeRobotSink,
        block: FrameBlock,
        channels: &Channels,
    ) -> Result<Vec<Job<EncodedFrames>>, Error> {
        let mut units = Vec::new();
        for run in block.runs {
            if self.encoder.is_none() {
                self.encoder = Some(Arc::new(FrameEncoder::from_first(&run.part)?));
            }
            if let Some(encoder) = &self.encoder {
                encoder.check(&run.part)?;
            }
            self.check_channel(run.channel, channels)?;
            let text = run.task.as_deref().or(sink.task.as_deref());
            if text.is_none() {
                self.counts.without_task += run.rows.len() as u64;
            }
            let task = self.tasks.number(text.unwrap_or_default())?;
            self.add_run(&run, task, &mut units)?;
        }
        Ok(units)
    }

    /// Refuses rows of several channels, and sources whose rows alternate.
    fn check_channel(&mut self, id: ChannelId, channels: &Channels) -> Result<(), Error> {
        if self.open.as_ref().is_some_and(|open| open.channel == id) {
            return Ok(());
        }
        let last = self.open.as_ref().map(|open| channels.get(open.channel));
        let this = channels.get(id);
        let what = match last {
            Some(last) if last.name != this.name => format!(
                "the sink takes the rows of one channel, and was given {} and {}: choose one with \
                 the stage `filter`, or put them onto one grid with the stage `align`",
                printable(last.name.text()),
                printable(this.name.text())
            ),
            _ if self.channels.contains(&id) && self.open.is_some() => format!(
                "the rows of several sources alternate, {} among them: write a dataset for each, \
                 or read the logs one after another",
                printable(&this.source)
            ),
            _ => {
                self.channels.insert(id);
                return Ok(());
            }
        };
        Err(Error::invalid(what))
    }

    fn add_run(
        &mut self,
        run: &FrameRun,
        task: i64,
        units: &mut Vec<Job<EncodedFrames>>,
    ) -> Result<(), Error> {
        for row in run.rows.clone() {
            let (time, sequence) = (run.part.times[row], run.part.sequences[row]);
            let missing = match self.place(run, time, sequence)? {
                Some(missing) => missing,
                None => {
                    units.extend(self.end_episode()?);
                    0
                }
            };
            let open = self.open.get_or_insert_with(|| OpenEpisode::new(run, time, sequence));
            if open.frames + open.sent > 0 {
                open.grid.push(time, sequence, missing);
            }
            open.hold(missing);
            self.counts.held += missing;
            open.add(&run.part, row, task);
            if open.bytes >= self.limits.unit_bytes && open.total() >= self.limits.min_frames {
                units.extend(self.unit(false)?);
            }
        }
        Ok(())
    }

    /// How many frames are missing before a row of the open episode; `None` if it begins a new one.
    fn place(&mut self, run: &FrameRun, time: i64, sequence: i64) -> Result<Option<u64>, Error> {
        let Some(open) = &self.open else { return Ok(None) };
        if open.channel != run.channel || open.value != run.episode {
            return Ok(None);
        }
        if self.fps.is_none() && open.total() == 1 {
            self.fps = open.grid.rate(time);
        }
        // Without a rate, the clock has stepped back.
        let step = match self.fps {
            Some(fps) => open.grid.step(time, sequence, fps)?,
            None => GridStep::Back,
        };
        match step {
            GridStep::Next => Ok(Some(0)),
            GridStep::Back => {
                self.counts.back += 1;
                Ok(None)
            }
            GridStep::Hole(missing) => self.hole(time, missing),
        }
    }

    fn hole(&mut self, time: i64, missing: u64) -> Result<Option<u64>, Error> {
        let (Some(open), Some(fps)) = (&self.open, self.fps) else { return Ok(None) };
        let length = missing as f64 / fps * 1e9;
        match self.limits.holes {
            HolePolicy::Fail => Err(Error::invalid(format!(
                "{missing} rows are missing before the one at {}: `holes = \"split\"` starts a new \
                 episode there, `holes = \"hold\"` repeats the row before",
                time::format(time)
            ))),
            HolePolicy::Hold
                if length <= self.limits.max_hold as f64 && open.grid.is_on(time, fps) =>
            {
                Ok(Some(missing))
            }
            HolePolicy::Hold | HolePolicy::Split => {
                self.counts.splits += 1;
                Ok(None)
            }
        }
    }

    /// Ends the open episode. Returns its last unit, unless it is left out.
    pub(super) fn end_episode(&mut self) -> Result<Option<Job<EncodedFrames>>, Error> {
        let Some(open) = &self.open else { return Ok(None) };
        if open.total() >= self.limits.min_frames {
            let unit = self.unit(true)?;
            self.open = None;
            self.next_episode += 1;
            return Ok(unit);
        }
        self.counts.short += 1;
        let slices = open.slices.iter().filter(|slice| !slice.is_held);
        let origins = slices.flat_map(|slice| slice.part.origins[slice.rows.clone()].iter());
        self.unreported.skipped.extend(origins.copied());
        self.open = None;
        Ok(None)
    }

    /// The frames of the open episode that are not on their way yet.
    fn unit(&mut self, is_last: bool) -> Result<Option<Job<EncodedFrames>>, Error> {
        let (Some(open), Some(encoder)) = (&mut self.open, &self.encoder) else { return Ok(None) };
        let fps = self.fps.ok_or_else(|| {
            Error::invalid(
                "an episode of one row does not say how many there are per second: set `fps`",
            )
        })?;
        let unit = FrameUnit {
            fps,
            episode: self.next_episode,
            first_frame: self.next_frame,
            first_in_episode: open.sent,
            slices: std::mem::take(&mut open.slices),
            tasks: std::mem::take(&mut open.tasks),
            is_last,
        };
        self.next_frame += open.frames;
        if self.next_frame > MAX_FRAMES {
            return Err(Error::invalid(format!("a dataset holds at most {MAX_FRAMES} frames")));
        }
        self.counts.long += u64::from(!is_last && open.sent == 0);
        open.sent += open.frames;
        let bytes = std::mem::take(&mut open.bytes);
        open.frames = 0;
        let encoder = Arc::clone(encoder);
        Ok(Some(Job::new(bytes, move || encoder.encode(unit))))
    }
}

impl OpenEpisode {
    fn new(run: &FrameRun, time: i64, sequence: i64) -> Self {
        Self {
            grid: Grid::new(time, sequence),
            channel: run.channel,
            value: run.episode,
            sent: 0,
            slices: Vec::new(),
            frames: 0,
            bytes: 0,
            tasks: Vec::new(),
        }
    }

    fn total(&self) -> u64 {
        self.sent + self.frames
    }

    fn add(&mut self, part: &Arc<FramePart>, row: usize, task: i64) {
        self.frames += 1;
        self.bytes += part.frame_bytes(row);
        match self.tasks.last_mut() {
            Some((frames, number)) if *number == task => *frames += 1,
            _ => self.tasks.push((1, task)),
        }
        let continues = |slice: &&mut FrameSlice| {
            !slice.is_held && slice.rows.end == row && Arc::ptr_eq(&slice.part, part)
        };
        match self.slices.last_mut().filter(continues) {
            Some(slice) => slice.rows.end += 1,
            None => {
                let (part, rows) = (Arc::clone(part), row..row + 1);
                self.slices.push(FrameSlice { part, rows, is_held: false });
            }
        }
    }

    /// Repeats the last frame.
    fn hold(&mut self, count: u64) {
        let Some(last) = self.slices.last().filter(|_| count > 0) else { return };
        let (part, row) = (Arc::clone(&last.part), last.rows.end - 1);
        let bytes = part.frame_bytes(row);
        for _ in 0..count {
            let (part, rows) = (Arc::clone(&part), row..row + 1);
            self.slices.push(FrameSlice { part, rows, is_held: true });
            self.bytes += bytes;
        }
        self.frames += count;
        if let Some((frames, _)) = self.tasks.last_mut() {
            *frames += count;
        }
    }
}
