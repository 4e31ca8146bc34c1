//! Options of `align`, as they are written. Checks each by itself only.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use sluice_kit::selection::separated_fields;
use sluice_model::field::PathStep;
use sluice_model::options::{self, one_or_many};
use sluice_model::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use sluice_model::time::{TimeLength, TimePoint};
use sluice_model::{FieldPath, OptionsError};
use sluice_views::TimeUnit;

use super::grid::Rate;

/// Options of `align`. Exactly one of `rate`, `fps` and `clock` is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct AlignOptions {
    /// Rows per second, such as `50Hz`.
    pub(crate) rate: Option<Rate>,
    /// The same, in frames per second.
    pub(crate) fps: Option<Rate>,
    /// The channel at whose times there are rows.
    pub(crate) clock: Option<String>,
    /// The fields of the rows: for each name a field such as `POSE.vel`, a list of fields (or text
    /// with commas between them) to make one vector of, or a table with `field` and how its values
    /// are chosen. An empty text leaves the field out.
    pub(crate) fields: FieldTable,
    /// The channel of the rows.
    #[serde(default = "aligned")]
    pub(crate) name: String,
    /// How values are chosen, unless a field says otherwise.
    #[serde(default)]
    pub(crate) method: Method,
    /// How far a value may be from its row, unless a field says otherwise.
    #[serde(default = "tenth_of_a_second")]
    pub(crate) tolerance: TimeLength,
    /// What becomes of a row without a value for some field.
    #[serde(default)]
    pub(crate) missing: MissingPolicy,
    /// The field with the message's own time, unless a field says otherwise. Default: the time of
    /// the event.
    pub(crate) time: Option<FieldPath>,
    /// The unit of the fields `time`.
    #[serde(default)]
    pub(crate) time_unit: TimeUnit,
    /// A time at which there is a row, such as `+0` for the first event of the log. Default: whole
    /// periods since 1970, so that windows and parts of a log have the same rows.
    pub(crate) anchor: Option<TimePoint>,
}

fn aligned() -> String {
    "aligned".to_owned()
}

fn tenth_of_a_second() -> TimeLength {
    TimeLength(100_000_000)
}

/// How the value of a row is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum Method {
    /// The last value up to the row: never one from its future.
    #[default]
    Last,
    /// The nearest value, before or after.
    Nearest,
    /// Between the values before and after, in proportion to the time.
    Linear,
    /// Between two rotations, given as quaternions.
    Slerp,
    /// A value that came since the row before; values are not carried on.
    None,
}

impl Method {
    /// Whether it needs the value after the row.
    pub(crate) fn looks_ahead(self) -> bool {
        matches!(self, Self::Nearest | Self::Linear | Self::Slerp)
    }
}

/// What becomes of a row without a value for some field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum MissingPolicy {
    /// It is left out, and counted.
    #[default]
    Drop,
    /// The field is null.
    Null,
    /// The run ends.
    Stop,
}

/// The order of a quaternion's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum QuaternionOrder {
    /// w, x, y, z.
    #[default]
    Wxyz,
    /// x, y, z, w.
    Xyzw,
}

/// The fields of rows by name, in the order in which they are written. Each is read by itself, so
/// that a mistake is told at its place.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct FieldTable(Map<String, Value>);

/// A field of rows, in one of its forms.
#[derive(Debug, JsonSchema)]
#[serde(untagged)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum FieldForm {
    /// A field of a channel.
    One(ChannelField),
    /// Several fields, which make a vector.
    Several(Vec<ChannelField>),
    /// Any of these, and how values are chosen.
    Table(FieldSettings),
}

