//! Encodes the frames of an episode: their columns, and the statistics of these. Runs on any thread
//! and writes nothing.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Int64Array, ListArray,
    StructArray, new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowLeafColumn, ArrowRowGroupWriterFactory,
    compute_leaves,
};
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;
use serde_json::json;
use sluice_model::Error;

use super::columns::PreparedColumn;
use super::prepare::FramePart;
use crate::feature::{self, Feature, FeatureType, element, image_members};
use crate::image::ImageShape;
use crate::numbers::with_numbers;
use crate::parquet_io::{CREATED_BY, encode_error, parts};
use crate::pixels::DecodedImage;
use crate::stats::{FeatureStats, sampled_frames, sampled_step};

/// Frames of one batch that follow each other, or one that is repeated.
#[derive(Debug)]
pub(super) struct FrameSlice {
    pub(super) part: Arc<FramePart>,
    pub(super) rows: Range<usize>,
    /// The frames of a hole that its only row fills; 0 if the rows are frames.
    pub(super) held: usize,
}

impl FrameSlice {
    pub(super) fn is_held(&self) -> bool {
        self.held > 0
    }
}

/// Frames of an episode that are encoded together: mostly all of them.
pub(super) struct FrameUnit {
    pub(super) fps: f64,
    pub(super) episode: u64,
    /// The index of the first frame in the dataset, and in the episode.
    pub(super) first_frame: u64,
    pub(super) first_in_episode: u64,
    pub(super) slices: Vec<FrameSlice>,
    /// Tasks of consecutive frames, each with how many.
    pub(super) tasks: Vec<(u64, i64)>,
    /// Whether the episode ends with it.
    pub(super) is_last: bool,
}

/// Encoded frames.
pub struct EncodedFrames {
    pub(super) chunks: Vec<ArrowColumnChunk>,
    pub(super) frames: u64,
    /// The events among them.
    pub(super) events: u64,
    pub(super) episode: u64,
    pub(super) first_frame: u64,
    pub(super) tasks: Vec<(u64, i64)>,
    pub(super) is_last: bool,
    /// Of every feature that is no text, in order.
    pub(super) stats: Vec<FeatureStats>,
    /// Sampled images that cannot be decoded.
    pub(super) undecodable: u64,
}

impl EncodedFrames {
    fn without_frames(unit: FrameUnit) -> Self {
        let FrameUnit { episode, first_frame, tasks, is_last, .. } = unit;
        Self {
            chunks: Vec::new(),
            frames: 0,
            events: 0,
            episode,
            first_frame,
            tasks,
            is_last,
            stats: Vec::new(),
            undecodable: 0,
        }
    }
}

/// What all data files of a dataset share.
pub(super) struct FrameEncoder {
    /// Of the log.
    pub(super) features: Vec<Feature>,
    pub(super) schema: SchemaRef,
    pub(super) properties: WriterProperties,
    columns: ArrowRowGroupWriterFactory,
}

impl FrameEncoder {
    /// Of a dataset whose first frames are these.
    pub(super) fn from_first(part: &FramePart) -> Result<Self, Error> {
        let features = part.columns.iter().map(feature_of);
        Self::new(features.collect::<Result<_, Error>>()?)
    }

