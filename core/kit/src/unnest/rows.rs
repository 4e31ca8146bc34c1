//! The rows of one type with their lists unnested, and where the rows of each event are.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StructArray, UInt32Array,
    UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow_select::nullif::nullif;
use arrow_select::take::take;
use sluice_model::{Batch, Error, FieldPath, MessageType, Payloads, Rows, TypeKey, array_bytes};

use super::MAX_REPEATED;
use crate::lists::ListColumn;

/// Repeats each event once per row. Unnested events lose their payload.
pub(super) fn expanded(batch: &Batch, places: &RowMap, is_expanded: &[bool]) -> Batch {
    batch.repeated(&places.events, |event| !is_expanded[event as usize])
}

/// Maps events to rows.
pub(super) struct RowMap {
    /// The first row of each event.
    starts: Vec<u32>,
    /// The event of each row.
    events: Vec<u32>,
    counts: Vec<u32>,
}

impl RowMap {
    pub(super) fn from_counts(counts: &[u32]) -> Self {
        let total = counts.iter().map(|count| *count as usize).sum();
        let (mut starts, mut events) =
            (Vec::with_capacity(counts.len()), Vec::with_capacity(total));
        for (event, count) in counts.iter().enumerate() {
            starts.push(events.len() as u32);
            events.resize(events.len() + *count as usize, event as u32);
        }
        Self { starts, events, counts: counts.to_vec() }
    }

    fn rows_of(&self, event: u32) -> Range<u32> {
        let start = self.starts[event as usize];
        start..start + self.counts[event as usize]
    }

    /// Maps rows without a list to the new positions of their events.
    pub(super) fn remap(&self, rows: &Rows) -> Option<Rows> {
        let is_one = |event: u32| self.counts[event as usize] == 1;
        let kept: Vec<u32> = (0..rows.events.len() as u32)
            .filter(|row| is_one(rows.events[*row as usize]))
            .collect();
        let mut moved =
            if kept.len() == rows.events.len() { rows.clone() } else { rows.pick(&kept) };
        moved.events.iter_mut().for_each(|event| *event = self.starts[*event as usize]);
        (!kept.is_empty()).then_some(moved)
    }
}

/// The lists at a path, one per row; `None` if there are none.
pub(super) fn lists_at(rows: &Rows, path: &FieldPath) -> Option<ListColumn> {
    // A list inside a dictionary could not be removed from it.
    let list = list_field(rows.columns.schema_ref(), &path.members()?)?;
    let array = path.resolve(&rows.columns).filter(|a| a.data_type() == list.data_type())?;
    ListColumn::from_array(&array)
}

/// The elements of all rows, concatenated.
fn elements(lists: &ListColumn) -> Result<ArrayRef, Error> {
    let mut filled = lists.ranges.iter().filter(|range| !range.is_empty());
    let Some(first) = filled.next() else { return Ok(lists.elements.slice(0, 0)) };
    let (start, mut end) = (first.start, first.end);
    let is_one_run = filled.all(|range| range.start == std::mem::replace(&mut end, range.end));
    if is_one_run {
        return Ok(lists.elements.slice(start, end - start));
    }
    let places = lists.ranges.iter().cloned().flatten().map(|place| place as u64);
    take(&lists.elements, &UInt64Array::from_iter_values(places), None).map_err(broken)
}

