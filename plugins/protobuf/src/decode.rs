//! Decodes messages into columns. Strictly, it accepts only the bytes that `encode` writes;
//! leniently, whatever other writers may write.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use sluice_model::raw::NOT_CANONICAL;

use crate::columns::{ColumnBuilder, ColumnData, EmptyBudget, builders, truncate};
use crate::plan::{FieldPlan, MessagePlan, Presence, Scalar, ValuePlan};
use crate::wire::{PayloadFault, WireCursor, WireType, WireValue, unzigzag};

const NOT_TEXT: PayloadFault = "text is not UTF-8";
const MISSING: PayloadFault = "a field is missing";

/// Which messages are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// Those that are encoded as the same bytes. Others are refused as [`NOT_CANONICAL`], unless
    /// for a reason of their own.
    Canonical,
    /// All that are valid.
    Any,
}

/// Decodes these payloads; each that is refused calls `refuse`. Returns the columns of the others.
pub(crate) fn decode<'b>(
    plan: &MessagePlan,
    schema: &SchemaRef,
    payloads: impl Iterator<Item = &'b [u8]>,
    strictness: Strictness,
    mut outcome: impl FnMut(usize, Result<(), PayloadFault>),
) -> Result<RecordBatch, ArrowError> {
    let (mut columns, mut rows) = (builders(plan), 0);
    for (at, payload) in payloads.enumerate() {
        let mut decoder = Decoder { empty: EmptyBudget::for_payload(payload.len()) };
        let decoded = match strictness {
            Strictness::Canonical => {
                decoder.canonical(&plan.fields, plan.oneofs, &mut columns, payload)
            }
            Strictness::Any => decoder.any(&plan.fields, plan.oneofs, &mut columns, payload),
        };
        match decoded {
            Ok(()) => rows += 1,
            Err(_) => truncate(&mut columns, rows),
        }
        outcome(at, decoded);
    }
    let arrays = columns.into_iter().zip(schema.fields());
    let arrays = arrays.map(|(column, field)| column.finish(field.data_type()));
    let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options)
}

struct Decoder {
    empty: EmptyBudget,
}

impl Decoder {
    /// Adds a row to `columns` from a message that `encode` could have written.
    fn canonical(
        &mut self,
        fields: &[FieldPlan],
        oneofs: usize,
        columns: &mut [ColumnBuilder],
        bytes: &[u8],
    ) -> Result<(), PayloadFault> {
        let mut cursor = WireCursor::new(bytes);
        let mut each = fields.iter().zip(columns);
        let mut is_set = vec![false; oneofs];
        while !cursor.is_empty() {
            let tag = cursor.tag()?;
            let (plan, column) = loop {
                let (plan, column) = each.next().ok_or(NOT_CANONICAL)?;
                if plan.tag == tag {
                    break (plan, column);
                }
                self.absent(plan, column)?;
            };
            if let Some(is_set) = plan.oneof.and_then(|oneof| is_set.get_mut(oneof))
                && std::mem::replace(is_set, true)
            {
                return Err(NOT_CANONICAL);
            }
            match plan.presence {
                Presence::List { is_packed, .. } => {
                    let Some(items) = column.item() else { return Err(MISSING) };
                    match is_packed {
                        true => self.packed(plan, items, cursor.bytes()?, Strictness::Canonical)?,
                        false => self.elements(plan, items, &mut cursor)?,
                    }
                    column.end_list()?;
                }
                Presence::Implicit => {
                    self.value(&plan.value, column, &mut cursor)?;
                    if is_zero(column) {
                        return Err(NOT_CANONICAL);
                    }
                }
                Presence::Optional => {
                    column.push_valid();
                    self.value(&plan.value, column, &mut cursor)?;
                }
                Presence::Always => self.value(&plan.value, column, &mut cursor)?,
            }
        }
        each.try_for_each(|(plan, column)| self.absent(plan, column))?;
        if cursor.is_minimal() { Ok(()) } else { Err(NOT_CANONICAL) }
    }

