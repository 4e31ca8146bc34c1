//! The typed layer holds columns of any type, and its descriptors declare its messages.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Time32MillisecondType;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Decimal128Array, ListArray, NullArray, RecordBatch, StructArray,
    Time32MillisecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use proptest::prelude::*;
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, Codec, Encoding, MessageType, Name, TypeKey,
};
use sluice_protobuf::fuzzing::{ProtobufCodec, TypedLayer};

use crate::random::Random;

pub(crate) fn batch(payloads: &BinaryArray) -> Batch {
    let mut batch = BatchBuilder::default();
    payloads.iter().flatten().for_each(|payload| batch.push_copy(0, 0, ChannelId(0), payload));
    batch.finish()
}

pub(crate) fn events(batch: &Batch) -> Vec<u32> {
    (0..batch.len() as u32).collect()
}

/// A layer for random rows, the rows and their messages.
fn random_layer(seed: u64) -> (TypedLayer, RecordBatch, BinaryArray) {
    let mut random = Random(seed);
    let schema = random.schema();
    let columns = random.columns(&schema, 5);
    let message = Arc::new(MessageType::named("a.b.type", TypeKey(7)));
    let layer = TypedLayer::new(&message, &schema).unwrap();
    let mut bad = Vec::new();
    let messages = layer.encode(&columns, &mut bad).unwrap();
    assert_eq!(bad, []);
    (layer, columns, messages)
}

fn channel() -> Channel {
    let mut channel = Channel::new(Name::from_text("POSE"), "log", Encoding::Lcm);
    channel.metadata.insert("k".into(), "v".into());
    channel
}