    /// Of a dataset with these features of a log.
    pub(super) fn new(features: Vec<Feature>) -> Result<Self, Error> {
        let all = [&features[..], &Feature::default_features()].concat();
        let fields: Vec<Field> = all.iter().map(Feature::field).collect();
        let schema = Schema::new(fields).with_metadata(table_metadata(&all));
        let schema = Arc::new(schema);
        let mut properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk);
        for feature in features.iter().filter(|f| f.feature_type == FeatureType::Image) {
            // Files of images do not get smaller, nor do two have the same bytes.
            let path = ColumnPath::new(vec![feature.name.clone(), "bytes".to_owned()]);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_statistics_enabled(path.clone(), EnabledStatistics::None)
                .set_column_compression(path, Compression::UNCOMPRESSED);
        }
        let properties = properties.build();
        // Row groups are encoded before their file exists, but the library needs a file writer.
        let stand_in = parts(io::sink(), Arc::clone(&schema), properties.clone());
        let (_, columns) = stand_in.map_err(encode_error)?;
        Ok(Self { features, schema, properties, columns })
    }

    /// All features, those that every dataset has last.
    pub(super) fn all_features(&self) -> Vec<Feature> {
        [&self.features[..], &Feature::default_features()].concat()
    }

    /// Checks that frames have the features of the dataset. `Err` names the first difference.
    pub(super) fn check(&self, part: &FramePart) -> Result<(), Error> {
        let names = |names: Vec<&str>| names.join(", ");
        if part.columns.len() != self.features.len() {
            return Err(Error::invalid(format!(
                "the rows have the features {}, those before them {}: choose the same with `features`",
                names(part.columns.iter().map(|column| &*column.name).collect()),
                names(self.features.iter().map(|feature| &*feature.name).collect()),
            )));
        }
        for feature in &self.features {
            let column = column_of(part, feature)?;
            if column.feature_type != feature.feature_type {
                let own = feature_of(column)?;
                return Err(Error::invalid(format!(
                    "the feature `{}` is {}, and {} in the rows before: choose a `dtype` in \
                     `features`",
                    feature.name,
                    own.dtype(),
                    feature.dtype()
                )));
            }
            let differs = column.shape != feature.shape && !part.times.is_empty();
            let other = differs.then_some((0, &column.shape));
            let other =
                other.or_else(|| column.other_shape.as_ref().map(|(row, shape)| (*row, shape)));
            if let Some((row, shape)) = other {
                return Err(Error::invalid(format!(
                    "the feature `{}` has the shape {shape:?} in the row at {}, and {:?} before: \
                     all frames need the same; filter such rows, or write two datasets",
                    feature.name,
                    sluice_model::time::format(part.times.get(row).copied().unwrap_or_default()),
                    feature.shape
                )));
            }
        }
        Ok(())
    }

    /// Encodes frames, and computes their statistics. A unit without frames only ends its episode.
    pub(super) fn encode(&self, unit: FrameUnit) -> Result<EncodedFrames, Error> {
        if unit.slices.is_empty() {
            return Ok(EncodedFrames::without_frames(unit));
        }
        let held: u64 = unit.slices.iter().map(|slice| slice.held as u64).sum();
        let rows = unit.slices.iter().filter(|slice| !slice.is_held());
        let events: u64 = rows.map(|slice| slice.rows.len() as u64).sum();
        let frames = events + held;
        let own = own_columns(&unit, frames);
        let all = self.all_features();
        let writers = self.columns.create_column_writers(0).map_err(encode_error)?;
        let mut writers = writers.into_iter();
        let mut work = Vec::new();
        for (at, (feature, field)) in all.iter().zip(self.schema.fields()).enumerate() {
            // An image has two columns in the file.
            let count = if feature.feature_type == FeatureType::Image { 2 } else { 1 };
            let own = at.checked_sub(self.features.len()).and_then(|at| own.get(at).cloned());
            work.push((feature, field, own, writers.by_ref().take(count).collect::<Vec<_>>()));
        }
        let encoded: Vec<EncodedColumn> = work
            .into_par_iter()
            .map(|(feature, field, own, writers)| {
                let pieces = match own {
                    Some(own) => vec![own],
                    None => pieces(feature, &unit.slices)?,
                };
                encode_column(feature, field, &pieces, writers)
            })
            .collect::<Result<_, Error>>()?;
        let undecodable = encoded.iter().map(|column| column.undecodable).sum();
        let (mut chunks, mut stats) = (Vec::new(), Vec::new());
        for column in encoded {
            chunks.extend(column.chunks);
            stats.extend(column.stats);
        }
        let FrameUnit { episode, first_frame, tasks, is_last, .. } = unit;
        Ok(EncodedFrames {
            chunks,
            frames,
            events,
            episode,
            first_frame,
            tasks,
            is_last,
            stats,
            undecodable,
        })
    }
}

/// The metadata of a data file's schema, by which the library `datasets` knows images. It has to be
/// in the Arrow schema: pyarrow looks nowhere else if a file has one.
fn table_metadata(features: &[Feature]) -> HashMap<String, String> {
    HashMap::from([("huggingface".to_owned(), feature::datasets_metadata(features))])
}

