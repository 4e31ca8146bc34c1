//! Messages by embedded descriptors: what writers may write differently, and what is refused.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, RecordBatch, StructArray,
};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Field, Fields, Schema};
use sluice_model::raw::RawColumn;
use sluice_model::{Channel, Codec, EmbeddedSchema, Encoding, KnownType, Name, Rows};
use sluice_protobuf::fuzzing::ProtobufCodec;

use crate::layer::{batch, events};

/// A field of a message under construction.
fn put(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    if bytes.len() > 127 {
        out.extend([bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8]);
    } else {
        out.push(bytes.len() as u8);
    }
    out.extend(bytes);
}

fn field(name: &str, number: u8, label: u8, kind: u8, more: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 1, name.as_bytes());
    out.extend([3 << 3, number, 4 << 3, label, 5 << 3, kind]);
    out.extend(more);
    out
}

/// A set with one file of proto3 that declares the message `t.M` with these fields.
fn set(fields: &[Vec<u8>]) -> Vec<u8> {
    set_of(&[("M", fields)])
}

/// A set with one file of proto3 that declares these messages of the package `t`.
fn set_of(messages: &[(&str, &[Vec<u8>])]) -> Vec<u8> {
    let (mut file, mut set) = (Vec::new(), Vec::new());
    put(&mut file, 2, b"t");
    for (name, fields) in messages {
        let mut message = Vec::new();
        put(&mut message, 1, name.as_bytes());
        fields.iter().for_each(|field| put(&mut message, 2, field));
        put(&mut file, 4, &message);
    }
    put(&mut file, 12, b"proto3");
    put(&mut set, 1, &file);
    set
}

fn known(set: &[u8], name: &str) -> KnownType {
    let mut channel = Channel::new(Name::from_text("C"), "log", Encoding::Protobuf);
    channel.type_name = Some(name.into());
    channel.schema = Some(EmbeddedSchema { encoding: "protobuf".into(), data: set.into() });
    ProtobufCodec::default().embedded(&channel).unwrap()
}

/// Optional `a`, a list `b`, and `c` of the type itself; `d` and `e` are members of a oneof.
fn example() -> Vec<u8> {
    let mut own_type = vec![6 << 3 | 2, 4];
    own_type.extend(b".t.M");
    set(&[
        field("a", 1, 1, 5, &[]),
        field("b", 2, 3, 13, &[]),
        field("c", 3, 1, 11, &own_type),
        field("d", 4, 1, 9, &[9 << 3, 0]),
        field("e", 5, 1, 9, &[9 << 3, 0]),
    ])
}

