//! Gathers frames into episodes, in order: where one begins, what becomes of holes, and which
//! frames are encoded together. Encodes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_io::escape::printable;
use sluice_model::{ChannelId, Channels, Error, Job, Written, time};

use super::declared::Declarations;
use super::encode::{EncodedFrames, FrameEncoder, FrameSlice, FrameUnit};
use super::grid::{Grid, GridStep};
use super::options::HolePolicy;
use super::prepare::{FrameBlock, FramePart, FrameRun};
use crate::info::MAX_FRAMES;
use crate::task_table::TaskTable;

/// From so many on, holes need not be counted to the end to show that the rate is wrong.
const CERTAIN_HOLES: u64 = 1000;

/// The episodes of a dataset as they are gathered.
pub(super) struct EpisodeCutter {
    pub(super) limits: CutLimits,
    pub(super) fps: Option<f64>,
    /// The rows that it follows from, for errors; empty if it is given.
    rate_origin: String,
    /// The task of rows without one.
    default_task: Option<Arc<str>>,
    /// What is fixed with the first frame.
    pub(super) encoder: Option<Arc<FrameEncoder>>,
    pub(super) tasks: TaskTable,
    /// The numbers of the next episode and frame.
    pub(super) next_episode: u64,
    pub(super) next_frame: u64,
    open: Option<OpenEpisode>,
    /// The sources of the rows so far.
    sources: BTreeSet<Arc<str>>,
    /// What their datasets declare.
    pub(super) declared: Declarations,
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
    /// Rows on the step after the row before them.
    pub(super) steps: u64,
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
    /// The last row, which a hole repeats, and its task.
    part: Arc<FramePart>,
    row: usize,
    task: Option<Arc<str>>,
    /// Frames of units that are on their way already.
    sent: u64,
    slices: Vec<FrameSlice>,
    /// Frames and bytes of the slices.
    frames: u64,
    bytes: usize,
    tasks: Vec<(u64, Option<Arc<str>>)>,
}

impl EpisodeCutter {
    pub(super) fn new(limits: CutLimits, fps: Option<f64>, task: Option<&str>) -> Self {
        Self {
            limits,
            fps,
            rate_origin: String::new(),
            default_task: task.map(Arc::from),
            encoder: None,
            tasks: TaskTable::default(),
            next_episode: 0,
            next_frame: 0,
            open: None,
            sources: BTreeSet::new(),
            declared: Declarations::default(),
            counts: CutCounts::default(),
            unreported: Written::default(),
        }
    }

