//! The parts of messages that are written: unnested lists and selected fields. Knows nothing about
//! tables.

use std::sync::Arc;

use sluice_kit::selection::{FieldList, FieldPresence};
use sluice_kit::unnest::{UnnestPiece, row_counts, unnest, unnested_type};
use sluice_model::{Batch, Error, FieldPath, MessageType, Rows, array_bytes};

/// The projection of messages onto columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableProjection {
    /// The list to unnest.
    pub(crate) unnest: Option<FieldPath>,
    /// The fields to write as columns.
    pub(crate) fields: Option<FieldList>,
}

/// The fields and lists of the projection that occurred in some event.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectionMatches {
    fields: Option<FieldPresence>,
    has_lists: bool,
    has_events: bool,
}

impl ProjectionMatches {
    pub(crate) fn add(&mut self, other: Self) {
        self.has_lists |= other.has_lists;
        self.has_events |= other.has_events;
        match (&mut self.fields, other.fields) {
            (Some(ours), Some(theirs)) => ours.add(&theirs),
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
    }
}

impl TableProjection {
    /// Selects fields before events are partitioned. Fields of unnested lists are selected later.
    pub(crate) fn select_fields(
        &self,
        batch: Batch,
        matches: &mut ProjectionMatches,
    ) -> Result<Batch, Error> {
        matches.has_events |= !batch.is_empty();
        let Some(fields) = &self.fields else { return Ok(batch) };
        let presence = matches.fields.get_or_insert_with(|| fields.none_found());
        if self.unnest.is_none() {
            return select(fields, batch, presence);
        }
        for rows in batch.rows() {
            fields.resolve(&self.unnested_columns(rows)?, presence);
        }
        Ok(batch)
    }

    /// The events of one type that have list elements, and their new type if the list is unnested.
    pub(crate) fn drop_empty_lists(
        &self,
        part: Batch,
        matches: &mut ProjectionMatches,
    ) -> Result<(Batch, Option<MessageType>), Error> {
        let Some(path) = &self.unnest else { return Ok((part, None)) };
        let Some(counts) = row_counts(&part, path)? else { return Ok((part, None)) };
        matches.has_lists = true;
        let message = part.rows().first().map(|rows| unnested_type(&rows.message, path));
        Ok((part.retain(|event| counts[event] > 0), message))
    }

    /// The number of rows per event; `None` if that is always one.
    pub(crate) fn row_counts(&self, batch: &Batch) -> Result<Option<Vec<u32>>, Error> {
        self.unnest.as_ref().map_or(Ok(None), |path| row_counts(batch, path))
    }

    /// The rows to write: one row per list element.
    pub(crate) fn rows(&self, piece: &UnnestPiece) -> Result<Batch, Error> {
        let Some(path) = &self.unnest else { return Ok(piece.batch().clone()) };
        let unnested = piece.unnest(path)?.batch;
        match &self.fields {
            Some(fields) => select(fields, unnested, &mut fields.none_found()),
            None => Ok(unnested),
        }
    }

    /// The approximate bytes of the unnested list in these rows.
    pub(crate) fn list_bytes(&self, rows: &Rows) -> usize {
        let list = self.unnest.as_ref().and_then(|path| path.resolve(&rows.columns));
        list.map_or(0, |list| array_bytes(&list))
    }

    /// Notes about fields and lists that no event has.
    pub(crate) fn notes(&self, matches: &ProjectionMatches) -> Vec<(String, u64)> {
        if !matches.has_events {
            return Vec::new();
        }
        let mut notes = match (&self.fields, &matches.fields) {
            (Some(fields), Some(presence)) => fields.notes(presence),
            _ => Vec::new(),
        };
        let list = self.unnest.as_ref().filter(|_| !matches.has_lists);
        notes.extend(list.map(|path| (format!("no event has a list `{path}`"), 0)));
        notes
    }

    /// The columns of these rows after unnesting, without rows.
    fn unnested_columns(&self, rows: &Rows) -> Result<Rows, Error> {
        let empty = Rows { events: Vec::new(), columns: rows.columns.slice(0, 0), ..rows.clone() };
        let Some(path) = &self.unnest else { return Ok(empty) };
        let unnested = unnest(&Batch::default().with_rows(vec![empty.clone()]), path)?.batch;
        Ok(unnested.rows().first().cloned().unwrap_or(empty))
    }
}

/// Selects fields. The messages can no longer be encoded.
fn select(fields: &FieldList, batch: Batch, presence: &mut FieldPresence) -> Result<Batch, Error> {
    let batch = fields.select(batch, presence)?;
    let untold = |rows: &Rows| {
        let message = MessageType::part(Arc::clone(&rows.message.name), rows.message.key);
        Rows { message: Arc::new(message), ..rows.clone() }
    };
    let rows = batch.rows().iter().map(untold).collect();
    Ok(batch.with_rows(rows))
}
