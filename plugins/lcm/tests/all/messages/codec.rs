//! Messages as columns: what each kind of member becomes, what hostile payloads leave behind, and
//! that decoding and encoding are inverse.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt8Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field};
use proptest::prelude::*;
use sluice_lcm::LcmCodec;
use sluice_model::cast::cast;
use sluice_model::{Batch, BatchBuilder, ChannelId, Codec, PayloadType, Rows};

use crate::messages::language::files;
use crate::messages::random_types::{Random, RandomTypes};

fn form(text: &str, name: &str, depth: usize) -> PayloadType {
    let codec = LcmCodec::from_files(files(&[("types.lcm", text)]), depth);
    assert!(codec.mistakes().is_empty(), "{}", codec.mistakes().join("\n"));
    let known = codec.types().iter().find(|known| &*known.message_type.name == name).unwrap();
    known.payload_type.clone().unwrap()
}

/// A payload: the fingerprint and these parts.
fn payload(form: &PayloadType, parts: &[&[u8]]) -> Vec<u8> {
    [&form.message_type().key.0.to_be_bytes()[..], &parts.concat()].concat()
}

fn batch(payloads: &[Vec<u8>]) -> Batch {
    let mut builder = BatchBuilder::default();
    for (n, payload) in payloads.iter().enumerate() {
        builder.push_copy(n as i64, n as i64, ChannelId(0), payload);
    }
    builder.finish()
}

type RefusedRows = Vec<(u32, &'static str)>;

fn decode(form: &PayloadType, payloads: &[Vec<u8>]) -> (Rows, RefusedRows) {
    let (mut bad, events) = (Vec::new(), (0..payloads.len() as u32).collect::<Vec<_>>());
    let rows = form.decode(&batch(payloads), &events, &mut bad).unwrap();
    assert_eq!(rows.events.len() + bad.len(), payloads.len());
    assert_eq!(rows.columns.num_rows(), rows.events.len());
    (rows, bad)
}

fn good(form: &PayloadType, payloads: &[Vec<u8>]) -> RecordBatch {
    let (rows, bad) = decode(form, payloads);
    assert!(bad.is_empty(), "{bad:?}");
    rows.columns
}

fn encoded(form: &PayloadType, columns: &RecordBatch) -> Vec<Vec<u8>> {
    let mut bad = Vec::new();
    let payloads = form.encode(columns, &mut bad).unwrap();
    assert!(bad.is_empty(), "{bad:?}");
    payloads.iter().map(|payload| payload.unwrap().to_vec()).collect()
}

/// The one reason why a payload with this body is refused.
fn refusal(text: &str, parts: &[&[u8]]) -> &'static str {
    let form = form(text, "t", 1);
    let (rows, bad) = decode(&form, &[payload(&form, parts)]);
    assert!(rows.events.is_empty());
    bad[0].1
}

#[test]
fn every_kind_of_member_has_its_column() {
    let text = "enum e { A, B = 7 } struct in_t { int16_t x; string s; } struct empty_t { }
        struct t { int32_t n; double pos[3]; byte raw[n]; byte key[4]; e mode; boolean ok; in_t in;
            in_t list[n]; float grid[2][n]; empty_t none; empty_t nones[n]; string names[n]; }";
    let form = form(text, "t", 1);
    let item = |of| Arc::new(arrow_schema::Field::new("item", of, false));
    let inner = DataType::Struct(
        vec![
            arrow_schema::Field::new("x", DataType::Int16, false),
            arrow_schema::Field::new("s", DataType::Utf8, false),
        ]
        .into(),
    );
    let wanted = [
        ("n", DataType::Int32),
        ("pos", DataType::FixedSizeList(item(DataType::Float64), 3)),
        ("raw", DataType::Binary),
        ("key", DataType::FixedSizeBinary(4)),
        ("mode", DataType::Int32),
        ("ok", DataType::Boolean),
        ("in", inner.clone()),
        ("list", DataType::List(item(inner))),
        ("grid", DataType::FixedSizeList(item(DataType::List(item(DataType::Float32))), 2)),
        ("names", DataType::List(item(DataType::Utf8))),
    ];
    let found: Vec<_> = form
        .schema()
        .fields()
        .iter()
        .map(|field| (field.name().as_str(), field.data_type().clone()))
        .collect();
    assert_eq!(found, wanted);
    let names = &form.schema().field_with_name("mode").unwrap().metadata()["sluice.enum"];
    assert_eq!(names, "{\"A\":1,\"B\":7}");
}

