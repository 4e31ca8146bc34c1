//! What of messages goes into tables: lists that are taken apart, and fields that are chosen. Knows no table.

use std::sync::Arc;

use arrow_array::Array;
use sluice_core::selection::{FieldList, FieldPresence};
use sluice_core::unnest::{UnnestPiece, row_counts, unnest, unnested_type};
use sluice_core::{Batch, Error, FieldPath, MessageType, Rows};

/// What is done to messages before their columns are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taking {
    /// The list that is taken apart.
    pub(crate) unnest: Option<FieldPath>,
    /// The fields that are columns.
    pub(crate) fields: Option<FieldList>,
}

/// Which of the wanted fields and lists some event had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    fields: Option<FieldPresence>,
    has_lists: bool,
    has_events: bool,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.has_lists |= other.has_lists;
        self.has_events |= other.has_events;
        match (&mut self.fields, other.fields) {
            (Some(ours), Some(theirs)) => ours.add(&theirs),
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
    }
}

impl Taking {
    /// What can be done before events are sorted. What is in lists is chosen when they are apart.
    pub(crate) fn before_sorting(&self, batch: Batch, seen: &mut Seen) -> Result<Batch, Error> {
        seen.has_events |= !batch.is_empty();
        let Some(fields) = &self.fields else { return Ok(batch) };
        let found = seen.fields.get_or_insert_with(|| fields.none_found());
        if self.unnest.is_none() {
            return chosen(fields, batch, found);
        }
        for rows in batch.rows() {
            fields.resolve(&self.apart_without_rows(rows)?, found);
        }
        Ok(batch)
    }

    /// A part of a batch whose events have one type, without those of no element; and that type, if it is
    /// another one when its lists are taken apart.
    pub(crate) fn with_elements(
        &self,
        part: Batch,
        seen: &mut Seen,
    ) -> Result<(Batch, Option<MessageType>), Error> {
        let Some(path) = &self.unnest else { return Ok((part, None)) };
        let Some(counts) = row_counts(&part, path)? else { return Ok((part, None)) };
        seen.has_lists = true;
        let message = part.rows().first().map(|rows| unnested_type(&rows.message, path));
        Ok((part.retain(|event| counts[event] > 0), message))
    }

    /// How many rows each event becomes; nothing if that is one.
    pub(crate) fn row_counts(&self, batch: &Batch) -> Result<Option<Vec<u32>>, Error> {
        self.unnest.as_ref().map_or(Ok(None), |path| row_counts(batch, path))
    }

    /// The rows that are written: each element of a list for itself.
    pub(crate) fn rows(&self, piece: &UnnestPiece) -> Result<Batch, Error> {
        let Some(path) = &self.unnest else { return Ok(piece.batch().clone()) };
        let apart = piece.unnest(path)?.batch;
        match &self.fields {
            Some(fields) => chosen(fields, apart, &mut fields.none_found()),
            None => Ok(apart),
        }
    }

    /// About how many bytes the list that is taken apart takes in these rows.
    pub(crate) fn list_bytes(&self, rows: &Rows) -> usize {
        let list = self.unnest.as_ref().and_then(|path| path.resolve(&rows.columns));
        list.map_or(0, |list| list.get_array_memory_size())
    }

    /// What is said of fields and lists that no event had.
    pub(crate) fn notes(&self, seen: &Seen) -> Vec<(String, u64)> {
        if !seen.has_events {
            return Vec::new();
        }
        let mut notes = match (&self.fields, &seen.fields) {
            (Some(fields), Some(found)) => fields.notes(found),
            _ => Vec::new(),
        };
        let list = self.unnest.as_ref().filter(|_| !seen.has_lists);
        notes.extend(list.map(|path| (format!("no event has a list `{path}`"), 0)));
        notes
    }

    /// The columns of these rows when their lists are taken apart, with nothing in them.
    fn apart_without_rows(&self, rows: &Rows) -> Result<Rows, Error> {
        let empty = Rows { events: Vec::new(), columns: rows.columns.slice(0, 0), ..rows.clone() };
        let Some(path) = &self.unnest else { return Ok(empty) };
        let apart = unnest(&Batch::default().with_rows(vec![empty.clone()]), path)?.batch;
        Ok(apart.rows().first().cloned().unwrap_or(empty))
    }
}

/// The same events with some of their fields: not enough to make messages of again.
fn chosen(fields: &FieldList, batch: Batch, found: &mut FieldPresence) -> Result<Batch, Error> {
    let batch = fields.select(batch, found)?;
    let untold = |rows: &Rows| {
        let message = MessageType::part(Arc::clone(&rows.message.name), rows.message.key);
        Rows { message: Arc::new(message), ..rows.clone() }
    };
    let rows = batch.rows().iter().map(untold).collect();
    Ok(batch.with_rows(rows))
}
