//! The files of a dataset: their names, and `info.json`, which describes it. Reads no rows.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluice_io::files::{self, FileChoice};
use sluice_io::store;
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

/// The split of the episodes that are trained on.
const TRAIN: &str = "train";

/// Keys of `info.json` that writing a dataset computes. Others stay as they are.
const COMPUTED: [&str; 11] = [
    "codebase_version",
    "fps",
    "features",
    "total_episodes",
    "total_frames",
    "total_tasks",
    "chunks_size",
    "data_files_size_in_mb",
    "data_path",
    "robot_type",
    "splits",
];

/// Keys of a feature that writing a dataset computes.
const COMPUTED_OF_FEATURES: [&str; 3] = ["dtype", "shape", "names"];

/// Keys of `info.json` that are about videos, which are not written.
const VIDEO_FILE_MB: &str = "video_files_size_in_mb";
const VIDEO_PATH: &str = "video_path";

/// The most frames, so that their times fit into nanoseconds for any rate.
pub(crate) const MAX_FRAMES: u64 = 1 << 53;

/// The most keys that a note lists.
const MAX_LISTED: usize = 8;

/// The fewest frames per second: one in 31 years, as for the stage `align`.
pub(crate) const LEAST_FPS: f64 = 1e-9;
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
    /// The episodes of each split.
    pub(crate) splits: Value,
    /// What else it says, as it was read.
    pub(crate) rest: InfoRest,
}

/// What `info.json` says beyond what writing a dataset computes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InfoRest {
    /// Keys of the description.
    keys: Map<String, Value>,
    /// By feature, keys of its entry.
    features: Map<String, Value>,
}

impl Default for InfoRest {
    fn default() -> Self {
        let videos = [(VIDEO_FILE_MB, json!(200)), (VIDEO_PATH, Value::Null)];
        let keys = videos.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        Self { keys, features: Map::new() }
    }
}

