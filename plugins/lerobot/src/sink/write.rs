//! Writes the files of a dataset: data and tables of episodes as they come, and at the end what
//! describes all of them. Encodes no frames.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use sluice_io::output::OutputFiles;
use sluice_model::{Error, OutputFile, Outputs, SinkContext};

use super::encode::{EncodedFrames, FrameEncoder};
use super::episodes::EpisodeCutter;
use super::options::LeRobotSink;
use crate::episode_table::{self, EpisodeRow};
use crate::feature::Feature;
use crate::info::{self, DATA, DatasetInfo, EPISODES, FilePlace, INFO, MB, STATS, TASKS, indented};
use crate::parquet_io::TableWriter;
use crate::stats::FeatureStats;
use crate::task_table::TaskTable;

/// The most row groups and column chunks of a file, whose footer is kept in memory.
const MAX_GROUPS: usize = 16_000;
const MAX_CHUNKS: usize = 1 << 18;

/// Rows of the table of episodes that are encoded together, and the numbers in them.
const EPISODE_ROWS: usize = 500;
const EPISODE_NUMBERS: usize = 1 << 18;

/// The files of a dataset being written.
pub(super) struct DatasetFiles {
    outputs: Arc<Outputs>,
    folder: PathBuf,
    pub(super) chunks_size: u64,
    /// In bytes.
    pub(super) data_file_size: u64,
    pub(super) robot_type: Option<String>,
    /// Whether the dataset was there before.
    pub(super) appends: bool,
    /// Keeps other runs from appending to it as well.
    pub(super) reservation: Option<OutputFiles>,
    /// The description of the dataset that was there.
    pub(super) appended_to: Option<DatasetInfo>,
    /// Files that it does not count, which a run left that was killed while it appended.
    pub(super) uncounted: BTreeSet<PathBuf>,
    /// How many of them new files have replaced.
    replaced: u64,
    data: FileSeries,
    episodes: FileSeries,
    /// The episode that is not complete.
    open: Option<EpisodeRow>,
    /// Complete episodes that are not written.
    rows: Vec<EpisodeRow>,
    numbers: usize,
    pub(super) stats: Vec<FeatureStats>,
    pub(super) total_episodes: u64,
    undecodable: u64,
}

/// Files of one kind: the one being written, and the place of the next.
#[derive(Default)]
pub(super) struct FileSeries {
    open: Option<(FilePlace, TableWriter)>,
    pub(super) next: FilePlace,
}

impl FileSeries {
    fn close(&mut self) -> Result<(), Error> {
        self.open.take().map_or(Ok(()), |(_, writer)| writer.close())
    }
}

impl DatasetFiles {
    pub(super) fn new(sink: &LeRobotSink, context: &SinkContext) -> Self {
        Self {
            outputs: Arc::clone(&context.outputs),
            folder: sink.folder(),
            chunks_size: sink.chunks_size,
            data_file_size: sink.data_file_size.0,
            robot_type: sink.robot_type.clone(),
            appends: false,
            reservation: None,
            appended_to: None,
            uncounted: BTreeSet::new(),
            replaced: 0,
            data: FileSeries::default(),
            episodes: FileSeries::default(),
            open: None,
            rows: Vec::new(),
            numbers: 0,
            stats: Vec::new(),
            total_episodes: 0,
            undecodable: 0,
        }
    }

    /// Continues behind files at these places.
    pub(super) fn continue_at(&mut self, data: FilePlace, episodes: FilePlace) {
        (self.data.next, self.episodes.next) = (data, episodes);
    }

    pub(super) fn undecodable(&self) -> u64 {
        self.undecodable
    }

    /// Writes frames of an episode, in order.
    pub(super) fn write(
        &mut self,
        unit: EncodedFrames,
        encoder: &FrameEncoder,
        tasks: &TaskTable,
    ) -> Result<(), Error> {
        let is_first = self.open.is_none();
        let EncodedFrames { chunks, frames, episode, first_frame, stats, is_last, .. } = unit;
        self.undecodable += unit.undecodable;
        // One in several row groups, whose size is not known yet, begins a file.
        let is_whole = is_first && is_last;
        let place = self.data_file(encoder, is_first, is_whole.then_some(frames))?;
        if frames > 0
            && let Some((_, writer)) = &mut self.data.open
        {
            writer.append(chunks, frames)?;
        }
        let open = self.open.get_or_insert_with(|| EpisodeRow {
            episode,
            tasks: Vec::new(),
            first: first_frame,
            frames: 0,
            data: place,
            stats: Vec::new(),
        });
        open.frames += frames;
        add_stats(&mut open.stats, stats);
        for (_, number) in unit.tasks {
            let text =
                tasks.text(number).ok_or_else(|| Error::internal("a task without a text"))?;
            if !open.tasks.contains(text) {
                open.tasks.push(Arc::clone(text));
            }
        }
        if is_last {
            self.end_episode(encoder)?;
        }
        Ok(())
    }

