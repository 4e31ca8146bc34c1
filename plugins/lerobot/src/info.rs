//! The files of a dataset: their names, and `info.json`, which describes it. Reads no rows.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluice_io::files;
use sluice_model::{Error, Input};

use crate::feature::{self, Feature};

/// The description of a dataset.
pub(crate) const INFO: &str = "meta/info.json";
/// Statistics of all frames.
pub(crate) const STATS: &str = "meta/stats.json";
/// The texts of tasks.
pub(crate) const TASKS: &str = "meta/tasks.parquet";
/// The folder of data files.
pub(crate) const DATA: &str = "data";
/// The folder of tables of episodes.
pub(crate) const EPISODES: &str = "meta/episodes";

/// The version that is written, and read.
const VERSION: &str = "v3.0";
const DATA_PATH: &str = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet";

/// What is wanted of the size of video files, which are not written.
const VIDEO_FILE_MB: u64 = 200;

/// The most frames, so that their times fit into nanoseconds for any rate.
pub(crate) const MAX_FRAMES: u64 = 1 << 53;

/// Bytes of a megabyte.
pub(crate) const MB: u64 = 1 << 20;

/// The place of a file among those of its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FilePlace {
    pub(crate) chunk: u64,
    pub(crate) file: u64,
}

impl FilePlace {
    /// The place after this one.
    pub(crate) fn next(self, chunks_size: u64) -> Self {
        match self.file + 1 {
            file if file >= chunks_size => Self { chunk: self.chunk + 1, file: 0 },
            file => Self { file, ..self },
        }
    }

    /// Its path below the folder of a dataset.
    pub(crate) fn path(self, kind: &str) -> String {
        format!("{kind}/chunk-{:03}/file-{:03}.parquet", self.chunk, self.file)
    }
}

/// What `info.json` says of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DatasetInfo {
    pub(crate) fps: f64,
    pub(crate) robot_type: Option<String>,
    pub(crate) episodes: u64,
    pub(crate) frames: u64,
    pub(crate) tasks: u64,
    pub(crate) chunks_size: u64,
    pub(crate) data_file_mb: u64,
    /// Without those that every dataset has.
    pub(crate) features: Vec<Feature>,
}

impl DatasetInfo {
    /// Reads the description of the dataset in a folder; `None` if there is none.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(INFO);
        let Some(text) = files::read_if_exists(&path)? else { return Ok(None) };
        let value: Value = serde_json::from_slice(&text).map_err(|e| {
            Error::malformed(path.to_string_lossy(), offset_of(&text, &e), e.to_string())
        })?;
        let info = Self::from_json(&value);
        info.map(Some).map_err(|what| Error::invalid(format!("{what}: {}", path.display())))
    }

    fn from_json(value: &Value) -> Result<Self, String> {
        match value.get("codebase_version").and_then(Value::as_str) {
            Some(VERSION) => {}
            Some(other) => {
                return Err(format!(
                    "expected a dataset of version {VERSION}, found {other}; LeRobot converts it"
                ));
            }
            None => return Err("expected `codebase_version`".to_owned()),
        }
        let fps = value.get("fps").and_then(Value::as_f64).filter(|fps| *fps > 0.0);
        let fps = fps.ok_or("expected `fps`, a number above 0")?;
        let count = |key: &str| match value.get(key) {
            None => Ok(0),
            Some(found) => found
                .as_u64()
                .filter(|count| *count <= MAX_FRAMES)
                .ok_or_else(|| format!("expected `{key}`, a count, found {found}")),
        };
        // Files that they do not count are of a run that was killed.
        let counted = |key: &str| match value.get(key) {
            None => Err(format!("expected `{key}`, a count")),
            Some(_) => count(key),
        };
        let above_zero = |key: &str, usual: u64| match count(key)? {
            0 if value.get(key).is_some() => Err(format!("expected `{key}` above 0")),
            0 => Ok(usual),
            count => Ok(count),
        };
        let path = value.get("data_path").and_then(Value::as_str).unwrap_or(DATA_PATH);
        if path != DATA_PATH {
            return Err(format!("expected the `data_path` {DATA_PATH}, found {path}"));
        }
        Ok(Self {
            fps,
            robot_type: value.get("robot_type").and_then(Value::as_str).map(str::to_owned),
            episodes: counted("total_episodes")?,
            frames: counted("total_frames")?,
            tasks: count("total_tasks")?,
            chunks_size: above_zero("chunks_size", 1000)?,
            data_file_mb: above_zero("data_files_size_in_mb", 100)?,
            features: features(value)?,
        })
    }

    /// The text of `info.json`.
    pub(crate) fn to_text(&self) -> String {
        let all = [&self.features[..], &Feature::default_features()].concat();
        // Whole rates are written as integers, which the reader declares.
        let fps = match self.fps.fract() == 0.0 && self.fps < 1e15 {
            true => json!(self.fps as u64),
            false => json!(self.fps),
        };
        let value = json!({
            "codebase_version": VERSION,
            "fps": fps,
            "features": feature::to_json(&all),
            "total_episodes": self.episodes,
            "total_frames": self.frames,
            "total_tasks": self.tasks,
            "chunks_size": self.chunks_size,
            "data_files_size_in_mb": self.data_file_mb,
            "video_files_size_in_mb": VIDEO_FILE_MB,
            "data_path": DATA_PATH,
            "video_path": null,
            "robot_type": self.robot_type,
            "splits": { "train": format!("0:{}", self.episodes) },
        });
        indented(&value)
    }
}