    /// Adds the frames of a batch, and returns the units that are complete.
    pub(super) fn push(
        &mut self,
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
                self.declared.add_frames(&run.part, &encoder.features);
            }
            self.check_channel(run.channel, channels)?;
            self.add_run(&run, &mut units)?;
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
            Some(last) if last.source != this.source && self.sources.contains(&this.source) => {
                format!(
                    "the rows of several sources alternate, {} among them: write a dataset for \
                     each, or read the logs one after another",
                    printable(&this.source)
                )
            }
            _ => {
                self.sources.insert(Arc::clone(&this.source));
                return self.declared.add_channel(&this);
            }
        };
        Err(Error::invalid(what))
    }

    fn add_run(
        &mut self,
        run: &FrameRun,
        units: &mut Vec<Job<EncodedFrames>>,
    ) -> Result<(), Error> {
        let task = run.task.as_ref().or(self.default_task.as_ref()).cloned();
        for row in run.rows.clone() {
            let (time, sequence) = (run.part.times[row], run.part.sequences[row]);
            match self.place(run, time, sequence)? {
                Some(missing) => {
                    self.hold(missing, units)?;
                    if let Some(open) = &mut self.open {
                        open.grid.push(time, sequence, missing);
                        open.add(&run.part, row, task.as_ref());
                    }
                }
                None => {
                    units.extend(self.end_episode()?);
                    self.open.insert(OpenEpisode::new(run, row)).add(&run.part, row, task.as_ref());
                }
            }
            units.extend(self.full_unit()?);
        }
        Ok(())
    }

    /// Repeats the last frame. Units that this completes do not wait for the rest.
    fn hold(&mut self, mut missing: u64, units: &mut Vec<Job<EncodedFrames>>) -> Result<(), Error> {
        self.counts.held += missing;
        while let Some(open) = self.open.as_mut().filter(|_| missing > 0) {
            let count = missing.min(open.frames_to_full(self.limits).max(1));
            open.repeat(count);
            missing -= count;
            units.extend(self.full_unit()?);
        }
        Ok(())
    }

    /// How many frames are missing before a row of the open episode; `None` if it begins a new one.
    fn place(&mut self, run: &FrameRun, time: i64, sequence: i64) -> Result<Option<u64>, Error> {
        let Some(open) = &self.open else { return Ok(None) };
        if open.channel != run.channel || open.value != run.episode {
            return Ok(None);
        }
        let step = if open.grid.is_back(time, sequence) {
            GridStep::Back
        } else {
            let fps = match self.fps {
                Some(fps) => fps,
                None => {
                    self.rate_origin = format!("; the rate is that of {}", open.grid.pair(time));
                    *self.fps.insert(open.grid.rate_of_pair(time)?)
                }
            };
            let step = open.grid.step(time, sequence, fps);
            step.map_err(|error| Error::invalid(format!("{error}{}", self.rate_origin)))?
        };
        match step {
            GridStep::Next => {
                self.counts.steps += 1;
                Ok(Some(0))
            }
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
                self.check_holes(CERTAIN_HOLES)?;
                Ok(None)
            }
        }
    }

    /// Ends the last episode.
    pub(super) fn end(&mut self) -> Result<Option<Job<EncodedFrames>>, Error> {
        self.check_holes(2)?;
        self.end_episode()
    }

    /// `Err` if more rows stand behind holes than behind a row, and at least so many: there would
    /// be as many episodes, most of them too short.
    fn check_holes(&self, least: u64) -> Result<(), Error> {
        let CutCounts { steps, splits, .. } = self.counts;
        match self.fps.filter(|_| splits >= least && splits > steps) {
            Some(fps) => Err(Error::invalid(format!(
                "rows are missing before {splits} of {} rows, at {fps} per second{}: set `fps` to \
                 the rate of the rows, put the stage `align` before the sink, or fill the holes \
                 with `holes = \"hold\"`",
                steps + splits,
                self.rate_origin
            ))),
            None => Ok(()),
        }
    }

    /// Ends the open episode. Returns its last unit, unless it is left out.
    fn end_episode(&mut self) -> Result<Option<Job<EncodedFrames>>, Error> {
        let Some(open) = &self.open else { return Ok(None) };
        if open.total() >= self.limits.min_frames {
            let unit = self.unit(true)?;
            self.open = None;
            self.next_episode += 1;
            return Ok(unit);
        }
        self.counts.short += 1;
        let slices = open.slices.iter().filter(|slice| !slice.is_held());
        let origins = slices.flat_map(|slice| slice.part.origins[slice.rows.clone()].iter());
        self.unreported.skipped.extend(origins.copied());
        self.open = None;
        Ok(None)
    }

    /// A unit of the open episode, if it has enough frames for one, and the rate is known.
    fn full_unit(&mut self) -> Result<Option<Job<EncodedFrames>>, Error> {
        let is_full = |open: &OpenEpisode| open.frames_to_full(self.limits) == 0;
        match self.fps.is_some() && self.open.as_ref().is_some_and(is_full) {
            true => self.unit(false),
            false => Ok(None),
        }
    }

    /// The frames of the open episode that are not on their way yet.
    fn unit(&mut self, is_last: bool) -> Result<Option<Job<EncodedFrames>>, Error> {
        let (Some(open), Some(encoder)) = (&mut self.open, &self.encoder) else { return Ok(None) };
        let fps = self.fps.ok_or_else(|| {
            Error::invalid(
                "an episode of one row does not say how many there are per second: set `fps`",
            )
        })?;
        let mut tasks = Vec::new();
        // Only now: an episode that is left out adds no task.
        for (frames, text) in std::mem::take(&mut open.tasks) {
            self.counts.without_task += if text.is_none() { frames } else { 0 };
            tasks.push((frames, self.tasks.number(text.as_deref().unwrap_or_default())?));
        }
        let unit = FrameUnit {
            fps,
            episode: self.next_episode,
            first_frame: self.next_frame,
            first_in_episode: open.sent,
            slices: std::mem::take(&mut open.slices),
            tasks,
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
    /// An episode that begins with a row, which is not added.
    fn new(run: &FrameRun, row: usize) -> Self {
        Self {
            grid: Grid::new(run.part.times[row], run.part.sequences[row]),
            channel: run.channel,
            value: run.episode,
            part: Arc::clone(&run.part),
            row,
            sent: 0,
            slices: Vec::new(),
            frames: 0,
            bytes: 0,
            task: None,
            tasks: Vec::new(),
        }
    }

    fn total(&self) -> u64 {
        self.sent + self.frames
    }

    /// How often the last frame fits before the frames are a unit; 0 if they are one.
    fn frames_to_full(&self, limits: CutLimits) -> u64 {
        let bytes = limits.unit_bytes.saturating_sub(self.bytes);
        let fitting = bytes.div_ceil(self.part.frame_bytes(self.row).max(1)) as u64;
        fitting.max(limits.min_frames.saturating_sub(self.total()))
    }

    fn add(&mut self, part: &Arc<FramePart>, row: usize, task: Option<&Arc<str>>) {
        let continues = |slice: &&mut FrameSlice| {
            !slice.is_held() && slice.rows.end == row && Arc::ptr_eq(&slice.part, part)
        };
        match self.slices.last_mut().filter(continues) {
            Some(slice) => slice.rows.end += 1,
            None => {
                let (part, rows) = (Arc::clone(part), row..row + 1);
                self.slices.push(FrameSlice { part, rows, held: 0 });
            }
        }
        if !Arc::ptr_eq(&self.part, part) {
            self.part = Arc::clone(part);
        }
        self.row = row;
        if self.task.as_ref() != task {
            self.task = task.cloned();
        }
        self.count(1);
    }

    /// Repeats the last frame.
    fn repeat(&mut self, count: u64) {
        let (part, rows) = (Arc::clone(&self.part), self.row..self.row + 1);
        self.slices.push(FrameSlice { part, rows, held: count as usize });
        self.count(count);
    }

    /// Counts frames like the last one, and their task.
    fn count(&mut self, count: u64) {
        self.frames += count;
        self.bytes += self.part.frame_bytes(self.row) * count as usize;
        match self.tasks.last_mut() {
            Some((frames, task)) if *task == self.task => *frames += count,
            _ => {
                self.bytes += self.task.as_ref().map_or(0, |task| task.len());
                self.tasks.push((count, self.task.clone()));
            }
        }
    }
}