    /// The place of the data file for the next frames. An episode stays in the file it begins in.
    /// `frames` are those of a whole episode.
    fn data_file(
        &mut self,
        encoder: &FrameEncoder,
        is_first: bool,
        frames: Option<u64>,
    ) -> Result<FilePlace, Error> {
        let limit = self.data_file_size as f64;
        let is_full = |writer: &TableWriter| {
            let (bytes, rows) = (writer.bytes() as f64, writer.rows.max(1) as f64);
            let chunks = writer.groups.saturating_mul(encoder.schema.fields().len());
            frames.is_none_or(|frames| bytes + bytes / rows * frames as f64 >= limit)
                || writer.groups >= MAX_GROUPS
                || chunks >= MAX_CHUNKS
        };
        if is_first && self.data.open.as_ref().is_some_and(|(_, writer)| is_full(writer)) {
            self.data.close()?;
        }
        if let Some((place, _)) = &self.data.open {
            return Ok(*place);
        }
        let place = self.data.next;
        self.data.next = place.next(self.chunks_size);
        let file = self.create(&place.path(DATA))?;
        let schema = Arc::clone(&encoder.schema);
        self.data.open = Some((place, TableWriter::new(file, schema, encoder.properties.clone())?));
        Ok(place)
    }

    fn end_episode(&mut self, encoder: &FrameEncoder) -> Result<(), Error> {
        let Some(row) = self.open.take() else { return Ok(()) };
        self.total_episodes += 1;
        if self.stats.is_empty() {
            self.stats.resize(row.stats.len(), FeatureStats::default());
        }
        self.stats.iter_mut().zip(&row.stats).for_each(|(all, one)| all.add(one));
        self.numbers += row.stats.iter().map(|stats| 9 * stats.min.len()).sum::<usize>();
        self.rows.push(row);
        if self.rows.len() >= EPISODE_ROWS || self.numbers >= EPISODE_NUMBERS {
            self.write_episodes(&encoder.all_features())?;
        }
        Ok(())
    }

    /// Writes the rows of complete episodes.
    fn write_episodes(&mut self, features: &[Feature]) -> Result<(), Error> {
        let rows = std::mem::take(&mut self.rows);
        self.numbers = 0;
        let schema = episode_table::schema(features);
        let limit = self.data_file_size;
        let is_full = |writer: &TableWriter| {
            let chunks = writer.groups.saturating_mul(schema.fields().len());
            writer.bytes() >= limit || writer.groups >= MAX_GROUPS || chunks >= MAX_CHUNKS
        };
        if self.episodes.open.as_ref().is_some_and(|(_, writer)| is_full(writer)) {
            self.episodes.close()?;
        }
        if self.episodes.open.is_none() {
            let place = self.episodes.next;
            self.episodes.next = place.next(self.chunks_size);
            let file = self.create(&place.path(EPISODES))?;
            let writer = TableWriter::new(file, Arc::clone(&schema), episode_table::properties())?;
            self.episodes.open = Some((place, writer));
        }
        let Some((place, writer)) = &mut self.episodes.open else { return Ok(()) };
        writer.write(&episode_table::columns(&schema, features, &rows, *place)?)
    }

    fn has_changes(&self) -> bool {
        !self.appends || self.episodes.open.is_some() || !self.rows.is_empty()
    }

    /// The files of a killed run that this one replaces or removes.
    pub(super) fn uncounted_files(&self) -> u64 {
        if self.has_changes() { self.replaced + self.uncounted.len() as u64 } else { 0 }
    }

    /// The episodes of the dataset so far, and its splits with the new ones, if they can be added.
    fn grown_splits(&self) -> (u64, Option<Value>) {
        let before = self.appended_to.as_ref();
        let (splits, episodes) =
            before.map_or((&Value::Null, 0), |info| (&info.splits, info.episodes));
        (episodes, info::with_episodes(splits, episodes, self.total_episodes))
    }