/// Unnests the rows with these lists.
pub(super) fn unnest_rows(
    lists: &ListColumn,
    rows: &Rows,
    path: &FieldPath,
    places: &RowMap,
) -> Result<Rows, Error> {
    let members = path.members().unwrap_or_default();
    let mut repeats = Vec::with_capacity(lists.ranges.iter().map(Range::len).sum());
    for (row, range) in (0u32..).zip(&lists.ranges) {
        repeats.resize(repeats.len() + range.len(), row);
    }
    let repeats = UInt32Array::from(repeats);
    let (schema, beside) = (rows.columns.schema_ref(), other_columns(rows, path)?);
    check_repeated(&beside, lists, path)?;
    let place = schema.index_of(path.first()).map_err(broken)?;
    let is_left = beside.len() == schema.fields().len();
    let mut columns =
        UnnestedColumns { list: place + usize::from(is_left), ..UnnestedColumns::default() };
    for (field, array) in beside {
        columns.push(field, take(&array, &repeats, None).map_err(broken)?);
    }
    let list =
        list_field(schema, &members).ok_or_else(|| Error::internal("a list without a field"))?;
    columns.insert_elements(&elements(lists)?, &list)?;
    let mut events = Vec::with_capacity(repeats.len());
    events.extend(rows.events.iter().flat_map(|event| places.rows_of(*event)));
    Ok(Rows {
        message: Arc::new(unnested_type(&rows.message, path)),
        payloads: Payloads::Gone,
        columns: columns.finish(events.len())?,
        events,
    })
}

/// The columns of a type with the list at a path unnested; `None` if it has none.
pub(super) fn unnested_schema(schema: &SchemaRef, path: &FieldPath) -> Option<SchemaRef> {
    let rows = Rows {
        message: Arc::new(MessageType::named("", TypeKey(0))),
        payloads: Payloads::Gone,
        columns: RecordBatch::new_empty(Arc::clone(schema)),
        events: Vec::new(),
    };
    let lists = lists_at(&rows, path)?;
    let rows = unnest_rows(&lists, &rows, path, &RowMap::from_counts(&[])).ok()?;
    Some(rows.columns.schema())
}

/// The columns without the list. If it is in a struct, that keeps its other members.
pub(super) fn other_columns(
    rows: &Rows,
    path: &FieldPath,
) -> Result<Vec<(FieldRef, ArrayRef)>, Error> {
    let (schema, members) = (rows.columns.schema_ref(), path.members().unwrap_or_default());
    let place = schema.index_of(path.first()).map_err(broken)?;
    let all = schema.fields().iter().zip(rows.columns.columns()).enumerate();
    let beside = all.filter_map(|(at, (field, array))| match at == place {
        true => without_list(field, array, &members),
        false => Some((Arc::clone(field), Arc::clone(array))),
    });
    Ok(beside.collect())
}

/// The size of a value in bytes.
pub(super) fn value_bytes(array: &ArrayRef, row: usize) -> usize {
    match array.data_type().primitive_width() {
        Some(width) => width,
        None => array_bytes(&array.slice(row, 1)),
    }
}

fn check_repeated(
    beside: &[(FieldRef, ArrayRef)],
    lists: &ListColumn,
    path: &FieldPath,
) -> Result<(), Error> {
    let of_row = |(row, range): (usize, &Range<usize>)| {
        let bytes = beside.iter().map(|(_, array)| value_bytes(array, row));
        bytes.fold(0, usize::saturating_add).saturating_mul(range.len())
    };
    let bytes = lists.ranges.iter().enumerate().map(of_row).fold(0, usize::saturating_add);
    if bytes <= MAX_REPEATED {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the fields next to the lists `{path}` would take {bytes} bytes, repeated in each row, \
         more than the limit of {MAX_REPEATED}; write the lists without `unnest`"
    )))
}

/// A column without the list at these members; `None` if it is the list itself.
fn without_list(
    field: &FieldRef,
    array: &ArrayRef,
    members: &[&str],
) -> Option<(FieldRef, ArrayRef)> {
    let (_, inner) = members.split_first()?;
    let wanted = inner.first()?;
    let parent = array.as_struct_opt()?;
    let place = parent.fields().iter().position(|field| field.name() == wanted)?;
    let all = parent.fields().iter().zip(parent.columns()).enumerate();
    let left = all.filter_map(|(at, (field, array))| match at == place {
        true => without_list(field, array, inner),
        false => Some((Arc::clone(field), Arc::clone(array))),
    });
    let (fields, arrays): (Vec<FieldRef>, Vec<ArrayRef>) = left.unzip();
    if fields.is_empty() {
        return None;
    }
    let left = StructArray::try_new(fields.into(), arrays, parent.nulls().cloned()).ok()?;
    let data_type = left.data_type().clone();
    Some((Arc::new(field.as_ref().clone().with_data_type(data_type)), Arc::new(left)))
}

