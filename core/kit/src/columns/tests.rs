use sluice_model::{BatchBuilder, PayloadForm};

use super::*;
use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch};
use proptest::collection::vec;
use proptest::prelude::*;

const VEL: WireRules = WireRules { booleans: 4, ..WireRules::LITTLE_ENDIAN };
const ICE: WireRules = WireRules { lengths: LengthEncoding::Size, ..WireRules::LITTLE_ENDIAN };
const BIG: WireRules = WireRules {
    endian: Endian::Big,
    booleans: 2,
    lengths: LengthEncoding::U32WithNul,
    enums: EnumEncoding::I32,
    ..WireRules::LITTLE_ENDIAN
};

fn plan(wire: WireRules, members: Vec<(&str, FieldShape)>) -> PayloadPlan {
    PayloadPlan::compile(wire, &named(members)).unwrap()
}

fn named(members: Vec<(&str, FieldShape)>) -> Vec<PayloadField> {
    members.into_iter().map(|(name, shape)| PayloadField::new(name, shape)).collect()
}

fn number(of: NumberType) -> FieldShape {
    FieldShape::Number(of)
}

fn list(item: FieldShape) -> FieldShape {
    FieldShape::List(Box::new(item))
}

type Faulty = Vec<(u32, PayloadFault)>;

/// The columns of those payloads that fit, and what is wrong with the others.
fn decode(plan: &PayloadPlan, payloads: &[&[u8]]) -> (RecordBatch, Faulty) {
    let (events, mut bad): (Vec<u32>, _) = ((0..payloads.len() as u32).collect(), Vec::new());
    let payload = |event| Ok(payloads[event as usize]);
    let total_len = payloads.iter().map(|payload| payload.len()).sum();
    let (good, columns) = plan.decode(&events, total_len, payload, &mut bad, None).unwrap();
    assert_eq!((good.len(), good.len() + bad.len()), (columns.num_rows(), payloads.len()));
    (columns, bad)
}

fn refusal(plan: &PayloadPlan, payload: &[u8]) -> PayloadFault {
    decode(plan, &[payload]).1[0].1
}

/// Decodes payloads, and checks that encoding restores them.
fn there_and_back(plan: &PayloadPlan, payloads: &[&[u8]]) -> RecordBatch {
    let (columns, bad) = decode(plan, payloads);
    assert_eq!(bad, []);
    assert_eq!(again(plan, &columns), payloads);
    columns
}

fn encode(plan: &PayloadPlan, columns: &RecordBatch) -> Result<(BinaryArray, Faulty), String> {
    let mut bad = Vec::new();
    let made = PayloadForm::encode(plan, columns, &mut bad, None)?;
    Ok((made, bad))
}

fn again(plan: &PayloadPlan, columns: &RecordBatch) -> Vec<Vec<u8>> {
    let (made, bad) = encode(plan, columns).unwrap();
    assert_eq!(bad, []);
    made.iter().flatten().map(<[u8]>::to_vec).collect()
}