#[test]
fn values_are_those_of_the_message() {
    let form = form("struct t { int32_t n; double v[2]; int8_t w[n]; byte b; string s; }", "t", 1);
    let one = payload(
        &form,
        &[
            &2_i32.to_be_bytes(),
            &1.5_f64.to_be_bytes(),
            &(-2.5_f64).to_be_bytes(),
            &[0xff, 1],
            &[200],
            &3_i32.to_be_bytes(),
            b"hi\0",
        ],
    );
    let columns = good(&form, std::slice::from_ref(&one));
    assert_eq!(columns["n"].as_primitive::<Int32Type>().values(), &[2]);
    let v = columns["v"].as_fixed_size_list().value(0);
    assert_eq!(v.as_primitive::<Float64Type>().values(), &[1.5, -2.5]);
    assert_eq!(columns["b"].as_primitive::<UInt8Type>().values(), &[200]);
    assert_eq!(columns["s"].as_string::<i32>().value(0), "hi");
    assert_eq!(encoded(&form, &columns), [one]);
}

#[test]
fn texts_that_are_no_utf8_come_back() {
    let form = form("struct t { string s; }", "t", 1);
    let texts: [&[u8]; 5] = [b"\xff\xfe", b"\\xff", b"\\", b"a\0b", b"\\x5c\xff"];
    let payloads: Vec<Vec<u8>> = texts
        .iter()
        .map(|text| payload(&form, &[&(text.len() as i32 + 1).to_be_bytes(), text, &[0]]))
        .collect();
    let columns = good(&form, &payloads);
    let shown: Vec<_> = columns["s"].as_string::<i32>().iter().flatten().collect();
    assert_eq!(shown, ["\\xff\\xfe", "\\x5cxff", "\\", "a\0b", "\\x5cx5c\\xff"]);
    assert_eq!(encoded(&form, &columns), payloads);
}

#[test]
fn types_that_hold_themselves_are_taken_apart_as_deep_as_asked() {
    let text = "struct t { int8_t v; int32_t n; t inner[n]; }";
    // A value of 1 that holds a 2 that holds a 3.
    let three = [3, 0, 0, 0, 0];
    let two = [&[2, 0, 0, 0, 1][..], &three].concat();
    for depth in 0..4 {
        let form = form(text, "t", depth);
        let whole = payload(&form, &[&[1, 0, 0, 0, 1], &two]);
        let columns = good(&form, std::slice::from_ref(&whole));
        let inner = columns["inner"].as_list::<i32>().value(0);
        assert_eq!(matches!(inner.data_type(), DataType::Binary), depth == 0);
        if depth == 0 {
            assert_eq!(inner.as_binary::<i32>().value(0), two);
        }
        assert_eq!(encoded(&form, &columns), [whole]);
    }
}

#[test]
fn a_type_without_members_has_rows() {
    let form = form("struct t { }", "t", 1);
    let columns = good(&form, &vec![payload(&form, &[]); 3]);
    assert_eq!((columns.num_columns(), columns.num_rows()), (0, 3));
    assert_eq!(encoded(&form, &columns).len(), 3);
}

#[test]
fn an_enum_can_be_a_message() {
    let form = form("enum e { A, B = 7 }", "e", 1);
    let seven = payload(&form, &[&7_i32.to_be_bytes()]);
    let columns = good(&form, std::slice::from_ref(&seven));
    assert_eq!(columns["value"].as_primitive::<Int32Type>().values(), &[7]);
    assert_eq!(encoded(&form, &columns), [seven]);
}