    /// Adds the elements of a list that is not packed, from the one at the cursor on, behind its
    /// tag. `Err` also for a map that has a key twice.
    fn elements<'b>(
        &mut self,
        plan: &FieldPlan,
        items: &mut ColumnBuilder,
        cursor: &mut WireCursor<'b>,
    ) -> Result<(), PayloadFault> {
        let mut keys: HashSet<MapKey<'b>> = HashSet::new();
        loop {
            let mut entry_at = *cursor;
            self.value(&plan.value, items, cursor)?;
            if let ValuePlan::Message(entry) = &plan.value
                && entry.is_map_entry
                && !keys.insert(MapKey::parse(entry, entry_at.bytes()?)?)
            {
                return Err(NOT_CANONICAL);
            }
            if !cursor.tag_is(plan.tag)? {
                return Ok(());
            }
        }
    }

    /// Adds what a field means that is not written.
    fn absent(&mut self, plan: &FieldPlan, column: &mut ColumnBuilder) -> Result<(), PayloadFault> {
        match plan.presence {
            // Other writers leave it out.
            Presence::Always => Err(NOT_CANONICAL),
            // A list has no elements then. Whether it is null, a wrapper has said.
            Presence::List { .. } => self.end_list(column),
            _ => column.push_empty(&mut self.empty),
        }
    }

    fn end_list(&mut self, column: &mut ColumnBuilder) -> Result<(), PayloadFault> {
        self.empty.spend(1)?;
        column.end_list()
    }

    /// Adds the value behind a tag, which is canonical.
    fn value(
        &mut self,
        value: &ValuePlan,
        column: &mut ColumnBuilder,
        cursor: &mut WireCursor<'_>,
    ) -> Result<(), PayloadFault> {
        match value {
            ValuePlan::Scalar(Scalar::Text, _) => column.push_bytes(text(cursor.bytes()?)?),
            ValuePlan::Scalar(Scalar::Bytes, _) => column.push_bytes(cursor.bytes()?),
            ValuePlan::Scalar(scalar, _) => {
                let word = match scalar.wire_type() {
                    WireType::Fixed32 => u64::from(cursor.fixed32()?),
                    WireType::Fixed64 => cursor.fixed64()?,
                    _ => cursor.varint()?,
                };
                column.push_word(canonical_number(*scalar, word)?)
            }
            ValuePlan::Message(message) => {
                let bytes = cursor.bytes()?;
                let Some((children, len)) = children(column) else { return Err(MISSING) };
                self.canonical(&message.fields, message.oneofs, children, bytes)?;
                *len += 1;
                Ok(())
            }
            ValuePlan::Wrapper(inner) => {
                let bytes = cursor.bytes()?;
                self.canonical(std::slice::from_ref(inner), 0, std::slice::from_mut(column), bytes)
            }
        }
    }

    /// Adds the elements of a packed list.
    fn packed(
        &mut self,
        plan: &FieldPlan,
        items: &mut ColumnBuilder,
        bytes: &[u8],
        strictness: Strictness,
    ) -> Result<(), PayloadFault> {
        let ValuePlan::Scalar(scalar, _) = &plan.value else { return Err(NOT_CANONICAL) };
        let is_strict = strictness == Strictness::Canonical;
        if is_strict && bytes.is_empty() {
            return Err(NOT_CANONICAL);
        }
        let mut cursor = WireCursor::new(bytes);
        while !cursor.is_empty() {
            let word = match scalar.wire_type() {
                WireType::Fixed32 => u64::from(cursor.fixed32()?),
                WireType::Fixed64 => cursor.fixed64()?,
                _ => cursor.varint()?,
            };
            let word =
                if is_strict { canonical_number(*scalar, word)? } else { number(*scalar, word) };
            items.push_word(word)?;
        }
        if is_strict && !cursor.is_minimal() { Err(NOT_CANONICAL) } else { Ok(()) }
    }

    /// Adds a row to `columns` from any message: fields in any order, repeated or unknown, packed
    /// or not. The last of several values counts, messages are merged.
    fn any(
        &mut self,
        fields: &[FieldPlan],
        oneofs: usize,
        columns: &mut [ColumnBuilder],
        bytes: &[u8],
    ) -> Result<(), PayloadFault> {
        let mut found: Vec<Vec<WireValue<'_>>> = vec![Vec::new(); fields.len()];
        let mut members: Vec<Option<usize>> = vec![None; oneofs];
        let mut cursor = WireCursor::new(bytes);
        while !cursor.is_empty() {
            let tag = cursor.tag()?;
            let value = cursor.value(tag)?;
            let Ok(at) = fields.binary_search_by_key(&(tag >> 3), |field| field.number) else {
                continue;
            };
            let (Some(plan), Some(values)) = (fields.get(at), found.get_mut(at)) else { continue };
            // A value of another wire type is that of an unknown field.
            if !accepts(plan, tag) {
                continue;
            }
            values.push(value);
            if let Some(member) = plan.oneof.and_then(|oneof| members.get_mut(oneof))
                && let Some(before) = member.replace(at).filter(|before| *before != at)
                && let Some(values) = found.get_mut(before)
            {
                values.clear();
            }
        }
        for ((plan, column), values) in fields.iter().zip(columns).zip(found) {
            self.field(plan, column, &values)?;
        }
        Ok(())
    }

    /// Adds what all values of a field mean together.
    fn field(
        &mut self,
        plan: &FieldPlan,
        column: &mut ColumnBuilder,
        values: &[WireValue<'_>],
    ) -> Result<(), PayloadFault> {
        if let Presence::List { .. } = plan.presence {
            let Some(items) = column.item() else { return Err(MISSING) };
            let entries = match &plan.value {
                ValuePlan::Message(entry) if entry.is_map_entry => {
                    Cow::Owned(last_of_keys(entry, values)?)
                }
                _ => Cow::Borrowed(values),
            };
            for value in &*entries {
                match (value, &plan.value) {
                    (WireValue::Bytes(bytes), ValuePlan::Scalar(scalar, _))
                        if scalar.is_packable() =>
                    {
                        self.packed(plan, items, bytes, Strictness::Any)?;
                    }
                    _ => self.any_value(&plan.value, items, std::slice::from_ref(value))?,
                }
            }
            return self.end_list(column);
        }
        if !values.is_empty() {
            if plan.presence == Presence::Optional {
                column.push_valid();
            }
            return self.any_value(&plan.value, column, values);
        }
        match (plan.presence, &plan.value) {
            (Presence::Always, ValuePlan::Message(_) | ValuePlan::Wrapper(_)) => {
                self.any_value(&plan.value, column, &[WireValue::Bytes(&[])])
            }
            _ => column.push_empty(&mut self.empty),
        }
    }

    fn any_value(
        &mut self,
        value: &ValuePlan,
        column: &mut ColumnBuilder,
        values: &[WireValue<'_>],
    ) -> Result<(), PayloadFault> {
        if let ValuePlan::Scalar(scalar, _) = value {
            return match (scalar, values.last()) {
                (Scalar::Text, Some(WireValue::Bytes(bytes))) => column.push_bytes(text(bytes)?),
                (_, Some(WireValue::Bytes(bytes))) => column.push_bytes(bytes),
                (_, Some(WireValue::Number(word))) => column.push_word(number(*scalar, *word)),
                (_, Some(WireValue::Group) | None) => Err(MISSING),
            };
        }
        // Messages of one field are merged, which is what their bytes mean one behind the other.
        let mut all = values.iter().filter_map(|value| match value {
            WireValue::Bytes(bytes) => Some(*bytes),
            WireValue::Number(_) | WireValue::Group => None,
        });
        let merged;
        let bytes = match values.len() {
            1 => all.next().unwrap_or_default(),
            _ => {
                merged = all.collect::<Vec<_>>().concat();
                &merged
            }
        };
        match value {
            ValuePlan::Wrapper(inner) => {
                self.any(std::slice::from_ref(inner), 0, std::slice::from_mut(column), bytes)
            }
            ValuePlan::Message(message) => {
                let Some((children, len)) = children(column) else { return Err(MISSING) };
                self.any(&message.fields, message.oneofs, children, bytes)?;
                *len += 1;
                Ok(())
            }
            ValuePlan::Scalar(..) => Err(MISSING),
        }
    }
}

/// The key of an entry of a map.
#[derive(PartialEq, Eq, Hash)]
enum MapKey<'b> {
    Number(u64),
    Text(&'b [u8]),
}

impl<'b> MapKey<'b> {
    /// The key of an entry with these bytes: the default of its type if none is there.
    fn parse(entry: &MessagePlan, bytes: &'b [u8]) -> Result<Self, PayloadFault> {
        let plan = entry.fields.first().ok_or(MISSING)?;
        let ValuePlan::Scalar(scalar, _) = plan.value else { return Err(MISSING) };
        let (mut cursor, mut key) = (WireCursor::new(bytes), None);
        while !cursor.is_empty() {
            let tag = cursor.tag()?;
            let value = cursor.value(tag)?;
            if tag >> 3 == plan.number && accepts(plan, tag) {
                key = Some(value);
            }
        }
        Ok(match key {
            Some(WireValue::Bytes(bytes)) => Self::Text(bytes),
            Some(WireValue::Number(word)) => Self::Number(number(scalar, word)),
            Some(WireValue::Group) | None if scalar == Scalar::Text => Self::Text(&[]),
            Some(WireValue::Group) | None => Self::Number(0),
        })
    }
}

/// The entries of a map: of several with one key the last one, in place of the first.
fn last_of_keys<'b>(
    entry: &MessagePlan,
    values: &[WireValue<'b>],
) -> Result<Vec<WireValue<'b>>, PayloadFault> {
    let (mut places, mut entries) = (HashMap::new(), Vec::new());
    for value in values {
        let WireValue::Bytes(bytes) = value else { continue };
        let place = *places.entry(MapKey::parse(entry, bytes)?).or_insert(entries.len());
        match entries.get_mut(place) {
            Some(before) => *before = *value,
            None => entries.push(*value),
        }
    }
    Ok(entries)
}

