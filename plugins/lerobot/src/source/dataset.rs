//! A dataset that is read: its description, its tasks, and where its row groups are. Reads no
//! frames.

use std::path::{Path, PathBuf};

use sluice_model::{Error, Input, Query, Split};
use sluice_parquet::input::{GroupSpan, ParquetInput};

use crate::feature::{EPISODE_INDEX, INDEX, TASK, TASK_INDEX};
use crate::info::{DATA, DatasetInfo, INFO, TASKS, tables};
use crate::parquet_io::open_table;
use crate::task_table::TaskTable;

/// The field with the number of a row's episode.
pub(super) const EPISODE: &str = "episode";

/// A dataset whose description has been read.
#[derive(Debug)]
pub(super) struct Dataset {
    pub(super) info: DatasetInfo,
    pub(super) tasks: TaskTable,
    pub(super) files: Vec<DataFile>,
}

/// A data file.
#[derive(Debug)]
pub(super) struct DataFile {
    pub(super) path: PathBuf,
    pub(super) groups: Vec<FrameGroup>,
    pub(super) rows: u64,
    /// Its length in bytes, if it has frames that the dataset does not count: it is what a run left
    /// that was killed while it appended.
    pub(super) uncounted: Option<u64>,
}

/// A row group of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameGroup {
    pub(super) span: GroupSpan,
    /// The index of its first frame in the dataset.
    pub(super) first: u64,
    pub(super) rows: u64,
}

impl Dataset {
    /// Opens the dataset in a folder.
    ///
    /// `Err` if it is of another version, incomplete, or not consistent.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let info = DatasetInfo::read(folder)?;
        let info = info.ok_or_else(|| {
            Error::refused(format!("there is no {INFO} in this folder: {}", folder.display()))
        })?;
        let taken = info.features.iter().find(|feature| [EPISODE, TASK].contains(&&*feature.name));
        if let Some(feature) = taken {
            return Err(Error::invalid(format!(
                "the feature `{}` has the name of a field that rows get: rename it: {}",
                feature.name,
                folder.display()
            )));
        }
        let (mut files, mut frames) = (Vec::new(), 0);
        for Input { path, .. } in tables(folder, DATA)? {
            // Appending adds whole files.
            let left = info.frames - frames;
            let file = DataFile::open(path, (frames, left), &info)?;
            frames += file.rows;
            files.push(file);
        }
        if frames != info.frames {
            return Err(Error::invalid(format!(
                "expected {} frames, as {INFO} says, found {frames} in the data files: {}",
                info.frames,
                folder.display()
            )));
        }
        let tasks = match frames {
            0 => TaskTable::default(),
            _ => TaskTable::read(&folder.join(TASKS))?,
        };
        Ok(Self { info, tasks, files })
    }

    /// The time of a frame, from its index; `None` if it is out of range.
    pub(super) fn time(&self, index: u64) -> Option<i64> {
        let nanos = index as f64 / self.info.fps * 1e9;
        (nanos < i64::MAX as f64).then_some(nanos.round() as i64)
    }

    /// Whether any of its times is needed.
    pub(super) fn wants(&self, query: &Query) -> bool {
        let last = self.time(self.info.frames.saturating_sub(1)).unwrap_or(i64::MAX);
        query.wants_times(0, last)
    }
}

impl DataFile {
    /// Opens a file that begins with the frame `first`, of which the dataset counts `left` more.
    fn open(path: PathBuf, (first, left): (u64, u64), info: &DatasetInfo) -> Result<Self, Error> {
        let input = open_table(&path, "this data file")?;
        let len = input.len();
        if left == 0 && input.rows() > 0 {
            return Ok(Self { path, groups: Vec::new(), rows: 0, uncounted: Some(len) });
        }
        let wrong = |what: String| {
            Error::malformed(path.to_string_lossy(), len, format!("not a data file: {what}"))
        };
        check_columns(&input, info).map_err(wrong)?;
        let (mut groups, mut rows, mut after) = (Vec::new(), 0u64, 0);
        for (span, group) in input.spans().iter().zip(input.metadata().row_groups()) {
            let number = span.number;
            if span.start < after || span.start >= span.end {
                return Err(wrong(format!("its row group {number} is not where its footer says")));
            }
            after = span.end;
            let group = FrameGroup {
                span: *span,
                first: first + rows,
                rows: u64::try_from(group.num_rows()).unwrap_or(u64::MAX),
            };
            rows = rows.checked_add(group.rows).filter(|rows| *rows <= left).ok_or_else(|| {
                wrong(format!("it has more frames than the {} of {INFO}", info.frames))
            })?;
            groups.push(group);
        }
        Ok(Self { path, groups, rows, uncounted: None })
    }

    /// Adds splits of about `target` bytes, each of whole row groups.
    pub(super) fn add_splits(&self, target: u64, splits: &mut Vec<Split>) {
        if let Some(bytes) = self.uncounted {
            let split = Split::whole(self.path.clone(), Some(bytes));
            splits.push(Split { end: Some(bytes), ..split });
        }
        let mut open: Option<Split> = None;
        for FrameGroup { span, .. } in self.groups.iter().filter(|group| group.rows > 0) {
            let split = open.get_or_insert_with(|| Split {
                start: span.start,
                ..Split::whole(self.path.clone(), Some(0))
            });
            split.end = Some(span.end);
            let bytes = split.bytes.unwrap_or_default().saturating_add(span.plain_bytes);
            split.bytes = Some(bytes);
            if bytes >= target {
                splits.extend(open.take());
            }
        }
        splits.extend(open);
    }
}

fn check_columns(input: &ParquetInput, info: &DatasetInfo) -> Result<(), String> {
    let own = [EPISODE_INDEX, INDEX, TASK_INDEX];
    let mut needed = info.features.iter().map(|feature| &*feature.name).chain(own);
    match needed.find(|name| input.schema().column_with_name(name).is_none()) {
        Some(name) => Err(format!("it has no column `{name}`")),
        None => Ok(()),
    }
}
