//! A dataset that is read: its description, its tasks, and where its row groups are. Reads no
//! frames.

use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::Length;
use sluice_model::{Error, Input, Query, Split};

use crate::feature::{EPISODE_INDEX, INDEX, TASK, TASK_INDEX};
use crate::info::{DATA, DatasetInfo, INFO, TASKS, tables};
use crate::parquet_io::TableBytes;
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
    pub(super) groups: Vec<GroupSpan>,
    pub(super) rows: u64,
}

/// A row group of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupSpan {
    pub(super) number: usize,
    /// The offsets of its first byte, and of the byte after its last.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Its bytes in memory. Equal values take next to none in the file, however many there are.
    pub(super) plain_bytes: u64,
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
            let file = DataFile::open(path, frames, &info)?;
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
    fn open(path: PathBuf, first: u64, info: &DatasetInfo) -> Result<Self, Error> {
        let bytes = TableBytes::open(&path)?;
        let len = bytes.len();
        let wrong = |what: String| {
            Error::malformed(path.to_string_lossy(), len, format!("not a data file: {what}"))
        };
        let load = || ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::new());
        let footer = bytes.call(load)?.map_err(wrong)?;
        let own = [EPISODE_INDEX, INDEX, TASK_INDEX];
        let needed = info.features.iter().map(|feature| &*feature.name).chain(own);
        for name in needed {
            if footer.schema().column_with_name(name).is_none() {
                return Err(wrong(format!("it has no column `{name}`")));
            }
        }
        let (mut groups, mut rows, mut after) = (Vec::new(), 0u64, 0);
        for (number, group) in footer.metadata().row_groups().iter().enumerate() {
            let span = group_span(number, group, first + rows);
            let span = span.filter(|span| span.start >= after && span.end <= len);
            let span = span.ok_or_else(|| {
                wrong(format!("its row group {number} is not where its footer says"))
            })?;
            after = span.end;
            rows = rows
                .checked_add(span.rows)
                .filter(|rows| first.checked_add(*rows).is_some_and(|all| all <= info.frames))
                .ok_or_else(|| {
                    wrong(format!("it has more frames than the {} of {INFO}", info.frames))
                })?;
            groups.push(span);
        }
        Ok(Self { path, groups, rows })
    }

    /// Adds splits of about `target` bytes, each of whole row groups.
    pub(super) fn add_splits(&self, target: u64, splits: &mut Vec<Split>) {
        let mut open: Option<Split> = None;
        for group in self.groups.iter().filter(|group| group.rows > 0) {
            let split = open.get_or_insert_with(|| Split {
                start: group.start,
                ..Split::whole(self.path.clone(), Some(0))
            });
            split.end = Some(group.end);
            let bytes = split.bytes.unwrap_or_default().saturating_add(group.plain_bytes);
            split.bytes = Some(bytes);
            if bytes >= target {
                splits.extend(open.take());
            }
        }
        splits.extend(open);
    }
}

/// The bytes of a number or a boolean in memory, on average.
const VALUE_BYTES: i64 = 4;

/// Where a row group is; `None` if its footer is not consistent.
fn group_span(number: usize, group: &RowGroupMetaData, first: u64) -> Option<GroupSpan> {
    let (mut start, mut end, mut plain_bytes) = (u64::MAX, 0, 0u64);
    for column in group.columns() {
        // The library computes ranges in the same way, without checking for negative numbers.
        let from = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let from = u64::try_from(from).ok()?;
        let to = from.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
        (start, end) = (start.min(from), end.max(to));
        let values = column.num_values().saturating_mul(VALUE_BYTES);
        let plain = u64::try_from(column.uncompressed_size().max(values)).ok()?;
        plain_bytes = plain_bytes.saturating_add(plain);
    }
    let rows = u64::try_from(group.num_rows()).ok()?;
    (start < end).then_some(GroupSpan { number, start, end, plain_bytes, first, rows })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::file::metadata::ColumnChunkMetaData;
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    #[test]
    fn equal_values_count_with_what_they_take_in_memory() {
        let fields = parse_message_type("message m { repeated float state; }").unwrap();
        let columns = Arc::new(SchemaDescriptor::new(Arc::new(fields)));
        let chunk = ColumnChunkMetaData::builder(columns.column(0))
            .set_num_values(10 << 20)
            .set_data_page_offset(4)
            .set_total_compressed_size(100)
            .set_total_uncompressed_size(150);
        let group = RowGroupMetaData::builder(columns)
            .set_num_rows(1 << 20)
            .add_column_metadata(chunk.build().unwrap())
            .build();
        let span = group_span(0, &group.unwrap(), 0).unwrap();
        assert_eq!((span.start, span.end, span.plain_bytes), (4, 104, 40 << 20));
    }
}
