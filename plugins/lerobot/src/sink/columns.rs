//! The values of a feature in a batch: flat numbers, texts, or whole image files. Reports rows that
//! cannot be frames; compares nothing with other batches.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, UInt64Array};
use arrow_schema::DataType;
use arrow_select::take::take;
use serde_json::Value;
use sluice_model::{Error, time};
use sluice_views::{Blobs, ImageColumns, list_parts};

use super::plan::PlannedFeature;
use crate::feature::{FeatureType, MAX_DIMENSIONS, MAX_VALUES, NumberType, axis_names};
use crate::image::{image_shape, png_from_pixels};
use crate::numbers;

/// Rows that cannot be frames, each with the first reason.
pub(super) type UnusableRows = BTreeMap<usize, String>;

/// The values of a feature, one per row.
#[derive(Debug)]
pub(super) struct PreparedColumn {
    pub(super) name: String,
    pub(super) feature_type: FeatureType,
    /// The names of its axes, as chosen.
    pub(super) axes: Option<Vec<String>>,
    /// Those that a dataset which was read declares.
    pub(super) declared_axes: Option<Value>,
    /// The shape of the first row's value.
    pub(super) shape: Vec<usize>,
    /// The first row whose value has another shape, and that.
    pub(super) other_shape: Option<(usize, Vec<usize>)>,
    /// Numbers of all rows in sequence; or a text or a file per row.
    pub(super) values: ArrayRef,
}

/// The values of a field before rows are left out.
pub(super) struct FieldValues<'r> {
    planned: &'r PlannedFeature,
    feature_type: FeatureType,
    values: Values<'r>,
}