/// The feature of a column.
pub(super) fn feature_of(column: &PreparedColumn) -> Result<Feature, Error> {
    let names = match &column.axes {
        Some(axes) if axes.len() != column.shape.last().copied().unwrap_or(1) => {
            return Err(Error::invalid(format!(
                "`names` of the feature `{}` has {} names, and its values the shape {:?}",
                column.name,
                axes.len(),
                column.shape
            )));
        }
        Some(axes) => json!(axes),
        None => match &column.declared_axes {
            Some(declared) => declared.clone(),
            None => column.feature_type.axis_names(),
        },
    };
    let (name, feature_type) = (column.name.clone(), column.feature_type);
    Ok(Feature { name, feature_type, shape: column.shape.clone(), names })
}

pub(super) fn column_of<'p>(
    part: &'p FramePart,
    feature: &Feature,
) -> Result<&'p PreparedColumn, Error> {
    let found = part.columns.iter().find(|column| column.name == feature.name);
    found.ok_or_else(|| {
        Error::invalid(format!(
            "the rows have no feature `{}`, which those before them have: choose the same with \
             `features`",
            feature.name
        ))
    })
}

/// The columns that every dataset has, in their order.
fn own_columns(unit: &FrameUnit, frames: u64) -> [ArrayRef; 5] {
    let numbers = |from: u64| -> ArrayRef {
        Arc::new((from..from + frames).map(|n| n as i64).collect::<Int64Array>())
    };
    let in_episode = unit.first_in_episode..unit.first_in_episode + frames;
    let timestamps: Float32Array =
        in_episode.map(|frame| (frame as f64 / unit.fps) as f32).collect::<Vec<_>>().into();
    let episode: Int64Array = vec![unit.episode as i64; frames as usize].into();
    let tasks = unit.tasks.iter();
    let tasks: Int64Array =
        tasks.flat_map(|(count, task)| std::iter::repeat_n(*task, *count as usize)).collect();
    [
        Arc::new(timestamps),
        numbers(unit.first_in_episode),
        Arc::new(episode),
        numbers(unit.first_frame),
        Arc::new(tasks),
    ]
}

/// The values of a feature: all numbers or texts in one array; files as they are.
fn pieces(feature: &Feature, slices: &[FrameSlice]) -> Result<Vec<ArrayRef>, Error> {
    let width = match feature.feature_type {
        FeatureType::Number(_) => feature.width(),
        FeatureType::Text | FeatureType::Image => 1,
    };
    let mut each = Vec::new();
    for slice in slices {
        let column = column_of(&slice.part, feature)?;
        let values = column.values.slice(slice.rows.start * width, slice.rows.len() * width);
        each.extend(std::iter::repeat_n(values, slice.held.max(1)));
    }
    if feature.feature_type == FeatureType::Image || each.len() == 1 {
        return Ok(each);
    }
    let arrays: Vec<&dyn Array> = each.iter().map(AsRef::as_ref).collect();
    Ok(vec![concat(&arrays).map_err(|e| Error::internal(e.to_string()))?])
}

struct EncodedColumn {
    chunks: Vec<ArrowColumnChunk>,
    stats: Option<FeatureStats>,
    undecodable: u64,
}

fn encode_column(
    feature: &Feature,
    field: &Field,
    pieces: &[ArrayRef],
    mut writers: Vec<ArrowColumnWriter>,
) -> Result<EncodedColumn, Error> {
    let (stats, undecodable) = match feature.feature_type {
        FeatureType::Text => (None, 0),
        FeatureType::Image => {
            let (stats, undecodable) = image_stats(feature, pieces);
            (Some(stats), undecodable)
        }
        FeatureType::Number(_) => (number_stats(feature, pieces), 0),
    };
    for piece in pieces {
        let column = shaped(feature, piece)?;
        let leaves: Vec<ArrowLeafColumn> = compute_leaves(field, &column).map_err(encode_error)?;
        for (writer, leaf) in writers.iter_mut().zip(&leaves) {
            writer.write(leaf).map_err(encode_error)?;
        }
    }
    let chunks = writers.into_iter().map(|writer| writer.close().map_err(encode_error));
    Ok(EncodedColumn { chunks: chunks.collect::<Result<_, _>>()?, stats, undecodable })
}

