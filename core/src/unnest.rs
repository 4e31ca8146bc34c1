//! Unnesting: of rows with a list in them, a row for each element. Chooses no list, and writes nothing.
//!
//! An event stays one event for as long as it can: a scan is a row with a list of points. Tables are to have
//! a row a point, so sinks take lists apart when they write, and go on counting events. As many rows may come of
//! an event that there is no room for them at once: [`UnnestPieces`] gives them one behind another.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StructArray, UInt32Array,
    UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};
use arrow_select::nullif::nullif;
use arrow_select::take::take;
use serde::{Deserialize, Deserializer};

use crate::column::{column, vector};
use crate::lists::ListColumn;
use crate::{Batch, Error, FieldPath, MessageType, Payloads, Rows, TypeKey};

/// A batch in which each element of a list is a row of its own.
#[derive(Clone, Debug)]
pub struct UnnestedBatch {
    /// The rows, in the order of the events and of the elements in them.
    pub batch: Batch,
    /// For each event of the batch that was unnested, how many rows it became.
    pub counts: Vec<u32>,
    /// Whether any event had such a list.
    pub has_lists: bool,
}

/// Reads the option that says which list a sink takes apart: a path without an index.
pub fn list_path<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<FieldPath>, D::Error> {
    let path = FieldPath::deserialize(deserializer)?;
    if path.members().is_some() {
        return Ok(Some(path));
    }
    let message = format!("`{path}` is one element; name a whole list, such as `points`");
    Err(serde::de::Error::custom(message))
}

/// Most rows that a batch becomes at once: its times, numbers and channels take more than a gigabyte then.
const MOST_ROWS: usize = 32 << 20;

/// Most bytes of what stands beside a list, repeated for each of its elements.
const MOST_REPEATED: usize = 1 << 30;

/// How many rows each event becomes if the lists at `path` are taken apart: 1 where there is none. Nothing
/// if no event has a list there.
///
/// A list that is null is one without elements. `Err` if a list is longer than 32 bits can count.
pub fn row_counts(batch: &Batch, path: &FieldPath) -> Result<Option<Vec<u32>>, Error> {
    let mut counts = None;
    for rows in batch.rows() {
        let Some(lists) = lists_at(rows, path) else { continue };
        let counts = counts.get_or_insert_with(|| vec![1; batch.len()]);
        count(rows, &lists, path, counts)?;
    }
    Ok(counts)
}

fn count(
    rows: &Rows,
    lists: &ListColumn,
    path: &FieldPath,
    counts: &mut [u32],
) -> Result<(), Error> {
    for (event, range) in rows.events.iter().zip(&lists.ranges) {
        counts[*event as usize] = u32::try_from(range.len()).map_err(|_| {
            Error::invalid(format!(
                "a list `{path}` has {} elements, and {} is the most that is taken apart; write it as it is, \
                 without `unnest`",
                range.len(),
                u32::MAX
            ))
        })?;
    }
    Ok(())
}

/// Takes the lists at `path` apart: in what comes of it each element of a list is a row.
///
/// What every event has, and the other fields of the message, stand in each row again. In place of the list
/// stand the members of its elements, or, if these have none, a field that is called as the list. A member
/// that is called as another field gets the list's name and `_` in front. Rows of other types stay as they
/// are; an event whose list is empty or null gives no row. Of events that had a list no payload is left, and
/// their type is another one, which cannot be encoded.
///
/// `path` leads through members only: for one with an index no event has a list. Elements are not copied
/// where they lie one behind another. `Err` if there would be too many rows, or too much beside the lists
/// would have to be repeated.
pub fn unnest(batch: &Batch, path: &FieldPath) -> Result<UnnestedBatch, Error> {
    unnest_within(batch, path, None)
}