#[test]
fn hostile_payloads_say_why_they_are_none() {
    let int = |n: i32| n.to_be_bytes();
    assert_eq!(
        refusal("struct t { int32_t x; }", &[&[0, 0]]),
        "the payload ends before its message does"
    );
    assert_eq!(
        refusal("struct t { int32_t x; }", &[&int(0), &[0]]),
        "bytes are left over after the message"
    );
    let list = "struct t { int32_t n; double x[n]; }";
    assert_eq!(refusal(list, &[&int(-1)]), "a length field is negative");
    assert_eq!(refusal(list, &[&int(i32::MAX)]), "a length field says more than the payload holds");
    let nested = "struct t { int32_t n; int16_t m; double x[n][m]; }";
    assert_eq!(
        refusal(nested, &[&int(i32::MAX), &[0, 0]]),
        "a length field says more than the payload holds"
    );
    let wide = "struct t { int32_t n; string x[1000000][n]; }";
    assert_eq!(refusal(wide, &[&int(0)]), "a length field says more than the payload holds");
    let text = "struct t { string s; }";
    let bad_text = "a string does not end with a zero where its length says";
    for parts in [&[&int(0)[..]][..], &[&int(-5)], &[&int(2), b"ab"]] {
        assert_eq!(refusal(text, parts), bad_text);
    }
    assert_eq!(refusal(text, &[&int(9), b"ab\0"]), "the payload ends before its message does");
    assert_eq!(
        refusal("struct t { boolean b[3]; }", &[&[0, 1, 2]]),
        "a boolean is neither 0 nor 1"
    );
    let deep = "struct t { int8_t n; t x[n]; }";
    let chain = [vec![1; 100_000], vec![0]].concat();
    assert_eq!(refusal(deep, &[&chain]), "it holds itself deeper than 256 levels");
    assert_eq!(refusal("struct t { t x; }", &[&[]]), "it holds itself deeper than 256 levels");
}

#[test]
fn elements_without_bytes_cost_nothing_however_many() {
    let form =
        form("struct none_t { } struct t { int32_t n; none_t x[n]; none_t y[n][n]; }", "t", 1);
    let huge = payload(&form, &[&i32::MAX.to_be_bytes()]);
    assert_eq!(encoded(&form, &good(&form, std::slice::from_ref(&huge))), [huge]);
}

#[test]
fn each_byte_may_be_in_arrays_of_its_own() {
    let form = form("struct t { int8_t n; int8_t v[300][n][n][n][n]; }", "t", 1);
    let mut whole = vec![1];
    whole.extend([7; 300]);
    let whole = payload(&form, &[&whole]);
    assert_eq!(encoded(&form, &good(&form, std::slice::from_ref(&whole))), [whole]);
}

#[test]
fn columns_of_other_types_are_encoded_where_nothing_is_lost() {
    let form = form("struct t { int32_t n; boolean b; }", "t", 1);
    let numbers = arrow_array::Float64Array::from(vec![1.0, 2.5, -3.0, 1e12]);
    let truths = arrow_array::Int64Array::from(vec![1, 1, 5, 0]);
    let columns = RecordBatch::try_from_iter([
        ("n", Arc::new(numbers) as Arc<dyn Array>),
        ("b", Arc::new(truths)),
    ])
    .unwrap();
    let mut bad = Vec::new();
    let payloads = form.encode(&columns, &mut bad).unwrap();
    let unfit = "a value does not fit into its field";
    assert_eq!(bad, [(1, unfit), (2, unfit), (3, unfit)]);
    assert_eq!(payloads.value(0), payload(&form, &[&1_i32.to_be_bytes(), &[1]]));
}

#[test]
fn rows_say_how_deep_they_were_taken_apart() {
    let text = "struct t { int8_t v; int8_t n; t inner[n]; }";
    for depth in 0..6 {
        let codec = LcmCodec::from_files(files(&[("types.lcm", text)]), depth);
        let known = &codec.types()[0];
        let form = known.payload_type.as_ref().unwrap();
        let nested = payload(form, &[&[1, 1, 2, 1, 3, 1, 4, 1, 5, 0]]);
        let columns = good(form, std::slice::from_ref(&nested));
        // As one that only has the description does it.
        let other = LcmCodec::from_files(Vec::new(), 1);
        let adopted = other.adopt(&known.message_type, columns.schema_ref()).unwrap();
        assert_eq!(encoded(&adopted, &columns), [nested]);
    }
}