enum Values<'r> {
    /// The numbers of row n begin at `starts[n]` of the leaf.
    Numbers {
        lists: NestedLists,
    },
    Texts(ArrayRef),
    Images(Vec<(Cow<'r, [u8]>, Vec<usize>)>),
}

/// The columns of a picture, or of image files.
pub(super) enum ImageSource {
    Picture(Box<ImageColumns>),
    Files(Blobs),
}

impl ImageSource {
    /// The images of a feature; `None` if it is something else.
    pub(super) fn resolve(planned: &PlannedFeature, columns: &RecordBatch) -> Option<Self> {
        match &planned.image {
            Some(fields) => {
                ImageColumns::resolve(fields, columns).map(|found| Self::Picture(Box::new(found)))
            }
            None => Blobs::resolve(&planned.field, columns).map(Self::Files),
        }
    }

    fn data(&self, row: usize) -> &[u8] {
        match self {
            Self::Picture(columns) => columns.data(row),
            Self::Files(blobs) => blobs.at(row),
        }
    }

    /// The file of a row, and its shape. `Err` completes a sentence about the image.
    fn file(&self, row: usize) -> Result<(Cow<'_, [u8]>, Vec<usize>), String> {
        let data = self.data(row);
        if sluice_views::compressed_format(data).is_some() || data.is_empty() {
            let shape = image_shape(data)?;
            return Ok((Cow::Borrowed(data), shape.to_vec()));
        }
        let layout = match self {
            Self::Picture(columns) => columns.layout(row, data.len()),
            Self::Files(_) => None,
        };
        let Some(layout) = layout else {
            return Err(match self {
                Self::Picture(columns) => match columns.encoding(row) {
                    Some(encoding) => {
                        format!("has fewer bytes than its size in `{encoding}` needs")
                    }
                    None => "is no JPEG or PNG file, and how its pixels are stored is not known"
                        .to_owned(),
                },
                Self::Files(_) => "is neither a JPEG nor a PNG file".to_owned(),
            });
        };
        let png = png_from_pixels(layout, data)?;
        let shape = image_shape(&png)?;
        Ok((Cow::Owned(png), shape.to_vec()))
    }
}

impl<'r> FieldValues<'r> {
    /// The values of a feature's field. Adds the rows that have none that can be written to
    /// `unusable`, and does not look at those that are there already.
    pub(super) fn resolve(
        planned: &'r PlannedFeature,
        array: Option<ArrayRef>,
        images: Option<&'r ImageSource>,
        keeps_doubles: bool,
        unusable: &mut UnusableRows,
        rows: usize,
    ) -> Result<Self, Error> {
        let is_text = array.as_ref().is_some_and(|array| is_text(array.data_type()));
        if planned.dtype.is_some() && (is_text || images.is_some()) {
            let what = if is_text { "text" } else { "an image" };
            return Err(Error::invalid(format!(
                "the field `{}` is {what}, and `dtype` of the feature `{}` is a type of numbers: \
                 leave it out, or choose another field",
                planned.field, planned.name
            )));
        }
        if let Some(source) = images {
            let values = image_values(planned, source, rows, unusable);
            return Ok(Self { planned, feature_type: FeatureType::Image, values });
        }
        let array = array.ok_or_else(|| Error::internal("a field without values"))?;
        if is_text {
            let nulls = (0..rows).filter(|row| array.is_null(*row));
            nulls.for_each(|row| note(unusable, row, || no_value(planned)));
            let values = Values::Texts(array);
            return Ok(Self { planned, feature_type: FeatureType::Text, values });
        }
        let lists = NestedLists::from_array(array, planned)?;
        let own = NumberType::holding(lists.leaf.data_type());
        let own = own.ok_or_else(|| unsupported(planned, lists.leaf.data_type()))?;
        let usual =
            if own == NumberType::Float64 && !keeps_doubles { NumberType::Float32 } else { own };
        let number = planned.dtype.unwrap_or(usual);
        lists.check(planned, number, unusable);
        let values = Values::Numbers { lists };
        Ok(Self { planned, feature_type: FeatureType::Number(number), values })
    }

    /// The values of these rows. `time_of` is the time of a row, for errors.
    pub(super) fn select(
        self,
        kept: &[u32],
        time_of: impl Fn(u32) -> i64,
    ) -> Result<PreparedColumn, Error> {
        let Self { planned, feature_type, values } = self;
        let (values, shape, other_shape): (ArrayRef, _, _) = match values {
            Values::Texts(array) => {
                let texts: StringArray =
                    kept.iter().map(|row| Some(text_at(&array, *row as usize))).collect();
                (Arc::new(texts), vec![1], None)
            }
            Values::Images(images) => {
                let kept = || kept.iter().filter_map(|row| images.get(*row as usize));
                let files = BinaryArray::from_iter_values(kept().map(|(file, _)| file));
                let (shape, other) = shapes(kept().map(|(_, shape)| shape.clone()));
                (Arc::new(files), shape, other)
            }
            Values::Numbers { lists } => {
                let (shape, other) = shapes(kept.iter().map(|row| lists.shape(*row as usize)));
                let FeatureType::Number(number) = feature_type else {
                    return Err(Error::internal("numbers without a type"));
                };
                let flat = lists.select(kept)?;
                let converted = numbers::converted(Arc::clone(&flat), number);
                let converted = converted.ok_or_else(|| {
                    let at = numbers::first_that_does_not_fit(&flat, number);
                    let found = at.map(|at| {
                        let time = lists.row_of(at, kept).map(time_of).unwrap_or_default();
                        (numbers::text(&flat.slice(at, 1)), time::format(time))
                    });
                    let (value, time) = found.unwrap_or_default();
                    Error::invalid(format!(
                        "`{}` has numbers that {} cannot hold, such as {value} in the row at \
                         {time}: choose another `dtype` in `features`",
                        planned.name,
                        number.name()
                    ))
                })?;
                (converted, shape, other)
            }
        };
        let (name, axes) = (planned.name.clone(), planned.names.clone());
        let declared_axes = axis_names(&planned.metadata, &shape);
        Ok(PreparedColumn { name, feature_type, axes, declared_axes, shape, other_shape, values })
    }
}

fn image_values<'r>(
    planned: &PlannedFeature,
    source: &'r ImageSource,
    rows: usize,
    unusable: &mut UnusableRows,
) -> Values<'r> {
    let mut images = Vec::with_capacity(rows);
    for row in 0..rows {
        if unusable.contains_key(&row) {
            images.push((Cow::Borrowed(&[][..]), Vec::new()));
            continue;
        }
        images.push(source.file(row).unwrap_or_else(|what| {
            note(unusable, row, || format!("the image `{}` {what}", planned.name));
            (Cow::Borrowed(&[][..]), Vec::new())
        }));
    }
    Values::Images(images)
}

