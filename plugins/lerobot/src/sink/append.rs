//! Appending: what a dataset that is there already has, and where it continues. Changes none of its
//! files.

use std::path::Path;
use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sluice_model::{Error, Input, SinkContext};

use super::encode::FrameEncoder;
use super::episodes::EpisodeCutter;
use super::options::LeRobotSink;
use super::write::DatasetFiles;
use crate::episode_table::measured;
use crate::feature::Feature;
use crate::info::{self, DATA, DatasetInfo, EPISODES, FilePlace, MB, STATS, TASKS};
use crate::parquet_io::TableBytes;
use crate::stats::FeatureStats;
use crate::task_table::TaskTable;

/// Opens the dataset in the folder of a sink for appending; a new one if there is none.
pub(super) fn open(
    sink: &LeRobotSink,
    context: &SinkContext,
    cutter: &mut EpisodeCutter,
) -> Result<DatasetFiles, Error> {
    let folder = context.outputs.actual_path(&sink.folder());
    let mut files = DatasetFiles::new(sink, context);
    let Some(info) = DatasetInfo::read(&folder)? else {
        context.outputs.folder(&sink.folder())?;
        return Ok(files);
    };
    context.outputs.extend_folder(&sink.folder())?;
    files.appends = true;
    check_options(sink, &info, &folder)?;
    (files.chunks_size, files.data_file_size) = (info.chunks_size, info.data_file_mb * MB);
    files.robot_type = info.robot_type.clone().or_else(|| sink.robot_type.clone());
    cutter.fps = Some(info.fps);
    if info.frames == 0 && info.episodes == 0 {
        return Ok(files);
    }
    let last = last_episode(&folder, &info)?;
    check_data(&folder, &info)?;
    let continued = [last.data, last.table].map(|place| place.next(info.chunks_size));
    files.continue_at(continued[0], continued[1]);
    files.total_episodes = info.episodes;
    files.stats = read_stats(&folder, &info)?;
    cutter.tasks = TaskTable::read(&folder.join(TASKS))?;
    if cutter.tasks.len() as u64 != info.tasks {
        return Err(wrong(
            &folder.join(TASKS),
            format!("expected {} tasks, found {}", info.tasks, cutter.tasks.len()),
        ));
    }
    (cutter.next_episode, cutter.next_frame) = (info.episodes, info.frames);
    cutter.encoder = Some(Arc::new(FrameEncoder::new(info.features)?));
    Ok(files)
}

fn wrong(path: &Path, what: String) -> Error {
    Error::invalid(format!("cannot append to this dataset: {what}: {}", path.display()))
}

fn check_options(sink: &LeRobotSink, info: &DatasetInfo, folder: &Path) -> Result<(), Error> {
    if let Some(fps) = sink.fps.filter(|fps| *fps != info.fps) {
        return Err(wrong(
            folder,
            format!("it has {} frames per second, and `fps` is {fps}", info.fps),
        ));
    }
    match (&sink.robot_type, &info.robot_type) {
        (Some(own), Some(found)) if own != found => {
            Err(wrong(folder, format!("its robot type is `{found}`, and `robot_type` is `{own}`")))
        }
        _ => Ok(()),
    }
}

/// The last episode of a dataset.
struct LastEpisode {
    data: FilePlace,
    /// The file of the table of episodes.
    table: FilePlace,
}

/// Reads where the last episode is, and checks that the table has them all.
fn last_episode(folder: &Path, info: &DatasetInfo) -> Result<LastEpisode, Error> {
    let tables = info::tables(folder, EPISODES)?;
    let (mut episodes, mut frames, mut data) = (0, 0, FilePlace::default());
    for Input { path, .. } in &tables {
        for [episode, from, to, chunk, file] in read_episodes(path)? {
            if episode != episodes as i64 || from != frames as i64 || to <= from {
                return Err(wrong(
                    path,
                    format!("its episodes are not in order: expected episode {episodes}"),
                ));
            }
            (episodes, frames) = (episodes + 1, to as u64);
            let place = u64::try_from(chunk).ok().zip(u64::try_from(file).ok());
            let (chunk, file) =
                place.ok_or_else(|| wrong(path, format!("episode {episode} is in no file")))?;
            data = data.max(FilePlace { chunk, file });
        }
    }
    if (episodes, frames) != (info.episodes, info.frames) {
        return Err(wrong(
            folder,
            format!(
                "expected {} episodes of {} frames, found {episodes} of {frames}; files of more \
                 than info.json counts are of a run that was killed: delete them",
                info.episodes, info.frames
            ),
        ));
    }
    let table = last_place(&tables).ok_or_else(|| {
        let what = "its tables of episodes are not named chunk-NNN/file-NNN.parquet";
        wrong(folder, what.to_owned())
    })?;
    let files = last_place(&info::tables(folder, DATA)?);
    Ok(LastEpisode { data: files.map_or(data, |last| last.max(data)), table })
}