/// The same with those elements alone that have these numbers in their list.
fn unnest_within(
    batch: &Batch,
    path: &FieldPath,
    numbers: Option<&Range<usize>>,
) -> Result<UnnestedBatch, Error> {
    let (mut counts, mut all_lists) = (vec![1; batch.len()], Vec::new());
    for rows in batch.rows() {
        let mut lists = lists_at(rows, path);
        if let Some(lists) = &mut lists {
            numbers.iter().for_each(|numbers| lists.clip(numbers));
            count(rows, lists, path, &mut counts)?;
        }
        all_lists.push(lists);
    }
    if all_lists.iter().all(Option::is_none) {
        return Ok(UnnestedBatch { batch: batch.clone(), counts, has_lists: false });
    }
    check_rows(&counts, path)?;
    let places = RowMap::from_counts(&counts);
    let mut is_expanded = vec![false; batch.len()];
    let mut all = Vec::with_capacity(batch.rows().len());
    for (rows, lists) in batch.rows().iter().zip(&all_lists) {
        all.extend(match lists {
            Some(lists) => {
                rows.events.iter().for_each(|event| is_expanded[*event as usize] = true);
                Some(unnest_rows(lists, rows, path, &places)?)
            }
            None => places.remap(rows),
        });
    }
    let batch = expanded(batch, &places, &is_expanded).with_rows(all);
    Ok(UnnestedBatch { batch, counts, has_lists: true })
}

fn check_rows(counts: &[u32], path: &FieldPath) -> Result<(), Error> {
    let total = counts.iter().map(|count| *count as usize).sum::<usize>();
    if total <= MOST_ROWS {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the lists `{path}` of {} events have {total} elements, and {MOST_ROWS} rows are the most that are \
         made of a batch; write such lists as they are, without `unnest`",
        counts.len()
    )))
}

/// Some events of a batch, or of one event some of the elements of its list.
#[derive(Clone, Debug)]
pub struct UnnestPiece {
    events: Batch,
    /// The numbers of the elements that are meant, if not all are.
    numbers: Option<Range<usize>>,
}

impl UnnestPiece {
    /// Whole events.
    pub fn whole(events: Batch) -> Self {
        Self { events, numbers: None }
    }

    /// Of the lists of these events, mostly one, the elements with these numbers.
    pub fn elements(events: Batch, numbers: Range<usize>) -> Self {
        Self { events, numbers: Some(numbers) }
    }

    /// The events with all they have.
    pub fn batch(&self) -> &Batch {
        &self.events
    }

    /// How many events begin in it: the pieces of a batch together have all of them, each once.
    pub fn events(&self) -> u64 {
        match &self.numbers {
            Some(numbers) if numbers.start > 0 => 0,
            _ => self.events.len() as u64,
        }
    }

    /// What it becomes when the lists at `path` are taken apart: see [`unnest`].
    pub fn unnest(&self, path: &FieldPath) -> Result<UnnestedBatch, Error> {
        unnest_within(&self.events, path, self.numbers.as_ref())
    }
}

/// Cuts a batch so that each piece, its lists taken apart, has at most 65 536 rows and few megabytes.
///
/// A row that is larger is a piece of its own. The pieces have all rows in order. Nothing of a piece is made
/// before it is asked for.
#[derive(Debug)]
pub struct UnnestPieces {
    batch: Batch,
    sizes: Vec<EventSize>,
    /// The next event.
    event: usize,
    /// The event before it, if its list is longer than a piece, and the next of its elements.
    long: Option<(Batch, EventSize, usize)>,
}

/// What an event becomes.
#[derive(Clone, Copy, Debug)]
struct EventSize {
    rows: usize,
    /// Bytes of a row.
    row: usize,
}

impl EventSize {
    fn bytes(self) -> usize {
        self.rows.saturating_mul(self.row)
    }

    /// How many of its rows go into a piece.
    fn rows_a_piece(self) -> usize {
        (PIECE_BYTES / self.row.max(1)).clamp(1, PIECE_ROWS)
    }
}