#[test]
fn a_scan_is_lists_of_numbers() {
    let scan = plan(
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
    let scan = plan(
        VEL,
        vec![("a", list(FieldShape::Text)), ("b", FieldShape::Bool), ("rest", FieldShape::Rest)],
    );
    let good = [&[1, 0, 0, 0, 1, 0, 0, 0, b'x'][..], &[1, 0, 0, 0], b"tail"].concat();
    let wrong = [
        (&good[..11], "shorter"),
        (&[255, 255, 255, 255][..], "shorter"),
        (&[0, 0, 0, 0, 2, 0, 0, 0], "neither"),
        (&[0, 0, 0, 0, 1, 0, 1, 0], "neither"),
    ];
    let payloads: Vec<&[u8]> = wrong.iter().flat_map(|(bytes, _)| [&good[..], bytes]).collect();
    let (columns, bad) = decode(&scan, &payloads);
    for ((_, why), (_, says)) in wrong.iter().zip(bad) {
        assert!(says.contains(why), "{why}");
    }
    assert_eq!(again(&scan, &columns), vec![&good[..]; wrong.len()]);
}

#[test]
fn a_payload_in_parts_has_the_columns_of_one_in_a_piece() {
    let members = vec![
        ("none", FieldShape::Struct(Vec::new())),
        ("a", number(NumberType::U8)),
        ("b", number(NumberType::U16)),
        ("is", FieldShape::Bool),
        ("list", list(number(NumberType::U16))),
        ("end", number(NumberType::U8)),
    ];
    let members = named(members);
    let whole = PayloadPlan::compile(ICE, &members).unwrap();
    let in_parts = PayloadPlan::compile_in_parts(ICE, &members, &[1, 3, 3]).unwrap();
    let payload: &[u8] = &[7, 1, 2, 1, 1, 5, 0, 6];
    let piece = there_and_back(&whole, &[payload; 2]);
    assert_eq!(there_and_back(&in_parts, &[payload; 2]), piece);
    // Parts end where they have to, and nowhere else.
    let parts: [&[&[u8]]; 5] = [
        &[&[], &[7, 1, 2], &[], &[1, 1, 5, 0, 6]],
        &[&[], &[7, 1], &[2], &[1, 1, 5, 0, 6]],
        &[&[], &[7, 1, 2], &[], &[1, 1, 5, 0]],
        &[&[7, 1, 2], &[], &[], &[1, 1, 5, 0, 6]],
        &[&[], &[7, 1, 2], &[], &[2, 1, 5, 0, 6]],
    ];
    let split = |event: u32, later: &mut Vec<_>| {
        let (first, others) = parts[event as usize].split_first().unwrap();
        later.extend(others.iter().rev());
        Ok(*first)
    };
    let (events, mut bad, mut raw) = ([0, 1, 2, 3, 4], Vec::new(), BinaryBuilder::new());
    let (good, strict) = in_parts.decode_parts(&events, 40, split, &mut bad, None).unwrap();
    assert_eq!((good.as_slice(), bad.len()), (&[0][..], 4));
    let (good, odd) = in_parts.decode_parts(&[0, 4], 16, split, &mut bad, Some(&mut raw)).unwrap();
    assert_eq!((good.as_slice(), raw.finish().value(1)), (&[0, 4][..], &[2][..]));
    for column in [0, 1, 3, 4] {
        assert_eq!(strict.column(column), &piece.column(column).slice(0, 1));
        assert_eq!(odd.column(column), piece.column(column));
    }
}

#[test]
fn lengths_of_ice_are_read_in_their_shortest_form_only() {
    let text = plan(ICE, vec![("a", FieldShape::Text), ("bytes", list(number(NumberType::U8)))]);
    let long = [&[255, 44, 1, 0, 0][..], &[b'x'; 300], &[2, 7, 8]].concat();
    there_and_back(&text, &[&long, &[0, 0], &[1, b'y', 1, 9]]);
    for bad in [&[255, 1, 0, 0, 0, b'x', 0][..], &[255, 255, 255, 255, 255, 0], &[3, b'x', 0]] {
        refusal(&text, bad);
    }
}

#[test]
fn aligned_numbers_begin_at_multiples_of_their_width() {
    let aligned = WireRules { alignment: 8, ..WireRules::LITTLE_ENDIAN };
    let point = vec![
        PayloadField::new("x", number(NumberType::F64)),
        PayloadField::new("n", number(NumberType::I16)),
    ];
    let uneven = plan(
        aligned,
        vec![
            ("a", number(NumberType::U8)),
            ("points", list(FieldShape::Struct(point))),
            ("sums", list(number(NumberType::I64))),
            ("b", number(NumberType::U16)),
        ],
    );
    let zeros = |count: usize| vec![0; count];
    // Points are padded before, not behind; empty lists are not padded for their elements.
    let two = [
        vec![7, 0, 0, 0, 2, 0, 0, 0],
        [&1.5f64.to_le_bytes()[..], &[1, 0], &zeros(6), &2.5f64.to_le_bytes(), &[2, 0]].concat(),
        [&[0, 0][..], &[1, 0, 0, 0], &[9, 0, 0, 0, 0, 0, 0, 0], &[3, 0]].concat(),
    ];
    let none = vec![7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0];
    let two = two.concat();
    let columns = there_and_back(&uneven, &[&two, &none, &two]);
    let points = columns.column(1).as_list::<i32>();
    assert_eq!(points.value_length(0), 2);
    let mut padded = two;
    padded[2] = 1;
    assert!(refusal(&uneven, &padded).contains("padding"));
    let lenient = WireRules { strictness: Strictness::Lenient, ..aligned };
    let short = plan(lenient, vec![("a", number(NumberType::U8)), ("b", FieldShape::Bool)]);
    assert_eq!(decode(&short, &[&[1, 7, 0, 0, 0]]).1, []);
    assert!(refusal(&short, &[1, 7, 0, 0, 0, 0]).contains("longer"));
}

#[test]
fn arrays_of_aligned_structs_are_padded_wherever_they_begin() {
    let aligned = WireRules { alignment: 8, ..WireRules::LITTLE_ENDIAN };
    let pair = FieldShape::Struct(vec![
        PayloadField::new("i", number(NumberType::I32)),
        PayloadField::new("j", number(NumberType::U8)),
    ]);
    let three = FieldShape::Fixed(Box::new(pair), 3);
    let pairs = plan(aligned, vec![("a", FieldShape::Text), ("pairs", three)]);
    let body = [1u8, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6];
    there_and_back(&pairs, &[&[&[1, 0, 0, 0, b'x', 0, 0, 0][..], &body].concat()]);
}

#[test]
fn a_counted_list_is_as_long_as_its_member_says() {
    let counted =
        FieldShape::Counted(Box::new(FieldShape::Fixed(Box::new(number(NumberType::F32)), 3)), 0);
    let points = plan(VEL, vec![("n", number(NumberType::I16)), ("points", counted)]);
    let one = [&[1, 0][..], &[0; 12]].concat();
    let columns = there_and_back(&points, &[&one, &[0, 0]]);
    assert!(refusal(&points, &[255, 255]).contains("negative"));
    assert!(refusal(&points, &[2, 0, 0]).contains("shorter"));
    let numbers: ArrayRef = Arc::new(arrow_array::Int16Array::from(vec![2, 0]));
    let other = RecordBatch::try_new(columns.schema(), vec![numbers, columns.column(1).clone()]);
    let other = other.unwrap();
    let (made, bad) = encode(&points, &other).unwrap();
    assert!(bad[0].1.contains("length field"));
    assert_eq!(made.iter().collect::<Vec<_>>(), [None, Some(&[0, 0][..])]);
}

#[test]
fn a_variant_says_its_class_and_has_what_all_of_them_have() {
    let base = || PayloadField::new("type", number(NumberType::I32));
    let cases = vec![
        ("A".to_owned(), vec![base()]),
        (
            "B".to_owned(),
            vec![
                base(),
                PayloadField::new("inner", FieldShape::Variant(vec![("C".into(), vec![])])),
            ],
        ),
    ];
    let all = plan(ICE, vec![("features", list(FieldShape::Variant(cases)))]);
    let bytes = [&[4, 0][..], &[1, 5, 0, 0, 0], &[2, 6, 0, 0, 0, 1], &[2, 7, 0, 0, 0, 0]].concat();
    let columns = there_and_back(&all, &[&bytes, &[0]]);
    let features = columns.column(0).as_list::<i32>().value(0);
    let features = features.as_struct();
    let classes: Vec<_> = features.column(0).as_string::<i32>().iter().collect();
    assert_eq!(classes, [None, Some("A"), Some("B"), Some("B")]);
    assert_eq!(features.column_by_name("inner").unwrap().null_count(), 3);
    assert!(refusal(&all, &[1, 3, 0, 0, 0, 0]).contains("class"));
}

#[test]
fn what_takes_no_bytes_has_no_column() {
    let nothing = || FieldShape::Struct(Vec::new());
    let empty = plan(VEL, vec![("a", nothing()), ("b", FieldShape::Fixed(Box::new(nothing()), 3))]);
    let columns = there_and_back(&empty, &[&[], &[]]);
    assert_eq!((columns.num_columns(), columns.num_rows()), (0, 2));
    assert!(refusal(&empty, &[0]).contains("longer"));
}

#[test]
fn invalid_layouts_are_refused() {
    let deep = (0..40).fold(FieldShape::Bool, |inner, _| list(inner));
    let wide = (0..3000).map(|n| PayloadField::new(n.to_string(), FieldShape::Bool)).collect();
    let refused =
        |members: Vec<(&str, FieldShape)>| PayloadPlan::compile(VEL, &named(members)).unwrap_err();
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
        (vec![("a", list(FieldShape::Counted(Box::new(FieldShape::Bool), 0)))], "not an integer"),
    ] {
        let message = refused(members);
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn columns_of_other_programs_are_cast_and_what_does_not_fit_is_refused() {
    let small = plan(VEL, vec![("n", number(NumberType::U8)), ("s", FieldShape::Text)]);
    let wide: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![5, 500]));
    let text: ArrayRef = Arc::new(arrow_array::LargeStringArray::from(vec!["a", "b"]));
    let columns = RecordBatch::try_from_iter([("s", text), ("n", wide)]).unwrap();
    let (made, bad) = encode(&small, &columns).unwrap();
    assert_eq!(made.iter().collect::<Vec<_>>(), [Some(&[5, 1, 0, 0, 0, b'a'][..]), None]);
    assert!(bad[0].1.contains("does not fit"));
    let message = encode(&small, &columns.project(&[0]).unwrap()).unwrap_err();
    assert!(message.contains("no column `n`"), "{message}");
}