/// How the values of a field are chosen.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct FieldSettings {
    /// A field of a channel, such as `POSE.vel`; of a list of them the row has one vector.
    #[serde(deserialize_with = "one_or_several")]
    #[schemars(schema_with = "one_or_several_schema")]
    pub(crate) field: FieldsOfChannels,
    /// How values are chosen.
    pub(crate) method: Option<Method>,
    /// How far a value may be from its row.
    pub(crate) tolerance: Option<TimeLength>,
    /// How much later than it was true a value is received. Values count from that much earlier.
    pub(crate) lag: Option<TimeLength>,
    /// The field with the message's own time.
    pub(crate) time: Option<FieldPath>,
    /// The unit of that field.
    pub(crate) time_unit: Option<TimeUnit>,
    /// Whether `linear` goes the shorter way round between angles in radians. Results lie between
    /// -π and π.
    #[serde(default)]
    pub(crate) angle: bool,
    /// The order of the parts of a quaternion, for `slerp`.
    pub(crate) quaternion: Option<QuaternionOrder>,
    /// The number of elements that a list must have. It becomes a list of fixed length, which may
    /// be part of a vector; lists of other lengths are left out, and counted.
    pub(crate) length: Option<u32>,
}

/// One field or several.
#[derive(Debug, Default)]
pub(crate) struct FieldsOfChannels {
    pub(crate) fields: Vec<ChannelField>,
    /// Whether it is written as a list, which makes a vector.
    pub(crate) is_list: bool,
}

fn one_or_several<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<FieldsOfChannels, D::Error> {
    let value = separated(Value::deserialize(deserializer)?);
    let is_list = value.is_array();
    let fields = one_or_many(value).map_err(serde::de::Error::custom)?;
    Ok(FieldsOfChannels { fields, is_list })
}

/// Text with commas between fields, as the list of them.
fn separated(value: Value) -> Value {
    match value {
        Value::String(text) if separated_fields(&text).nth(1).is_some() => {
            separated_fields(&text).map(Value::from).collect()
        }
        other => other,
    }
}

fn one_or_several_schema(generator: &mut SchemaGenerator) -> Schema {
    let one = ChannelField::json_schema(generator);
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

impl FieldForm {
    fn from_value(value: Value) -> Result<Self, OptionsError> {
        match separated(value) {
            value @ Value::Array(_) => options::read(value).map(Self::Several),
            value @ Value::Object(_) => options::read(value).map(Self::Table),
            value => options::read(value).map(Self::One),
        }
    }

    /// Its settings, with the defaults for those it does not have.
    pub(crate) fn into_settings(self) -> FieldSettings {
        let (fields, is_list) = match self {
            Self::One(field) => (vec![field], false),
            Self::Several(fields) => (fields, true),
            Self::Table(settings) => return settings,
        };
        FieldSettings { field: FieldsOfChannels { fields, is_list }, ..FieldSettings::default() }
    }
}

/// Whether a field is an empty text: a variable without a value leaves it out.
fn is_left_out(value: &Value) -> bool {
    let field = value.get("field").unwrap_or(value);
    field.as_str().is_some_and(|text| text.trim().is_empty())
}

impl FieldTable {
    /// The names of the fields, and how their values are chosen.
    pub(crate) fn settings(self) -> Result<Vec<(String, FieldSettings)>, OptionsError> {
        let given = self.0.into_iter().filter(|(_, value)| !is_left_out(value));
        given
            .map(|(name, value)| match FieldForm::from_value(value) {
                Ok(form) => Ok((name, form.into_settings())),
                Err(OptionsError { path, message }) => {
                    let path = ["fields".to_owned(), name].into_iter().chain(path).collect();
                    Err(OptionsError { path, message })
                }
            })
            .collect()
    }
}

impl JsonSchema for FieldTable {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FieldTable".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, FieldForm>::json_schema(generator)
    }
}

/// A field of a channel, such as `POSE.vel` or `POSE.pos[0]`; a channel alone stands for all its
/// fields. The name of a channel ends at the first `.`; one with dots is written in backquotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChannelField {
    pub(crate) channel: String,
    /// `None`: the whole message.
    pub(crate) path: Option<FieldPath>,
    pub(crate) text: String,
}

