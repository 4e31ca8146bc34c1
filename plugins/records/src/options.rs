//! The description as written in a pipeline file. [`compile`](crate::compile) checks it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Unexpected;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sluice_model::options::{ByteSize, InPaths};
use sluice_model::time::TimePoint;

use crate::checksum::Algorithm;
pub(crate) use crate::literal::Literal;
use crate::wire::Endian;

/// The options of source `records`.
///
/// A record is `sync`, then `head`, then `fields` (or those of its kind), then `tail`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// The logs: a file, a glob, a list of them, or `-` for standard input. Logs are read in order;
    /// zstd is decompressed.
    pub(crate) path: InPaths,
    /// The bytes every log starts with.
    pub(crate) magic: Option<Literal>,
    /// What precedes the first record, magic included: a number of bytes, or the text that it ends
    /// with. Default: only the magic.
    pub(crate) header: Option<HeaderOption>,
    /// The byte order of numbers: `little` or `big`. A field may have its own.
    #[serde(default)]
    pub(crate) endian: Endian,
    /// The bytes every record starts with.
    pub(crate) sync: Option<Literal>,
    /// The fields after the sync word in every record. Their sizes are fixed.
    #[serde(default)]
    pub(crate) head: Vec<Field>,
    /// The fields after the head.
    #[serde(default)]
    pub(crate) fields: Vec<Field>,
    /// Records of several kinds, instead of `fields`: what follows the head, by the value of the
    /// field whose role is `kind`.
    #[serde(default)]
    pub(crate) kinds: BTreeMap<String, KindOptions>,
    /// What happens to records of other kinds: they are events with the fields of head and tail
    /// only (`keep`), skipped and counted (`skip`), or damage (`damage`). Default: `keep` if a
    /// length or a sync word tells where they end.
    pub(crate) other_kinds: Option<OtherKinds>,
    /// The fields at the end of every record. Their sizes are fixed.
    #[serde(default)]
    pub(crate) tail: Vec<Field>,
    /// The channel name; fields in braces are filled in. Default: the field with the role
    /// `channel`, or the name of the kind, or the name of the source.
    pub(crate) channel: Option<String>,
    /// Channel names by the number in the field with the role `channel`. Other numbers are used as
    /// names.
    #[serde(default)]
    pub(crate) channels: BTreeMap<String, String>,
    /// The epoch of times: `unix`, `gps`, `start` (of the recording), or a point in time.
    #[serde(default)]
    pub(crate) epoch: Epoch,
    /// How many seconds GPS is ahead of UTC. Default: the leap seconds at the time.
    pub(crate) leap_seconds: Option<i64>,
    /// What happens to kinds without a time: they are an error in the description (`refuse`), or
    /// their records get the time of the previous record (`last`), so that logs are read in one
    /// piece.
    #[serde(default)]
    pub(crate) untimed: UntimedPolicy,
    /// The maximum length of a record. Damage can declare any length.
    #[serde(default = "largest_record")]
    pub(crate) max_record: ByteSize,
}

fn largest_record() -> ByteSize {
    ByteSize(1 << 20)
}

/// What precedes the first record.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a number of bytes, or the text that the header ends with")]
pub(crate) enum HeaderOption {
    /// This many bytes.
    Bytes(u64),
    /// Everything up to the end of this text.
    Until(Literal),
}

impl JsonSchema for HeaderOption {
    fn schema_name() -> Cow<'static, str> {
        "Header".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string", "array"],
            "description": "bytes to skip, or the text that the header ends with" })
    }
}

/// A kind of record.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KindOptions {
    /// Its name.
    pub(crate) name: Option<String>,
    /// Its channel name; fields in braces are filled in.
    pub(crate) channel: Option<String>,
    /// The fields after the head.
    #[serde(default)]
    pub(crate) fields: Vec<Field>,
    /// A byte appended to what the checksum covers: MAVLink's `CRC_EXTRA`.
    pub(crate) checksum_extra: Option<u8>,
}

/// What happens to records of undescribed kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OtherKinds {
    /// They become events.
    Keep,
    /// They are skipped.
    Skip,
    /// They are damage.
    Damage,
}

/// What happens to records of a kind without a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UntimedPolicy {
    /// They are an error in the description.
    #[default]
    Refuse,
    /// They get the time of the previous record.
    Last,
}

/// The epoch of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Epoch {
    /// 1970, UTC.
    #[default]
    Unix,
    /// 1980-01-06, without leap seconds.
    Gps,
    /// The start of the recording, which is unknown.
    Start,
    /// Nanoseconds since 1970.
    At(i64),
}

impl<'de> Deserialize<'de> for Epoch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "unix" => return Ok(Self::Unix),
            "gps" => return Ok(Self::Gps),
            "start" => return Ok(Self::Start),
            _ => {}
        }
        match TimePoint::parse_chosen(&text) {
            Ok(TimePoint::At(nanos)) => Ok(Self::At(nanos)),
            _ => Err(serde::de::Error::custom(format!(
                "`{text}` is not an epoch: expected unix, gps, start, or a point in time such as \
                 2020-01-01T00:00:00Z"
            ))),
        }
    }
}

impl Serialize for Epoch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unix => "unix".serialize(serializer),
            Self::Gps => "gps".serialize(serializer),
            Self::Start => "start".serialize(serializer),
            Self::At(nanos) => TimePoint::At(*nanos).serialize(serializer),
        }
    }
}

impl JsonSchema for Epoch {
    fn schema_name() -> Cow<'static, str> {
        "Epoch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "unix, gps, start, or a point in time" })
    }
}

