//! Lines from templates: which template applies to which channel, and what happens to events that
//! lack a field.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use sluice_kit::Template;
use sluice_kit::template::{BoundTemplate, MAX_TEXT};
use sluice_model::options::CHANNELS_FORMAT;
use sluice_model::{Batch, Channel, Channels, Error, Event, FieldPath, Pattern, PerChannel, Rows};
use sluice_model::{
    schemars::JsonSchema, schemars::Schema, schemars::SchemaGenerator, schemars::json_schema,
};

use crate::fields::RowFinder;

/// A template for all channels, or one per channel pattern; the first pattern that matches counts.
#[derive(Debug, Default)]
pub(crate) struct LineTemplates {
    all: Vec<(Option<Pattern>, Template)>,
    /// Each channel with the index of its template.
    channels: PerChannel<(Arc<Channel>, Option<usize>)>,
}

/// What happens to events that lack a field of their template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum MissingFieldPolicy {
    /// They have no line, and the report counts them.
    #[default]
    Skip,
    /// The run ends.
    Stop,
}

/// How many events, or elements of their lists, have no line, by reason.
#[derive(Debug, Default)]
pub(crate) struct SkippedLines {
    /// By the first missing field.
    fields: BTreeMap<FieldPath, u64>,
    /// No template matches their channels.
    channels: u64,
    /// Their lines would be too long.
    long: u64,
}

impl SkippedLines {
    pub(crate) fn total(&self) -> u64 {
        self.channels + self.long + self.fields.values().sum::<u64>()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.channels += other.channels;
        self.long += other.long;
        for (path, count) in other.fields {
            *self.fields.entry(path).or_default() += count;
        }
    }

    /// Notes about them; `of` says what has lines.
    pub(crate) fn notes(&self, of: &str) -> Vec<(String, u64)> {
        let note = |why: &str, count: u64| (format!("{of} without a line: {why}"), count);
        let fields = self
            .fields
            .iter()
            .map(|(path, count)| note(&format!("field `{path}` is missing or null"), *count));
        let others = [
            note("`line` has no template for their channels", self.channels),
            note(&format!("longer than {MAX_MIB} MiB"), self.long),
        ];
        fields.chain(others.into_iter().filter(|(_, count)| *count > 0)).collect()
    }
}

/// The maximum length of a line.
const MAX_MIB: usize = MAX_TEXT >> 20;

impl LineTemplates {
    /// Appends a line for each event of `batch` that has all fields of its template. Returns how
    /// many lack one.
    ///
    /// `Err` if one lacks a field and `missing` is `stop`.
    pub(crate) fn write(
        &self,
        batch: &Batch,
        channels: &Channels,
        missing: MissingFieldPolicy,
        out: &mut Vec<u8>,
    ) -> Result<SkippedLines, Error> {
        let known = self.channels.table(channels, |channel| {
            Ok((Arc::new(channel.clone()), self.place(channel.name.text())))
        })?;
        let mut all_rows: Vec<BoundRows<'_>> =
            batch.rows().iter().map(|rows| self.bound_rows(Some(rows))).collect();
        let raw = self.bound_rows(None);
        let mut skipped = SkippedLines::default();
        for (at, event) in batch.iter().enumerate() {
            let (channel, place) = &known[event.channel.index()];
            let Some(place) = *place else {
                skipped.channels += 1;
                continue;
            };
            let found = all_rows.iter_mut().find_map(|bound_rows| {
                let row = bound_rows.finder.find(at)?;
                Some((&*bound_rows, Some(row)))
            });
            let (bound_rows, row) = found.unwrap_or((&raw, None));
            let bound = bound_rows.bound(place, &self.all);
            if bound.write(channel, &event, row, out) {
                out.push(b'\n');
                continue;
            }
            let path = bound.missing(row);
            match (missing, path) {
                (MissingFieldPolicy::Stop, Some(path)) => {
                    return Err(missing_field(channel, &event, row, path));
                }
                (MissingFieldPolicy::Stop, None) => return Err(too_long(channel, &event)),
                (MissingFieldPolicy::Skip, Some(path)) => skipped.count(path),
                (MissingFieldPolicy::Skip, None) => skipped.long += 1,
            }
        }
        Ok(skipped)
    }

    fn place(&self, name: &str) -> Option<usize> {
        let is_for = |pattern: &Option<Pattern>| pattern.as_ref().is_none_or(|p| p.matches(name));
        self.all.iter().position(|(pattern, _)| is_for(pattern))
    }

    fn bound_rows<'b>(&'b self, rows: Option<&'b Rows>) -> BoundRows<'b> {
        let finder = RowFinder::new(rows.map_or(&[], |rows| &rows.events));
        BoundRows { rows, finder, bounds: self.all.iter().map(|_| OnceCell::new()).collect() }
    }
}

impl SkippedLines {
    fn count(&mut self, path: &FieldPath) {
        match self.fields.get_mut(path) {
            Some(count) => *count += 1,
            None => drop(self.fields.insert(path.clone(), 1)),
        }
    }
}

fn missing_field(
    channel: &Channel,
    event: &Event<'_>,
    row: Option<usize>,
    path: &FieldPath,
) -> Error {
    let why = if row.is_some() { "it is missing or null" } else { "the event is not decoded" };
    Error::invalid(format!(
        "event {} on channel `{}` has no field `{path}` for its line: {why}; `missing = \"skip\"` \
         leaves such events out",
        event.sequence, channel.name
    ))
}

fn too_long(channel: &Channel, event: &Event<'_>) -> Error {
    Error::invalid(format!(
        "the line of event {} on channel `{}` would be longer than {MAX_MIB} MiB; `missing = \
         \"skip\"` leaves such events out",
        event.sequence, channel.name
    ))
}

/// The rows of one type, with templates bound on demand.
struct BoundRows<'b> {
    rows: Option<&'b Rows>,
    finder: RowFinder<'b>,
    bounds: Vec<OnceCell<BoundTemplate<'b>>>,
}

impl<'b> BoundRows<'b> {
    fn bound(&self, place: usize, all: &'b [(Option<Pattern>, Template)]) -> &BoundTemplate<'b> {
        self.bounds[place].get_or_init(|| all[place].1.bind(self.rows))
    }
}

impl<'de> Deserialize<'de> for LineTemplates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = deserializer.deserialize_any(TemplatesVisitor)?;
        Ok(Self { all, channels: PerChannel::default() })
    }
}

/// Reports errors with their channel, which an untagged enum could not.
struct TemplatesVisitor;

impl<'de> Visitor<'de> for TemplatesVisitor {
    type Value = Vec<(Option<Pattern>, Template)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a template, or a table of channels with a template each")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(vec![(None, Template::parse(text).map_err(E::custom)?)])
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(pattern) = map.next_key::<Pattern>()? {
            all.push((Some(pattern), map.next_value()?));
        }
        if all.is_empty() {
            return Err(serde::de::Error::custom(
                "expected at least one template, found an empty table",
            ));
        }
        Ok(all)
    }
}

impl JsonSchema for LineTemplates {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LineTemplates".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Template>();
        let channels = json_schema!({ "type": "string", "format": CHANNELS_FORMAT });
        let table = json_schema!({ "type": "object", "propertyNames": channels,
            "additionalProperties": one });
        json_schema!({ "anyOf": [one, table] })
    }
}