/// Flat values as the column of a data file.
fn shaped(feature: &Feature, flat: &ArrayRef) -> Result<ArrayRef, Error> {
    let internal = |e: arrow_schema::ArrowError| Error::internal(e.to_string());
    match (feature.feature_type, &*feature.shape) {
        (FeatureType::Image, _) => {
            let paths = new_null_array(&DataType::Utf8, flat.len());
            let columns = vec![Arc::clone(flat), paths];
            let images = StructArray::try_new(image_members(), columns, None);
            Ok(Arc::new(images.map_err(internal)?))
        }
        (FeatureType::Text, _) | (_, [1]) => Ok(Arc::clone(flat)),
        (_, [len]) => {
            let item = element(flat.data_type().clone());
            let list = FixedSizeListArray::try_new(item, *len as i32, Arc::clone(flat), None);
            Ok(Arc::new(list.map_err(internal)?))
        }
        (_, shape) => {
            let mut array = Arc::clone(flat);
            for len in shape.iter().rev() {
                let count = array.len() / (*len).max(1);
                let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(*len, count));
                let item = element(array.data_type().clone());
                array = Arc::new(ListArray::try_new(item, offsets, array, None).map_err(internal)?);
            }
            Ok(array)
        }
    }
}

/// The statistics of numbers. Leading axes are thrown together.
#[expect(clippy::unnecessary_cast, reason = "one of all types of numbers is that already")]
fn number_stats(feature: &Feature, pieces: &[ArrayRef]) -> Option<FeatureStats> {
    let flat = pieces.first()?;
    let width = feature.shape.last().copied().unwrap_or(1).max(1);
    let frames = (flat.len() / feature.width().max(1)) as u64;
    let rows = flat.len() / width;
    if let Some(bools) = flat.as_boolean_opt() {
        let value = |n: usize| f64::from(u8::from(BooleanArray::value(bools, n)));
        return Some(FeatureStats::from_values(frames, rows, width, value));
    }
    with_numbers!(flat, values => {
        Some(FeatureStats::from_values(frames, rows, width, |n| values[n] as f64))
    }, None)
}

/// The most bytes of pixels of an image that is decoded beside others.
const MAX_PIXEL_BYTES: usize = 16 << 20;

/// The statistics of some images, and how many of these cannot be decoded.
fn image_stats(feature: &Feature, pieces: &[ArrayRef]) -> (FeatureStats, u64) {
    let files: Vec<&[u8]> = pieces
        .iter()
        .flat_map(|piece| {
            let files = piece.as_binary::<i32>();
            (0..files.len()).map(|row| files.value(row))
        })
        .collect();
    let [height, width, channels] = *feature.shape else { return (FeatureStats::default(), 0) };
    let (shape, step) = (ImageShape { height, width, channels }, sampled_step(height, width));
    let nothing = || (vec![[0u64; 256]; channels], 0u64);
    let sampled = sampled_frames(files.len());
    // Large images one after the other: each takes its pixels of memory while it is decoded.
    let is_large = height * width * channels > MAX_PIXEL_BYTES;
    let min_len = if is_large { usize::MAX } else { 1 };
    let each = sampled.par_iter().with_min_len(min_len);
    let counts =
        each.filter_map(|frame| files.get(*frame)).fold(nothing, |(mut counts, decoded), file| {
            match DecodedImage::from_file(file).filter(|image| image.shape == shape) {
                Some(image) => {
                    image.count(step, &mut counts);
                    (counts, decoded + 1)
                }
                None => (counts, decoded),
            }
        });
    let (counts, decoded) = counts.reduce(nothing, |(mut ours, a), (theirs, b)| {
        let pairs = ours.iter_mut().flatten().zip(theirs.iter().flatten());
        pairs.for_each(|(ours, theirs)| *ours += theirs);
        (ours, a + b)
    });
    let undecodable = sampled.len() as u64 - decoded;
    if decoded == 0 {
        return (FeatureStats::default(), undecodable);
    }
    (FeatureStats::from_counts(decoded, &counts), undecodable)
}