#[test]
fn a_list_that_is_too_short_or_has_a_null_is_one_rows_fault() {
    let point = plan(VEL, vec![("p", FieldShape::Fixed(Box::new(number(NumberType::I16)), 2))]);
    let rows = [Some(vec![Some(1), Some(2)]), Some(vec![Some(3)]), Some(vec![Some(4), None]), None];
    let lists = arrow_array::ListArray::from_iter_primitive::<Int16Type, _, _>(rows);
    let columns =
        RecordBatch::try_from_iter_with_nullable([("p", Arc::new(lists) as ArrayRef, true)]);
    let columns = columns.unwrap();
    let (_, bad) = encode(&point, &columns).unwrap();
    assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn lists_that_would_become_far_longer_than_they_are_are_refused() {
    let count = 4_000_000;
    let point = plan(VEL, vec![("p", FieldShape::Fixed(Box::new(number(NumberType::F32)), count))]);
    let lists =
        arrow_array::ListArray::from_iter_primitive::<Float32Type, _, _>(vec![Some(vec![]); 8192]);
    let columns = RecordBatch::try_from_iter([("p", Arc::new(lists) as ArrayRef)]).unwrap();
    assert!(encode(&point, &columns).unwrap_err().contains("do not have 4000000 elements"));
}

#[test]
fn slices_of_columns_are_written_as_they_are() {
    let all = plan(
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
            named.map(|(n, shape)| PayloadField::new(format!("m{n}"), shape)).collect::<Vec<_>>()
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
        shapes in vec(any_shape(), 0..4), wire in prop::sample::select(vec![VEL, ICE, BIG]),
        payloads in vec(vec(prop_oneof![3 => 0u8..3, 1 => any::<u8>()], 0..60), 0..12))
    {
        let members: Vec<PayloadField> =
            shapes
                .into_iter()
                .enumerate()
                .map(|(n, shape)| PayloadField::new(format!("c{n}"), shape))
                .collect();
        let Ok(plan) = PayloadPlan::compile(wire, &members) else { return Ok(()) };
        let mut good: Vec<&[u8]> = Vec::new();
        for payload in &payloads {
            // The longest prefix that is a complete payload, if any.
            let mut prefixes = (0..=payload.len()).rev().map(|len| &payload[..len]);
            good.extend(prefixes.find(|prefix| decode(&plan, &[prefix]).1.is_empty()));
        }
        there_and_back(&plan, &good);
    }

    #[test]
    fn booleans_of_any_bytes_come_back(
        wire in prop::sample::select(vec![VEL, ICE, BIG]),
        bytes in vec(prop_oneof![2 => 0u8..2, 1 => any::<u8>()], 8 * 7))
    {
        let cases = vec![("A".to_owned(), named(vec![("c", FieldShape::Bool)]))];
        let all = plan(
            wire,
            vec![
                ("a", FieldShape::Bool),
                ("n", number(NumberType::U8)),
                ("b", FieldShape::Counted(Box::new(FieldShape::Bool), 1)),
                ("v", FieldShape::Variant(cases)),
            ],
        );
        let wide = wire.booleans;
        let payload =
            [&bytes[..wide], &[2], &bytes[wide..3 * wide], &[1], &bytes[..wide]].concat();
        let (mut bad, mut raw) = (Vec::new(), BinaryBuilder::new());
        let next = |_| Ok(&payload[..]);
        let (good, columns) = all.decode(&[7], 8, next, &mut bad, Some(&mut raw)).unwrap();
        prop_assert_eq!((good, bad), (vec![7], vec![]));
        let (raw, mut bad) = (raw.finish(), Vec::new());
        prop_assert_eq!(raw.value(0).len(), 4 * wide);
        let made = PayloadForm::encode(&all, &columns, &mut bad, Some(&raw)).unwrap();
        prop_assert_eq!(made.value(0), payload);
    }
}

#[test]
fn numbers_of_either_byte_order_are_the_same_numbers() {
    let members = || {
        vec![
            ("count", number(NumberType::U16)),
            ("list", FieldShape::Counted(Box::new(number(NumberType::I32)), 0)),
            ("text", FieldShape::Text),
            ("four", FieldShape::FixedBytes(4)),
            ("some", FieldShape::CountedBytes(0)),
        ]
    };
    let little = [&[1, 0, 2, 0, 0, 0, 2, 0, 0, 0][..], b"hi", b"four", b"s"].concat();
    let big = [&[0, 1, 0, 0, 0, 2, 0, 0, 0, 3][..], b"hi\0", b"four", b"s"].concat();
    let columns = there_and_back(&plan(VEL, members()), &[&little]);
    assert_eq!(there_and_back(&plan(BIG, members()), &[&big]), columns);
}

#[test]
fn values_that_only_the_format_can_skip_stay_bytes() {
    // A byte that says how many follow it.
    let value = OpaqueValue::new(|cursor| {
        let len = cursor.take(1)?.first().copied().unwrap_or_default();
        cursor.take(len.into()).map(drop)
    });
    let opaque = vec![("a", FieldShape::Opaque(value)), ("n", number(NumberType::U8))];
    let opaque = plan(VEL, opaque);
    let columns = there_and_back(&opaque, &[&[2, 7, 8, 9], &[0, 1]]);
    assert_eq!(columns.column(0).as_binary::<i32>().value(0), [2, 7, 8]);
    assert!(refusal(&opaque, &[2, 7]).contains("shorter"));
    let cut: ArrayRef = Arc::new(BinaryArray::from(vec![&[3, 1][..], &[0]]));
    let cut = RecordBatch::try_new(columns.schema(), vec![cut, columns.column(1).clone()]);
    let (_, bad) = encode(&opaque, &cut.unwrap()).unwrap();
    assert_eq!(bad, [(0, "the bytes of a nested value do not match its type")]);
}

#[test]
fn views_and_spans_are_columns_of_what_is_around_them() {
    let view = |name: &str, kind| NumberView { name: name.to_owned(), kind };
    let views = |of, views| FieldShape::Views(Box::new(of), views);
    let (flags, scaled) =
        (number(NumberType::U16), FieldShape::Fixed(Box::new(number(NumberType::I24)), 2));
    let one_way = plan(
        VEL,
        vec![
            ("", FieldShape::Span(SpanKind::Skipped, Extent::Fixed(1))),
            (
                "",
                views(
                    FieldShape::InOrder(Endian::Big, Box::new(flags)),
                    vec![
                        view("bit", ViewKind::Flag(8)),
                        view("low", ViewKind::Bits(0, 4)),
                        view("all", ViewKind::Value),
                    ],
                ),
            ),
            ("", views(scaled, vec![view("half", ViewKind::Scaled(0.5, 1.0))])),
            ("text", FieldShape::Span(SpanKind::TrimmedText, Extent::Fixed(4))),
            ("rest", FieldShape::RestList(Box::new(number(NumberType::U16)), 1)),
            ("last", number(NumberType::U8)),
        ],
    );
    let payload = [&[9, 1, 0x23][..], &[4, 0, 0, 0xfe, 0xff, 0xff], b"a \0x", &[5, 0, 6, 0, 7]];
    let (columns, bad) = decode(&one_way, &[&payload.concat(), &payload.concat()[..15]]);
    assert_eq!(bad.len(), 1);
    assert!(columns.column(0).as_boolean().value(0));
    assert_eq!(columns.column(1).as_primitive::<UInt64Type>().value(0), 3);
    assert_eq!(columns.column(2).as_primitive::<UInt16Type>().value(0), 0x123);
    let half = columns.column(3).as_fixed_size_list().value(0);
    assert_eq!(half.as_primitive::<Float64Type>().values(), &[3.0, 0.0]);
    assert_eq!(columns.column(4).as_string::<i32>().value(0), "a");
    let rest = columns.column(5).as_list::<i32>().value(0);
    assert_eq!(rest.as_primitive::<UInt16Type>().values(), &[5, 6]);
    assert_eq!(columns.column(6).as_primitive::<UInt8Type>().value(0), 7);
    assert!(encode(&one_way, &columns).unwrap_err().contains("do not hold all"));
}

#[test]
fn a_batch_is_decoded_event_by_event() {
    let one = plan(VEL, vec![("n", number(NumberType::U8))]);
    let mut batch = BatchBuilder::default();
    for payload in [&[1][..], &[], &[3]] {
        batch.push_copy(0, 0, sluice_model::ChannelId(0), payload);
    }
    let mut bad = Vec::new();
    let (good, columns) =
        PayloadForm::decode(&one, &batch.finish(), &[0, 1, 2], &mut bad, None).unwrap();
    assert_eq!((good, columns.num_rows(), bad.len()), (vec![0, 2], 2, 1));
}