fn children(column: &mut ColumnBuilder) -> Option<(&mut [ColumnBuilder], &mut usize)> {
    match &mut column.data {
        ColumnData::Struct { children, len } => Some((children, len)),
        _ => None,
    }
}

/// Whether values with this tag are values of the field.
fn accepts(plan: &FieldPlan, tag: u32) -> bool {
    let is_list = matches!(plan.presence, Presence::List { .. });
    let (wire_type, is_packable) = match &plan.value {
        ValuePlan::Scalar(scalar, _) => (scalar.wire_type(), scalar.is_packable()),
        ValuePlan::Message(_) | ValuePlan::Wrapper(_) => (WireType::Len, false),
    };
    let found = tag & 7;
    found == wire_type.number() || (is_list && is_packable && found == WireType::Len.number())
}

fn text(bytes: &[u8]) -> Result<&[u8], PayloadFault> {
    std::str::from_utf8(bytes).map(str::as_bytes).map_err(|_| NOT_TEXT)
}

/// The number of a scalar, whose word no other encoder writes differently.
#[inline]
fn canonical_number(scalar: Scalar, word: u64) -> Result<u64, PayloadFault> {
    let value = number(scalar, word);
    let is_canonical = match scalar {
        Scalar::Int32 | Scalar::Enum | Scalar::UInt32 | Scalar::Bool => value == word,
        Scalar::SInt32 => u32::try_from(word).is_ok(),
        _ => true,
    };
    if is_canonical { Ok(value) } else { Err(NOT_CANONICAL) }
}