/// Most rows of a piece.
const PIECE_ROWS: usize = 64 << 10;
/// Most bytes of a piece that has more than a row.
const PIECE_BYTES: usize = 8 << 20;
/// What a row takes at least: times, numbers, channels.
const ROW_BYTES: usize = 64;

impl UnnestPieces {
    /// The pieces of a batch whose lists at `path` are taken apart. Without a path none are.
    pub fn new(batch: Batch, path: Option<&FieldPath>) -> Result<Self, Error> {
        let sizes = sizes(&batch, path)?;
        Ok(Self { batch, sizes, event: 0, long: None })
    }

    /// How many of the next events go into a piece.
    fn fitting(&self) -> usize {
        let (mut rows, mut bytes) = (0usize, 0usize);
        let next = self.sizes.get(self.event..).unwrap_or_default().iter();
        let fitting = next.take_while(|size| {
            rows = rows.saturating_add(size.rows);
            bytes = bytes.saturating_add(size.bytes());
            rows <= PIECE_ROWS && bytes <= PIECE_BYTES
        });
        fitting.count()
    }

    /// The next elements of an event that has too many for a piece.
    fn next_elements(&mut self) -> Option<UnnestPiece> {
        let (event, size, start) = self.long.as_mut()?;
        let end = start.saturating_add(size.rows_a_piece()).min(size.rows);
        let piece = UnnestPiece::elements(event.clone(), *start..end);
        *start = end;
        if end == size.rows {
            self.long = None;
        }
        Some(piece)
    }
}

impl Iterator for UnnestPieces {
    type Item = UnnestPiece;

    fn next(&mut self) -> Option<UnnestPiece> {
        if let Some(piece) = self.next_elements() {
            return Some(piece);
        }
        let (start, count) = (self.event, self.fitting());
        let first = *self.sizes.get(start)?;
        let events = self.batch.slice(start, count.max(1));
        self.event += count.max(1);
        if count == 0 && first.rows > 1 {
            self.long = Some((events, first, 0));
            return self.next_elements();
        }
        Some(UnnestPiece::whole(events))
    }
}

fn sizes(batch: &Batch, path: Option<&FieldPath>) -> Result<Vec<EventSize>, Error> {
    let alone = |event| EventSize { rows: 1, row: ROW_BYTES + batch.payload_len(event) };
    let mut sizes: Vec<EventSize> = (0..batch.len()).map(alone).collect();
    for rows in batch.rows() {
        let lists = path.and_then(|path| Some((path, lists_at(rows, path)?)));
        let Some((path, lists)) = lists else {
            let each = rows.memory() / rows.events.len().max(1);
            rows.events.iter().for_each(|event| sizes[*event as usize].row += each);
            continue;
        };
        let mut counts = vec![1; batch.len()];
        count(rows, &lists, path, &mut counts)?;
        let element = lists.elements.get_array_memory_size() / lists.elements.len().max(1);
        let beside = other_columns(rows, path)?;
        for (row, event) in rows.events.iter().enumerate() {
            let bytes = beside.iter().map(|(_, array)| value_bytes(array, row));
            let row = bytes.fold(ROW_BYTES + element, usize::saturating_add);
            sizes[*event as usize] = EventSize { rows: counts[*event as usize] as usize, row };
        }
    }
    Ok(sizes)
}

/// The events of a batch as often as they have rows. What is expanded has no payload.
fn expanded(batch: &Batch, places: &RowMap, is_expanded: &[bool]) -> Batch {
    let events = &places.events;
    let repeat = |of: &[i64]| {
        let mut repeated = vector(events.len());
        repeated.extend(events.iter().map(|event| of[*event as usize]));
        column(repeated)
    };
    let repeat_ids = |of: &[u32]| {
        let mut repeated = vector(events.len());
        repeated.extend(events.iter().map(|event| of[*event as usize]));
        column(repeated)
    };
    let mut payloads = vector(events.len());
    payloads.extend(events.iter().map(|event| match is_expanded[*event as usize] {
        true => 0,
        false => batch.payloads[*event as usize],
    }));
    let keeps_some = is_expanded.contains(&false);
    Batch {
        timestamps: repeat(&batch.timestamps),
        wide_times: None,
        sequences: repeat(&batch.sequences),
        channels: repeat_ids(&batch.channels),
        origins: batch.origins.as_ref().map(|origins| repeat_ids(origins)),
        payloads: column(payloads),
        segments: if keeps_some { Arc::clone(&batch.segments) } else { Vec::new().into() },
        rows: Vec::new(),
    }
}