/// The rows of these payloads by `t.M`, and those refused.
fn decode(payloads: &[&[u8]]) -> (Vec<Rows>, Vec<(u32, &'static str)>) {
    let of = known(&example(), "t.M").payload_type.unwrap();
    let (batch, mut bad) = (batch(&BinaryArray::from_iter_values(payloads)), Vec::new());
    (of.decode_all(&batch, &events(&batch), &mut bad).unwrap(), bad)
}

fn encode(rows: &Rows) -> BinaryArray {
    let codec = ProtobufCodec::default();
    let of = codec.adopt(&rows.message, &rows.columns.schema()).unwrap();
    let mut bad = Vec::new();
    let encoded = of.encode(&rows.columns, &mut bad).unwrap();
    assert_eq!(bad, []);
    encoded
}

const CANONICAL: &[u8] =
    &[0x08, 0x07, 0x12, 0x02, 0x01, 0x02, 0x1a, 0x02, 0x08, 0x01, 0x22, 1, b'x'];

#[test]
fn usual_messages_need_no_raw_column() {
    let (rows, bad) = decode(&[CANONICAL, b""]);
    assert_eq!((rows.len(), bad.len()), (1, 0));
    let columns = &rows[0].columns;
    assert_eq!(columns.schema().fields().len(), 5);
    assert_eq!(columns["a"].as_primitive::<Int32Type>().values(), &[7, 0]);
    // The type inside itself stays bytes.
    assert_eq!(columns["c"].as_binary::<i32>().value(0), [0x08, 0x01]);
    assert!(columns["c"].is_null(1) && columns["e"].is_null(0));
    assert_eq!(encode(&rows[0]), BinaryArray::from_iter_values([CANONICAL, b""]));
}

#[test]
fn messages_that_others_write_differently_keep_their_bytes() {
    let odd: [&[u8]; 9] = [
        &[0x12, 0x01, 0x01, 0x08, 0x07],       // another order
        &[0x08, 0x00],                         // a default
        &[0x08, 0x07, 0x08, 0x09],             // twice
        &[0x08, 0x87, 0x00],                   // a longer number
        &[0x10, 0x01, 0x10, 0x02],             // unpacked
        &[0x12, 0x00],                         // an empty list
        &[0x08, 0x07, 0x32, 0x01, 0x00],       // unknown
        &[0x22, 0x01, b'x', 0x2a, 0x01, b'y'], // two members of a oneof
        &[0x33, 0x08, 0x01, 0x34],             // an unknown group
    ];
    let (rows, bad) = decode(&odd);
    assert_eq!((rows.len(), bad.len()), (1, 0));
    let columns = &rows[0].columns;
    assert_eq!(columns.schema().field(5).name(), RawColumn::Payload.name());
    assert_eq!(columns["a"].as_primitive::<Int32Type>().values(), &[7, 0, 9, 7, 0, 0, 7, 0, 0]);
    assert!(columns["d"].is_null(7) && columns["e"].is_valid(7));
    assert_eq!(encode(&rows[0]), BinaryArray::from_iter_values(odd));
    assert_eq!(rows[0].base_key(), known(&example(), "t.M").message_type.key);
}

#[test]
fn changed_fields_are_encoded_and_raw_bytes_forgotten() {
    let (rows, _) = decode(&[&[0x08, 0x00], &[0x12, 0x00]]);
    let mut columns = rows[0].columns.columns().to_vec();
    columns[0] = std::sync::Arc::new(arrow_array::Int32Array::from(vec![5, 0]));
    let columns = arrow_array::RecordBatch::try_new(rows[0].columns.schema(), columns).unwrap();
    let changed = encode(&Rows { columns, ..rows[0].clone() });
    assert_eq!(changed, BinaryArray::from_iter_values([&[0x08u8, 0x05], &[0x12, 0x00]]));
}

#[test]
fn raw_bytes_are_used_whatever_other_programs_make_of_nested_types() {
    let (mut type_name, inner) = (vec![6 << 3 | 2, 4], field("v", 1, 1, 5, &[]));
    type_name.extend(b".t.N");
    let set = set_of(&[("M", &[field("n", 1, 1, 11, &type_name)]), ("N", &[inner])]);
    let of = known(&set, "t.M").payload_type.unwrap();
    let payloads: [&[u8]; 2] = [&[0x0a, 2, 0x08, 5, 0x78, 9], &[0x78, 7]];
    let batch = batch(&BinaryArray::from_iter_values(payloads));
    let rows = of.decode_all(&batch, &events(&batch), &mut Vec::new()).unwrap().remove(0);
    let mut columns = rows.columns.columns().to_vec();
    let (fields, inner, nulls) = columns[0].as_struct().clone().into_parts();
    let other = fields.iter().map(|field| field.as_ref().clone().with_nullable(true));
    columns[0] = Arc::new(StructArray::new(other.collect(), inner, nulls));
    assert_ne!(columns[0].data_type(), rows.columns.column(0).data_type());
    let schema = rows.columns.schema();
    let read =
        schema.fields().iter().zip(&columns).map(|(field, column)| {
            field.as_ref().clone().with_data_type(column.data_type().clone())
        });
    let schema = Schema::new(read.collect::<Fields>()).with_metadata(schema.metadata().clone());
    let columns = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    let adopted = ProtobufCodec::default().adopt(&rows.message, &rows.columns.schema()).unwrap();
    let back = adopted.encode(&columns, &mut Vec::new()).unwrap();
    assert_eq!(back, BinaryArray::from_iter_values(payloads));
}

#[test]
fn messages_without_fields_come_back_from_the_booleans_that_tables_have_for_them() {
    let mut type_name = vec![6 << 3 | 2, 4];
    type_name.extend(b".t.E");
    let fields = [field("one", 1, 1, 11, &type_name), field("all", 2, 3, 11, &type_name)];
    let of = known(&set_of(&[("M", &fields), ("E", &[])]), "t.M").payload_type.unwrap();
    let payloads: [&[u8]; 3] = [&[], &[0x0a, 0, 0x12, 0], &[0x12, 0, 0x12, 0]];
    let batch = batch(&BinaryArray::from_iter_values(payloads));
    let rows = of.decode_all(&batch, &events(&batch), &mut Vec::new()).unwrap().remove(0);
    let boolean = |structs: &ArrayRef| -> ArrayRef {
        let is_there = BooleanBuffer::new_set(structs.len());
        Arc::new(BooleanArray::new(is_there, structs.nulls().cloned()))
    };
    let (_, offsets, items, _) = rows.columns["all"].as_list::<i32>().clone().into_parts();
    let item = Arc::new(Field::new_list_field(DataType::Boolean, false));
    let lists = ListArray::new(item, offsets, boolean(&items), None);
    let columns = [("one", boolean(&rows.columns["one"])), ("all", Arc::new(lists))];
    let columns = RecordBatch::try_from_iter_with_nullable(
        columns.map(|(name, column)| (name, column, true)),
    );
    assert_eq!(
        encode(&Rows { columns: columns.unwrap(), ..rows }),
        BinaryArray::from_iter_values(payloads)
    );
}

#[test]
fn what_is_no_message_is_refused() {
    let broken: [&[u8]; 5] = [
        &[0x08],             // ends in a field
        &[0x12, 0x05, 0x01], // shorter than it says
        &[0x22, 0x01, 0xff], // no text
        &[0x00, 0x00],       // no field
        &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    ];
    let (rows, bad) = decode(&broken);
    assert_eq!((rows.len(), bad.len()), (0, 5));
}

#[test]
fn a_declaration_that_cannot_be_used_says_why() {
    let refusal = |set: &[u8], name: &str| known(set, name).payload_type.unwrap_err();
    assert_eq!(refusal(&example(), "t.N"), "no message `t.N` is declared");
    assert_eq!(refusal(&example(), ""), "the channel does not name its type");
    assert_eq!(refusal(&set(&[field("g", 1, 1, 10, &[])]), "t.M"), "g: groups are not supported");
    let cut = example();
    assert!(refusal(&cut[..cut.len() - 1], "t.M").contains("damaged"));
    let twice = set(&[field("a", 1, 1, 5, &[]), field("b", 1, 1, 5, &[])]);
    assert_eq!(refusal(&twice, "t.M"), "`t.M` gives two fields the number 1");
}

#[test]
fn a_list_in_a_oneof_is_refused() {
    let wrong = set(&[field("d", 4, 1, 9, &[9 << 3, 0]), field("e", 5, 3, 9, &[9 << 3, 0])]);
    let why = known(&wrong, "t.M").payload_type.unwrap_err();
    assert_eq!(why, "e: it cannot be a member of a oneof");
}

#[test]
fn the_last_entry_of_a_map_with_a_key_counts_and_all_come_back() {
    let of = |name: &str| [&[6 << 3 | 2, name.len() as u8], name.as_bytes()].concat();
    let entry = |kind: u8| [field("key", 1, 1, kind, &[]), field("value", 2, 1, 5, &[])];
    let maps = [
        field("texts", 1, 3, 11, &of(".t.M.TextsEntry")),
        field("numbers", 2, 3, 11, &of(".t.M.NumbersEntry")),
    ];
    // The entries are messages inside of `M`.
    let (mut message, mut file, mut set) = (Vec::new(), Vec::new(), Vec::new());
    put(&mut message, 1, b"M");
    maps.iter().for_each(|field| put(&mut message, 2, field));
    for (name, kind) in [("TextsEntry", 9), ("NumbersEntry", 18)] {
        let mut nested = Vec::new();
        put(&mut nested, 1, name.as_bytes());
        entry(kind).iter().for_each(|field| put(&mut nested, 2, field));
        put(&mut nested, 7, &[7 << 3, 1]);
        put(&mut message, 3, &nested);
    }
    put(&mut file, 2, b"t");
    put(&mut file, 4, &message);
    put(&mut file, 12, b"proto3");
    put(&mut set, 1, &file);

    let text = |key: &str, value: u8| {
        let mut entry = vec![1 << 3 | 2, key.len() as u8];
        entry.extend(key.as_bytes());
        entry.extend([2 << 3, value]);
        [&[1 << 3 | 2, entry.len() as u8], &entry[..]].concat()
    };
    // A key that is not written is zero.
    let number = |entry: &[u8]| [&[2 << 3 | 2, entry.len() as u8], entry].concat();
    let twice = [text("a", 1), text("b", 2), text("a", 3)].concat();
    let zeros = [number(&[8, 0, 16, 1]), number(&[16, 2]), number(&[8, 1, 16, 3])].concat();
    let once = [text("a", 1), text("b", 2), number(&[8, 1, 16, 1])].concat();
    let payloads = [&twice[..], &zeros, &once];
    let of = known(&set, "t.M").payload_type.unwrap();
    let (batch, mut bad) = (batch(&BinaryArray::from_iter_values(payloads)), Vec::new());
    let all = of.decode_all(&batch, &events(&batch), &mut bad).unwrap();
    assert_eq!((bad.len(), all.len()), (0, 2));
    let values = |rows: &Rows, name: &str, row: usize| -> Vec<i32> {
        let entries = rows.columns.column_by_name(name).unwrap().as_list::<i32>().value(row);
        let values = entries.as_struct().column_by_name("value").unwrap();
        values.as_primitive::<Int32Type>().values().to_vec()
    };
    for rows in &all {
        let payloads: Vec<&[u8]> = rows.events.iter().map(|at| payloads[*at as usize]).collect();
        assert_eq!(encode(rows), BinaryArray::from_iter_values(payloads));
        match rows.events.len() {
            1 => assert_eq!(values(rows, "texts", 0), [1, 2]),
            _ => assert_eq!(
                (values(rows, "texts", 0), values(rows, "numbers", 1)),
                (vec![3, 2], vec![2, 3])
            ),
        }
    }
}