/// A field of a record.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["type"]))]
pub(crate) struct Field {
    /// Its column name. A field without a name has no column.
    pub(crate) name: Option<String>,
    /// Its type.
    #[serde(rename = "type", default)]
    pub(crate) kind: FieldType,
    /// For a list: the number of elements, the name of an earlier field that holds it, or `rest`.
    pub(crate) count: Option<Amount>,
    /// For text, `bytes` or `pad`: the number of bytes, the name of an earlier field that holds it,
    /// or `rest`.
    pub(crate) size: Option<Amount>,
    /// Its byte order, if it differs.
    pub(crate) endian: Option<Endian>,
    /// Its purpose beside being a column.
    pub(crate) role: Option<Role>,
    /// For a time: `weeks`, `days`, `s`, `ms`, `us` or `ns`. For others: the unit of the column.
    pub(crate) unit: Option<String>,
    /// A factor.
    pub(crate) scale: Option<f64>,
    /// An offset, added after the factor.
    pub(crate) offset: Option<f64>,
    /// Its constant value. A record with another value is damage.
    pub(crate) value: Option<Constant>,
    /// Bits as columns, by name: `3` is a boolean, `"4-6"` a number of three bits.
    #[serde(default)]
    pub(crate) bits: BTreeMap<String, Bits>,
    /// For a length: which bytes it counts.
    pub(crate) counts: Option<LengthCounts>,
    /// For a length: a number to add. May be negative.
    pub(crate) plus: Option<i64>,
    /// For a time: the number at which it wraps to 0; `true` for the end of its type's range.
    pub(crate) wraps: Option<WrapPoint>,
    /// For a checksum: its algorithm.
    pub(crate) algorithm: Option<Algorithm>,
    /// For a checksum: where the covered bytes start, a field or an offset from the start of the
    /// record. Default: the start of the record, or the end of a checksum that is in the head.
    pub(crate) from: Option<CoverStart>,
    /// For a checksum: the field before which the covered bytes end. Default: the checksum itself,
    /// or the end of the record if the checksum is in the head.
    pub(crate) until: Option<String>,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FieldType {
    U8,
    I8,
    U16,
    I16,
    U24,
    I24,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
    Bool,
    Bytes,
    Text,
    Pad,
    // None is given: a mistake that hides none of the other fields.
    #[default]
    #[serde(skip)]
    Missing,
}

/// The role of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// The event's time. Two such fields are added.
    Time,
    /// The event's number.
    Sequence,
    /// The event's channel.
    Channel,
    /// The record's kind.
    Kind,
    /// The record's length.
    Length,
    /// A checksum.
    Checksum,
}

impl Role {
    /// Its name in options.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Sequence => "sequence",
            Self::Channel => "channel",
            Self::Kind => "kind",
            Self::Length => "length",
            Self::Checksum => "checksum",
        }
    }
}

/// Which bytes a length counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LengthCounts {
    /// The bytes between head and tail.
    #[default]
    Payload,
    /// The whole record, including the sync word.
    Record,
    /// Everything after the length.
    Follows,
}

/// A number of bytes or elements.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a number, the name of an earlier field, or \"rest\"")]
pub(crate) enum Amount {
    /// A fixed number.
    Fixed(u64),
    /// The value of a field, or `rest`.
    Named(String),
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"],
            "description": "a number, the name of an earlier field, or `rest`" })
    }
}

/// Where the bytes that a checksum covers start.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a number of bytes, or the name of a field")]
pub(crate) enum CoverStart {
    /// At this offset.
    Bytes(u64),
    /// At this field.
    Field(String),
}

impl JsonSchema for CoverStart {
    fn schema_name() -> Cow<'static, str> {
        "Place".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"],
            "description": "bytes from the record's start, or the name of a field" })
    }
}

/// The constant value of a field.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a whole number, true or false, a text, or a list of bytes")]
pub(crate) enum Constant {
    /// For a `bool`.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// Bytes.
    Bytes(Literal),
}

impl JsonSchema for Constant {
    fn schema_name() -> Cow<'static, str> {
        "Constant".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "boolean", "string", "array"],
            "description": "the constant value of the field" })
    }
}

/// When a time wraps to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a number above 1, or true")]
pub(crate) enum WrapPoint {
    /// After the largest value of its type, or not at all.
    AtTypesEnd(bool),
    /// At this value.
    At(u64),
}

impl JsonSchema for WrapPoint {
    fn schema_name() -> Cow<'static, str> {
        "Wraps".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "boolean"],
            "description": "the number at which it wraps to 0, or true" })
    }
}

/// Bits of a number; 0 is the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bits {
    /// One bit: true or false.
    One(u32),
    /// From one bit to another: a number.
    Range(u32, u32),
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a bit such as 3, or a range such as \"4-6\"")]
        enum RawBits {
            One(u32),
            Range(String),
        }
        let text = match RawBits::deserialize(deserializer)? {
            RawBits::One(bit) => return Ok(Self::One(bit)),
            RawBits::Range(text) => text,
        };
        let wrong = || {
            let expected = &"a bit such as 3, or a range such as \"4-6\"";
            serde::de::Error::invalid_value(Unexpected::Str(&text), expected)
        };
        let (low, high) = text.split_once('-').ok_or_else(wrong)?;
        let bit = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        match (bit(low)?, bit(high)?) {
            (low, high) if low <= high => Ok(Self::Range(low, high)),
            _ => Err(wrong()),
        }
    }
}

impl JsonSchema for Bits {
    fn schema_name() -> Cow<'static, str> {
        "Bits".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"],
            "description": "the number of a bit, or a range such as \"4-6\"" })
    }
}