proptest! {
    #[test]
    fn columns_of_any_type_come_back(seed: u64) {
        let (layer, columns, messages) = random_layer(seed);
        let (batch, mut bad) = (batch(&messages), Vec::new());
        // As a program would that only has the channel.
        let wrapped = layer.wrap(&channel()).unwrap();
        let other = TypedLayer::from_channel(&wrapped).unwrap().unwrap();
        for layer in [layer, other] {
            let (decoded, back) = layer.decode(&batch, &events(&batch), &mut bad).unwrap();
            prop_assert_eq!(&bad, &[]);
            prop_assert_eq!(decoded, events(&batch));
            prop_assert_eq!(back.columns().len(), columns.columns().len());
            prop_assert_eq!(back.schema(), columns.schema());
            for (back, column) in back.columns().iter().zip(columns.columns()) {
                prop_assert_eq!(back, column);
            }
        }
    }

    #[test]
    fn the_descriptor_declares_the_messages(seed: u64) {
        let (layer, _, messages) = random_layer(seed);
        let (batch, codec) = (batch(&messages), ProtobufCodec::default());
        let known = codec.embedded(&layer.wrap(&channel()).unwrap()).unwrap();
        let of = known.payload_type.unwrap();
        let mut bad = Vec::new();
        let rows = of.decode(&batch, &events(&batch), &mut bad).unwrap();
        prop_assert_eq!(&bad, &[]);
        let adopted = codec.adopt(&rows.message, &rows.columns.schema()).unwrap();
        for of in [of, adopted] {
            prop_assert_eq!(&of.encode(&rows.columns, &mut bad).unwrap(), &messages);
        }
    }

    #[test]
    fn damaged_messages_come_back_or_are_refused(seed: u64, changes: Vec<(u16, u8)>) {
        let (layer, _, messages) = random_layer(seed);
        let known = ProtobufCodec::default().embedded(&layer.wrap(&channel()).unwrap()).unwrap();
        let of = known.payload_type.unwrap();
        let damaged = messages.iter().flatten().map(|message| {
            let mut message = message.to_vec();
            for (at, byte) in changes.iter().filter(|_| !messages.is_empty()) {
                let len = message.len().max(1);
                match message.get_mut(usize::from(*at) % len) {
                    Some(place) => *place = *byte,
                    None => message.push(*byte),
                }
            }
            message
        });
        let damaged = BinaryArray::from_iter_values(damaged);
        let (batch, mut bad) = (batch(&damaged), Vec::new());
        for rows in of.decode_all(&batch, &events(&batch), &mut bad).unwrap() {
            let of = ProtobufCodec::default().adopt(&rows.message, &rows.columns.schema()).unwrap();
            let mut refused = Vec::new();
            let back = of.encode(&rows.columns, &mut refused).unwrap();
            prop_assert_eq!(&refused, &[]);
            for (event, back) in rows.events.iter().zip(back.iter()) {
                prop_assert_eq!(back, Some(damaged.value(*event as usize)));
            }
        }
    }

    #[test]
    fn metadata_of_strangers_is_refused_or_used(text: String, other in "\\[.*\\]") {
        let mut channel = channel();
        channel.metadata.insert("sluice.type".into(), r#"{"name":"t","key":"0000000000000000"}"#.into());
        for columns in [text, other] {
            channel.metadata.insert("sluice.columns".into(), columns);
            drop(TypedLayer::from_channel(&channel));
        }
    }
}

#[test]
fn the_same_type_has_the_same_descriptor() {
    let first = random_layer(3).0.wrap(&channel()).unwrap();
    assert_eq!(random_layer(3).0.wrap(&channel()).unwrap(), first);
    assert_eq!(first.type_name.as_deref(), Some("a.b.type"));
    assert_eq!(first.metadata["sluice.encoding"], "lcm");
}

#[test]
#[expect(unsafe_code, reason = "only readers of other formats make such arrays")]
fn a_null_in_a_list_of_structs_of_times_is_carried() {
    let member = |name: &str, kind: &DataType| Arc::new(Field::new(name, kind.clone(), false));
    let times: ArrayRef = Arc::new(Time32MillisecondArray::from(vec![Some(5), None, Some(7)]));
    // As Parquet's reader makes them: the null of an element is in its deepest members as well, but
    // not in those between.
    let within = |name: &str, of: ArrayRef, nulls: Option<NullBuffer>| -> ArrayRef {
        let fields = vec![member(name, of.data_type())].into();
        // SAFETY: the lengths are the same, and the one null is that of the element.
        Arc::new(unsafe { StructArray::new_unchecked(fields, vec![of], nulls) })
    };
    let nulls = NullBuffer::from(vec![true, false, true]);
    let items = within("s", within("t", times, None), Some(nulls));
    let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    let lists = ListArray::new(item, OffsetBuffer::from_lengths([2, 1]), items, None);
    let columns = RecordBatch::try_from_iter([("c", Arc::new(lists) as ArrayRef)]).unwrap();
    let message = Arc::new(MessageType::named("table", TypeKey(1)));
    let layer = TypedLayer::new(&message, &columns.schema()).unwrap();
    let mut bad = Vec::new();
    let messages = batch(&layer.encode(&columns, &mut bad).unwrap());
    assert_eq!((bad.as_slice(), messages.len()), (&[][..], 2));
    let (_, back) = layer.decode(&messages, &events(&messages), &mut bad).unwrap();
    let lists = back.column(0).as_list::<i32>();
    let items = lists.values().as_struct();
    assert_eq!((bad, items.null_count(), items.is_null(1)), (vec![], 1, true));
    let times = items.column(0).as_struct().column(0).as_primitive::<Time32MillisecondType>();
    assert_eq!((times.value(0), times.value(2)), (5, 7));
}

#[test]
fn nulls_and_decimals_of_foreign_tables_are_carried() {
    let decimals = Decimal128Array::from(vec![Some(-12_345), None, Some(5)]);
    let decimals = decimals.with_precision_and_scale(10, 2).unwrap();
    let columns = RecordBatch::try_from_iter_with_nullable([
        ("note", Arc::new(NullArray::new(3)) as ArrayRef, true),
        ("price", Arc::new(decimals), true),
    ]);
    let columns = columns.unwrap();
    let message = Arc::new(MessageType::named("table", TypeKey(1)));
    let layer = TypedLayer::new(&message, &columns.schema()).unwrap();
    let mut bad = Vec::new();
    let messages = batch(&layer.encode(&columns, &mut bad).unwrap());
    let (_, back) = layer.decode(&messages, &events(&messages), &mut bad).unwrap();
    assert_eq!((bad, back.column(0).null_count()), (vec![], 3));
    let texts = back.column(1).as_string::<i32>().iter().collect::<Vec<_>>();
    assert_eq!(texts, [Some("-123.45"), None, Some("0.05")]);
}
