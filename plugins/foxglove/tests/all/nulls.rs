//! Nulls are no measurements.

use std::sync::Arc;

use arrow_array::types::Float64Type;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, ListArray, StructArray,
    TimestampNanosecondArray, UInt8Array, UInt16Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields};
use serde_json::{Value, json};

use crate::kit::{Messages, OutEvent, StageRun, bytes, doubles, number, on};

const START: i64 = 1_700_000_000_000_000_000;

/// Notes on a channel, and how often they hold.
type Notes = Vec<(String, u64)>;

/// What comes of these rows on the channel `S` by one map.
fn shown(map: Value, columns: Vec<(&str, ArrayRef)>) -> (Vec<OutEvent>, Notes) {
    let mut run = StageRun::new(json!({ "map": [map], "built_in": false }));
    let messages = Messages { channel: "S", source: "", type_name: "t", columns };
    let batch = run.batch(START, &[messages]);
    let out = run.all(vec![batch]);
    let notes = run.notes.iter().cloned().zip(run.note_counts);
    (out, notes.filter(|(note, _)| note.starts_with("channel")).collect())
}

fn of_points(columns: Vec<(&str, ArrayRef)>) -> (Vec<OutEvent>, Notes) {
    shown(json!({ "points": { "field": "points" } }), columns)
}

/// Structs of these members.
fn structs(members: Vec<(&str, ArrayRef)>, nulls: Option<NullBuffer>) -> StructArray {
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let fields: Fields = members.iter().map(field).collect();
    StructArray::new(fields, members.into_iter().map(|(_, array)| array).collect(), nulls)
}

fn element(structs: &StructArray) -> Arc<Field> {
    Arc::new(Field::new_list_field(structs.data_type().clone(), true))
}

/// One row with all of these points.
fn one_list(points: StructArray) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths([points.len()]);
    Arc::new(ListArray::new(element(&points), offsets, Arc::new(points), None))
}

/// Numbers. Null ones are stored as 7, which must not be used.
fn axis(numbers: &[Option<f64>]) -> ArrayRef {
    let stored: Vec<f64> = numbers.iter().map(|number| number.unwrap_or(7.0)).collect();
    let nulls = numbers.iter().map(Option::is_some).collect();
    Arc::new(Float64Array::new(stored.into(), Some(nulls)))
}

/// Lists of numbers. Null ones are stored as one number.
fn lists(rows: &[Option<&[Option<f64>]>]) -> ArrayRef {
    let stored: Vec<&[Option<f64>]> = rows.iter().map(|row| row.unwrap_or(&[None])).collect();
    let offsets = OffsetBuffer::from_lengths(stored.iter().map(|row| row.len()));
    let element = Arc::new(Field::new_list_field(DataType::Float64, true));
    let nulls = rows.iter().map(Option::is_some).collect();
    Arc::new(ListArray::new(element, offsets, axis(&stored.concat()), Some(nulls)))
}

/// The floats at this place of each point of a cloud.
fn floats<const N: usize>(cloud: &OutEvent, offset: usize) -> Vec<[f32; N]> {
    let (stride, data) = (number(&cloud.message, 4) as usize, bytes(&cloud.message, 6));
    let float = |point: &[u8], at: usize| {
        f32::from_le_bytes(point[offset + 4 * at..][..4].try_into().unwrap())
    };
    data.chunks(stride).map(|point| std::array::from_fn(|at| float(point, at))).collect()
}

