//! What the map of the stage hands to its fold: parts of views that need other events, as rows
//! beside the decoded ones. They never leave the stage.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use sluice_model::{Batch, Error, MessageType, Payloads, Rows, TypeKey};
use sluice_views::{Placement, Rotation};

use crate::points::PointLayout;

/// The type of the rows.
const TYPE: &str = "sluice.view.part";
const COLUMN: &str = "part";

/// Part of a view.
#[derive(Debug, PartialEq)]
pub(crate) enum ViewPart<'p> {
    /// Points of a spinning laser.
    Packet { layout: PointLayout, azimuth: f32, points: &'p [u8] },
    /// The size of a picture, in pixels.
    Picture { width: u32, height: u32 },
    /// Where a sensor is mounted, and its field of view in radians, or 0.
    Mount { placement: Placement, field_of_view: f64 },
    /// A scan whose field of view another event has: ranges in metres.
    Scan { ranges: Vec<f64>, intensities: Vec<f64> },
}

/// A part, the map it was made by, and the message's own time.
#[derive(Debug, PartialEq)]
pub(crate) struct TimedPart<'p> {
    pub(crate) map: u16,
    pub(crate) time: i64,
    pub(crate) part: ViewPart<'p>,
}

impl TimedPart<'_> {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.map.to_le_bytes());
        bytes.extend_from_slice(&self.time.to_le_bytes());
        match &self.part {
            ViewPart::Packet { layout, azimuth, points } => {
                bytes.reserve_exact(points.len() + 6);
                bytes.extend_from_slice(&[0, layout.0]);
                bytes.extend_from_slice(&azimuth.to_le_bytes());
                bytes.extend_from_slice(points);
            }
            ViewPart::Picture { width, height } => {
                bytes.push(1);
                bytes.extend_from_slice(&width.to_le_bytes());
                bytes.extend_from_slice(&height.to_le_bytes());
            }
            ViewPart::Mount { placement, field_of_view } => {
                bytes.push(2);
                let Rotation { x, y, z, w } = placement.rotation;
                let numbers = placement.position.into_iter().chain([x, y, z, w, *field_of_view]);
                numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            }
            ViewPart::Scan { ranges, intensities } => {
                bytes.push(3);
                bytes.extend_from_slice(&(ranges.len() as u64).to_le_bytes());
                let numbers = ranges.iter().chain(intensities);
                numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            }
        }
        bytes
    }
}

impl<'p> TimedPart<'p> {
    /// `None` if these are not the bytes of a part.
    pub(crate) fn from_bytes(bytes: &'p [u8]) -> Option<Self> {
        let (map, rest) = bytes.split_first_chunk()?;
        let (time, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first()?;
        let part = match kind {
            0 => {
                let (layout, rest) = rest.split_first()?;
                let (azimuth, points) = rest.split_first_chunk()?;
                let azimuth = f32::from_le_bytes(*azimuth);
                ViewPart::Packet { layout: PointLayout(*layout), azimuth, points }
            }
            1 => {
                let (width, rest) = rest.split_first_chunk()?;
                let height = rest.first_chunk()?;
                let [width, height] = [width, height].map(|bytes| u32::from_le_bytes(*bytes));
                ViewPart::Picture { width, height }
            }
            2 => {
                let [px, py, pz, x, y, z, w, field_of_view] = *numbers(rest)?.first_chunk::<8>()?;
                let rotation = Rotation { x, y, z, w };
                let placement = Placement { position: [px, py, pz], rotation };
                ViewPart::Mount { placement, field_of_view }
            }
            3 => {
                let (len, rest) = rest.split_first_chunk()?;
                let mut ranges = numbers(rest)?;
                let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
                let intensities = (len <= ranges.len()).then(|| ranges.split_off(len))?;
                ViewPart::Scan { ranges, intensities }
            }
            _ => return None,
        };
        Some(Self { map: u16::from_le_bytes(*map), time: i64::from_le_bytes(*time), part })
    }
}

fn numbers(bytes: &[u8]) -> Option<Vec<f64>> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| numbers.iter().map(|number| f64::from_le_bytes(*number)).collect())
}

/// Attaches parts to their events. An event has at most one.
pub(crate) fn attach(batch: Batch, mut parts: Vec<(u32, Vec<u8>)>) -> Result<Batch, Error> {
    if parts.is_empty() {
        return Ok(batch);
    }
    parts.sort_by_key(|(event, _)| *event);
    let column: ArrayRef =
        Arc::new(BinaryArray::from_iter_values(parts.iter().map(|(_, part)| part)));
    let columns = RecordBatch::try_from_iter([(COLUMN, column)])
        .map_err(|e| Error::internal(format!("parts of views: {e}")))?;
    let message = Arc::new(MessageType::part(TYPE, TypeKey(0)));
    let events = parts.iter().map(|(event, _)| *event).collect();
    let mut rows = batch.rows().to_vec();
    rows.push(Rows { message, payloads: Payloads::Kept, events, columns });
    Ok(batch.with_rows(rows))
}

/// Takes the parts off again: the events' indices, and the bytes.
pub(crate) fn detach(batch: Batch) -> (Batch, Vec<(Vec<u32>, BinaryArray)>) {
    let is_part = |rows: &Rows| rows.message.is_part() && &*rows.message.name == TYPE;
    if !batch.rows().iter().any(is_part) {
        return (batch, Vec::new());
    }
    let (parts, others): (Vec<Rows>, Vec<Rows>) = batch.rows().iter().cloned().partition(is_part);
    let column = |rows: Rows| {
        let column = rows.columns.column_by_name(COLUMN)?.as_binary_opt::<i32>()?.clone();
        Some((rows.events, column))
    };
    (batch.with_rows(others), parts.into_iter().filter_map(column).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_their_bytes() {
        let placement =
            Placement { position: [1.0, 2.0, 3.0], rotation: Rotation::from_rpy([0.1, 0.2, 0.3]) };
        let parts = [
            ViewPart::Packet { layout: PointLayout(3), azimuth: 12.5, points: b"points" },
            ViewPart::Picture { width: 376, height: 240 },
            ViewPart::Mount { placement, field_of_view: 1.5 },
            ViewPart::Scan { ranges: vec![1.0, f64::INFINITY], intensities: vec![7.0] },
        ];
        for part in parts {
            let part = TimedPart { map: 300, time: -5, part };
            let bytes = part.to_bytes();
            assert_eq!(TimedPart::from_bytes(&bytes), Some(part));
        }
        assert_eq!(TimedPart::from_bytes(&[0; 11]).map(|part| part.part), None);
    }
}
