//! Reads the frames of row groups as batches of rows. Finds no files.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryViewArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use sluice_model::{
    Batch, Channel, ChannelId, Clock, Damage, Encoding, Error, MessageType, Name, Payloads,
    ReadContext, Reader, Rows, Split, TypeKey,
};

use super::dataset::{DataFile, Dataset, EPISODE, GroupSpan};
use crate::feature::{EPISODE_INDEX, Feature, FeatureType, INDEX, TASK, TASK_INDEX};
use crate::parquet_io::TableBytes;

/// The maximum rows per batch, and about how many bytes.
const MAX_ROWS: usize = 8 << 10;
const TARGET_BYTES: u64 = 2 << 20;

/// The name of the type of all rows.
const TYPE: &str = "lerobot.frame";

/// Reads the row groups of a split.
pub(super) struct FrameReader {
    dataset: Arc<Dataset>,
    file: usize,
    bytes: TableBytes,
    /// The next one last.
    groups: Vec<GroupSpan>,
    open: Option<OpenGroup>,
    context: ReadContext,
    channel: ChannelId,
    message: Arc<MessageType>,
}

struct OpenGroup {
    span: GroupSpan,
    rows: ParquetRecordBatchReader,
    /// The index of the next frame.
    next: u64,
}

impl FrameReader {
    pub(super) fn open(
        dataset: Arc<Dataset>,
        file: usize,
        split: &Split,
        channel: &str,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let found =
            dataset.files.get(file).ok_or_else(|| Error::internal("a file that is not there"))?;
        let inside = |group: &&GroupSpan| {
            let ends_inside = split.end.is_none_or(|end| group.end <= end);
            group.start >= split.start && ends_inside && group.rows > 0
        };
        let mut groups: Vec<GroupSpan> = found.groups.iter().filter(inside).copied().collect();
        groups.reverse();
        let bytes = TableBytes::open(&found.path)?;
        let mut channel =
            Channel::new(Name::from_text(channel), Arc::clone(&context.source), Encoding::Unknown);
        (channel.clock, channel.type_name) = (Clock::Relative, Some(TYPE.into()));
        let channel = context.channels.intern(channel)?;
        let features = dataset.info.features.iter();
        let parts: Vec<String> =
            features.map(|feature| format!("{}:{}", feature.name, feature.to_json())).collect();
        let key = TypeKey::from_parts(parts.iter().map(String::as_bytes));
        let message = Arc::new(MessageType::named(TYPE, key));
        let context = context.clone();
        Ok(Self { dataset, file, bytes, groups, open: None, context, channel, message })
    }

    fn file(&self) -> Result<&DataFile, Error> {
        let file = self.dataset.files.get(self.file);
        file.ok_or_else(|| Error::internal("a file that is not there"))
    }

    /// Opens a row group. One that cannot be read is damage.
    fn open_group(&self, span: GroupSpan) -> Result<Option<OpenGroup>, Error> {
        let features = self.dataset.info.features.iter().map(|feature| &*feature.name);
        let names: Vec<&str> = features.chain([EPISODE_INDEX, INDEX, TASK_INDEX]).collect();
        let per_row = (span.plain_bytes / span.rows.max(1)).max(1);
        let batch = usize::try_from(TARGET_BYTES / per_row).unwrap_or(MAX_ROWS).clamp(1, MAX_ROWS);
        let open = || {
            let builder = ParquetRecordBatchReaderBuilder::try_new(self.bytes.clone())?;
            // Names of features may have dots, which are no paths.
            let roots = names.iter().filter_map(|name| builder.schema().index_of(name).ok());
            let roots: Vec<usize> = roots.collect();
            let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
            let builder = builder.with_row_groups(vec![span.number]).with_batch_size(batch);
            builder.with_projection(mask).build()
        };
        match self.bytes.call(open)? {
            Ok(rows) => Ok(Some(OpenGroup { span, rows, next: span.first })),
            Err(reason) => {
                self.report(&span, &reason)?;
                Ok(None)
            }
        }
    }

    fn report(&self, span: &GroupSpan, reason: &str) -> Result<(), Error> {
        let input: Arc<str> = self.file()?.path.to_string_lossy().into();
        let reason = format!("row group {}: {reason}", span.number);
        let damage = Damage::new(&input, span.start, span.end - span.start, reason);
        self.context.damage.report(damage);
        Ok(())
    }

