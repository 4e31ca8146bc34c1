//! A description as it is written in a pipeline file. Whether it makes sense is [`compile`](crate::compile)'s
//! to say.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use sluice_core::options::{ByteSize, InPaths};
use sluice_core::time::TimePoint;

use crate::checksum::Algorithm;
pub(crate) use crate::literal::Literal;
use crate::wire::Endian;

/// The options of source `records`.
///
/// A record is `sync`, then `head`, then `fields` (or those of its kind), then `tail`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// The logs: a file, a glob, a list of them, or `-` for standard input. Logs are read one after another;
    /// what is compressed with zstd is read as what it holds.
    pub(crate) path: InPaths,
    /// What every log begins with.
    pub(crate) magic: Option<Literal>,
    /// What stands in front of the first record, magic included: a number of bytes, or the text that it ends
    /// with. Without it, only the magic.
    pub(crate) header: Option<HeaderOption>,
    /// The order of bytes in numbers: `little` or `big`. A field may have another.
    #[serde(default)]
    pub(crate) endian: Endian,
    /// What every record begins with.
    pub(crate) sync: Option<Literal>,
    /// What follows the sync word in every record: fields of fixed size.
    #[serde(default)]
    pub(crate) head: Vec<Field>,
    /// What follows the head in every record.
    #[serde(default)]
    pub(crate) fields: Vec<Field>,
    /// Records of several kinds, instead of `fields`: what follows the head, by the value of the field whose
    /// role is `kind`.
    #[serde(default)]
    pub(crate) kinds: BTreeMap<String, KindOptions>,
    /// What becomes of records of other kinds: they are events of which only head and tail are fields (`keep`),
    /// left out and counted (`skip`), or damage. Without it they are kept if a length or a sync word tells where
    /// they end.
    pub(crate) other_kinds: Option<OtherKinds>,
    /// What every record ends with: fields of fixed size.
    #[serde(default)]
    pub(crate) tail: Vec<Field>,
    /// The name of the channel; fields in braces are filled in. Without it, what the field with the role
    /// `channel` says, or the kind's name, or that of the source.
    pub(crate) channel: Option<String>,
    /// Names of channels by the number in the field with the role `channel`. Other numbers are names as they are.
    #[serde(default)]
    pub(crate) channels: BTreeMap<String, String>,
    /// What times count from: `unix`, `gps`, `start` (of the recording), or a point in time.
    #[serde(default)]
    pub(crate) epoch: Epoch,
    /// How many seconds GPS is ahead of UTC. Without it, as many as it was at the time.
    pub(crate) leap_seconds: Option<i64>,
    /// What becomes of records of a kind that has no time: a mistake in the description (`refuse`), or they get
    /// the time of the record before (`last`), for which logs are read in one piece.
    #[serde(default)]
    pub(crate) untimed: UntimedPolicy,
    /// The longest record that is believed. Damage can claim any length.
    #[serde(default = "largest_record")]
    pub(crate) max_record: ByteSize,
}

fn largest_record() -> ByteSize {
    ByteSize(1 << 20)
}

/// What stands in front of the first record.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a number of bytes, or the text that the header ends with")]
pub(crate) enum HeaderOption {
    /// So many bytes.
    Bytes(u64),
    /// All up to the end of this.
    Until(Literal),
}

impl JsonSchema for HeaderOption {
    fn schema_name() -> Cow<'static, str> {
        "Header".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string", "array"],
            "description": "bytes to leave out, or the text that the header ends with" })
    }
}

/// A kind of record.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KindOptions {
    /// What the kind is called.
    pub(crate) name: Option<String>,
    /// The name of its channel; fields in braces are filled in.
    pub(crate) channel: Option<String>,
    /// What follows the head.
    #[serde(default)]
    pub(crate) fields: Vec<Field>,
    /// A byte that the checksum is worked out over behind all others: MAVLink's `CRC_EXTRA`.
    pub(crate) checksum_extra: Option<u8>,
}

/// What becomes of records of a kind that is not described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OtherKinds {
    /// They are events.
    Keep,
    /// They are left out.
    Skip,
    /// They are damage.
    Damage,
}

/// What becomes of records of a kind without a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UntimedPolicy {
    /// There may be none.
    #[default]
    Refuse,
    /// They have the time of the record before.
    Last,
}

