//! Appending: what a dataset that is there already has, and where it continues. Changes none of its
//! files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use sluice_io::files::{TEMPORARY, is_litter};
use sluice_io::output::OutputFiles;
use sluice_model::{Error, Input, Outputs, SinkContext};
use sluice_parquet::input::ParquetInput;

use super::declared::Declarations;
use super::encode::FrameEncoder;
use super::episodes::EpisodeCutter;
use super::options::LeRobotSink;
use super::write::DatasetFiles;
use crate::episode_table::measured;
use crate::feature::{Feature, INDEX};
use crate::info::{self, DATA, DatasetInfo, EPISODES, FilePlace, INFO, MB, STATS, TASKS};
use crate::parquet_io::{WRITER, open_table};
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
    if DatasetInfo::read(&folder)?.is_none() {
        context.outputs.folder(&sink.folder())?;
        return Ok(files);
    }
    context.outputs.extend_folder(&sink.folder())?;
    files.reservation = Some(reserve(&sink.folder(), &context.outputs)?);
    // Another run may have changed it before it was reserved.
    let info = DatasetInfo::read(&folder)?
        .ok_or_else(|| wrong(&folder.join(INFO), "another program has removed it".to_owned()))?;
    files.appends = true;
    check_options(sink, &info, &folder)?;
    (files.chunks_size, files.data_file_size) = (info.chunks_size, info.data_file_mb * MB);
    files.robot_type = info.robot_type.clone().or_else(|| sink.robot_type.clone());
    cutter.declared = Declarations::appended_to(&info, sink.robot_type.is_some());
    cutter.fps = Some(info.fps);
    let episodes = counted_episodes(&folder, &info)?;
    let data = counted_data(&folder, &info, episodes.data)?;
    let next = |last: Option<FilePlace>| last.map(|place| place.next(info.chunks_size));
    let continued = [data.last, episodes.tables.last].map(next);
    let [data_place, table_place] = continued.map(Option::unwrap_or_default);
    files.continue_at(data_place, table_place);
    files.uncounted = data.uncounted.into_iter().chain(episodes.tables.uncounted).collect();
    files.appended_to = Some(info.clone());
    if info.frames == 0 && info.episodes == 0 {
        return Ok(files);
    }
    files.total_episodes = info.episodes;
    files.stats = read_stats(&folder, &info)?;
    cutter.tasks = TaskTable::read(&folder.join(TASKS))?;
    if !files.uncounted.is_empty() {
        // The run that was killed may have added others.
        cutter.tasks.truncate(usize::try_from(info.tasks).unwrap_or(usize::MAX));
    }
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

/// Reserves a dataset for this run, by a temporary folder in it that is there until the outputs are
/// published.
///
/// `Err` if another run has reserved it. Each makes its folder before it looks for those of others:
/// of two runs that begin together, at most one continues.
fn reserve(target: &Path, outputs: &Arc<Outputs>) -> Result<OutputFiles, Error> {
    let reservation = outputs.many(target)?;
    let folder = outputs.actual_path(target);
    let is_reservation = |path: &PathBuf| {
        path.file_name().is_some_and(|name| is_litter(&name.to_string_lossy())) && path.is_dir()
    };
    let reservations = info::paths_in(&folder)?.into_iter().filter(is_reservation);
    if reservations.count() > 1 {
        return Err(Error::refused(format!(
            "another run is appending to this dataset; run again when it has ended, or, if none is \
             running, remove the folders `.*{TEMPORARY}` in it: {}",
            folder.display()
        )));
    }
    Ok(reservation)
}

fn wrong(path: &Path, what: String) -> Error {
    Error::invalid(format!("cannot append to this dataset: {what}: {}", path.display()))
}

