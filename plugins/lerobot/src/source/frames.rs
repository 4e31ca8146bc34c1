//! Reads the frames of row groups as batches of rows. Finds no files.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryViewArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use sluice_io::escape::escaped_path;
use sluice_model::cast::cast;
use sluice_model::{
    Batch, Channel, ChannelId, Clock, Damage, Encoding, Error, MessageType, Name, Payloads,
    ReadContext, Reader, Rows, Split, TypeKey,
};
use sluice_parquet::input::{GroupRows, GroupSpan, ParquetInput};

use super::dataset::{Dataset, EPISODE, FrameGroup};
use crate::feature::{
    EPISODE_INDEX, FRAME_INDEX, Feature, FeatureType, INDEX, ROBOT_TYPE, TASK, TASK_INDEX,
    TIMESTAMP, UNCOPIED,
};
use crate::info::INFO;
use crate::parquet_io::open_table;

/// The approximate bytes per batch.
const TARGET_BYTES: usize = 2 << 20;

/// The name of the type of all rows.
const TYPE: &str = "lerobot.frame";

/// Reads the row groups of a split.
pub(super) struct FrameReader {
    dataset: Arc<Dataset>,
    input: ParquetInput,
    /// The next one last.
    groups: Vec<FrameGroup>,
    open: Option<OpenGroup>,
    context: ReadContext,
    channel: ChannelId,
    message: Arc<MessageType>,
}