impl InfoRest {
    fn from_json(info: &Value) -> Self {
        let without = |value: &Value, computed: &[&str]| -> Map<String, Value> {
            let all = value.as_object().into_iter().flatten();
            let rest = all.filter(|(key, _)| !computed.contains(&key.as_str()));
            rest.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let mut rest = Self::default();
        rest.keys.extend(without(info, &COMPUTED));
        for (name, entry) in info["features"].as_object().into_iter().flatten() {
            let entry = without(entry, &COMPUTED_OF_FEATURES);
            if !entry.is_empty() {
                rest.features.insert(name.clone(), Value::Object(entry));
            }
        }
        rest
    }

    /// Adds it to a description.
    fn add_to(&self, info: &mut Value) {
        for (name, rest) in &self.features {
            let entry = info["features"].get_mut(name).and_then(Value::as_object_mut);
            if let Some((entry, rest)) = entry.zip(rest.as_object()) {
                entry.extend(rest.clone());
            }
        }
        if let Some(info) = info.as_object_mut() {
            info.extend(self.keys.clone());
        }
    }
}

/// All episodes as those that are trained on.
pub(crate) fn one_split(episodes: u64) -> Value {
    json!({ TRAIN: format!("0:{episodes}") })
}

/// Whether splits say more than that all episodes are trained on.
pub(crate) fn divides(splits: &Value, episodes: u64) -> bool {
    let says_nothing = splits.is_null() || splits.as_object().is_some_and(Map::is_empty);
    !says_nothing && *splits != one_split(episodes)
}

/// Adds the episodes from `before` to `after` to those that are trained on. `None` if they cannot
/// be: a split is one range, so that these must be the last ones so far.
pub(crate) fn with_episodes(splits: &Value, before: u64, after: u64) -> Option<Value> {
    if !divides(splits, before) {
        return Some(one_split(after));
    }
    let mut splits = splits.as_object()?.clone();
    let mut first = before;
    for (name, range) in &splits {
        let (start, end) = range.as_str()?.split_once(':')?;
        let (start, end): (u64, u64) = (start.trim().parse().ok()?, end.trim().parse().ok()?);
        let is_train = name == TRAIN;
        // No episode may be in two splits.
        if end > before || is_train && (end < before || start > end) {
            return None;
        }
        first = if is_train { start } else { first };
    }
    splits.insert(TRAIN.to_owned(), format!("{first}:{after}").into());
    Some(Value::Object(splits))
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
        let fps = value.get("fps").and_then(Value::as_f64).filter(|fps| *fps >= LEAST_FPS);
        let fps = fps.ok_or_else(|| format!("expected `fps`, a number from {LEAST_FPS:e} on"))?;
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
            splits: value.get("splits").cloned().unwrap_or_default(),
            rest: InfoRest::from_json(value),
        })
    }

    /// The keys that a copy of the dataset does not get, as a list: splits, if they are not all
    /// episodes as one, and some of those that are not known here. `None` if there are none.
    pub(crate) fn uncopied_keys(&self) -> Option<String> {
        let splits = divides(&self.splits, self.episodes).then(|| "splits".to_owned());
        let keys = self.rest.keys.keys();
        let unknown = keys.filter(|key| ![VIDEO_FILE_MB, VIDEO_PATH].contains(&key.as_str()));
        let features = self.rest.features.values().filter_map(Value::as_object);
        // LeRobot's converter repeats the rate in each feature.
        let of_features = features.flat_map(Map::keys).filter(|key| *key != "fps");
        let of_features: BTreeSet<&String> = of_features.collect();
        let of_features = of_features.into_iter().map(|key| format!("features.*.{key}"));
        let all: Vec<String> =
            splits.into_iter().chain(unknown.cloned()).chain(of_features).collect();
        let more = all.len().saturating_sub(MAX_LISTED);
        let listed = all.get(..MAX_LISTED).unwrap_or(&all).join(", ");
        match (all.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(listed),
            (false, more) => Some(format!("{listed} and {more} others")),
        }
    }

    /// The text of `info.json`.
    pub(crate) fn to_text(&self) -> String {
        let all = [&self.features[..], &Feature::default_features()].concat();
        // Whole rates are written as integers, which the reader declares.
        let fps = match self.fps.fract() == 0.0 && self.fps < 1e15 {
            true => json!(self.fps as u64),
            false => json!(self.fps),
        };
        let mut value = json!({
            "codebase_version": VERSION,
            "fps": fps,
            "features": feature::to_json(&all),
            "total_episodes": self.episodes,
            "total_frames": self.frames,
            "total_tasks": self.tasks,
            "chunks_size": self.chunks_size,
            "data_files_size_in_mb": self.data_file_mb,
            "data_path": DATA_PATH,
            "robot_type": self.robot_type,
            "splits": self.splits,
        });
        self.rest.add_to(&mut value);
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
    if !store::is_address(&folder) && files::path_kind(&folder)?.is_none() {
        return Ok(Vec::new());
    }
    // Only directly in a folder of the folder.
    let is_entered = |folder: &Path| folder.iter().count() == 1;
    let choose = |file: &Path| {
        let is_below = file.parent() != Some(&folder);
        if is_below && is_table(file) { FileChoice::Take } else { FileChoice::Skip }
    };
    files::below(&folder, is_entered, choose)
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
            splits: one_split(3),
            rest: InfoRest::default(),
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
    fn what_is_not_computed_is_written_as_it_was_read() {
        let mut value: Value = serde_json::from_str(&info().to_text()).unwrap();
        value["note"] = json!({ "by": ["me"] });
        value["video_path"] = json!("videos");
        value["splits"] = json!({ "val": "0:1", "train": "1:3" });
        value["features"]["action"]["unit"] = json!("m/s");
        value["features"]["index"]["fps"] = json!(10);
        let text = DatasetInfo::from_json(&value).unwrap().to_text();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn new_episodes_are_trained_on_if_splits_can_say_so() {
        let grown = |splits: Value| with_episodes(&splits, 4, 6);
        for whole in [json!(null), json!({}), json!({ "train": "0:4" })] {
            assert_eq!(grown(whole), Some(json!({ "train": "0:6" })));
        }
        let last = json!({ "val": "0:1", "train": "1:4" });
        assert_eq!(grown(last), Some(json!({ "val": "0:1", "train": "1:6" })));
        let none = json!({ "val": "0:4" });
        assert_eq!(grown(none), Some(json!({ "val": "0:4", "train": "4:6" })));
        for range in [json!("0:3"), json!("0:5"), json!("5:4"), json!("80%"), json!([0, 4])] {
            assert_eq!(grown(json!({ "train": range, "val": "3:4" })), None, "{range}");
        }
        for other in [json!("2:9"), json!("4:"), json!(null)] {
            assert_eq!(grown(json!({ "train": "0:4", "val": other })), None, "{other}");
        }
        assert_eq!(grown(json!(["train"])), None);
        assert_eq!(with_episodes(&json!({ "train": "0:0" }), 0, 2), Some(one_split(2)));
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
        assert!(refusal("fps", json!(1e-300)).contains("fps"));
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
