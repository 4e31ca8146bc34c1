//! Conditions on events, such as `vel[0] > 3 and quality != 0`: parsing, and evaluation per batch.
//!
//! The crate's `README.md` describes the language.

mod error;
mod evaluate;
mod lexer;
mod number;
mod parser;
mod tree;
mod values;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use sluice_model::{Batch, Channel, Error, FieldPath, Payloads, PerChannel, Rows, StageContext};
use sluice_model::{
    schemars::JsonSchema, schemars::Schema, schemars::SchemaGenerator, schemars::json_schema,
};

use evaluate::{EvalScope, TypeMismatches};
use number::Number;
use tree::{EventField, Expr, ExprNode};
use values::Values;

/// A parsed condition.
#[derive(Debug)]
pub struct Condition {
    text: String,
    node: ExprNode,
    /// The fields it uses, each once.
    fields: Vec<FieldPath>,
    /// Which fields need a value, because they are used in more than `exists`.
    needed: Vec<bool>,
    names: PerChannel<ChannelNames>,
}

/// The maximum length of a condition; parsing takes memory of many times its length.
const MAX_BYTES: usize = 16 << 10;
const UNKNOWN_SIZE: &str = "only the columns of decoded events are there, as in tables, so that \
                            they have no `$size`; put the stage `encode` before";

/// What conditions can ask of a channel.
#[derive(Clone, Debug)]
struct ChannelNames {
    source: Arc<str>,
    channel: Arc<str>,
}

impl Condition {
    /// Parses a condition. `Err` is a message with a caret under the mistake.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("the condition is longer than {MAX_BYTES} bytes"));
        }
        let (node, fields) = parser::parse(text).map_err(|mistake| mistake.display_in(text))?;
        let mut needed = vec![false; fields.len()];
        mark_needed(&node, &mut needed);
        Ok(Self { text: text.to_owned(), node, fields, needed, names: PerChannel::default() })
    }

    /// The fields that need a value: those used in more than `exists`.
    pub(crate) fn needed_fields(&self) -> Vec<FieldPath> {
        let needed = self.fields.iter().zip(&self.needed).filter(|(_, needed)| **needed);
        needed.map(|(path, _)| path.clone()).collect()
    }

    /// Whether the condition holds, per event; `None` if a value is missing.
    ///
    /// Notes in `context` what is missing for the events that `counts` selects.
    pub fn decide(
        &self,
        batch: &Batch,
        counts: impl Fn(usize) -> bool,
        context: &mut StageContext<'_>,
    ) -> Result<Vec<Option<bool>>, Error> {
        let name = |channel: &Channel| {
            Ok(ChannelNames {
                source: Arc::clone(&channel.source),
                channel: channel.name.text().into(),
            })
        };
        let names = self.names.table(context.channels, name)?;
        let mut decided = vec![None; batch.len()];
        for group in groups(batch) {
            let count = group.events.iter().filter(|event| counts(**event as usize)).count();
            if count == 0 {
                continue;
            }
            let mut notes = ConditionNotes { condition: self, count: count as u64, context };
            let truths = self.decide_group(batch, &names, &group, &mut notes);
            for (event, truth) in group.events.iter().zip(truths) {
                if let Some(decided) = decided.get_mut(*event as usize) {
                    *decided = truth;
                }
            }
        }
        Ok(decided)
    }

    fn decide_group(
        &self,
        batch: &Batch,
        names: &[ChannelNames],
        group: &DecodedGroup<'_>,
        notes: &mut ConditionNotes<'_, '_>,
    ) -> Vec<Option<bool>> {
        let resolve = |path: &FieldPath| path.resolve(&group.rows?.columns);
        let fields: Vec<_> = self.fields.iter().map(resolve).collect();
        notes.missing(group.rows.is_some(), fields.iter().map(Option::is_some));
        let is_gone = group.rows.is_some_and(|rows| rows.payloads == Payloads::Gone);
        let wants_unknown_size = Cell::new(false);
        let events = |field| match field {
            EventField::Size if is_gone => {
                wants_unknown_size.set(true);
                Values::Missing
            }
            field => event_values(batch, names, group, field),
        };
        let scope = EvalScope { len: group.events.len(), fields: &fields, events: &events };
        let mut mismatches = TypeMismatches::new();
        let truths = scope.decide(&self.node, &mut mismatches);
        notes.mismatches(&mismatches);
        if wants_unknown_size.get() {
            notes.context.note(UNKNOWN_SIZE, notes.count);
        }
        truths
    }
}

