//! Collects the pixels and colours of points, camera by camera, and adds them as members. Reads no
//! images.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, ListArray, RecordBatch, StringArray, StructArray,
    UInt8Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{Field, Schema};
use arrow_select::filter::filter;
use sluice_model::Rows;

use super::super::options::PixelOf;
use super::super::picture::Picture;
use crate::camera_model::{CameraModel, Pixel};
use crate::points::{POINTS, Points};

/// Marks a point that no camera has seen.
const NO_CAMERA: usize = usize::MAX;

/// Pixels and colours of some points, column by column.
pub(super) struct PixelColumns {
    /// The first camera that saw the point.
    cameras: Vec<usize>,
    u: Vec<f32>,
    v: Vec<f32>,
    depth: Vec<f32>,
    /// `None` without the option `colour`.
    colours: Option<Vec<Option<[u8; 3]>>>,
}

impl PixelColumns {
    pub(super) fn new(points: usize, has_colour: bool) -> Self {
        let zeros = || vec![0.0; points];
        Self {
            cameras: vec![NO_CAMERA; points],
            u: zeros(),
            v: zeros(),
            depth: zeros(),
            colours: has_colour.then(|| vec![None; points]),
        }
    }

    /// Which points some camera has seen.
    pub(super) fn visible(&self) -> BooleanArray {
        self.cameras.iter().map(|camera| Some(*camera != NO_CAMERA)).collect()
    }

    /// Projects the points from `start` on, given in the camera's frame. Points that another camera
    /// has already seen are skipped.
    pub(super) fn project(
        &mut self,
        start: usize,
        [x, y, z]: &[Vec<f64>; 3],
        (model, of): (&CameraModel, PixelOf),
        (camera, picture): (usize, Option<&Picture>),
    ) {
        for (at, ((x, y), z)) in (start..).zip(x.iter().zip(y).zip(z)) {
            if self.cameras[at] != NO_CAMERA {
                continue;
            }
            let Some(undistorted) = model.project_pinhole([*x, *y, *z]) else { continue };
            let Some(seen) = model.apply_distortion(undistorted) else { continue };
            self.cameras[at] = camera;
            let Pixel { u, v, depth } = match of {
                PixelOf::Image => seen,
                PixelOf::Undistorted => undistorted,
            };
            (self.u[at], self.v[at], self.depth[at]) = (u as f32, v as f32, depth as f32);
            if let Some(colours) = &mut self.colours {
                colours[at] = picture.and_then(|picture| picture.colour(seen.u, seen.v));
            }
        }
    }

    /// The new members of the points. They do not depend on the data. `camera` is only present if
    /// there are several.
    pub(super) fn members(self, names: &[&str]) -> Vec<(Field, ArrayRef)> {
        let seen = NullBuffer::from(self.visible().into_parts().0);
        let number = |values: Vec<f32>| -> ArrayRef {
            Arc::new(Float32Array::new(values.into(), Some(seen.clone())))
        };
        let mut members =
            vec![("u", number(self.u)), ("v", number(self.v)), ("depth", number(self.depth))];
        if let Some(colours) = self.colours {
            for (at, name) in ["red", "green", "blue"].into_iter().enumerate() {
                let part = colours.iter().map(|colour| colour.map(|colour| colour[at]));
                members.push((name, Arc::new(part.collect::<UInt8Array>())));
            }
        }
        if names.len() > 1 {
            let names = self.cameras.iter().map(|camera| names.get(*camera).copied());
            members.push(("camera", Arc::new(names.collect::<StringArray>())));
        }
        let field = |(name, array): (&str, ArrayRef)| {
            (Field::new(name, array.data_type().clone(), true), array)
        };
        members.into_iter().map(field).collect()
    }
}

/// Adds members to the points, replacing those of the same names. With `keep`, removes all other
/// points.
///
/// The members are always nullable, so that the points of all batches fit into one table.
pub(super) fn with_members(
    points: Points,
    members: Vec<(Field, ArrayRef)>,
    keep: Option<&BooleanArray>,
) -> Rows {
    let rows = points.into_rows();
    let schema = rows.columns.schema();
    let (place, field) = schema.column_with_name(POINTS).expect("points have their column");
    let list = rows.columns.column(place).as_list::<i32>();
    let (mut fields, mut columns, _) = list.values().as_struct().clone().into_parts();
    for (field, column) in members {
        let others: Vec<bool> =
            fields.iter().map(|existing| existing.name() != field.name()).collect();
        let mut kept = others.iter();
        columns.retain(|_| *kept.next().unwrap_or(&true));
        let existing = fields.iter().zip(&others).filter(|(_, is_other)| **is_other);
        fields =
            existing.map(|(existing, _)| Arc::clone(existing)).chain([Arc::new(field)]).collect();
        columns.push(column);
    }
    let mut offsets = list.offsets().clone();
    if let Some(keep) = keep {
        let filtered = columns.iter().map(|column| filter(column, keep));
        columns = filtered.collect::<Result<_, _>>().expect("each member has one value per point");
        offsets = kept_offsets(&offsets, keep);
    }
    let values = StructArray::new(fields, columns, None);
    let element = Field::new_list_field(values.data_type().clone(), false);
    let list = ListArray::new(Arc::new(element), offsets, Arc::new(values), None);
    let field = field.clone().with_data_type(list.data_type().clone());
    let mut fields = schema.fields().to_vec();
    let mut columns = rows.columns.columns().to_vec();
    (fields[place], columns[place]) = (Arc::new(field), Arc::new(list));
    let columns = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .expect("the columns are as long as before");
    let rows = Rows { columns, ..rows };
    // Points with other members have another type key, which this computes.
    Points::from_rows(&rows).map_or(rows, Points::into_rows)
}

/// The list offsets after removing elements.
fn kept_offsets(offsets: &OffsetBuffer<i32>, keep: &BooleanArray) -> OffsetBuffer<i32> {
    let kept = offsets.windows(2).map(|ends| {
        let range = ends[0] as usize..ends[1] as usize;
        range.filter(|at| keep.value(*at)).count()
    });
    OffsetBuffer::from_lengths(kept)
}