impl ChannelField {
    /// `Err` says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong = |what: &str| format!("`{text}`: {what}: write CHANNEL.field, such as POSE.vel");
        if text.starts_with('`') {
            return Self::parse_quoted(text);
        }
        let (channel, path) = match text.split_once('.') {
            Some((channel, path)) => (channel, Some(FieldPath::parse(path)?)),
            None => (text, None),
        };
        if channel.is_empty() {
            return Err(wrong("the channel is missing"));
        }
        if channel.contains('[') {
            return Err(wrong("an element of a channel is no field"));
        }
        Ok(Self { channel: channel.to_owned(), path, text: text.to_owned() })
    }

    /// Parses a field whose channel is in backquotes.
    fn parse_quoted(text: &str) -> Result<Self, String> {
        let all = FieldPath::parse(text)?;
        let mut steps = all.steps().iter();
        let path = match steps.next() {
            None => None,
            Some(PathStep::Name(column)) => {
                let column = FieldPath::column(column.clone());
                Some(steps.fold(column, |path, step| path.then(step.clone())))
            }
            Some(PathStep::Index(_)) => {
                return Err(format!("`{text}`: an element of a channel is no field"));
            }
        };
        Ok(Self { channel: all.first().to_owned(), path, text: text.to_owned() })
    }
}

impl<'de> Deserialize<'de> for ChannelField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ChannelField {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ChannelField".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string",
            "description": "a channel and a field of its messages, such as `POSE.vel`" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(table: Value) -> Result<Vec<(String, FieldSettings)>, OptionsError> {
        serde_json::from_value::<FieldTable>(table).unwrap().settings()
    }

    fn parts(text: &str) -> (String, Option<String>) {
        let field = ChannelField::parse(text).unwrap();
        (field.channel, field.path.map(|path| path.to_string()))
    }

    #[test]
    fn a_field_is_a_channel_and_a_path() {
        let path = |path: &str| Some(path.to_owned());
        assert_eq!(parts("POSE.pos[0]"), ("POSE".into(), path("pos[0]")));
        assert_eq!(parts("/imu/data.orientation.w"), ("/imu/data".into(), path("orientation.w")));
        assert_eq!(parts("`a.b`.legs[-1].angle"), ("a.b".into(), path("legs[-1].angle")));
        assert_eq!((parts("CAM"), parts("`a.b`")), (("CAM".into(), None), ("a.b".into(), None)));
        for wrong in ["", ".x", "POSE.", "POSE[0]", "`a`[0]", "`a", "POSE.x y"] {
            assert!(ChannelField::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_with_commas_is_a_list_of_fields() {
        for (given, expected) in
            [("A.x, B.y", &["A.x", "B.y"][..]), ("`a,b`.x,C", &["`a,b`.x", "C"]), ("A.x", &["A.x"])]
        {
            for value in [serde_json::json!(given), serde_json::json!({ "field": given })] {
                let FieldsOfChannels { fields, is_list } =
                    FieldForm::from_value(value).unwrap().into_settings().field;
                let texts: Vec<&str> = fields.iter().map(|field| field.text.as_str()).collect();
                assert_eq!((texts, is_list), (expected.to_vec(), expected.len() > 1), "{given}");
            }
        }
    }

    #[test]
    fn an_empty_text_leaves_its_field_out() {
        let table = serde_json::json!({ "a": "", "b": { "field": " ", "lag": "1s" }, "c": "C.x" });
        let fields = settings(table).unwrap();
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["c"]);
        assert!(settings(serde_json::json!({ "a": ["A.x", ""] })).is_err());
    }

    #[test]
    fn fields_keep_their_order_and_mistakes_name_theirs() {
        let table = serde_json::json!({ "z": "A.x", "a": ["A.x", "B.y"], "m": { "field": "A.x" } });
        let fields = settings(table).unwrap();
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["z", "a", "m"]);
        let wrong = settings(serde_json::json!({ "m": { "field": "A.x", "methd": "last" } }));
        let wrong = wrong.unwrap_err();
        assert_eq!(wrong.path, ["fields", "m", "methd"]);
        assert!(wrong.message.contains("unknown field `methd`"), "{wrong}");
    }
}