/// The features of a description, without those that every dataset has.
fn features(value: &Value) -> Result<Vec<Feature>, String> {
    let entries = value.get("features").and_then(Value::as_object).ok_or("expected `features`")?;
    let mut features = Vec::new();
    for (name, entry) in entries {
        let default = Feature::default_features().into_iter().find(|own| own.name == *name);
        match default {
            Some(own) if own.dtype() == entry["dtype"] => {}
            Some(own) => {
                let (dtype, found) = (own.dtype(), &entry["dtype"]);
                return Err(format!("expected `{name}` as {dtype}, found {found}"));
            }
            None => features.push(Feature::from_json(name, entry)?),
        }
    }
    let missing =
        Feature::default_features().into_iter().find(|own| !entries.contains_key(&own.name));
    match missing {
        Some(own) => Err(format!("expected the feature `{}`", own.name)),
        None => Ok(features),
    }
}

/// JSON as LeRobot writes it.
pub(crate) fn indented(value: &Value) -> String {
    use serde::Serialize;
    use serde_json::ser::{PrettyFormatter, Serializer};
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(b"    ");
    let mut serializer = Serializer::with_formatter(&mut text, formatter);
    value.serialize(&mut serializer).expect("a value with keys of text can be written");
    String::from_utf8(text).expect("JSON is text")
}

/// The byte offset of an error in a JSON text.
fn offset_of(text: &[u8], error: &serde_json::Error) -> u64 {
    let lines = text.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
    (lines.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1)) as u64
}

/// Reads a JSON object; `None` if there is no such file.
pub(crate) fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, Error> {
    let Some(text) = files::read_if_exists(path)? else { return Ok(None) };
    let object = serde_json::from_slice(&text).map_err(|e| {
        Error::malformed(path.to_string_lossy(), offset_of(&text, &e), e.to_string())
    })?;
    Ok(Some(object))
}

/// The Parquet files of one kind in a dataset, in the order in which they are read: by path.
pub(crate) fn tables(folder: &Path, kind: &str) -> Result<Vec<Input>, Error> {
    let folder = folder.join(kind);
    if let Some(mut objects) = files::objects_below(&folder)? {
        // Directly in a folder of the folder.
        let depth =
            |input: &Input| input.path.strip_prefix(&folder).map_or(0, |p| p.iter().count());
        objects.retain(|input| is_table(&input.path) && depth(input) == 2);
        objects.sort_by(|a, b| a.path.cmp(&b.path));
        return Ok(objects);
    }
    let mut found = Vec::new();
    for chunk in paths_in(&folder)? {
        if !files::is_folder(&chunk) {
            continue;
        }
        for path in paths_in(&chunk)?.into_iter().filter(|path| is_table(path)) {
            let bytes = fs::metadata(&path).map_err(|e| Error::io("open", &path, e))?.len();
            found.push(Input { path, bytes: Some(bytes) });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// What is in a folder; nothing if it does not exist.
pub(crate) fn paths_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let fail = |e| Error::io("list", folder, e);
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry.map_err(fail)?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(fail(error)),
    }
}

fn is_table(path: &Path) -> bool {
    let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    !is_hidden && path.extension().is_some_and(|extension| extension == "parquet")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> DatasetInfo {
        let entry = json!({ "dtype": "float32", "shape": [2], "names": ["v", "w"] });
        DatasetInfo {
            fps: 10.0,
            robot_type: Some("car".to_owned()),
            episodes: 3,
            frames: 22,
            tasks: 2,
            chunks_size: 1000,
            data_file_mb: 100,
            features: vec![Feature::from_json("action", &entry).unwrap()],
        }
    }

    #[test]
    fn a_description_is_read_back() {
        for fps in [10.0, 29.97] {
            let info = DatasetInfo { fps, ..info() };
            let value: Value = serde_json::from_str(&info.to_text()).unwrap();
            assert_eq!(DatasetInfo::from_json(&value).unwrap(), info);
        }
        let text = info().to_text();
        assert!(text.contains("\n    \"fps\": 10,\n"), "{text}");
        assert!(text.contains("\"train\": \"0:3\""), "{text}");
    }

    #[test]
    fn datasets_of_other_versions_and_layouts_are_refused() {
        let refusal = |key: &str, to: Value| {
            let mut value: Value = serde_json::from_str(&info().to_text()).unwrap();
            value[key] = to;
            DatasetInfo::from_json(&value).unwrap_err()
        };
        assert!(refusal("codebase_version", json!("v2.1")).contains("v2.1"));
        assert!(refusal("codebase_version", json!("v4.0")).contains("v4.0"));
        assert!(refusal("fps", json!(0)).contains("fps"));
        assert!(refusal("total_frames", json!(-1)).contains("total_frames"));
        assert!(refusal("total_frames", json!(1u64 << 60)).contains("total_frames"));
        assert!(refusal("total_episodes", json!(null)).contains("total_episodes"));
        let mut value: Value = serde_json::from_str(&info().to_text()).unwrap();
        value.as_object_mut().unwrap().remove("total_frames");
        assert_eq!(DatasetInfo::from_json(&value).unwrap_err(), "expected `total_frames`, a count");
        assert!(refusal("chunks_size", json!(0)).contains("chunks_size"));
        assert!(refusal("data_path", json!("data/{episode_index}.parquet")).contains("data_path"));
        assert!(refusal("features", json!({})).contains("timestamp"));
    }

    #[test]
    fn files_are_counted_by_chunks() {
        let places = std::iter::successors(Some(FilePlace::default()), |place| Some(place.next(2)));
        let paths: Vec<String> = places.take(3).map(|place| place.path(DATA)).collect();
        assert_eq!(paths[1], "data/chunk-000/file-001.parquet");
        assert_eq!(paths[2], "data/chunk-001/file-000.parquet");
    }
}