fn note(unusable: &mut UnusableRows, row: usize, why: impl FnOnce() -> String) {
    unusable.entry(row).or_insert_with(why);
}

fn no_value(planned: &PlannedFeature) -> String {
    format!("the field `{}` has no value", planned.field)
}

fn unsupported(planned: &PlannedFeature, data_type: &DataType) -> Error {
    Error::invalid(format!(
        "the field `{}` is of the type {data_type}, which no feature has: choose other fields with \
         `features`",
        planned.field
    ))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn text_at(array: &ArrayRef, row: usize) -> &str {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row),
        _ => array.as_string_view().value(row),
    }
}

/// The shape of the first value, and the first other one.
fn shapes(mut each: impl Iterator<Item = Vec<usize>>) -> (Vec<usize>, Option<(usize, Vec<usize>)>) {
    let Some(first) = each.next() else { return (Vec::new(), None) };
    let other = each.enumerate().find(|(_, shape)| *shape != first);
    (first, other.map(|(row, shape)| (row + 1, shape)))
}

/// Lists of lists of numbers: the numbers, and where those of each list begin and end.
struct NestedLists {
    /// The lists of each level, the outermost first, each null or with its bounds in the next.
    levels: Vec<ListLevel>,
    leaf: ArrayRef,
}

struct ListLevel {
    array: ArrayRef,
    offsets: Vec<usize>,
}

