//! The table of episodes: where the frames of each are, its tasks, and its statistics. Encodes a
//! few hundred rows at a time; knows no frame.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use sluice_model::Error;

use crate::feature::{Feature, FeatureType, element};
use crate::info::FilePlace;
use crate::parquet_io::CREATED_BY;
use crate::stats::FeatureStats;

/// A row of the table.
#[derive(Debug)]
pub(crate) struct EpisodeRow {
    pub(crate) episode: u64,
    pub(crate) tasks: Vec<Arc<str>>,
    /// The frames: the index of the first, and their number.
    pub(crate) first: u64,
    pub(crate) frames: u64,
    /// The data file.
    pub(crate) data: FilePlace,
    /// Of every feature that has statistics, in their order.
    pub(crate) stats: Vec<FeatureStats>,
}

/// The features that have statistics: all but texts.
pub(crate) fn measured(features: &[Feature]) -> impl Iterator<Item = &Feature> {
    features.iter().filter(|feature| feature.feature_type != FeatureType::Text)
}

/// The columns of the table. `features` are all of the dataset.
pub(crate) fn schema(features: &[Feature]) -> SchemaRef {
    let int = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
    let list = |inner| DataType::List(element(inner));
    let mut fields: Vec<FieldRef> = vec![
        int("episode_index"),
        Arc::new(Field::new("tasks", list(DataType::Utf8), true)),
        int("length"),
        int("data/chunk_index"),
        int("data/file_index"),
        int("dataset_from_index"),
        int("dataset_to_index"),
    ];
    for feature in measured(features) {
        let is_image = feature.feature_type == FeatureType::Image;
        let numbers = match is_image {
            true => list(list(list(DataType::Float64))),
            false => list(DataType::Float64),
        };
        for (name, _) in FeatureStats::default().named() {
            let name = format!("stats/{}/{name}", feature.name);
            fields.push(Arc::new(Field::new(name, numbers.clone(), true)));
        }
        let name = format!("stats/{}/count", feature.name);
        fields.push(Arc::new(Field::new(name, list(DataType::Int64), true)));
    }
    fields.push(int("meta/episodes/chunk_index"));
    fields.push(int("meta/episodes/file_index"));
    Arc::new(Schema::new(fields))
}

/// How the table is written.
pub(crate) fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::None)
        .build()
}

/// Rows as columns of the table's file at `place`.
pub(crate) fn columns(
    schema: &SchemaRef,
    features: &[Feature],
    rows: &[EpisodeRow],
    place: FilePlace,
) -> Result<RecordBatch, Error> {
    let ints = |of: &dyn Fn(&EpisodeRow) -> u64| -> ArrayRef {
        Arc::new(rows.iter().map(|row| of(row) as i64).collect::<Int64Array>())
    };
    let mut columns = vec![
        ints(&|row| row.episode),
        tasks(rows),
        ints(&|row| row.frames),
        ints(&|row| row.data.chunk),
        ints(&|row| row.data.file),
        ints(&|row| row.first),
        ints(&|row| row.first + row.frames),
    ];
    for (at, feature) in measured(features).enumerate() {
        let is_image = feature.feature_type == FeatureType::Image;
        let named: Vec<_> = rows.iter().map(|row| row.stats[at].named()).collect();
        for number in 0..FeatureStats::default().named().len() {
            columns.push(numbers(named.iter().map(|named| &*named[number].1), is_image)?);
        }
        columns.push(counts(rows.iter().map(|row| row.stats[at].count)));
    }
    columns.push(ints(&|_| place.chunk));
    columns.push(ints(&|_| place.file));
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| Error::internal(e.to_string()))
}

fn tasks(rows: &[EpisodeRow]) -> ArrayRef {
    let mut list = ListBuilder::new(StringBuilder::new()).with_field(element(DataType::Utf8));
    for row in rows {
        row.tasks.iter().for_each(|task| list.values().append_value(task));
        list.append(true);
    }
    Arc::new(list.finish())
}

fn counts(counts: impl Iterator<Item = u64>) -> ArrayRef {
    let mut list = ListBuilder::new(Int64Builder::new()).with_field(element(DataType::Int64));
    for count in counts {
        list.values().append_value(count as i64);
        list.append(true);
    }
    Arc::new(list.finish())
}

/// Lists of numbers; those of images have an axis each for rows and columns.
fn numbers<'r>(rows: impl Iterator<Item = &'r [f64]>, is_image: bool) -> Result<ArrayRef, Error> {
    let (mut values, mut lengths) = (Float64Builder::new(), Vec::new());
    for row in rows {
        values.append_slice(row);
        lengths.push(row.len());
    }
    let mut array: ArrayRef = Arc::new(values.finish());
    if is_image {
        for _ in 0..2 {
            let ones = OffsetBuffer::from_lengths(std::iter::repeat_n(1, array.len()));
            array = list_of(array, ones)?;
        }
    }
    list_of(array, OffsetBuffer::from_lengths(lengths))
}

fn list_of(values: ArrayRef, offsets: OffsetBuffer<i32>) -> Result<ArrayRef, Error> {
    let list = ListArray::try_new(element(values.data_type().clone()), offsets, values, None);
    Ok(Arc::new(list.map_err(|e| Error::internal(e.to_string()))?))
}