fn check_options(sink: &LeRobotSink, info: &DatasetInfo, folder: &Path) -> Result<(), Error> {
    // A rate such as 1000/70 may not be read exactly from `info.json`.
    let differs = |fps: &f64| (fps - info.fps).abs() > 1e-12 * info.fps;
    if let Some(fps) = sink.fps.filter(differs) {
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

/// The files of one kind.
struct CountedFiles {
    /// The place of the last one that the dataset counts, if it counts any.
    last: Option<FilePlace>,
    /// Those behind it, which a run left that was killed while it appended.
    uncounted: Vec<PathBuf>,
}

impl CountedFiles {
    /// `Err` unless those that are not counted have names behind `last` and those that are, as
    /// appending gives them: another may be a copy, or be counted in place of its copy.
    fn new(
        kind: &str,
        counted: &[Input],
        last: Option<FilePlace>,
        uncounted: Vec<PathBuf>,
    ) -> Result<Self, Error> {
        let are_ours = counted.iter().all(|input| place_of(&input.path).is_some());
        let last = last.max(last_place(counted));
        let is_left = |path: &Path| {
            let place = place_of(path).filter(|place| path.ends_with(place.path(kind)));
            are_ours && place > last
        };
        match uncounted.iter().find(|path| !is_left(path)) {
            None => Ok(Self { last, uncounted }),
            Some(path) => Err(wrong(
                path,
                "its rows are not counted by info.json, and its name is not behind those of files \
                 that are; remove it, or what is a copy of it"
                    .to_owned(),
            )),
        }
    }
}

/// The tables of episodes, and the last data file that they name.
struct CountedEpisodes {
    tables: CountedFiles,
    data: Option<FilePlace>,
}

/// Reads where the episodes are, and checks that the tables have those that the dataset claims.
fn counted_episodes(folder: &Path, info: &DatasetInfo) -> Result<CountedEpisodes, Error> {
    let (mut episodes, mut frames, mut data) = (0, 0, None);
    let (mut counted, mut uncounted) = (Vec::new(), Vec::new());
    for table in info::tables(folder, EPISODES)? {
        let path = table.path.clone();
        let input = open_table(&path, "this table of episodes")?;
        if (episodes, frames) == (info.episodes, info.frames) && input.rows() > 0 {
            check_left(&input)?;
            uncounted.push(path);
            continue;
        }
        counted.push(table);
        let add = |rows: &RecordBatch| {
            for [episode, from, to, chunk, file] in episodes_in(rows)? {
                if episodes == info.episodes {
                    return Err(format!("it has more episodes than the {episodes} of info.json"));
                }
                if episode != episodes as i64 || from != frames as i64 || to <= from {
                    return Err(format!(
                        "its episodes are not in order: expected episode {episodes}"
                    ));
                }
                (episodes, frames) = (episodes + 1, to as u64);
                let place = u64::try_from(chunk).ok().zip(u64::try_from(file).ok());
                let (chunk, file) =
                    place.ok_or_else(|| format!("episode {episode} is in no file"))?;
                data = data.max(Some(FilePlace { chunk, file }));
            }
            Ok(())
        };
        input.for_each_slice(&COLUMNS, 1 << 20, add)?.map_err(|what| wrong(&path, what))?;
    }
    if (episodes, frames) != (info.episodes, info.frames) {
        return Err(wrong(
            folder,
            format!(
                "expected {} episodes of {} frames, found {episodes} of {frames}",
                info.episodes, info.frames
            ),
        ));
    }
    if last_place(&counted).is_none() && !counted.is_empty() {
        let what = "its tables of episodes are not named chunk-NNN/file-NNN.parquet";
        return Err(wrong(folder, what.to_owned()));
    }
    Ok(CountedEpisodes { tables: CountedFiles::new(EPISODES, &counted, None, uncounted)?, data })
}

/// The greatest place among files; `None` if one has another name.
fn last_place(files: &[Input]) -> Option<FilePlace> {
    let places: Option<Vec<FilePlace>> = files.iter().map(|input| place_of(&input.path)).collect();
    places?.into_iter().max()
}

/// The place that a file has by its name.
fn place_of(path: &Path) -> Option<FilePlace> {
    let file = path.file_stem()?.to_str()?.strip_prefix("file-")?.parse().ok()?;
    let chunk = path.parent()?.file_name()?.to_str()?;
    Some(FilePlace { chunk: chunk.strip_prefix("chunk-")?.parse().ok()?, file })
}

const COLUMNS: [&str; 5] = [
    "episode_index",
    "dataset_from_index",
    "dataset_to_index",
    "data/chunk_index",
    "data/file_index",
];

/// Number, first and last frame, and data file of each episode of a table.
fn episodes_in(rows: &RecordBatch) -> Result<impl Iterator<Item = [i64; 5]>, String> {
    let column = |name: &str| {
        let column = rows.column_by_name(name).filter(|column| column.null_count() == 0);
        let numbers = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
        numbers.ok_or_else(|| format!("it has no column `{name}` of int64"))
    };
    let [episode, from, to, chunk, file] = COLUMNS.map(column);
    let columns = [episode?, from?, to?, chunk?, file?];
    Ok((0..rows.num_rows()).map(move |row| columns.map(|column| column.value(row))))
}

/// Finds the data files with the frames that the dataset claims, and checks that they are there.
/// Its episodes are in files up to `last`.
fn counted_data(
    folder: &Path,
    info: &DatasetInfo,
    last: Option<FilePlace>,
) -> Result<CountedFiles, Error> {
    let (mut frames, mut counted, mut uncounted) = (0u64, Vec::new(), Vec::new());
    for file in info::tables(folder, DATA)? {
        let input = open_table(&file.path, "this data file")?;
        if frames == info.frames && input.rows() > 0 {
            check_left(&input)?;
            uncounted.push(file.path);
            continue;
        }
        frames = frames.saturating_add(input.rows());
        counted.push(file);
    }
    if frames != info.frames {
        return Err(wrong(
            folder,
            format!("expected {} frames in its data files, found {frames}", info.frames),
        ));
    }
    CountedFiles::new(DATA, &counted, last, uncounted)
}

/// Refuses a file that the dataset does not count unless it is one that a killed run left, which
/// appending removes.
fn check_left(input: &ParquetInput) -> Result<(), Error> {
    let writer = input.metadata().file_metadata().created_by();
    if writer.is_some_and(|writer| writer.starts_with(WRITER)) {
        return Ok(());
    }
    let what = "its rows are not counted by info.json, and another program wrote it; remove it, or \
                complete the dataset";
    Err(wrong(input.path(), what.to_owned()))
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
    let each = each.collect::<Result<Vec<_>, _>>()?;
    // Every frame has an index.
    let index = measured(&all).zip(&each).find(|(feature, _)| feature.name == INDEX);
    match index.map(|(_, stats)| stats.count) {
        Some(count) if count != info.frames => Err(wrong(
            &path,
            format!(
                "expected statistics of {} frames, found those of {count}, which a run left that \
                 was killed; convert the dataset to a new one, and append to that",
                info.frames
            ),
        )),
        _ => Ok(each),
    }
}