/// The type with plain lists for those of fixed length, as in tables of some programs.
fn without_lengths(data_type: &DataType) -> DataType {
    let inner = |field: &Arc<Field>| {
        Arc::new(Field::clone(field).with_data_type(without_lengths(field.data_type())))
    };
    match data_type {
        DataType::FixedSizeList(item, _) | DataType::List(item) => DataType::List(inner(item)),
        DataType::Struct(members) => DataType::Struct(members.iter().map(inner).collect()),
        other => other.clone(),
    }
}

#[test]
fn so_do_rows_whose_lists_have_lost_their_length() {
    let text = "struct t { int8_t v[2]; int8_t n; t inner[n]; }";
    let other = LcmCodec::from_files(Vec::new(), 1);
    for depth in 0..4 {
        let codec = LcmCodec::from_files(files(&[("types.lcm", text)]), depth);
        let known = &codec.types()[0];
        let form = known.payload_type.as_ref().unwrap();
        let nested = payload(form, &[&[1, 2, 1, 3, 4, 1, 5, 6, 1, 7, 8, 0]]);
        let columns = good(form, std::slice::from_ref(&nested));
        let plain = columns.columns().iter().zip(columns.schema_ref().fields());
        let plain = plain.map(|(column, field)| {
            (field.name(), cast(column, &without_lengths(column.data_type())).unwrap())
        });
        let plain = RecordBatch::try_from_iter(plain).unwrap();
        let adopted = other.adopt(&known.message_type, plain.schema_ref()).unwrap();
        assert_eq!(encoded(&adopted, &plain), [nested]);
    }
}

#[test]
fn arrays_of_empty_arrays_come_back() {
    let form =
        form("struct t { int32_t n; int8_t m; double x[n][m]; int8_t y[10][10][m]; }", "t", 1);
    let empty = payload(&form, &[&200_i32.to_be_bytes(), &[0]]);
    assert_eq!(encoded(&form, &good(&form, std::slice::from_ref(&empty))), [empty]);
}