struct OpenGroup {
    group: FrameGroup,
    rows: GroupRows,
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
        let inside = |group: &&FrameGroup| {
            let ends_inside = split.end.is_none_or(|end| group.span.end <= end);
            group.span.start >= split.start && ends_inside && group.rows > 0
        };
        let mut groups: Vec<FrameGroup> = found.groups.iter().filter(inside).copied().collect();
        groups.reverse();
        let input = open_table(&found.path, "this data file")?;
        let is_first = found.groups.first().is_some_and(|group| group.span.start == split.start);
        if let Some(note) = input.arrow_note().filter(|_| is_first) {
            context.losses.note(note, 0);
        }
        let mut channel =
            Channel::new(Name::from_text(channel), Arc::clone(&context.source), Encoding::Unknown);
        (channel.clock, channel.type_name) = (Clock::Relative, Some(TYPE.into()));
        let robot_type = dataset.info.robot_type.iter();
        channel.metadata = robot_type.map(|name| (ROBOT_TYPE.to_owned(), name.clone())).collect();
        let uncopied = dataset.info.uncopied_keys();
        channel.metadata.extend(uncopied.map(|keys| (UNCOPIED.to_owned(), keys)));
        let channel = context.channels.intern(channel)?;
        let features = dataset.info.features.iter();
        let parts: Vec<String> =
            features.map(|feature| format!("{}:{}", feature.name, feature.to_json())).collect();
        let key = TypeKey::from_parts(parts.iter().map(String::as_bytes));
        let message = Arc::new(MessageType::named(TYPE, key));
        let context = context.clone();
        Ok(Self { dataset, input, groups, open: None, context, channel, message })
    }

    /// Opens a row group. One that cannot be read is damage.
    fn open_group(&self, group: FrameGroup) -> Result<Option<OpenGroup>, Error> {
        let features = self.dataset.info.features.iter().map(|feature| &*feature.name);
        let stated = [TIMESTAMP, FRAME_INDEX].into_iter();
        let stated = stated.filter(|name| self.input.schema().index_of(name).is_ok());
        let own = [EPISODE_INDEX, INDEX, TASK_INDEX];
        let names: Vec<&str> = features.chain(own).chain(stated).collect();
        let bytes = self.input.prefetch(group.span)?;
        match self.input.read(bytes, group.span, Some(&names), None, TARGET_BYTES)? {
            Ok(rows) => Ok(Some(OpenGroup { group, rows, next: group.first })),
            Err(reason) => {
                self.report(&group, &reason);
                Ok(None)
            }
        }
    }

    fn report(&self, group: &FrameGroup, reason: &str) {
        let GroupSpan { number, start, end, .. } = group.span;
        let input: Arc<str> = escaped_path(self.input.path()).into();
        let reason = format!("row group {number}: {reason}");
        self.context.damage.report(Damage::new(&input, start, end - start, reason));
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
        self.note_other_times(rows)?;
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

    /// Notes frames whose stated times are not those of the frame rate, which rows get.
    fn note_other_times(&self, rows: &RecordBatch) -> Result<(), String> {
        let frames = rows.column_by_name(FRAME_INDEX);
        let frames = frames.and_then(|column| column.as_primitive_opt::<Int64Type>());
        let Some((stated, frames)) = rows.column_by_name(TIMESTAMP).zip(frames) else {
            return Ok(());
        };
        let stated = cast(stated, &DataType::Float64).map_err(|e| e.to_string())?;
        let (mut little, mut much, fps) = (0, 0, self.dataset.info.fps);
        for (time, frame) in stated.as_primitive::<Float64Type>().iter().zip(frames) {
            let Some((time, frame)) = time.zip(frame) else { continue };
            let difference = (time - frame as f64 / fps).abs();
            // The tolerance of LeRobot itself, and what a `float32` of this size may be off.
            let tolerance = 1e-4 + time.abs() * f64::from(f32::EPSILON);
            match difference {
                difference if difference <= tolerance => {}
                difference if difference < 1.0 / fps => little += 1,
                _ => much += 1,
            }
        }
        for (count, more) in [(little, "by less than a frame"), (much, "by a frame or more")] {
            if count > 0 {
                let note = format!(
                    "frames whose `{TIMESTAMP}` is not `{FRAME_INDEX}` / fps, {more}; rows have \
                     the times of the frame rate, {fps} per second"
                );
                self.context.losses.note(note, count);
            }
        }
        Ok(())
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
            let column = self.feature_column(feature, rows)?;
            let field = Field::new(&feature.name, column.data_type().clone(), true);
            fields.push(field.with_metadata(feature.axes_metadata()));
            columns.push(column);
        }
        fields.push(Field::new(EPISODE, DataType::Int64, false));
        columns.push(Arc::new(episodes.clone()));
        fields.push(Field::new(TASK, DataType::Utf8, false));
        columns.push(Arc::new(texts));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| e.to_string())
    }

    /// The values of a feature: those of images are their files.
    fn feature_column(&self, feature: &Feature, rows: &RecordBatch) -> Result<ArrayRef, String> {
        let (name, schema) = (&feature.name, self.input.schema());
        let found = rows.column_by_name(name).zip(schema.index_of(name).ok());
        let (column, place) = found.ok_or_else(|| format!("there is no column `{name}`"))?;
        let column = self.input.as_stored(place, column)?;
        match feature.feature_type {
            FeatureType::Image => image_files(name, &column),
            _ => Ok(column),
        }
    }
}

/// The files of a column of images.
fn image_files(name: &str, column: &ArrayRef) -> Result<ArrayRef, String> {
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
                let Some(group) = self.groups.pop() else { return Ok(None) };
                self.context.run.count_read(group.span.end - group.span.start);
                self.open = self.open_group(group)?;
                continue;
            };
            let batch = match open.rows.next_slice()? {
                Ok(None) => {
                    if open.next != open.group.first + open.group.rows {
                        self.report(&open.group, "it has other rows than its footer says");
                    }
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
                Err(reason) => self.report(&open.group, &reason),
            }
        }
    }
}

/// Gives no frames: those of a file that the dataset does not count.
pub(super) struct UncountedFile;

impl UncountedFile {
    /// Reports the file of `len` bytes as damage.
    pub(super) fn report(path: &Path, len: u64, context: &ReadContext) -> Self {
        let input: Arc<str> = escaped_path(path).into();
        let reason = format!(
            "{INFO} does not count its frames: a run was killed while it appended them; append \
             them again, which replaces what it left"
        );
        context.damage.report(Damage::new(&input, 0, len, reason));
        Self
    }
}

impl Reader for UncountedFile {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        Ok(None)
    }
}