#[test]
fn points_without_a_position_are_left_out_and_counted() {
    let points = structs(
        vec![
            ("x", axis(&[Some(1.0), Some(0.0), Some(4.0), None, Some(f64::NAN)])),
            ("y", axis(&[Some(2.0), Some(0.0), Some(5.0), Some(8.0), Some(0.0)])),
            ("z", axis(&[Some(3.0), Some(0.0), Some(6.0), Some(9.0), Some(0.0)])),
        ],
        Some(NullBuffer::from(vec![true, false, true, true, true])),
    );
    let (out, notes) = of_points(vec![("points", one_list(points))]);
    let cloud = on(&out, "/view/S")[0];
    assert_eq!(floats::<3>(cloud, 0), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let note = "channel `S`: points with a coordinate that is null or not finite; left out";
    assert_eq!(notes, [(note.to_owned(), 3)]);
}

#[test]
fn null_members_of_points_are_no_measurements() {
    let red = UInt8Array::from(vec![Some(1), Some(1), None, None]);
    let green = UInt8Array::from(vec![Some(2), None, Some(2), None]);
    let blue = UInt8Array::from(vec![Some(3), Some(3), Some(3), None]);
    let time = [Some(START + 500_000_000), None, None, None];
    let intensity = [Some(0.5), None, None, None];
    let points = structs(
        vec![
            ("x", axis(&[Some(1.0); 4])),
            ("y", axis(&[Some(1.0); 4])),
            ("z", axis(&[Some(1.0); 4])),
            ("time", Arc::new(TimestampNanosecondArray::from(time.to_vec()))),
            ("intensity", Arc::new(Float32Array::from(intensity.to_vec()))),
            ("red", Arc::new(red)),
            ("green", Arc::new(green)),
            ("blue", Arc::new(blue)),
            ("laser", Arc::new(UInt16Array::from(vec![Some(3), None, None, None]))),
        ],
        None,
    );
    let (out, notes) = of_points(vec![("points", one_list(points))]);
    let cloud = on(&out, "/view/S")[0];
    assert_eq!(floats::<2>(cloud, 12), [[0.5, 0.5], [0.0; 2], [0.0; 2], [0.0; 2]]);
    let data = bytes(&cloud.message, 6);
    let colours: Vec<&[u8]> = data.chunks(28).map(|point| &point[20..24]).collect();
    assert_eq!(colours, [[1, 2, 3, 255], [0; 4], [0; 4], [0; 4]], "invisible unless known");
    assert_eq!(notes, []);
}

#[test]
fn a_null_list_is_no_cloud_and_an_empty_one_is() {
    let coordinate = || axis(&[Some(1.0); 6]);
    let points = structs(vec![("x", coordinate()), ("y", coordinate()), ("z", coordinate())], None);
    // A null list of a fixed size has elements, and others may.
    let nulls = || Some(NullBuffer::from(vec![true, false, true]));
    let offsets = OffsetBuffer::from_lengths([2, 2, 0]);
    let (fixed, list): (ArrayRef, ArrayRef) = (
        Arc::new(FixedSizeListArray::new(element(&points), 2, Arc::new(points.clone()), nulls())),
        Arc::new(ListArray::new(element(&points), offsets, Arc::new(points), nulls())),
    );
    for (column, lens) in [(fixed, [2, 2]), (list, [2, 0])] {
        let (out, notes) = of_points(vec![("points", column)]);
        let clouds = on(&out, "/view/S");
        assert_eq!(clouds.iter().map(|c| floats::<3>(c, 0).len()).collect::<Vec<_>>(), lens);
        let note = "channel `S`: not shown: numbers are missing or not finite";
        assert_eq!(notes, [(note.to_owned(), 1)]);
    }
}

#[test]
fn null_ranges_are_no_return() {
    let map = json!({ "scan": { "ranges": "ranges", "intensities": "light", "step": 0.5 } });
    let ranges = [Some(1.0), None, Some(2.0), Some(3.0)];
    let light = [Some(5.0), Some(6.0), None, Some(7.0)];
    let columns = vec![
        ("ranges", lists(&[Some(&ranges), Some(&[None]), None])),
        ("light", lists(&[Some(&light), None, None])),
    ];
    let (out, notes) = shown(map, columns);
    let scans = on(&out, "/view/S");
    assert_eq!(doubles(&scans[0].message, 6), [1.0, f64::INFINITY, 2.0, 3.0]);
    assert_eq!(doubles(&scans[0].message, 7), [5.0, 6.0, 0.0, 7.0]);
    assert_eq!(doubles(&scans[1].message, 6), [f64::INFINITY]);
    assert_eq!((scans.len(), doubles(&scans[1].message, 7)), (2, vec![]));
    let clouds = on(&out, "/view/S/points");
    let light: Vec<f32> = floats::<1>(clouds[0], 12).into_iter().flatten().collect();
    assert_eq!((light, bytes(&clouds[1].message, 6).len()), (vec![5.0, 0.0, 7.0], 0));
    let note = "channel `S`: not shown: no ranges, or more than a million";
    assert_eq!(notes, [(note.to_owned(), 1)]);
}

#[test]
fn a_null_list_of_fixed_size_has_no_ranges() {
    let rows = [Some([Some(1.0); 2]), None];
    let ranges = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(rows, 2);
    let map = json!({ "scan": { "ranges": "ranges", "step": 0.5 } });
    let (out, _) = shown(map, vec![("ranges", Arc::new(ranges))]);
    assert_eq!(on(&out, "/view/S").len(), 1);
}

#[test]
fn a_time_that_is_none_is_replaced_by_that_of_the_event() {
    let times = [Some(f64::NAN), Some(1e30), Some(f64::NEG_INFINITY), None, Some(1.5)];
    let map = json!({ "time": "t", "time_unit": "s", "log": { "text": "t_text" } });
    let texts = arrow_array::StringArray::from(vec!["x"; times.len()]);
    let (out, _) = shown(map, vec![("t", axis(&times)), ("t_text", Arc::new(texts))]);
    let stamps: Vec<[u64; 2]> = on(&out, "/view/S")
        .iter()
        .map(|line| bytes(&line.message, 1))
        .map(|stamp| [number(&stamp, 1), number(&stamp, 2)])
        .collect();
    let of_event = |n: u64| [1_700_000_000, n * 1_000_000];
    assert_eq!(stamps, [of_event(0), of_event(1), of_event(2), of_event(3), [1, 500_000_000]]);
}