impl NestedLists {
    fn from_array(array: ArrayRef, planned: &PlannedFeature) -> Result<Self, Error> {
        let (mut levels, mut leaf) = (Vec::new(), array);
        loop {
            let is_list = matches!(
                leaf.data_type(),
                DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)
            );
            if !is_list {
                return Ok(Self { levels, leaf });
            }
            if levels.len() == MAX_DIMENSIONS {
                return Err(Error::invalid(format!(
                    "the field `{}` has more than {MAX_DIMENSIONS} dimensions, which no feature \
                     has: choose other fields, or parts of it, with `features`",
                    planned.field
                )));
            }
            let parts = list_parts(&leaf).ok_or_else(|| Error::internal("a list without parts"))?;
            let (offsets, inner) = parts;
            levels.push(ListLevel { array: leaf, offsets });
            leaf = inner;
        }
    }

    /// Where the numbers of a row begin and end in the leaf.
    fn bounds(&self, row: usize) -> (usize, usize) {
        let at = |level: &ListLevel, place: usize| level.offsets.get(place).copied().unwrap_or(0);
        self.levels
            .iter()
            .fold((row, row + 1), |(start, end), level| (at(level, start), at(level, end)))
    }

    /// The row of a number among those of these rows in sequence.
    fn row_of(&self, number: usize, kept: &[u32]) -> Option<u32> {
        let mut before = 0;
        kept.iter().copied().find(|row| {
            let (start, end) = self.bounds(*row as usize);
            before += end.saturating_sub(start);
            number < before
        })
    }

    /// The shape of a row's value, by the first list of each level.
    fn shape(&self, row: usize) -> Vec<usize> {
        let (mut place, mut shape) = (row, Vec::new());
        for ListLevel { offsets, .. } in &self.levels {
            let (Some(start), Some(end)) = (offsets.get(place), offsets.get(place + 1)) else {
                shape.push(0);
                break;
            };
            shape.push(end.saturating_sub(*start));
            place = *start;
        }
        if shape.is_empty() { vec![1] } else { shape }
    }

    /// Why a row is no frame; `None` if it is one. Does not look at the numbers.
    fn fault(&self, row: usize, planned: &PlannedFeature) -> Option<String> {
        let (mut start, mut end) = (row, row + 1);
        for (depth, ListLevel { array, offsets }) in self.levels.iter().enumerate() {
            if (start..end).any(|place| array.is_null(place)) {
                return Some(no_value(planned));
            }
            let bounds = offsets.get(start..=end).unwrap_or_default();
            let mut lengths = bounds.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
            let first = lengths.next().unwrap_or_default();
            if depth > 0 && lengths.any(|len| len != first) {
                return Some(format!("the lists in `{}` have different lengths", planned.field));
            }
            (start, end) = (*bounds.first()?, *bounds.last()?);
            if start == end {
                return Some(format!("the list `{}` is empty", planned.field));
            }
            if end - start > MAX_VALUES {
                return Some(format!("the list `{}` has over {MAX_VALUES} values", planned.field));
            }
        }
        let has_null = self.leaf.null_count() > 0 && (start..end).any(|at| self.leaf.is_null(at));
        has_null.then(|| no_value(planned))
    }

    /// Notes the rows that are no frames.
    fn check(&self, planned: &PlannedFeature, number: NumberType, unusable: &mut UnusableRows) {
        let rows = self.levels.first().map_or(self.leaf.len(), |level| level.array.len());
        // Mostly all lists have a fixed size, and nothing is null.
        let is_simple = self.leaf.null_count() == 0
            && self.levels.iter().all(|level| {
                level.array.null_count() == 0
                    && matches!(level.array.data_type(), DataType::FixedSizeList(_, 1..))
            });
        for row in 0..if is_simple { 0 } else { rows } {
            if let Some(fault) = self.fault(row, planned) {
                note(unusable, row, || fault);
            }
        }
        if all_finite(&self.leaf, number, 0, self.leaf.len()) {
            return;
        }
        for row in 0..rows {
            let (start, end) = self.bounds(row);
            if !all_finite(&self.leaf, number, start, end) {
                note(unusable, row, || format!("`{}` is not a finite number", planned.field));
            }
        }
    }

    /// The numbers of these rows in sequence.
    fn select(&self, kept: &[u32]) -> Result<ArrayRef, Error> {
        let bounds = || kept.iter().map(|row| self.bounds(*row as usize));
        let is_joined = bounds().zip(bounds().skip(1)).all(|((_, end), (next, _))| end == next);
        let (first, last) = (bounds().next(), bounds().next_back());
        let Some(((start, _), (_, end))) = first.zip(last) else {
            return Ok(self.leaf.slice(0, 0));
        };
        if is_joined {
            return Ok(self.leaf.slice(start, end - start));
        }
        let places: UInt64Array =
            bounds().flat_map(|(start, end)| start as u64..end as u64).collect();
        take(&self.leaf, &places, None).map_err(|e| Error::internal(e.to_string()))
    }
}

/// Whether these numbers are finite, also as `number`.
fn all_finite(leaf: &ArrayRef, number: NumberType, start: usize, end: usize) -> bool {
    let narrows = number == NumberType::Float32;
    match leaf.data_type() {
        DataType::Float64 => {
            let values = leaf.as_primitive::<Float64Type>().values().get(start..end);
            let values = values.unwrap_or_default();
            match narrows {
                true => values.iter().all(|value| (*value as f32).is_finite()),
                false => values.iter().all(|value| value.is_finite()),
            }
        }
        DataType::Float32 => {
            let values = leaf.as_primitive::<Float32Type>().values().get(start..end);
            values.unwrap_or_default().iter().all(|value| value.is_finite())
        }
        DataType::Float16 => {
            let values = leaf.as_primitive::<Float16Type>().values().get(start..end);
            values.unwrap_or_default().iter().all(|value| value.is_finite())
        }
        _ => true,
    }
}