/// The greatest place among files; `None` if one has another name.
fn last_place(files: &[Input]) -> Option<FilePlace> {
    let place = |input: &Input| {
        let file = input.path.file_stem()?.to_str()?.strip_prefix("file-")?.parse().ok()?;
        let chunk = input.path.parent()?.file_name()?.to_str()?;
        Some(FilePlace { chunk: chunk.strip_prefix("chunk-")?.parse().ok()?, file })
    };
    let places: Option<Vec<FilePlace>> = files.iter().map(place).collect();
    places?.into_iter().max()
}

/// Number, first and last frame, and data file of each episode in a table.
fn read_episodes(path: &Path) -> Result<Vec<[i64; 5]>, Error> {
    const COLUMNS: [&str; 5] = [
        "episode_index",
        "dataset_from_index",
        "dataset_to_index",
        "data/chunk_index",
        "data/file_index",
    ];
    let bytes = TableBytes::open(path)?;
    let read = || {
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes.clone())?;
        let schema = builder.parquet_schema();
        let mask = ProjectionMask::columns(schema, COLUMNS);
        let mut found = Vec::new();
        for rows in builder.with_projection(mask).build()? {
            let rows = rows?;
            let column = |name: &str| {
                let column = rows.column_by_name(name).filter(|column| column.null_count() == 0);
                let numbers = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
                numbers.ok_or_else(|| format!("it has no column `{name}` of int64"))
            };
            let columns = [
                column(COLUMNS[0])?,
                column(COLUMNS[1])?,
                column(COLUMNS[2])?,
                column(COLUMNS[3])?,
                column(COLUMNS[4])?,
            ];
            found.extend((0..rows.num_rows()).map(|row| columns.map(|column| column.value(row))));
        }
        Ok::<_, Box<dyn std::error::Error>>(found)
    };
    bytes.call(read)?.map_err(|what| {
        Error::malformed(path.to_string_lossy(), 0, format!("not a table of episodes: {what}"))
    })
}

/// Checks that the data files hold the frames that the dataset claims.
fn check_data(folder: &Path, info: &DatasetInfo) -> Result<(), Error> {
    let mut frames: u64 = 0;
    for Input { path, .. } in info::tables(folder, DATA)? {
        let bytes = TableBytes::open(&path)?;
        let read = || ParquetRecordBatchReaderBuilder::try_new(bytes.clone());
        let builder = bytes.call(read)?.map_err(|what| {
            Error::malformed(path.to_string_lossy(), 0, format!("not a data file: {what}"))
        })?;
        let rows = builder.metadata().file_metadata().num_rows();
        frames = frames.saturating_add(u64::try_from(rows).unwrap_or(0));
    }
    if frames == info.frames {
        return Ok(());
    }
    Err(wrong(folder, format!("expected {} frames in its data files, found {frames}", info.frames)))
}

/// The statistics of all frames so far.
fn read_stats(folder: &Path, info: &DatasetInfo) -> Result<Vec<FeatureStats>, Error> {
    let path = folder.join(STATS);
    let stats = info::read_object(&path)?;
    let stats = stats.ok_or_else(|| wrong(&path, "it has no statistics to add to".to_owned()))?;
    let all = [&info.features[..], &Feature::default_features()].concat();
    let each = measured(&all).map(|feature| {
        // Leading axes are thrown together, those of images as well.
        let width = feature.shape.last();
        let entry = stats.get(&feature.name);
        let found =
            entry.and_then(|entry| FeatureStats::from_json(entry, width.copied().unwrap_or(1)));
        found.ok_or_else(|| {
            wrong(&path, format!("the statistics of `{}` are incomplete", feature.name))
        })
    });
    each.collect()
}
