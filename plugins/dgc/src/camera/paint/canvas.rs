//! What cameras have seen of points so far, and points with what was seen of them. Looks at no image.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, ListArray, RecordBatch, StringArray, StructArray,
    UInt8Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{Field, Schema};
use arrow_select::filter::filter;
use sluice_core::Rows;

use super::super::PixelOf;
use super::super::picture::Picture;
use crate::camera_model::{CameraModel, Pixel};
use crate::points::{POINTS, Points};

/// Stands for the camera of a point that none has seen.
const NOBODY: usize = usize::MAX;

/// What cameras have seen so far of some points.
pub(super) struct Canvas {
    /// The camera that saw the point.
    cameras: Vec<usize>,
    u: Vec<f32>,
    v: Vec<f32>,
    depth: Vec<f32>,
    /// Nothing if nobody asks for colours.
    colours: Option<Vec<Option<[u8; 3]>>>,
}

impl Canvas {
    pub(super) fn new(points: usize, has_colour: bool) -> Self {
        let zeros = || vec![0.0; points];
        Self {
            cameras: vec![NOBODY; points],
            u: zeros(),
            v: zeros(),
            depth: zeros(),
            colours: has_colour.then(|| vec![None; points]),
        }
    }

    /// Which points were seen.
    pub(super) fn seen(&self) -> BooleanArray {
        self.cameras.iter().map(|camera| Some(*camera != NOBODY)).collect()
    }

    /// Lets a camera look at the points from `start` on, which are given in its own frame. What others have
    /// seen before it stays theirs.
    pub(super) fn look(
        &mut self,
        start: usize,
        [x, y, z]: &[Vec<f64>; 3],
        (model, of): (&CameraModel, PixelOf),
        (camera, picture): (usize, Option<&Picture>),
    ) {
        for (at, ((x, y), z)) in (start..).zip(x.iter().zip(y).zip(z)) {
            if self.cameras[at] != NOBODY {
                continue;
            }
            let Some(flat) = model.flat([*x, *y, *z]) else { continue };
            let Some(seen) = model.seen(flat) else { continue };
            self.cameras[at] = camera;
            let Pixel { u, v, depth } = match of {
                PixelOf::Image => seen,
                PixelOf::Undistorted => flat,
            };
            (self.u[at], self.v[at], self.depth[at]) = (u as f32, v as f32, depth as f32);
            if let Some(colours) = &mut self.colours {
                colours[at] = picture.and_then(|picture| picture.colour(seen.u, seen.v));
            }
        }
    }

    /// The members that points get: the same whatever was seen. Which camera it was is only said where
    /// there are several.
    pub(super) fn members(self, names: &[&str]) -> Vec<(Field, ArrayRef)> {
        let seen = NullBuffer::from(self.seen().into_parts().0);
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

/// The points with these members, in place of those of the same names; of them only those that are kept.
///
/// Members may be missing wherever they are, so that points of all batches fit into one table.
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
        let others: Vec<bool> = fields.iter().map(|known| known.name() != field.name()).collect();
        let mut kept = others.iter();
        columns.retain(|_| *kept.next().unwrap_or(&true));
        let known = fields.iter().zip(&others).filter(|(_, is_other)| **is_other);
        fields = known.map(|(known, _)| Arc::clone(known)).chain([Arc::new(field)]).collect();
        columns.push(column);
    }
    let mut offsets = list.offsets().clone();
    if let Some(keep) = keep {
        let filtered = columns.iter().map(|column| filter(column, keep));
        columns = filtered.collect::<Result<_, _>>().expect("each member has a value a point");
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
    // Points with other members are of another type, which this tells.
    Points::of(&rows).map_or(rows, Points::into_rows)
}

/// Where lists end of which only some elements are kept.
fn kept_offsets(offsets: &OffsetBuffer<i32>, keep: &BooleanArray) -> OffsetBuffer<i32> {
    let kept = offsets.windows(2).map(|ends| {
        let range = ends[0] as usize..ends[1] as usize;
        range.filter(|at| keep.value(*at)).count()
    });
    OffsetBuffer::from_lengths(kept)
}