    /// The new episodes that are in no split.
    pub(super) fn episodes_without_split(&self) -> u64 {
        let (before, splits) = self.grown_splits();
        if splits.is_none() { self.total_episodes - before } else { 0 }
    }

    /// The splits of the dataset: those that were there stay.
    fn splits(&self) -> Value {
        let (_, grown) = self.grown_splits();
        let before = || self.appended_to.as_ref().map(|info| info.splits.clone());
        grown.or_else(before).unwrap_or_default()
    }

    /// Completes all files, and writes those that describe the dataset.
    pub(super) fn finish(mut self, cutter: &EpisodeCutter) -> Result<(), Error> {
        // What has not changed must not be replaced.
        if !self.has_changes() {
            return Ok(());
        }
        self.remove_uncounted()?;
        self.reservation.take().map_or(Ok(()), OutputFiles::finish)?;
        let features = cutter.encoder.as_ref().map(|encoder| &encoder.features[..]);
        let features = cutter.declared.describe(features.unwrap_or_default());
        let all = [&features[..], &Feature::default_features()].concat();
        if !self.rows.is_empty() {
            self.write_episodes(&all)?;
        }
        self.data.close()?;
        self.episodes.close()?;
        if cutter.tasks.len() > 0 {
            cutter.tasks.write(self.describing(TASKS)?)?;
        }
        let stats = episode_table::measured(&all).zip(&self.stats).map(|(feature, stats)| {
            let is_image = feature.feature_type == crate::feature::FeatureType::Image;
            (feature.name.clone(), stats.to_json(is_image))
        });
        let stats = Value::Object(stats.collect::<Map<_, _>>());
        self.write_text(STATS, &indented(&stats))?;
        let splits = self.splits();
        let info = DatasetInfo {
            fps: cutter.fps.unwrap_or(1.0),
            robot_type: self.robot_type.clone().or_else(|| cutter.declared.robot_type()),
            episodes: self.total_episodes,
            frames: cutter.next_frame,
            tasks: cutter.tasks.len() as u64,
            chunks_size: self.chunks_size,
            data_file_mb: self.data_file_size.div_ceil(MB).max(1),
            features,
            splits,
            rest: self.appended_to.take().map(|info| info.rest).unwrap_or_default(),
        };
        self.write_text(INFO, &info.to_text())
    }

    /// Creates a file for rows. It replaces one that the dataset does not count.
    fn create(&mut self, name: &str) -> Result<OutputFile, Error> {
        let path = self.folder.join(name);
        if self.uncounted.remove(&self.outputs.actual_path(&path)) {
            self.replaced += 1;
            return self.outputs.replace(&path);
        }
        self.outputs.create_as_is(&path)
    }

    /// Removes the files that the dataset does not count and that no new ones replace: LeRobot
    /// reads all that are there.
    fn remove_uncounted(&mut self) -> Result<(), Error> {
        let Some(info) = &self.appended_to else { return Ok(()) };
        let folder = self.outputs.actual_path(&self.folder);
        // They may be those of another program that counts them by now.
        if DatasetInfo::read(&folder)?.as_ref() != Some(info) {
            return Err(Error::refused(format!(
                "another program has changed the dataset since this run began; run again: {}",
                folder.display()
            )));
        }
        let mut uncounted = std::mem::take(&mut self.uncounted).into_iter();
        uncounted.try_for_each(|path| {
            fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))
        })
    }

    fn write_text(&self, name: &str, text: &str) -> Result<(), Error> {
        let mut file = self.describing(name)?;
        file.write(text.as_bytes())?;
        file.finish(0)
    }

    /// A file that describes the dataset, and replaces the one that was there.
    fn describing(&self, name: &str) -> Result<OutputFile, Error> {
        let path = self.folder.join(name);
        match self.appends {
            true => self.outputs.replace(&path),
            // Without it there is no dataset.
            false if name == INFO => self.outputs.create_index(&path),
            false => self.outputs.create_as_is(&path),
        }
    }
}

fn add_stats(ours: &mut Vec<FeatureStats>, more: Vec<FeatureStats>) {
    if ours.is_empty() {
        *ours = more;
        return;
    }
    ours.iter_mut().zip(&more).for_each(|(ours, more)| ours.add(more));
}