/// Where the rows of each event are.
struct RowMap {
    /// The first row of each event.
    starts: Vec<u32>,
    /// The event of each row.
    events: Vec<u32>,
    counts: Vec<u32>,
}

impl RowMap {
    fn from_counts(counts: &[u32]) -> Self {
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

    /// Rows that have no list, at their events' new places.
    fn remap(&self, rows: &Rows) -> Option<Rows> {
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

/// The lists at a path, one a row of `rows`; nothing if there are none.
fn lists_at(rows: &Rows, path: &FieldPath) -> Option<ListColumn> {
    // What is behind a dictionary could not be left out of it.
    let list = list_field(rows.columns.schema_ref(), &path.members()?)?;
    let array = path.resolve(&rows.columns).filter(|a| a.data_type() == list.data_type())?;
    ListColumn::from_array(&array)
}

/// The elements of all rows, one behind another.
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

/// The rows that have these lists, with the lists taken apart.
fn unnest_rows(
    lists: &ListColumn,
    rows: &Rows,
    path: &FieldPath,
    places: &RowMap,
) -> Result<Rows, Error> {
    let members = path.members().unwrap_or_default();
    let repeats = UInt32Array::from_iter_values(
        (0u32..).zip(&lists.ranges).flat_map(|(row, range)| range.clone().map(move |_| row)),
    );
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
    let events = rows.events.iter().flat_map(|event| places.rows_of(*event)).collect::<Vec<_>>();
    Ok(Rows {
        message: Arc::new(unnested_type(&rows.message, path)),
        payloads: Payloads::Gone,
        columns: columns.finish(events.len())?,
        events,
    })
}

/// The columns without the list: its own is there, too, if there is something beside it in a struct.
fn other_columns(rows: &Rows, path: &FieldPath) -> Result<Vec<(FieldRef, ArrayRef)>, Error> {
    let (schema, members) = (rows.columns.schema_ref(), path.members().unwrap_or_default());
    let place = schema.index_of(path.first()).map_err(broken)?;
    let all = schema.fields().iter().zip(rows.columns.columns()).enumerate();
    let beside = all.filter_map(|(at, (field, array))| match at == place {
        true => without_list(field, array, &members),
        false => Some((Arc::clone(field), Arc::clone(array))),
    });
    Ok(beside.collect())
}

/// How many bytes a value takes.
fn value_bytes(array: &ArrayRef, row: usize) -> usize {
    match array.data_type().primitive_width() {
        Some(width) => width,
        None => array.slice(row, 1).to_data().get_slice_memory_size().unwrap_or(0),
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
    if bytes <= MOST_REPEATED {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the fields beside the lists `{path}` take {bytes} bytes if they stand in each row again, and \
         {MOST_REPEATED} is the most; write the lists as they are, without `unnest`"
    )))
}

/// What is left of a column without the list that these members lead to; nothing if it is the list.
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

/// The field of the list that these members lead to.
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

/// The columns of rows in the making.
#[derive(Default)]
struct UnnestedColumns {
    fields: Vec<FieldRef>,
    arrays: Vec<ArrayRef>,
    /// Where elements go.
    list: usize,
}

impl UnnestedColumns {
    fn push(&mut self, field: FieldRef, array: ArrayRef) {
        self.fields.push(field);
        self.arrays.push(array);
    }

    /// Puts the elements in the place of their list.
    fn insert_elements(&mut self, elements: &ArrayRef, list: &Field) -> Result<(), Error> {
        let mut taken: BTreeSet<String> = self.fields.iter().map(|f| f.name().clone()).collect();
        for (at, (field, array)) in element_columns(elements, list)?.into_iter().enumerate() {
            let name = unique_name(field.name(), list.name(), &mut taken);
            let said = list.metadata().clone().into_iter().chain(field.metadata().clone());
            let field = field.with_name(name).with_metadata(said.collect());
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

/// The members of elements, or these themselves. Members of an element that is null are null.
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

/// A name that no other column has.
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

/// The type of rows of which each was an element of the lists at `path` in rows of `message`: the same name and
/// a number of its own, so that tables of both do not mix.
pub fn unnested_type(message: &MessageType, path: &FieldPath) -> MessageType {
    let mut hash = blake3::Hasher::new();
    hash.update(b"unnested").update(&message.key.0.to_be_bytes());
    hash.update(path.to_string().as_bytes());
    let key =
        hash.finalize().as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    MessageType::part(Arc::clone(&message.name), TypeKey(key))
}

fn broken(error: ArrowError) -> Error {
    Error::internal(format!("a list cannot be taken apart: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, ChannelId};
    use arrow_array::types::{Float64Type, Int32Type, Int64Type};
    use arrow_array::{
        FixedSizeListArray, Float64Array, Int32Array, Int64Array, LargeListArray, ListArray,
        StringArray,
    };
    use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).unwrap()
    }

    /// A batch of so many events with payloads.
    fn events(count: u32) -> Batch {
        let mut builder = BatchBuilder::default();
        for n in 0..i64::from(count) {
            builder.push_copy(n * 10, n, ChannelId(n as u32 % 2), b"a payload that is long enough");
        }
        builder.finish()
    }

    fn rows(events: &[u32], columns: Vec<(&str, ArrayRef)>) -> Rows {
        let columns: Vec<_> = columns.into_iter().map(|(n, a)| (n, a, true)).collect();
        let columns = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let message = MessageType::named("t", TypeKey(columns.num_columns() as u64)).into();
        Rows { message, payloads: Payloads::Kept, events: events.to_vec(), columns }
    }

    /// Lists of structs with `x` and `time`, and so many elements a row; what `is_null` says is null.
    fn points(lengths: &[usize], nulls: Option<NullBuffer>) -> ArrayRef {
        let total: usize = lengths.iter().sum();
        let x: ArrayRef = Arc::new(Float64Array::from_iter_values((0..total).map(|n| n as f64)));
        let time: ArrayRef = Arc::new(Int64Array::from_iter_values((0..total as i64).map(|n| -n)));
        let inner = StructArray::try_from(vec![("x", x), ("time", time)]).unwrap();
        let element = Arc::new(Field::new("item", inner.data_type().clone(), false));
        let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
        Arc::new(ListArray::new(element, offsets, Arc::new(inner), nulls))
    }

    fn names(rows: &Rows) -> Vec<String> {
        rows.columns.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn longs(rows: &Rows, name: &str) -> Vec<i64> {
        let column = rows.columns.column_by_name(name).unwrap();
        column.as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn each_element_is_a_row_with_all_that_its_event_has() {
        let utimes: ArrayRef = Arc::new(Int64Array::from(vec![100, 200, 300]));
        let kinds: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
        let columns =
            vec![("utime", utimes), ("points", points(&[2, 0, 1], None)), ("time", kinds)];
        let plain = rows(&[2], vec![("v", Arc::new(Int32Array::from(vec![5])))]);
        let batch = events(5).with_channels(vec![3; 5]);
        let batch = batch.with_rows(vec![rows(&[0, 1, 3], columns), plain]);
        let UnnestedBatch { batch, counts, .. } = unnest(&batch, &path("points")).unwrap();
        assert_eq!(counts, [2, 0, 1, 1, 1]);
        assert_eq!(batch.sequences(), [0, 0, 2, 3, 4]);
        assert_eq!(batch.timestamps(), [0, 0, 20, 30, 40]);
        assert_eq!((batch.channels(), batch.origins()), (&[3; 5][..], &[0, 0, 0, 1, 0][..]));
        let lens: Vec<usize> = (0..5).map(|row| batch.payload_len(row)).collect();
        assert_eq!(lens, [0, 0, 29, 0, 29], "those of expanded events are gone");
        let [ours, plain] = batch.rows() else { panic!("{:?}", batch.rows()) };
        assert_eq!((&ours.events[..], &plain.events[..]), (&[0, 1, 3][..], &[2][..]));
        assert_eq!((ours.payloads, plain.payloads), (Payloads::Gone, Payloads::Kept));
        assert_eq!(names(ours), ["utime", "x", "points_time", "time"]);
        assert_eq!(longs(ours, "utime"), [100, 100, 300]);
        assert_eq!(longs(ours, "points_time"), [0, -1, -2]);
        assert_eq!(longs(ours, "time"), [7, 7, 9]);
        assert_eq!((&*ours.message.name, ours.message.key == TypeKey(3)), ("t", false));
    }

    #[test]
    fn elements_are_not_copied_where_they_lie_one_behind_another() {
        let list = points(&[1, 2, 3], None).slice(1, 2);
        let before = list.as_list::<i32>().values().as_struct().column(0).to_data();
        let batch = events(2).with_rows(vec![rows(&[0, 1], vec![("points", list)])]);
        let apart = unnest(&batch, &path("points")).unwrap().batch;
        let x = apart.rows()[0].columns.column(0).to_data();
        assert_eq!(x.buffers()[0].data_ptr(), before.buffers()[0].data_ptr());
        let x = apart.rows()[0].columns.column(0).as_primitive::<Float64Type>();
        assert_eq!(x.values()[..], [1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn a_list_that_is_null_has_no_elements_whatever_lies_below() {
        let nulls = NullBuffer::from(vec![true, false, true]);
        let batch = rows(&[0, 1, 2], vec![("points", points(&[1, 2, 1], Some(nulls)))]);
        let batch = events(3).with_rows(vec![batch]);
        assert_eq!(row_counts(&batch, &path("points")).unwrap().unwrap(), [1, 0, 1]);
        let apart = unnest(&batch, &path("points")).unwrap().batch;
        assert_eq!(longs(&apart.rows()[0], "time"), [0, -3]);
    }

    #[test]
    fn members_of_an_element_that_is_null_are_null() {
        let x: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let fields = vec![Field::new("x", DataType::Int32, false)].into();
        let valid = NullBuffer::from(vec![true, false, true]);
        let inner = StructArray::new(fields, vec![x], Some(valid));
        let element = Arc::new(Field::new("item", inner.data_type().clone(), true));
        let list = ListArray::new(element, OffsetBuffer::from_lengths([3]), Arc::new(inner), None);
        let batch = events(1).with_rows(vec![rows(&[0], vec![("l", Arc::new(list))])]);
        let apart = unnest(&batch, &path("l")).unwrap().batch;
        let x = apart.rows()[0].columns.column(0).as_primitive::<Int32Type>();
        assert_eq!(x.iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
    }

    #[test]
    fn plain_values_are_a_column_and_lists_in_structs_leave_the_rest() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let ranges = LargeListArray::from_iter_primitive::<Float64Type, _, _>([
            Some(vec![Some(0.5), None]),
            Some(vec![Some(1.5)]),
        ]);
        let scan = StructArray::try_from(vec![("a", a), ("ranges", Arc::new(ranges) as ArrayRef)]);
        let batch = rows(&[0, 1], vec![("scan", Arc::new(scan.unwrap()))]);
        let apart = unnest(&events(2).with_rows(vec![batch]), &path("scan.ranges")).unwrap().batch;
        let ours = &apart.rows()[0];
        assert_eq!(names(ours), ["scan", "ranges"]);
        let left = ours.columns.column(0).as_struct();
        assert_eq!(left.column_names(), ["a"]);
        assert_eq!(left.column(0).as_primitive::<Int64Type>().values()[..], [1, 1, 2]);
        let ranges = ours.columns.column(1).as_primitive::<Float64Type>();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [Some(0.5), None, Some(1.5)]);
    }

    #[test]
    fn a_list_that_is_all_there_is_leaves_no_column_beside_it() {
        let list = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
            [Some([Some(1), Some(2)]), None],
            2,
        );
        let only = StructArray::try_from(vec![("l", Arc::new(list) as ArrayRef)]).unwrap();
        let batch = events(2).with_rows(vec![rows(&[0, 1], vec![("s", Arc::new(only))])]);
        let apart = unnest(&batch, &path("s.l")).unwrap();
        assert_eq!(
            (names(&apart.batch.rows()[0]), apart.counts),
            (vec!["l".to_owned()], vec![2, 0])
        );
    }

    #[test]
    fn what_the_list_says_its_members_say_too() {
        let list = points(&[1], None);
        let said = [("frame".to_owned(), "local".to_owned())].into();
        let field = Field::new("points", list.data_type().clone(), false).with_metadata(said);
        let columns = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![list]).unwrap();
        let batch =
            Rows { columns, ..rows(&[0], vec![("v", Arc::new(Int32Array::from(vec![1])))]) };
        let apart = unnest(&events(1).with_rows(vec![batch]), &path("points")).unwrap().batch;
        let schema = apart.rows()[0].columns.schema();
        let frames: Vec<_> =
            schema.fields().iter().map(|f| f.metadata()["frame"].as_str()).collect();
        assert_eq!((frames, schema.field(0).is_nullable()), (vec!["local"; 2], false));
    }

    #[test]
    fn without_such_a_list_all_stays_as_it_is() {
        let batch = rows(&[0], vec![("v", Arc::new(Int32Array::from(vec![5])))]);
        let batch = events(2).with_rows(vec![batch]);
        for text in ["points", "v", "v[0]", "v.x"] {
            let apart = unnest(&batch, &path(text)).unwrap();
            assert_eq!((apart.batch.len(), apart.counts), (2, vec![1, 1]), "{text}");
            assert!(!apart.has_lists);
            assert_eq!(apart.batch.payload(1), batch.payload(1));
        }
    }

    #[test]
    fn lists_without_any_element_leave_a_type_and_no_rows() {
        let batch = rows(&[0, 1], vec![("points", points(&[0, 0], None))]);
        let apart = unnest(&events(2).with_rows(vec![batch]), &path("points")).unwrap();
        assert_eq!((apart.batch.len(), apart.counts), (0, vec![0, 0]));
        assert_eq!(names(&apart.batch.rows()[0]), ["x", "time"]);
    }

    #[test]
    fn more_than_memory_holds_is_refused() {
        let nothing: ArrayRef = Arc::new(arrow_array::NullArray::new(MOST_ROWS + 1));
        let element = Arc::new(Field::new("item", DataType::Null, true));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, MOST_ROWS as i32 + 1]));
        let list = ListArray::new(element, offsets, nothing, None);
        let batch = events(1).with_rows(vec![rows(&[0], vec![("l", Arc::new(list))])]);
        let error = unnest(&batch, &path("l")).unwrap_err().to_string();
        assert!(error.contains("33554433 elements"), "{error}");
        let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(2 << 20)]));
        let many = points(&[1000], None);
        let batch = rows(&[0], vec![("text", long), ("points", many)]);
        let error = unnest(&events(1).with_rows(vec![batch]), &path("points")).unwrap_err();
        assert!(error.to_string().contains("stand in each row again"), "{error}");
    }

    #[test]
    fn a_long_list_is_taken_apart_in_pieces_that_together_are_the_whole() {
        let text = |len: usize| "x".repeat(len);
        let texts: ArrayRef = Arc::new(StringArray::from(vec![text(1), text(1 << 20), text(1)]));
        for (lengths, pieces) in [([3, 4, 5], 1), ([200_000, 20, 90_000], 10), ([0, 0, 0], 1)] {
            let columns = vec![("text", Arc::clone(&texts)), ("points", points(&lengths, None))];
            let batch = events(4).with_rows(vec![rows(&[0, 1, 3], columns)]);
            let whole = unnest(&batch, &path("points")).unwrap();
            let all: Vec<UnnestPiece> =
                UnnestPieces::new(batch, Some(&path("points"))).unwrap().collect();
            let found: Vec<UnnestedBatch> =
                all.iter().map(|piece| piece.unnest(&path("points")).unwrap()).collect();
            assert_eq!((all.iter().map(UnnestPiece::events).sum::<u64>(), all.len()), (4, pieces));
            assert!(found.iter().all(|piece| piece.batch.len() <= PIECE_ROWS));
            let column = |batch: &Batch| -> Vec<i64> {
                batch.rows().first().map(|rows| longs(rows, "time")).unwrap_or_default()
            };
            let times: Vec<i64> = found.iter().flat_map(|piece| column(&piece.batch)).collect();
            let numbers: Vec<i64> =
                found.iter().flat_map(|piece| piece.batch.sequences().to_vec()).collect();
            assert_eq!(times, column(&whole.batch));
            assert_eq!(numbers, whole.batch.sequences());
        }
    }

    #[test]
    fn large_events_are_pieces_of_their_own_also_without_a_list() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(9 << 20); 3]));
        let batch = events(3).with_rows(vec![rows(&[0, 1, 2], vec![("text", texts)])]);
        let all: Vec<UnnestPiece> = UnnestPieces::new(batch, None).unwrap().collect();
        let numbers: Vec<&[i64]> = all.iter().map(|piece| piece.batch().sequences()).collect();
        assert_eq!(numbers, [[0], [1], [2]]);
        assert_eq!(UnnestPieces::new(events(50), None).unwrap().count(), 1);
        assert_eq!(UnnestPieces::new(Batch::default(), None).unwrap().count(), 0);
    }

    proptest! {
        #[test]
        fn rows_are_the_elements_in_order(
            lists in vec(proptest::option::of(vec(proptest::option::of(any::<i32>()), 0..4)), 0..12),
            gaps in vec(1u32..3, 12), cut in 0usize..12)
        {
            let list = ListArray::from_iter_primitive::<Int32Type, _, _>(lists.iter().cloned());
            let start = cut.min(lists.len());
            let list: ArrayRef = Arc::new(list.slice(start, lists.len() - start));
            let lists = &lists[start..];
            let mut next = 0;
            let at: Vec<u32> = gaps.iter().take(lists.len()).map(|gap| {
                next += gap;
                next - 1
            }).collect();
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..lists.len() as i64).map(|n| n * 7)));
            let batch = events(next + 1).with_rows(vec![rows(&at, vec![("l", list), ("id", ids)])]);
            let UnnestedBatch { batch: apart, counts, .. } = unnest(&batch, &path("l")).unwrap();

            let list_of = |event: u32| at.iter().position(|found| *found == event).map(|row| (row, &lists[row]));
            let mut wanted = Vec::new();
            for event in 0..next + 1 {
                match list_of(event) {
                    None => wanted.push((event, None)),
                    Some((row, list)) => wanted.extend(
                        list.iter().flatten().map(|v| (event, Some((*v, row as i64 * 7))))),
                }
            }
            prop_assert_eq!(counts.iter().sum::<u32>() as usize, wanted.len());
            let mut found: Vec<_> = apart.sequences().iter().map(|n| (*n as u32, None)).collect();
            for ours in apart.rows() {
                let values = ours.columns.column(0).as_primitive::<Int32Type>();
                let ids = longs(ours, "id");
                for (row, event) in ours.events.iter().enumerate() {
                    let value = values.is_valid(row).then(|| values.value(row));
                    found[*event as usize].1 = Some((value, ids[row]));
                }
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