/// What times count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Epoch {
    /// 1970, UTC.
    #[default]
    Unix,
    /// 1980-01-06, without leap seconds.
    Gps,
    /// The start of the recording, which nobody knows.
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
        match TimePoint::parse(&text) {
            Ok(TimePoint::At(nanos)) => Ok(Self::At(nanos)),
            _ => Err(serde::de::Error::custom(format!(
                "`{text}` is no epoch: write unix, gps, start, or a point in time such as 2020-01-01T00:00:00Z"
            ))),
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
pub(crate) struct Field {
    /// Its column. A field without a name has none.
    pub(crate) name: Option<String>,
    /// What it is.
    #[serde(rename = "type")]
    pub(crate) kind: FieldType,
    /// How many there are, for a list: a number, the name of an earlier field that says it, or `rest`.
    pub(crate) count: Option<Amount>,
    /// How many bytes a text, `bytes` or `pad` has: a number, the name of an earlier field, or `rest`.
    pub(crate) size: Option<Amount>,
    /// The order of its bytes, where that is another one.
    pub(crate) endian: Option<Endian>,
    /// What it is for, beside being a column.
    pub(crate) role: Option<Role>,
    /// For a time: `weeks`, `days`, `s`, `ms`, `us` or `ns`. For others, what it is measured in.
    pub(crate) unit: Option<String>,
    /// What it is multiplied by.
    pub(crate) scale: Option<f64>,
    /// What is added then.
    pub(crate) offset: Option<f64>,
    /// What it always is. A record in which it is anything else is none.
    pub(crate) value: Option<Constant>,
    /// Bits of it that are columns, by name: `3` is a boolean, `"4-6"` a number of three bits.
    #[serde(default)]
    pub(crate) bits: BTreeMap<String, Bits>,
    /// For a length: what it counts.
    pub(crate) counts: Option<LengthCounts>,
    /// For a length: what is added to it. May be below 0.
    pub(crate) plus: Option<i64>,
    /// For a time: the number at which it begins at 0 again; `true` if that is the largest of its type plus one.
    pub(crate) wraps: Option<WrapPoint>,
    /// For a checksum: how it is worked out.
    pub(crate) algorithm: Option<Algorithm>,
    /// For a checksum: where the bytes begin that it covers, a field or a number of bytes from the record's
    /// start. Without it the record's start, or what follows a checksum that is in the head.
    pub(crate) from: Option<CoverStart>,
    /// For a checksum: the field before which the bytes end. Without it the checksum itself, or the record's end
    /// if that is in the head.
    pub(crate) until: Option<String>,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
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
}

/// What a field is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// When the event happened. Two fields with this role are added up.
    Time,
    /// The event's number.
    Sequence,
    /// Which channel the event is on.
    Channel,
    /// Which of `kinds` the record is.
    Kind,
    /// How long the record is.
    Length,
    /// A checksum.
    Checksum,
}

impl Role {
    /// The word for it.
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

/// What a length counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LengthCounts {
    /// The bytes between head and tail.
    #[default]
    Payload,
    /// The whole record, sync word and all.
    Record,
    /// All that follows the length.
    Follows,
}

/// How many bytes or elements.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a number, the name of an earlier field, or \"rest\"")]
pub(crate) enum Amount {
    /// Always as many.
    Fixed(u64),
    /// As many as a field says, or all that is left.
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

/// A place in a record.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a number of bytes, or the name of a field")]
pub(crate) enum CoverStart {
    /// So many bytes behind its start.
    Bytes(u64),
    /// Where this field begins.
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

/// What a field always is.
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
            "description": "what the field always is" })
    }
}

/// Where a time begins at 0 again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a number above 1, or true")]
pub(crate) enum WrapPoint {
    /// Behind the largest number of its type, or not at all.
    AtTypesEnd(bool),
    /// At this number.
    At(u64),
}

impl JsonSchema for WrapPoint {
    fn schema_name() -> Cow<'static, str> {
        "Wraps".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "boolean"],
            "description": "the number at which it begins at 0 again, or true" })
    }
}

/// Some bits of a number, counted from the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bits {
    /// One: true or false.
    One(u32),
    /// From one to another, a number.
    Range(u32, u32),
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "the number of a bit, or a range such as \"4-6\"")]
        enum RawBits {
            One(u32),
            Range(String),
        }
        let text = match RawBits::deserialize(deserializer)? {
            RawBits::One(bit) => return Ok(Self::One(bit)),
            RawBits::Range(text) => text,
        };
        let wrong =
            || serde::de::Error::custom(format!("`{text}` are no bits: write 3, or \"4-6\""));
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