/// The number of a scalar: signed ones extended, floats as their bits. Longer ones than the type
/// are cut as all parsers do.
#[inline]
fn number(scalar: Scalar, word: u64) -> u64 {
    match scalar {
        Scalar::Int32 | Scalar::Enum | Scalar::SFixed32 => {
            i64::from((word as u32).cast_signed()).cast_unsigned()
        }
        Scalar::UInt32 | Scalar::Fixed32 | Scalar::Float => u64::from(word as u32),
        Scalar::SInt32 => unzigzag(u64::from(word as u32)).cast_unsigned(),
        Scalar::SInt64 => unzigzag(word).cast_unsigned(),
        Scalar::Bool => u64::from(word != 0),
        _ => word,
    }
}

/// Whether the last value of a column is what an absent field means.
fn is_zero(column: &ColumnBuilder) -> bool {
    match &column.data {
        ColumnData::Bool(values) => values.last() == Some(&false),
        ColumnData::Numbers(_, words) => words.last() == 0,
        ColumnData::Bytes { offsets, .. } => {
            offsets.last_chunk::<2>().is_some_and(|[start, end]| start == end)
        }
        ColumnData::FixedBytes { width, .. } => *width == 0,
        ColumnData::List { .. } | ColumnData::FixedList { .. } | ColumnData::Struct { .. } => false,
    }
}
