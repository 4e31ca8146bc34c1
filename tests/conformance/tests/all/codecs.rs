//! The kit finds the defect of codecs that each have one, and finds nothing in a valid codec.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, BinaryArray, Int32Array, RecordBatch, StringArray};
use arrow_schema::{Schema, SchemaRef};
use serde::Deserialize;
use serde_json::Value;
use sluice_conformance::{CodecTrial, Promise, codec};
use sluice_model::registry::schema_of;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channel, Codec, DeclaredTypes, Encoding, Error, KeyOf, KnownType, MessageType,
    OptionsError, PayloadForm, PayloadType, Plugin, PluginFactory, TypeKey, options,
};

use crate::found::expect_findings;

/// The defect of a codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CodecDefect {
    Nothing,
    /// Accepts payloads with trailing bytes, which do not come back.
    IgnoresTheRest,
    /// Leaves the start of a row whose end cannot be read.
    HalfRows,
    /// Uses the end of an unreadable row for the next one.
    ShiftsValues,
    /// Does not report bad payloads.
    SaysNothing,
    /// Fails the run on a bad payload.
    Fails,
    /// Reads without checking the length.
    Panics,
    /// Allocates memory according to a length.
    BelievesLengths,
    /// Does not accept its own description.
    DisownsTypes,
    /// Encodes other bytes.
    EncodesOther,
    /// Assumes the types of columns.
    BelievesColumns,
    /// Encodes null as zero.
    EncodesNulls,
}

/// There are no options.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct ToyCodecOptions {}

macro_rules! toy {
    ($($name:literal: $wrong:ident),* $(,)?) => {
        $(sluice_model::inventory::submit! {
            Plugin {
                about: "decodes a name and a number",
                sample: "",
                ..Plugin::new(
                    $name,
                    PluginFactory::Codec(|value, _| make(value, CodecDefect::$wrong)),
                    schema_of::<ToyCodecOptions>,
                )
            }
        })*
    };
}

toy! {
    "toy": Nothing,
    "ignores-the-rest": IgnoresTheRest,
    "half-rows": HalfRows,
    "shifts-values": ShiftsValues,
    "says-nothing": SaysNothing,
    "fails": Fails,
    "panics": Panics,
    "believes-lengths": BelievesLengths,
    "disowns-types": DisownsTypes,
    "encodes-other": EncodesOther,
    "believes-columns": BelievesColumns,
    "encodes-nulls": EncodesNulls,
}

fn make(value: Value, wrong: CodecDefect) -> Result<Box<dyn Codec>, OptionsError> {
    let ToyCodecOptions {} = options::read(value)?;
    let named = MessageType { codec: "toy".into(), ..MessageType::named("pair", TypeKey(7)) };
    let form = PayloadType::new(Arc::new(named), PairForm::new(wrong));
    let known = KnownType {
        message_type: Arc::clone(form.message_type()),
        file: None,
        line: 0,
        payload_type: Ok(form),
    };
    let (types, fingerprint) = (vec![known], "toy".to_owned());
    let declared = DeclaredTypes { types, fingerprint, ..DeclaredTypes::default() };
    Ok(Box::new(ToyCodec { declared, wrong }))
}

struct ToyCodec {
    declared: DeclaredTypes,
    wrong: CodecDefect,
}

impl Codec for ToyCodec {
    fn declared(&self) -> &DeclaredTypes {
        &self.declared
    }

    fn keys(&self, channel: &Channel) -> Option<KeyOf> {
        let key = |payload: &[u8]| (payload.first() == Some(&b'P')).then_some(TypeKey(7));
        (channel.encoding == Encoding::Unknown).then(|| Arc::new(key) as KeyOf)
    }

    fn adopt(&self, described: &MessageType, _: &Schema) -> Result<PayloadType, String> {
        if self.wrong == CodecDefect::DisownsTypes {
            return Err("never seen".to_owned());
        }
        Ok(PayloadType::new(Arc::new(described.clone()), PairForm::new(self.wrong)))
    }
}

/// A `P`, a name with its length in front, a number.
struct PairForm {
    schema: SchemaRef,
    wrong: CodecDefect,
}

fn columns(names: Vec<String>, values: Vec<i32>) -> RecordBatch {
    let names: ArrayRef = Arc::new(StringArray::from(names));
    let values: ArrayRef = Arc::new(Int32Array::from(values));
    RecordBatch::try_from_iter([("name", names), ("value", values)]).unwrap()
}

impl PairForm {
    fn new(wrong: CodecDefect) -> Self {
        Self { schema: columns(Vec::new(), Vec::new()).schema(), wrong }
    }

    /// The name in front of a payload, and what follows it.
    fn name<'p>(&self, payload: &'p [u8]) -> Option<(String, &'p [u8])> {
        let (head, rest) = payload.split_first_chunk::<5>()?;
        let len = u32::from_le_bytes(*head.last_chunk()?) as usize;
        if self.wrong == CodecDefect::BelievesLengths {
            std::hint::black_box(Vec::<u8>::with_capacity(len));
        }
        let (name, rest) = match self.wrong {
            CodecDefect::Panics => rest.split_at(len),
            _ => rest.split_at_checked(len)?,
        };
        Some((String::from_utf8(name.to_vec()).ok()?, rest))
    }

    fn value(&self, rest: &[u8]) -> Option<i32> {
        let (value, left) = rest.split_first_chunk::<4>()?;
        let is_whole = left.is_empty() || self.wrong == CodecDefect::IgnoresTheRest;
        is_whole.then(|| i32::from_le_bytes(*value))
    }
}