/// Marks the fields that need a value.
fn mark_needed(node: &ExprNode, needed: &mut [bool]) {
    match &node.expr {
        Expr::Field(at) => needed.iter_mut().skip(*at).take(1).for_each(|needed| *needed = true),
        Expr::Negate(inner) | Expr::Not(inner) | Expr::Call(_, inner) => mark_needed(inner, needed),
        Expr::In(inner, _) | Expr::Matches(inner, _) => mark_needed(inner, needed),
        Expr::All(inner) | Expr::Any(inner) => {
            inner.iter().for_each(|node| mark_needed(node, needed));
        }
        Expr::Calculate(first, rest) => {
            mark_needed(first, needed);
            rest.iter().for_each(|(_, node)| mark_needed(node, needed));
        }
        Expr::Compare(left, _, right) => {
            mark_needed(left, needed);
            mark_needed(right, needed);
        }
        Expr::Number(_) | Expr::Text(_) | Expr::Truth(_) | Expr::EventField(_) => {}
        Expr::Exists(_) => {}
    }
}

/// Events of a batch that were decoded together, or not at all.
struct DecodedGroup<'b> {
    rows: Option<&'b Rows>,
    events: Cow<'b, [u32]>,
}

fn groups(batch: &Batch) -> Vec<DecodedGroup<'_>> {
    let decoded =
        |rows| DecodedGroup { rows: Some(rows), events: Cow::Borrowed(rows.events.as_slice()) };
    let mut groups: Vec<_> = batch.rows().iter().map(decoded).collect();
    let rest = (0u32..).zip(batch.decoded_mask()).filter(|(_, is_decoded)| !is_decoded);
    let rest: Vec<u32> = rest.map(|(event, _)| event).collect();
    groups.push(DecodedGroup { rows: None, events: Cow::Owned(rest) });
    groups
}

fn event_values<'a>(
    batch: &'a Batch,
    names: &'a [ChannelNames],
    group: &DecodedGroup<'_>,
    field: EventField,
) -> Values<'a> {
    let rows = || group.events.iter().map(|event| *event as usize);
    let number = |of: &dyn Fn(usize) -> i64| {
        Values::Numbers(rows().map(|row| Some(Number::Whole(of(row)))).collect())
    };
    let text = |of: &dyn Fn(&'a ChannelNames) -> &'a str| {
        let names = rows().map(|row| names.get(batch.channels()[row] as usize));
        Values::Texts(names.map(|names| names.map(of)).collect())
    };
    match field {
        EventField::Timestamp => number(&|row| batch.timestamps()[row]),
        EventField::Sequence => number(&|row| batch.sequences()[row]),
        EventField::Size => number(&|row| batch.payload_len(row) as i64),
        EventField::Source => text(&|names| &names.source),
        EventField::Channel => text(&|names| &names.channel),
    }
}

/// Notes what is missing for a group of events.
struct ConditionNotes<'n, 'r> {
    condition: &'n Condition,
    /// How many events of the group count.
    count: u64,
    context: &'n mut StageContext<'r>,
}

impl ConditionNotes<'_, '_> {
    fn missing(&mut self, is_decoded: bool, is_there: impl Iterator<Item = bool>) {
        let Condition { fields, needed, .. } = self.condition;
        let is_missing = |(at, is_there): (usize, bool)| (needed[at] && !is_there).then_some(at);
        let missing: Vec<usize> = is_there.enumerate().filter_map(is_missing).collect();
        if !is_decoded && !missing.is_empty() {
            let message = "not decoded, so `where` finds no field: no stage `decode` before it \
                           knows their types";
            return self.context.note(message, self.count);
        }
        for at in missing {
            self.context.note(format!("no field `{}` in the decoded type", fields[at]), self.count);
        }
    }

    fn mismatches(&mut self, mismatches: &TypeMismatches) {
        for (span, message) in mismatches {
            let part = self.condition.text.get(span.clone()).unwrap_or_default();
            self.context.note(format!("`{part}` cannot be evaluated: {message}"), self.count);
        }
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Condition {
    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string",
            "description": "a condition, such as `vel[0] > 3 and quality != 0`" })
    }
}