    fn batch(&self, rows: &RecordBatch, first: u64) -> Result<Batch, String> {
        let count = rows.num_rows();
        let column = |name: &str| {
            let found = rows.column_by_name(name).filter(|column| column.null_count() == 0);
            let found = found.and_then(|column| column.as_primitive_opt::<Int64Type>()).cloned();
            found.ok_or_else(|| format!("expected int64 without nulls in the column `{name}`"))
        };
        let (indexes, episodes) = (column(INDEX)?, column(EPISODE_INDEX)?);
        let expected = (first..).zip(indexes.values());
        for (expected, found) in expected {
            if u64::try_from(*found) != Ok(expected) {
                return Err(format!("expected the frame with the index {expected}, found {found}"));
            }
        }
        let texts = column(TASK_INDEX)?;
        let texts = texts.values().iter().map(|number| {
            let text = self.dataset.tasks.text(*number);
            text.map(|text| &**text).ok_or_else(|| format!("there is no task {number}"))
        });
        let texts: StringArray = texts.collect::<Result<Vec<&str>, _>>()?.into();
        let times = (first..first + count as u64).map(|index| {
            self.dataset
                .time(index)
                .ok_or_else(|| format!("the time of frame {index} is out of range"))
        });
        let times: Vec<i64> = times.collect::<Result<_, _>>()?;
        let columns = self.columns(rows, &episodes, texts)?;
        let payloads = BinaryViewArray::from_iter_values(std::iter::repeat_n(b"", count));
        let channels = vec![self.channel.0; count];
        let sequences = indexes.values().to_vec();
        let batch = Batch::from_columns(times.into(), sequences.into(), channels, &payloads);
        Ok(batch.with_rows(vec![Rows {
            message: Arc::clone(&self.message),
            payloads: Payloads::Gone,
            events: (0..count as u32).collect(),
            columns,
        }]))
    }

    /// The fields of rows.
    fn columns(
        &self,
        rows: &RecordBatch,
        episodes: &Int64Array,
        texts: StringArray,
    ) -> Result<RecordBatch, String> {
        let (mut fields, mut columns) = (Vec::new(), Vec::<ArrayRef>::new());
        for feature in &self.dataset.info.features {
            let column = feature_column(feature, rows)?;
            fields.push(Field::new(&feature.name, column.data_type().clone(), true));
            columns.push(column);
        }
        fields.push(Field::new(EPISODE, DataType::Int64, false));
        columns.push(Arc::new(episodes.clone()));
        fields.push(Field::new(TASK, DataType::Utf8, false));
        columns.push(Arc::new(texts));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| e.to_string())
    }
}

/// The values of a feature: those of images are their files.
fn feature_column(feature: &Feature, rows: &RecordBatch) -> Result<ArrayRef, String> {
    let name = &feature.name;
    let column = rows.column_by_name(name).ok_or_else(|| format!("there is no column `{name}`"))?;
    if feature.feature_type != FeatureType::Image {
        return Ok(Arc::clone(column));
    }
    let files = match column.as_struct_opt() {
        Some(images) => images.column_by_name("bytes").cloned(),
        None => Some(Arc::clone(column)),
    };
    let is_binary = |files: &ArrayRef| {
        matches!(files.data_type(), DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
    };
    let files = files.filter(is_binary);
    let files = files.ok_or_else(|| format!("expected files of images in the column `{name}`"))?;
    if files.null_count() > 0 {
        return Err(format!("an image in the column `{name}` has only a path, and no bytes"));
    }
    Ok(files)
}

impl Reader for FrameReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            let Some(mut open) = self.open.take() else {
                let Some(span) = self.groups.pop() else { return Ok(None) };
                self.context.run.count_read(span.end - span.start);
                self.open = self.open_group(span)?;
                continue;
            };
            let decoded = self.bytes.call(|| open.rows.next().transpose())?;
            let batch = match decoded {
                Ok(None) => {
                    if open.next != open.span.first + open.span.rows {
                        self.report(&open.span, "it has other rows than its footer says")?;
                    }
                    continue;
                }
                Ok(Some(rows)) if rows.num_rows() == 0 => {
                    self.open = Some(open);
                    continue;
                }
                Ok(Some(rows)) => {
                    let batch = self.batch(&rows, open.next);
                    open.next += rows.num_rows() as u64;
                    batch
                }
                Err(reason) => Err(reason),
            };
            match batch {
                Ok(batch) => {
                    self.open = Some(open);
                    return Ok(Some(batch));
                }
                Err(reason) => self.report(&open.span, &reason)?,
            }
        }
    }
}