#[test]
fn a_row_that_is_no_message_has_no_payload() {
    let form = form("struct t { int32_t n; float x[n]; }", "t", 1);
    let three = payload(&form, &[&1_i32.to_be_bytes(), &[0; 4]]);
    let columns = good(&form, &[three.clone(), three]);
    let longer = arrow_array::Int32Array::from(vec![1, 2]);
    let wrong = RecordBatch::try_new(
        columns.schema(),
        vec![Arc::new(longer), Arc::clone(columns.column(1))],
    )
    .unwrap();
    let mut bad = Vec::new();
    let payloads = form.encode(&wrong, &mut bad).unwrap();
    assert_eq!(bad, [(1, "a list and its length field differ")]);
    assert!(payloads.is_valid(0) && payloads.is_null(1));
    let one = columns.project(&[0]).unwrap();
    assert!(form.encode(&one, &mut bad).unwrap_err().contains("no column `x`"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn decoding_and_encoding_are_inverse(seed in any::<u64>(), depth in 0_usize..3) {
        let mut random = Random(seed);
        let types = RandomTypes::random(&mut random);
        let form = form(&types.text(), &types.name(), depth);
        let count = [1, 2, 30, 700][random.below(4)];
        let payloads: Vec<Vec<u8>> =
            (0..count).map(|_| payload(&form, &[&types.body(&mut random)])).collect();
        let columns = good(&form, &payloads);
        prop_assert_eq!(encoded(&form, &columns), payloads.clone(), "{}", types.text());
        // A piece of the columns gives a piece of the payloads.
        let (from, len) = (count / 3, count / 2);
        let sliced = encoded(&form, &columns.slice(from, len));
        prop_assert_eq!(&sliced[..], &payloads[from..from + len]);
    }

    #[test]
    fn wrong_payloads_leave_no_trace(seed in any::<u64>()) {
        let mut random = Random(seed);
        let types = RandomTypes::random(&mut random);
        let form = form(&types.text(), &types.name(), 1);
        let mut payloads: Vec<Vec<u8>> =
            (0..40).map(|_| payload(&form, &[&types.body(&mut random)])).collect();
        for payload in &mut payloads {
            let len = payload.len();
            match random.below(4) {
                0 => payload.truncate(8 + random.below(len - 7)),
                1 => payload.push(0),
                2 if len > 8 => payload[8 + random.below(len - 8)] = random.next() as u8,
                _ => {}
            }
        }
        let (rows, _) = decode(&form, &payloads);
        let payload_of = |event: &u32| payloads[*event as usize].clone();
        let kept: Vec<Vec<u8>> = rows.events.iter().map(payload_of).collect();
        prop_assert_eq!(&encoded(&form, &rows.columns), &kept, "{}", types.text());
        prop_assert_eq!(good(&form, &kept), rows.columns);
    }

    #[test]
    fn no_payload_makes_the_decoder_panic(
        seed in any::<u64>(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut random = Random(seed);
        let types = RandomTypes::random(&mut random);
        let form = form(&types.text(), &types.name(), 0);
        let (rows, _) = decode(&form, &[payload(&form, &[&bytes]), bytes]);
        prop_assert!(rows.columns.get_array_memory_size() < 1 << 20);
    }
}

#[test]
fn booleans_of_any_byte_are_read_and_come_back() {
    let text = "struct in_t { boolean a; int8_t n; boolean more[n]; }
        struct t { boolean b; boolean three[3]; int8_t n; boolean list[n]; in_t ins[n]; in_t two[2];
            boolean grid[2][n]; string s; boolean last; }";
    let form = form(text, "t", 1);
    let parts: &[&[u8]] = &[
        &[2, 0, 255, 1],
        &[1, 128],
        &[7, 1, 0],
        &[0, 0],
        &[9, 2, 3, 1],
        &[4, 0],
        &[0, 0, 0, 2, b'x', 0],
        &[5],
    ];
    let tame = payload(&form, &[&[1, 0, 1, 1, 0, 0, 0], &[0; 2], &[0, 0, 0, 1, 0], &[1]]);
    let odd = payload(&form, parts);
    let (mut bad, events) = (Vec::new(), [0, 1, 2]);
    let short = odd[..odd.len() - 1].to_vec();
    let batch = batch(&[tame.clone(), odd.clone(), short]);
    let rows = form.decode_all(&batch, &events, &mut bad).unwrap();
    assert_eq!(bad.iter().map(|(event, _)| *event).collect::<Vec<_>>(), [2]);
    let [plain, raw] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((plain.events.as_slice(), raw.events.as_slice()), (&[0][..], &[1][..]));
    assert_eq!(plain.columns.schema(), *form.schema());
    assert_eq!((raw.base_key(), &raw.message.name), (form.message_type().key, &plain.message.name));
    let read = |name: &str| raw.columns[name].as_boolean().value(0);
    assert!(read("b") && read("last"));
    let three = raw.columns["three"].as_fixed_size_list().value(0);
    assert_eq!(three.as_boolean().values().iter().collect::<Vec<_>>(), [false, true, true]);
    let codec = LcmCodec::from_files(files(&[]), 1);
    let adopted = codec.adopt(&raw.message, &raw.columns.schema()).unwrap();
    for form in [&adopted, form.raw_variant().unwrap()] {
        assert_eq!(encoded(form, &raw.columns), std::slice::from_ref(&odd));
    }
    assert_eq!(raw.without_raw_column().columns.schema(), *form.schema());
}

#[test]
fn bytes_of_booleans_are_not_put_where_the_values_are_others() {
    let form = form("struct t { boolean a; boolean b; }", "t", 1);
    let raw = form.raw_variant().unwrap();
    let columns = good(raw, &[payload(&form, &[&[3, 4]])]);
    let with = |a: bool, bytes: &[u8]| {
        let boolean = |of| Arc::new(arrow_array::BooleanArray::from(vec![of])) as Arc<dyn Array>;
        let bytes = Arc::new(arrow_array::BinaryArray::from(vec![bytes])) as Arc<dyn Array>;
        let arrays = vec![boolean(a), boolean(true), bytes];
        encoded(raw, &RecordBatch::try_new(columns.schema(), arrays).unwrap())[0][8..].to_vec()
    };
    assert_eq!(with(true, &[3, 4]), [3, 4]);
    assert_eq!(with(false, &[3, 4]), [0, 4]);
    assert_eq!(with(true, &[3]), [1, 1]);
    assert_eq!(with(true, &[3, 4, 5]), [1, 1]);
}
