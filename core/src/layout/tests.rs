use super::*;
use crate::BatchBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef};
use proptest::collection::vec;
use proptest::prelude::*;

const VEL: WireRules = WireRules { booleans: 4, lengths: LengthEncoding::U32 };
const ICE: WireRules = WireRules { booleans: 1, lengths: LengthEncoding::Size };

fn layout(wire: WireRules, members: Vec<(&str, FieldShape)>) -> PayloadLayout {
    PayloadLayout::new(wire, &named(members)).unwrap()
}

fn named(members: Vec<(&str, FieldShape)>) -> Vec<LayoutField> {
    members.into_iter().map(|(name, shape)| LayoutField::new(name, shape)).collect()
}

fn number(of: NumberType) -> FieldShape {
    FieldShape::Number(of)
}

fn list(item: FieldShape) -> FieldShape {
    FieldShape::List(Box::new(item))
}

/// Decodes payloads, and checks that encoding restores them.
fn there_and_back(layout: &PayloadLayout, payloads: &[&[u8]]) -> RecordBatch {
    let mut rows = layout.rows();
    payloads.iter().for_each(|payload| rows.push(payload).unwrap());
    let columns = rows.finish().unwrap();
    assert_eq!(again(layout, &columns), payloads);
    columns
}

fn again(layout: &PayloadLayout, columns: &RecordBatch) -> Vec<Vec<u8>> {
    let mut given = layout.columns(columns).unwrap();
    let made = (0..columns.num_rows()).map(|row| {
        let mut out = Vec::new();
        given.write(row, &mut out).map(|()| out)
    });
    made.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_scan_is_lists_of_numbers() {
    let scan = layout(
        VEL,
        vec![
            ("name", FieldShape::Text),
            ("ranges", list(number(NumberType::U32))),
            ("t", number(NumberType::U32)),
        ],
    );
    let payload =
        [&[2, 0, 0, 0][..], b"ab", &[2, 0, 0, 0], &[1, 0, 0, 0, 0, 1, 0, 0], &[9, 0, 0, 0]];
    let columns = there_and_back(&scan, &[&payload.concat()]);
    let ranges = columns.column(1).as_list::<i32>().value(0);
    assert_eq!(ranges.as_primitive::<UInt32Type>().values(), &[1, 256]);
    assert_eq!(columns.column(0).as_string::<i32>().value(0), "ab");
}

#[test]
fn what_is_wrong_leaves_nothing_behind() {
    let scan = layout(
        VEL,
        vec![("a", list(FieldShape::Text)), ("b", FieldShape::Bool), ("rest", FieldShape::Rest)],
    );
    let good = [&[1, 0, 0, 0, 1, 0, 0, 0, b'x'][..], &[1, 0, 0, 0], b"tail"].concat();
    let mut rows = scan.rows();
    rows.push(&good).unwrap();
    for (bytes, why) in [
        (&good[..11], "shorter"),
        (&[255, 255, 255, 255][..], "shorter"),
        (&[0, 0, 0, 0, 2, 0, 0, 0], "neither"),
        (&[0, 0, 0, 0, 1, 0, 1, 0], "neither"),
    ] {
        assert!(rows.push(bytes).unwrap_err().contains(why), "{why}");
    }
    rows.push(&good).unwrap();
    assert_eq!(again(&scan, &rows.finish().unwrap()), [good.clone(), good]);
}

#[test]
fn lengths_of_ice_are_read_in_their_shortest_form_only() {
    let text = layout(ICE, vec![("a", FieldShape::Text), ("bytes", list(number(NumberType::U8)))]);
    let long = [&[255, 44, 1, 0, 0][..], &[b'x'; 300], &[2, 7, 8]].concat();
    there_and_back(&text, &[&long, &[0, 0], &[1, b'y', 1, 9]]);
    for bad in [&[255, 1, 0, 0, 0, b'x', 0][..], &[255, 255, 255, 255, 255, 0], &[3, b'x', 0]] {
        assert!(text.rows().push(bad).is_err());
    }
}

#[test]
fn a_counted_list_is_as_long_as_its_member_says() {
    let counted =
        FieldShape::Counted(Box::new(FieldShape::Fixed(Box::new(number(NumberType::F32)), 3)), 0);
    let points = layout(VEL, vec![("n", number(NumberType::I16)), ("points", counted)]);
    let one = [&[1, 0][..], &[0; 12]].concat();
    let columns = there_and_back(&points, &[&one, &[0, 0]]);
    assert!(points.rows().push(&[255, 255]).unwrap_err().contains("negative"));
    assert!(points.rows().push(&[2, 0, 0]).unwrap_err().contains("shorter"));
    let numbers: ArrayRef = Arc::new(arrow_array::Int16Array::from(vec![2, 0]));
    let other = RecordBatch::try_new(columns.schema(), vec![numbers, columns.column(1).clone()]);
    let other = other.unwrap();
    let mut given = points.columns(&other).unwrap();
    let mut out = vec![7];
    assert!(given.write(0, &mut out).unwrap_err().contains("length field"));
    assert_eq!(out, [7]);
    given.write(1, &mut out).unwrap();
}

#[test]
fn a_variant_says_its_class_and_has_what_all_of_them_have() {
    let base = || LayoutField::new("type", number(NumberType::I32));
    let cases = vec![
        ("A".to_owned(), vec![base()]),
        (
            "B".to_owned(),
            vec![
                base(),
                LayoutField::new("inner", FieldShape::Variant(vec![("C".into(), vec![])])),
            ],
        ),
    ];
    let all = layout(ICE, vec![("features", list(FieldShape::Variant(cases)))]);
    let bytes = [&[4, 0][..], &[1, 5, 0, 0, 0], &[2, 6, 0, 0, 0, 1], &[2, 7, 0, 0, 0, 0]].concat();
    let columns = there_and_back(&all, &[&bytes, &[0]]);
    let features = columns.column(0).as_list::<i32>().value(0);
    let features = features.as_struct();
    let classes: Vec<_> = features.column(0).as_string::<i32>().iter().collect();
    assert_eq!(classes, [None, Some("A"), Some("B"), Some("B")]);
    assert_eq!(features.column_by_name("inner").unwrap().null_count(), 3);
    assert!(all.rows().push(&[1, 3, 0, 0, 0, 0]).unwrap_err().contains("class"));
}

#[test]
fn what_takes_no_bytes_has_no_column() {
    let nothing = || FieldShape::Struct(Vec::new());
    let empty =
        layout(VEL, vec![("a", nothing()), ("b", FieldShape::Fixed(Box::new(nothing()), 3))]);
    let columns = there_and_back(&empty, &[&[], &[]]);
    assert_eq!((columns.num_columns(), columns.num_rows()), (0, 2));
    assert!(empty.rows().push(&[0]).unwrap_err().contains("longer"));
}

#[test]
fn invalid_layouts_are_refused() {
    let deep = (0..40).fold(FieldShape::Bool, |inner, _| list(inner));
    let wide = (0..3000).map(|n| LayoutField::new(n.to_string(), FieldShape::Bool)).collect();
    let refused =
        |members: Vec<(&str, FieldShape)>| PayloadLayout::new(VEL, &named(members)).unwrap_err();
    for (members, says) in [
        (vec![("a", deep)], "nests deeper"),
        (vec![("a", FieldShape::Struct(wide))], "columns"),
        (vec![("a", FieldShape::Bool), ("a", FieldShape::Text)], "two fields"),
        (vec![("a", FieldShape::Rest), ("b", FieldShape::Text)], "last field"),
        (vec![("a", list(FieldShape::Rest))], "without bytes"),
        (vec![("a", list(FieldShape::Struct(vec![])))], "without bytes"),
        (vec![("a", FieldShape::Fixed(Box::new(FieldShape::Bool), 1 << 30))], "is too long"),
        (vec![("a", FieldShape::Counted(Box::new(FieldShape::Bool), 0))], "not an integer member"),
        (
            vec![
                ("a", FieldShape::Text),
                ("b", FieldShape::Counted(Box::new(FieldShape::Bool), 0)),
            ],
            "not an integer",
        ),
        (vec![("a", list(FieldShape::Counted(Box::new(FieldShape::Bool), 0)))], "no length member"),
    ] {
        let message = refused(members);
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn columns_of_other_programs_are_cast_and_what_does_not_fit_is_refused() {
    let small = layout(VEL, vec![("n", number(NumberType::U8)), ("s", FieldShape::Text)]);
    let wide: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![5, 500]));
    let text: ArrayRef = Arc::new(arrow_array::LargeStringArray::from(vec!["a", "b"]));
    let columns = RecordBatch::try_from_iter([("s", text), ("n", wide)]).unwrap();
    let (mut given, mut out) = (small.columns(&columns).unwrap(), Vec::new());
    given.write(0, &mut out).unwrap();
    assert_eq!(out, [5, 1, 0, 0, 0, b'a']);
    assert!(given.write(1, &mut out).unwrap_err().contains("does not fit"));
    let message = small.columns(&columns.project(&[0]).unwrap()).unwrap_err();
    assert!(message.contains("no column `n`"), "{message}");
}

#[test]
fn a_list_that_is_too_short_or_has_a_null_is_one_rows_fault() {
    let point = layout(VEL, vec![("p", FieldShape::Fixed(Box::new(number(NumberType::I16)), 2))]);
    let rows = [Some(vec![Some(1), Some(2)]), Some(vec![Some(3)]), Some(vec![Some(4), None]), None];
    let lists = arrow_array::ListArray::from_iter_primitive::<Int16Type, _, _>(rows);
    let columns =
        RecordBatch::try_from_iter_with_nullable([("p", Arc::new(lists) as ArrayRef, true)]);
    let columns = columns.unwrap();
    let mut given = point.columns(&columns).unwrap();
    let written: Vec<bool> = (0..4).map(|row| given.write(row, &mut Vec::new()).is_ok()).collect();
    assert_eq!(written, [true, false, false, false]);
}

#[test]
fn lists_that_would_become_far_longer_than_they_are_are_refused() {
    let count = 4_000_000;
    let point =
        layout(VEL, vec![("p", FieldShape::Fixed(Box::new(number(NumberType::F32)), count))]);
    let lists =
        arrow_array::ListArray::from_iter_primitive::<Float32Type, _, _>(vec![Some(vec![]); 8192]);
    let columns = RecordBatch::try_from_iter([("p", Arc::new(lists) as ArrayRef)]).unwrap();
    assert!(point.columns(&columns).unwrap_err().contains("do not have 4000000 elements"));
}

#[test]
fn slices_of_columns_are_written_as_they_are() {
    let all = layout(
        ICE,
        vec![
            ("f", FieldShape::Fixed(Box::new(number(NumberType::I16)), 2)),
            ("l", list(FieldShape::Text)),
        ],
    );
    let payloads: [&[u8]; 3] =
        [&[1, 0, 2, 0, 0], &[3, 0, 4, 0, 1, 1, b'x'], &[5, 0, 6, 0, 2, 0, 0]];
    let columns = there_and_back(&all, &payloads);
    assert_eq!(again(&all, &columns.slice(1, 2)), payloads[1..]);
}

fn any_shape() -> impl Strategy<Value = FieldShape> {
    use NumberType::*;
    let numbers = prop::sample::select(vec![I8, U8, I16, U16, I32, U32, I64, U64, F32, F64]);
    let leaf = prop_oneof![
        4 => numbers.prop_map(FieldShape::Number),
        1 => Just(FieldShape::Bool),
        1 => Just(FieldShape::Text),
        1 => Just(FieldShape::Bytes),
        1 => Just(FieldShape::Enum(vec![("a".into(), 0), ("b".into(), 1)])),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let members = vec(inner.clone(), 1..4).prop_map(|shapes| {
            let named = shapes.into_iter().enumerate();
            named.map(|(n, shape)| LayoutField::new(format!("m{n}"), shape)).collect::<Vec<_>>()
        });
        let cases = vec(members.clone(), 1..2);
        prop_oneof![
            (inner.clone(), 0usize..4).prop_map(|(item, n)| FieldShape::Fixed(Box::new(item), n)),
            inner.prop_map(list),
            members.prop_map(FieldShape::Struct),
            cases.prop_map(|cases| {
                let cases = cases.into_iter().enumerate();
                FieldShape::Variant(cases.map(|(n, members)| (format!("C{n}"), members)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_read_comes_back_byte_for_byte(
        shapes in vec(any_shape(), 0..4), ice: bool,
        payloads in vec(vec(prop_oneof![3 => 0u8..3, 1 => any::<u8>()], 0..60), 0..12))
    {
        let members: Vec<LayoutField> =
            shapes
                .into_iter()
                .enumerate()
                .map(|(n, shape)| LayoutField::new(format!("c{n}"), shape))
                .collect();
        let wire = if ice { ICE } else { VEL };
        let Ok(layout) = PayloadLayout::new(wire, &members) else { return Ok(()) };
        let (mut rows, mut good) = (layout.rows(), Vec::new());
        for payload in &payloads {
            // The longest prefix that is a complete payload, if any.
            let mut lengths = (0..=payload.len()).rev();
            if let Some(len) = lengths.find(|len| rows.push(&payload[..*len]).is_ok()) {
                good.push(payload[..len].to_vec());
            }
        }
        let columns = rows.finish().unwrap();
        prop_assert_eq!(columns.num_rows(), good.len());
        prop_assert_eq!(again(&layout, &columns), good);
    }
}

#[test]
fn a_batch_is_decoded_event_by_event() {
    let one = layout(VEL, vec![("n", number(NumberType::U8))]);
    let mut batch = BatchBuilder::default();
    for payload in [&[1][..], &[], &[3]] {
        batch.push_copy(0, 0, crate::ChannelId(0), payload);
    }
    let (mut rows, batch) = (one.rows(), batch.finish());
    let read: Vec<bool> = (0..3).map(|row| rows.push(batch.payload(row)).is_ok()).collect();
    assert_eq!((read, rows.len()), (vec![true, false, true], 2));
}