/// The field of the list at these members.
fn list_field(schema: &Schema, members: &[&str]) -> Option<FieldRef> {
    let mut fields: &Fields = schema.fields();
    let (last, before) = members.split_last()?;
    let find = |fields: &Fields, name: &str| fields.iter().position(|field| field.name() == name);
    for name in before {
        let DataType::Struct(inner) = fields[find(fields, name)?].data_type() else { return None };
        fields = inner;
    }
    Some(Arc::clone(&fields[find(fields, last)?]))
}

/// The columns of unnested rows.
#[derive(Default)]
struct UnnestedColumns {
    fields: Vec<FieldRef>,
    arrays: Vec<ArrayRef>,
    /// The index at which elements are inserted.
    list: usize,
}

impl UnnestedColumns {
    fn push(&mut self, field: FieldRef, array: ArrayRef) {
        self.fields.push(field);
        self.arrays.push(array);
    }

    /// Inserts the elements at the position of their list.
    fn insert_elements(&mut self, elements: &ArrayRef, list: &Field) -> Result<(), Error> {
        let mut taken: BTreeSet<String> = self.fields.iter().map(|f| f.name().clone()).collect();
        for (at, (field, array)) in element_columns(elements, list)?.into_iter().enumerate() {
            let name = unique_name(field.name(), list.name(), &mut taken);
            let metadata = list.metadata().clone().into_iter().chain(field.metadata().clone());
            let field = field.with_name(name).with_metadata(metadata.collect());
            self.fields.insert(self.list + at, Arc::new(field));
            self.arrays.insert(self.list + at, array);
        }
        Ok(())
    }

    fn finish(self, rows: usize) -> Result<RecordBatch, Error> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::new(self.fields));
        RecordBatch::try_new_with_options(schema, self.arrays, &options).map_err(broken)
    }
}

/// The members of elements, or the elements themselves. Members of a null element are null.
fn element_columns(elements: &ArrayRef, list: &Field) -> Result<Vec<(Field, ArrayRef)>, Error> {
    let may_be_null = match list.data_type() {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => element.is_nullable(),
        _ => true,
    };
    let Some(parent) = elements.as_struct_opt() else {
        let field = Field::new(list.name(), elements.data_type().clone(), may_be_null);
        return Ok(vec![(field, Arc::clone(elements))]);
    };
    let nulls = parent.nulls().filter(|nulls| nulls.null_count() > 0);
    let is_null = nulls.map(|nulls| BooleanArray::new(!nulls.inner(), None));
    let each = parent.fields().iter().zip(parent.columns()).map(|(field, array)| {
        let field = field.as_ref().clone();
        let is_nullable = field.is_nullable() || may_be_null;
        let array = match &is_null {
            Some(is_null) => nullif(array, is_null).map_err(broken)?,
            None => Arc::clone(array),
        };
        Ok((field.with_nullable(is_nullable), array))
    });
    each.collect()
}

/// A column name that is not taken.
fn unique_name(name: &str, list: &str, taken: &mut BTreeSet<String>) -> String {
    let mut own = name.to_owned();
    if taken.contains(&own) {
        own = format!("{list}_{name}");
    }
    while taken.contains(&own) {
        own.push('_');
    }
    taken.insert(own.clone());
    own
}

/// The type of rows unnested at `path` from rows of `message`: the same name with another key, so
/// that tables do not mix them.
pub fn unnested_type(message: &MessageType, path: &FieldPath) -> MessageType {
    let mut hash = blake3::Hasher::new();
    hash.update(b"unnested").update(&message.key.0.to_be_bytes());
    hash.update(path.to_string().as_bytes());
    let key =
        hash.finalize().as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    MessageType::part(Arc::clone(&message.name), TypeKey(key))
}

fn broken(error: ArrowError) -> Error {
    Error::internal(format!("a list cannot be unnested: {error}"))
}
