//! Source `lerobot`: the frames of datasets as rows. `dataset` finds the files, `frames` turns
//! their columns into events.

mod dataset;
mod frames;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_io::files;
use sluice_model::options::InPaths;
use sluice_model::{
    Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

use crate::info::{DATA, EPISODES, INFO, STATS, TASKS, tables};
use dataset::Dataset;
use frames::{FrameReader, UncountedFile};

/// Reads LeRobot datasets, version 3.0: a row per frame.
///
/// A row has the features, the field `episode` with its episode's number, and the field `task` with
/// its task's text. Times count from the start of each dataset; datasets are read one after
/// another.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LeRobotSourceOptions")]
pub struct LeRobotSource {
    /// The folders of datasets: one, a glob, or a list of them.
    #[serde(deserialize_with = "InPaths::without_stdin")]
    path: InPaths,
    /// The name of the channel.
    #[serde(default = "frames_channel")]
    channel: String,
    #[serde(skip)]
    datasets: OnceLock<Vec<Arc<Dataset>>>,
}

sluice_model::register! {
    source "lerobot": LeRobotSource,
    about: "reads LeRobot datasets, a row per frame",
    sample: include_str!("../../samples/lerobot-source.toml"),
    sniff_path: sniff_path,
    gives_rows: true,
}

fn frames_channel() -> String {
    "frames".to_owned()
}

fn sniff_path(path: &Path) -> Result<SniffResult, Error> {
    let info = path.join(INFO);
    let is_dataset = files::is_folder(path) && files::is_file(&info) && {
        let head = files::head(&info, 4096)?;
        String::from_utf8_lossy(&head).contains("\"codebase_version\"")
    };
    Ok(if is_dataset { SniffResult::Yes } else { SniffResult::No })
}

impl LeRobotSource {
    /// The folders of the datasets, in order.
    fn folders(&self) -> Result<Vec<PathBuf>, Error> {
        let mut folders = Vec::new();
        for path in &self.path.0 {
            let is_info = path.ends_with(INFO);
            let info = if is_info { path.clone() } else { path.join(INFO) };
            for Input { path, .. } in files::expand(&[info])? {
                let folder = path.parent().and_then(Path::parent).unwrap_or(&path);
                let is_here = folder.as_os_str().is_empty();
                folders.push(if is_here { PathBuf::from(".") } else { folder.to_owned() });
            }
        }
        Ok(folders)
    }

    fn datasets(&self) -> Result<&[Arc<Dataset>], Error> {
        if self.datasets.get().is_none() {
            let folders = self.folders()?;
            let opened = folders.iter().map(|folder| Dataset::open(folder).map(Arc::new));
            let opened: Vec<_> = opened.collect::<Result<_, _>>()?;
            // Another thread may have opened the same.
            self.datasets.get_or_init(|| opened);
        }
        Ok(self.datasets.get().map(Vec::as_slice).unwrap_or_default())
    }

    /// The dataset of a data file, and the number of the file in it.
    fn find(&self, input: &Path) -> Result<(&Arc<Dataset>, usize), Error> {
        let found = self.datasets()?.iter().find_map(|dataset| {
            let at = dataset.files.iter().position(|file| file.path == input)?;
            Some((dataset, at))
        });
        found.ok_or_else(|| {
            let input = input.display();
            Error::refused(format!("the dataset changed while it was being read: {input}"))
        })
    }
}

impl Source for LeRobotSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        let folders = self.folders()?;
        let each = folders.iter().map(|folder| tables(folder, DATA));
        Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn logs(&self) -> Result<Vec<Input>, Error> {
        let each = self.folders()?.into_iter().map(|path| {
            // Reading reports what is wrong with a dataset.
            let tables = tables(&path, DATA).ok();
            let bytes = tables.and_then(|tables| tables.iter().map(|table| table.bytes).sum());
            Ok(Input { path, bytes })
        });
        each.collect()
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        let mut all = self.inputs()?;
        for folder in self.folders()? {
            let described = [INFO, STATS, TASKS].map(|name| folder.join(name));
            let there = described.into_iter().filter(|path| files::is_file(path));
            all.extend(files::expand(&there.collect::<Vec<_>>())?);
            all.extend(tables(&folder, EPISODES)?);
        }
        Ok(all)
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let mut splits = Vec::new();
        for dataset in self.datasets()? {
            let wanted = dataset.wants(query);
            for file in dataset.files.iter().filter(|_| wanted) {
                file.add_splits(target, &mut splits);
            }
        }
        Ok(splits)
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        let (dataset, at) = self.find(input)?;
        Ok(dataset.files.get(at).map(|file| file.rows))
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let (dataset, file) = self.find(&split.input)?;
        if let Some(len) = dataset.files.get(file).and_then(|file| file.uncounted) {
            return Ok(Box::new(UncountedFile::report(&split.input, len, context)));
        }
        let reader = FrameReader::open(Arc::clone(dataset), file, split, &self.channel, context)?;
        Ok(Box::new(reader))
    }
}