impl PayloadForm for PairForm {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
        _: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let (mut names, mut values, mut told) = (Vec::new(), Vec::new(), Vec::new());
        let mut shift = 0;
        for event in events {
            let name = self.name(batch.payload(*event as usize));
            let row = name.and_then(|(name, rest)| {
                if self.wrong == CodecDefect::HalfRows && rest.len() < 4 {
                    names.push(name.clone());
                    values.push(0);
                }
                Some((name, self.value(rest)?))
            });
            match row {
                Some((name, value)) => {
                    names.push(name);
                    values.push(value.wrapping_add(shift));
                    told.push(*event);
                }
                None if self.wrong == CodecDefect::SaysNothing => {}
                None if self.wrong == CodecDefect::Fails => {
                    return Err(Error::invalid(format!("event {event} is bad")));
                }
                None => bad.push((*event, "it is not a pair")),
            }
            shift = i32::from(self.wrong == CodecDefect::ShiftsValues && !bad.is_empty());
        }
        Ok((told, columns(names, values)))
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        _: &mut Vec<(u32, &'static str)>,
        _: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        let names = columns.column_by_name("name").ok_or("no name")?;
        let values = columns.column_by_name("value").ok_or("no value")?;
        let values = match self.wrong {
            CodecDefect::BelievesColumns => values.as_primitive::<Int32Type>(),
            _ => values.as_primitive_opt::<Int32Type>().ok_or("values are no numbers")?,
        };
        let names = names.as_string_opt::<i32>().ok_or("names are no texts")?;
        let mark = if self.wrong == CodecDefect::EncodesOther { b'Q' } else { b'P' };
        let payload = |(name, value): (Option<&str>, Option<i32>)| {
            let value = match self.wrong {
                CodecDefect::EncodesNulls => value.unwrap_or_default(),
                _ => value?,
            };
            let name = name?;
            let len = (name.len() as u32).to_le_bytes();
            Some([&[mark][..], &len, name.as_bytes(), &value.to_le_bytes()].concat())
        };
        Ok(names.iter().zip(values.iter()).map(payload).collect())
    }
}

fn payload(name: &str, value: i32) -> Vec<u8> {
    let len = (name.len() as u32).to_le_bytes();
    [b"P", &len[..], name.as_bytes(), &value.to_le_bytes()].concat()
}

fn trial(plugin: &str) -> CodecTrial {
    codec(plugin).payload("PAIR", Encoding::Unknown, payload("seventeen", 17))
}

#[test]
fn a_sound_codec_has_no_findings() {
    trial("toy").payload("PAIR", Encoding::Unknown, payload("", -1)).check();
}

#[test]
fn a_codec_that_is_not_linked_is_reported() {
    expect_findings(&codec("nobody").findings(), &[Promise::Options], &["no codec is registered"]);
}

#[test]
fn a_trial_without_payloads_is_reported() {
    expect_findings(&codec("toy").findings(), &[Promise::Options], &["no payload"]);
}

#[test]
fn unknown_payloads_are_reported() {
    let unknown = codec("toy").payload("PAIR", Encoding::Lcm, payload("a", 1));
    expect_findings(
        &unknown.findings(),
        &[Promise::Identity],
        &["payload 0", "no payloads of these types"],
    );
}

#[test]
fn undecodable_payloads_are_reported() {
    let cut = codec("toy").payload("PAIR", Encoding::Unknown, b"P\x01\0\0".to_vec());
    expect_findings(&cut.findings(), &[Promise::Identity], &["it is not a pair"]);
}

#[test]
fn bytes_that_do_not_come_back() {
    let words =
        ["a changed payload that it decodes is not encoded to the bytes it was", "set to 00"];
    expect_findings(&trial("ignores-the-rest").findings(), &[Promise::Identity], &words);
}

#[test]
fn other_bytes_that_come_back() {
    let findings = trial("encodes-other").findings();
    expect_findings(
        &findings,
        &[Promise::Identity],
        &["a payload is not encoded", "other from 0 on"],
    );
}

#[test]
fn rows_that_are_left_by_half() {
    let words = ["not one row per event", "cut off at byte"];
    expect_findings(&trial("half-rows").findings(), &[Promise::WholeRows], &words);
}

#[test]
fn rows_that_change_beside_bad_ones() {
    let words = ["a bad payload changes the row of another one"];
    expect_findings(&trial("shifts-values").findings(), &[Promise::WholeRows], &words);
}

#[test]
fn bad_payloads_without_a_reason() {
    let words = ["neither a row nor a reason"];
    expect_findings(&trial("says-nothing").findings(), &[Promise::WholeRows], &words);
}

#[test]
fn bad_payloads_that_end_the_run() {
    expect_findings(
        &trial("fails").findings(),
        &[Promise::WholeRows],
        &["decoding fails", "is bad"],
    );
}

#[test]
fn panics_on_lengths() {
    expect_findings(&trial("panics").findings(), &[Promise::NoPanic], &["cut off", "mid"]);
}

#[test]
fn memory_taken_by_what_a_length_says() {
    let findings = trial("believes-lengths").findings();
    expect_findings(&findings, &[Promise::Memory], &["as if its input could be trusted", "set to"]);
}

#[test]
fn descriptions_that_are_not_taken_back() {
    let words = ["its own description", "never seen"];
    expect_findings(&trial("disowns-types").findings(), &[Promise::Identity], &words);
}

#[test]
fn columns_that_are_believed() {
    let findings = trial("believes-columns").findings();
    expect_findings(&findings, &[Promise::NoPanic], &["`value` of another type"]);
}

#[test]
fn nulls_that_become_numbers() {
    let words = ["that does not decode to it", "`value` null"];
    expect_findings(&trial("encodes-nulls").findings(), &[Promise::Identity], &words);
}
